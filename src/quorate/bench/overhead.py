"""What noise and accounting add to the time of a prediction."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from quorate.bench.figures import Figure

__all__ = ["overhead_figures"]

_BATCH = 1000


def _cpu(work: Callable[[Any], object], batches: list[Any]) -> float:
    """Return the CPU seconds of one query, over all batches."""
    start = time.process_time()
    for batch in batches:
        work(batch)
    return (time.process_time() - start) / sum(len(batch) for batch in batches)


def _predict(trees: list[Any], batch: Any) -> None:
    for tree in trees:
        tree.predict(batch)


def overhead_figures(quick: bool) -> Iterator[Figure]:
    """Measure 250 decision trees on two classes, in batches of 1000, with and without privacy: medians of rounds."""
    from sklearn.tree import DecisionTreeClassifier

    from quorate.models.predictors import PrivateClassifier

    rounds, size = (3, 2) if quick else (7, 10)
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40_000, 10))
    y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
    queries = rounds * size * _BATCH
    for aggregator, settings in (("quorum", {"no_quorums": queries // 4}), ("sharp_majority", {}), ("noisy_max", {})):
        classifier = PrivateClassifier(
            DecisionTreeClassifier(max_depth=8),
            epsilon=300.0,
            teachers=250,
            aggregator=aggregator,
            queries=queries,
            classes=[0, 1],
            **settings,  # type: ignore[arg-type]
        ).fit(X, y)
        teachers = classifier.session_.answerer.ensemble.fitted
        trees = [model for model, _ in teachers.fitted if model is not None]
        added, share = [], []
        for _ in range(rounds):
            batches = [generator.normal(size=(_BATCH, 10)) for _ in range(size)]
            bare = _cpu(partial(_predict, trees), batches)
            counted = _cpu(teachers.votes, batches)
            asked = _cpu(classifier.predict, batches)
            added.append(asked - counted)
            share.append(asked / bare - 1)
        yield f"overhead.{aggregator}.microseconds_a_query", 1e6 * median(added), "us"
        yield f"overhead.{aggregator}.share_of_250_trees", median(share), "ratio"
