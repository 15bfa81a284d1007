"""Texts in which few words matter: a generated table of 47,000 sparse columns, and what a private model makes of it.

Words are as frequent as Zipf says, and two in five belong to one of 30 topics; the label depends on the topics. Public
texts have no labels.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.bench.figures import Figure

__all__ = ["text_figures", "text_table"]

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
    own = 1.0 / np.arange(2, 2 + min(_OWN, words // 50))
    for law in laws:
        law[world.choice(np.arange(words // 500, words // 2), size=len(own), replace=False)] += 0.4 * own / own.sum()
    effects = 4 * world.normal(size=topics)
    mixture = generator.dirichlet(np.full(topics, 0.1), size=rows)
    p = 1 / (1 + np.exp(-mixture @ effects))
    row = np.repeat(np.arange(rows), 5 + generator.poisson(_LENGTH, rows))
    topic = (np.cumsum(mixture, axis=1)[row] < generator.random(len(row))[:, None]).sum(axis=1).clip(max=topics - 1)
    word, level = np.empty(len(row), dtype=np.int64), generator.random(len(row))
    for place, law in enumerate(np.cumsum(laws, axis=1)):
        word[topic == place] = np.searchsorted(law, level[topic == place]).clip(max=words - 1)
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
    before = time.perf_counter()
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1]).fit(X, y, public=public)
    yield "linear.text.seconds", time.perf_counter() - before, "s"
    auc = float(roc_auc_score(labels, model.decision_function(judges)))
    yield "linear.text.auc", auc, ""
    lost = None
    if not quick:
        scaled = TfidfTransformer(sublinear_tf=True).fit(X)
        known = LogisticRegression(max_iter=300).fit(scaled.transform(X), y)
        lost = float(roc_auc_score(labels, known.decision_function(scaled.transform(judges)))) - auc
    yield "linear.text.auc_lost", lost, ""
