"""What private logistic regression reaches on UCI Adult, Bank Marketing and MNIST: medians over splits (`splits.py`).

Columns are automatic and include all of the table. The public rows of one sex, or of people over 45, are those of the
public half; where nothing is public, bounds and categories are declared, and so they are where the public rows are
wrong: those of another table under the names of this one, numbers that are shifted, columns that are exchanged, or
columns that are drawn independently of each other. A quick run takes one split and fewer figures.

Texts in which few words matter: a generated table of 47,000 sparse columns, and what a private model makes of it.

Words are as frequent as Zipf says, and two in five belong to one of 30 topics; the label depends on the topics. Public
texts have no labels.

Private classifiers of other libraries on the splits of the linear models, and by how much ours rank better.

They run as `peer_models.py`, by the Python that $QUORATE_PEERS names, where it has them. At one epsilon, ours protects
more: a row that is replaced, where DP-EBM and DP-SGD protect one that is added or removed (a replacement is one of
each). diffprivlib protects replacement, with delta 0. What tuning a peer would cost is not counted against it.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import TABLES, Split, digit_splits, split_of
from benchmarks.figures import Figure, peak_bytes
from benchmarks.peers import run_program

Run = tuple[float, float, float]  # the AUC, the accuracy and the balanced accuracy

_DELTA = 1e-5
_SPLITS = 5
_EPSILONS = {"adult": (4.0, 1.0, 0.25, 0.05), "bank": (4.0, 1.0, 0.25)}
_NOTHING_PUBLIC = (4.0, 1.0, 0.25)
_DIGIT_EPSILON = 0.3
_DIGIT_RIDGE = 0.01  # compared with 0.1 on training images that were left out
_PARTS: dict[str, Callable[[Any], Any]] = {
    "women": lambda table: table[table["sex"] == "Female"],
    "men": lambda table: table[table["sex"] == "Male"],
    "over_45": lambda table: table[table["age"] > 45],
}
_WRONG_EPSILONS = (1.0, 0.25)
_WRONG_SPLITS = 3


def _as_it_is(public: Any) -> Any:
    return public


def _is_number(column: Any) -> bool:
    return column.dtype.kind in "fiub"


def _of_the_bank(public: Any) -> Any:
    """Return rows of Bank in the columns of Adult: numbers in those of numbers, texts in those of texts."""
    bank = split_of("bank", 0)
    assert bank is not None
    rows = bank.public[: len(public)]
    numbers, texts = cycle(bank.bounds), cycle(bank.categories)
    columns = {name: rows[next(numbers if _is_number(public[name]) else texts)] for name in public}
    return type(public)(columns)


def _exchanged(public: Any) -> Any:
    """Return rows whose columns have moved on by one, numbers among numbers and texts among texts."""
    numbers = [name for name in public if _is_number(public[name])]
    texts = [name for name in public if name not in numbers]
    moved = {old: new for names in (numbers, texts) for old, new in zip(names, names[1:] + names[:1], strict=True)}
    return public.rename(columns=moved)[list(public)]


def _shifted(public: Any) -> Any:
    """Return rows whose numbers are three times as large and more."""
    numbers = [name for name in public if _is_number(public[name])]
    return public.assign(**{name: 3 * public[name] + public[name].std() for name in numbers})


def _independent(public: Any) -> Any:
    """Return rows whose columns are drawn independently of each other: every mean is right."""
    generator = np.random.default_rng(0)
    return public.assign(**{name: generator.permutation(public[name].to_numpy()) for name in public})


_WRONG: dict[str, Callable[[Any], Any]] = {
    "bank": _of_the_bank,
    "exchanged": _exchanged,
    "shifted": _shifted,
    "independent": _independent,
}


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures: None where there is no data."""
    runs_by_name: dict[str, list[Run]] = {}
    ours: dict[str, float | None] = {}
    for name, runs in _linear_runs(quick):
        runs_by_name[name] = runs
        for measure, value, unit in _medians(runs):
            ours[f"{name}.{measure}"] = value
            yield f"{name}.{measure}", value, unit
        road = next((f"wrong_{wrong}" for wrong in _WRONG if f".wrong_{wrong}." in name), None)
        if road is not None:  # what is lost against no public rows, split by split
            pairs = zip(runs_by_name[name.replace(road, "nothing_public")], runs, strict=False)
            lost = [tuple(np.subtract(without, run)) for without, run in pairs]
            yield from ((f"{name}.{measure}_lost", value, unit) for measure, value, unit in _medians(lost)[:2])
    yield from _digit_figures(quick)
    yield from model_peer_figures(ours, quick)
    yield from _size_figures(quick)
    yield from text_figures(quick)


def _linear_runs(quick: bool) -> Iterator[tuple[str, list[Run]]]:
    """Yield the name of each road and its runs, one a split."""
    splits = 1 if quick else _SPLITS
    for table, epsilons in _EPSILONS.items():
        for epsilon in epsilons:
            yield f"linear.{table}.epsilon{epsilon:g}", _runs(table, epsilon, _as_it_is, splits)
        for epsilon in _NOTHING_PUBLIC:
            yield f"linear.{table}.nothing_public.epsilon{epsilon:g}", _runs(table, epsilon, None, splits)
    for part, chosen in _PARTS.items():
        yield f"linear.adult.public_{part}.epsilon1", _runs("adult", 1.0, chosen, splits)
    for epsilon in _WRONG_EPSILONS:
        for wrong, changed in _WRONG.items():
            runs = _runs("adult", epsilon, changed, min(splits, _WRONG_SPLITS), declared=True)
            yield f"linear.adult.wrong_{wrong}.epsilon{epsilon:g}", runs


def _runs(
    table: str, epsilon: float, public: Callable[[Any], Any] | None, splits: int, *, declared: bool = False
) -> list[Run]:
    """Return a run for each split. `public` says which rows of the public half are public; None if there are none."""
    dealt = [split for seed in range(splits) if (split := split_of(table, seed)) is not None]
    return [_run(split, epsilon, public, declared=declared or public is None) for split in dealt]


def _medians(runs: Sequence[Sequence[float]]) -> list[Figure]:
    measures = (("auc", ""), ("accuracy_percent", "%"), ("balanced_percent", "%"))
    return [
        (measure, median(run[index] for run in runs) if runs else None, unit)
        for index, (measure, unit) in enumerate(measures)
    ]


def _run(split: Split, epsilon: float, public: Callable[[Any], Any] | None, *, declared: bool) -> Run:
    """Return the AUC, the accuracy, and the balanced accuracy where a class counts for its share."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    from quorate.models.linear import PrivateLogisticRegression
    from quorate.tables.features import AdditiveColumns

    columns = AdditiveColumns(declared=split.declared()) if declared else None
    model = PrivateLogisticRegression(epsilon=epsilon, delta=_DELTA, classes=[False, True], columns=columns)
    model.fit(split.private, split.labels, public=None if public is None else public(split.public))
    score = model.decision_function(split.judges)
    prior = model.predict_proba(split.public)[:, 1].mean()  # released, so that the threshold is free
    balanced = balanced_accuracy_score(split.truth, score > np.log(prior / (1 - prior)))
    right = float(np.mean((score > 0) == split.truth))
    return float(roc_auc_score(split.truth, score)), 100 * right, 100 * float(balanced)


def _digit_figures(quick: bool) -> Iterator[Figure]:
    """Yield how many digits are told right by the model as it comes, and by one that it teaches.

    The other one is a logistic regression of all classes together on public images, as the model labels them: what is
    published may label whatever is public, for nothing more.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from quorate.models.linear import PrivateLogisticRegression

    reached, taught = [], []
    for split in digit_splits(quick):
        model = PrivateLogisticRegression(epsilon=_DIGIT_EPSILON, delta=_DELTA, classes=list(range(10)))
        model.fit(split.private, split.labels, public=split.public)
        reached.append(100 * float(model.score(split.judges, split.truth)))
        student = make_pipeline(StandardScaler(), LogisticRegression(C=_DIGIT_RIDGE, max_iter=1000))
        student.fit(split.public, model.predict(split.public))
        taught.append(100 * float(student.score(split.judges, split.truth)))
    for name, values in (("accuracy_percent", reached), ("taught_percent", taught)):
        yield f"linear.mnist.epsilon{_DIGIT_EPSILON:g}.{name}", median(values) if values else None, "%"


def _size_figures(quick: bool) -> Iterator[Figure]:
    """Yield how long a million rows of 100 columns take with the default columns, and how much memory."""
    seconds, memory = (None, None) if quick else _million_rows()
    yield "linear.million_rows.seconds", seconds, "s"
    yield "linear.million_rows.peak_bytes", memory, "bytes"


def _million_rows() -> tuple[float, float]:
    from quorate.models.linear import PrivateLogisticRegression

    generator = np.random.default_rng(0)
    X = generator.normal(size=(1_000_000, 100))
    y = X[:, 0] + X[:, 1] + generator.normal(size=len(X)) > 0
    start = time.perf_counter()
    PrivateLogisticRegression(classes=[False, True]).fit(X, y, public=X[:2000] + 0.0)
    return time.perf_counter() - start, float(peak_bytes())


_WORDS, _ROWS, _PUBLIC, _JUDGES = 47_000, 8000, 2000, 3000
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


def text_figures(quick: bool) -> Iterator[Figure]:
    """Yield how long 8,000 texts of 47,000 words take at epsilon 1, how good the model is, and what privacy cost."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    from quorate.models.linear import PrivateLogisticRegression

    X, y, _ = text_table(_ROWS, 0)
    public, (judges, labels, _) = text_table(_PUBLIC, 1)[0], text_table(_JUDGES, 2)
    start = time.perf_counter()
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(X, y, public=public)
    yield "linear.text.seconds", time.perf_counter() - start, "s"
    auc = float(roc_auc_score(labels, model.decision_function(judges)))
    yield "linear.text.auc", auc, ""
    lost = None
    if not quick:
        scaled = TfidfTransformer(sublinear_tf=True).fit(X)
        open_model = LogisticRegression(max_iter=300).fit(scaled.transform(X), y)
        lost = float(roc_auc_score(labels, open_model.decision_function(scaled.transform(judges)))) - auc
    yield "linear.text.auc_lost", lost, ""


EPSILONS = (4.0, 1.0, 0.25)
_PLAIN = {"diffprivlib": "diffprivlib.models", "dp_ebm": "interpret.privacy", "dp_ebm_bounds": "interpret.privacy"}
_SGD = {"dp_sgd_logistic": "opacus", "dp_sgd_network": "opacus"}
_SPLITS = 5
_LIMIT = 420.0  # seconds for all epsilons of one peer on one split
_PEER_ROWS = {"": True, ".nothing_public": False}  # in the names of figures, and whether there are public rows


def model_peer_figures(ours: Mapping[str, float | None], quick: bool) -> Iterator[Figure]:
    """Yield what each peer reaches, and how far ours, given by the names of their figures, are above them."""
    for table in TABLES:
        for road, public in _PEER_ROWS.items():
            measured = _peer_medians(table, public, quick)
            for peer in _PLAIN | _SGD:
                for epsilon in EPSILONS:
                    values = measured.get((peer, epsilon), (None, None))
                    about = f"models.peer.{peer}.{table}{road}.epsilon{epsilon:g}"
                    yield f"{about}.auc", values[0], ""
                    yield f"{about}.accuracy_percent", values[1], "%"
            for epsilon in EPSILONS:
                about = f"linear.{table}{road}.epsilon{epsilon:g}.auc"
                for kind, peers in (("plain_peers", _PLAIN), ("dp_sgd", _SGD)):
                    theirs = [measured[peer, epsilon][0] for peer in peers if (peer, epsilon) in measured]
                    mine = ours.get(about)
                    yield f"{about}_over_{kind}", mine - max(theirs) if theirs and mine is not None else None, ""


def _peer_medians(table: str, public: bool, quick: bool) -> dict[tuple[str, float], tuple[float, float]]:
    """Return the AUC and the accuracy of the peers that are there: medians over splits."""
    from sklearn.metrics import roc_auc_score

    runs: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for seed in range(1 if quick else _SPLITS):
        split = split_of(table, seed)
        if split is None:
            return {}
        for peer in _PLAIN | _SGD:
            for epsilon, score in peer_scores(peer, split, (1.0,) if quick else EPSILONS, public=public).items():
                right = 100 * float(np.mean((score > 0) == split.truth))
                runs.setdefault((peer, epsilon), []).append((float(roc_auc_score(split.truth, score)), right))
    return {key: (median(auc for auc, _ in pairs), median(right for _, right in pairs)) for key, pairs in runs.items()}


def peer_scores(peer: str, split: Split, epsilons: tuple[float, ...], *, public: bool) -> dict[float, np.ndarray]:
    """Return a peer's scores of the judges at each epsilon; nothing where it is missing, fails or takes too long."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split.private.assign(label=split.labels.astype(int)).to_csv(folder / "private.csv", index=False)
        split.judges.to_csv(folder / "judges.csv", index=False)
        if public:
            split.public.to_csv(folder / "public.csv", index=False)
        facts = {"table": split.table, "bounds": split.bounds, "categories": split.categories}
        (folder / "facts.json").write_text(json.dumps(facts))
        program = [str(Path(__file__).with_name("peer_models.py")), name, peer, *map(str, epsilons)]
        if run_program(peer, (_PLAIN | _SGD)[peer], program, limit=_LIMIT) is None:
            return {}
        with np.load(folder / f"{peer}.npz") as scores:
            return {epsilon: scores[str(epsilon)] for epsilon in epsilons}
