"""What a GPU makes of fitting and counting. Without one, the figures are absent.

Kernels are timed with their data on the GPU; beside them stands what a caller waits for, from arrays in memory on. The
data are generated. `quorate bench scale` has these figures among its own.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from quorate.bench.figures import Figure
from quorate.compute.learners.backends import choose_backend
from quorate.compute.learners.batched import BatchedLogistic
from quorate.compute.learners.deal import Deal
from quorate.compute.learners.gpu import TwoClassChunks, fit_on_gpu, on_gpus
from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import Matrix
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput

__all__ = ["gpu_figures"]

_ROWS, _FEATURES = 50, 20
_NAMES = {  # and their units
    "scale.gpu.fit.teachers_per_second": "1/s",
    "scale.gpu.fit.teachers_per_second_from_memory": "1/s",
    "scale.gpu.fit.ballots_equal_to_scikit_learn": "share",
    "scale.gpu.fit.largest_difference_of_scores": "score",
    "scale.gpu.count.ballots_per_second": "1/s",
    "scale.gpu.count.ballots_per_second_from_memory": "1/s",
    "scale.gpu.count.ballots_per_second.ten_classes": "1/s",
    "scale.gpu.count.scores_per_second.ten_classes": "1/s",
    "scale.gpu.predict.seconds_over_kernel": "ratio",
}


def gpu_figures(quick: bool) -> Iterator[Figure]:
    """Measure 100,000 teachers and 10^6 queries on a GPU, or with `quick` a tenth of both."""
    try:
        there = choose_backend("cuda").fused
    except InvalidInput:
        there = False
    values = _measured(10_000 if quick else 100_000, 100_000 if quick else 10**6) if there else iter([None] * 9)
    for (name, unit), value in zip(_NAMES.items(), values, strict=True):
        yield name, value, unit


def _measured(teachers: int, queries: int) -> Iterator[float]:
    random = np.random.default_rng(0)
    X, slope = random.normal(size=(teachers * _ROWS, _FEATURES)), random.normal(size=_FEATURES)
    y = (random.random(len(X)) < 1 / (1 + np.exp(-X @ slope))).astype(np.int64)
    y[::_ROWS], y[1::_ROWS] = 0, 1  # scikit-learn needs both classes in every chunk
    yield from _fitting(X, y, teachers)
    asked = random.normal(size=(queries, _FEATURES))
    two = LinearTeachers(random.normal(size=(teachers, 1, _FEATURES + 1)), classes=2)
    kernel = _kernel_seconds(two, asked)
    yield teachers * queries / kernel
    yield teachers * queries / _seconds(lambda: two.votes(asked, device="cuda"))
    few = asked[: queries // 10]
    ten = LinearTeachers(random.normal(size=(teachers, 10, _FEATURES + 1)), classes=10)
    rate = teachers * len(few) / _kernel_seconds(ten, few)
    yield rate
    yield 10 * rate
    clear = asked + 2 * np.sign(asked @ slope)[:, np.newaxis] * slope  # a run ends at its last no-quorum
    yield _predict_seconds(X, y, teachers, clear) / kernel


def _fitting(X: Matrix, y: Integers, teachers: int) -> Iterator[float]:
    import torch
    from sklearn.linear_model import LogisticRegression

    order, sizes = np.arange(len(X)), np.full(teachers, _ROWS)
    features, labels, rows = (torch.from_numpy(part).to("cuda") for part in (X, y, order))
    upper, weights = np.ones(teachers, dtype=np.int64), np.ones((teachers, 2))
    chunks = TwoClassChunks(features, labels, rows, order[::_ROWS], sizes, upper, weights)
    yield teachers / _seconds(lambda: fit_on_gpu(chunks, intercept=True))
    deal = Deal(order, sizes)
    yield teachers / _seconds(lambda: BatchedLogistic().fit(X, y, deal, classes=2, device="cuda"))
    fitted = fit_on_gpu(chunks, intercept=True)[:300]
    parts = [slice(start, start + _ROWS) for start in range(0, 300 * _ROWS, _ROWS)]
    models = [LogisticRegression(tol=1e-10, max_iter=10_000).fit(X[part], y[part]) for part in parts]
    asked = np.random.default_rng(1).normal(size=(1000, _FEATURES))
    expected = np.stack([model.decision_function(asked) for model in models], axis=1)
    scores = asked @ fitted[:, :-1].T + fitted[:, -1]
    yield float(((scores > 0) == (expected > 0)).mean())
    yield float(np.abs(scores - expected).max())


def _kernel_seconds(teachers: LinearTeachers, queries: Matrix) -> float:
    """Return how long counting takes with the queries on the GPU, rounded already."""
    placed = on_gpus(teachers)
    sent = placed.send(queries)
    return _seconds(lambda: placed.count(sent, len(queries)))


def _predict_seconds(X: Matrix, y: Integers, teachers: int, queries: Matrix) -> float:
    """Return how long `PrivateClassifier.predict` takes: its ballots, noise, budget, and memory of answers.

    It is the least time of three batches, which differ: what was asked before is only looked up.
    """
    from quorate.models.predictors import PrivateClassifier

    settings: dict[str, Any] = {"teachers": teachers, "queries": 4 * len(queries), "no_quorums": 1000}
    settings |= {"aggregator": "quorum", "disagreement": 1e-4, "classes": [0, 1], "device": "cuda"}
    classifier = PrivateClassifier(epsilon=4.0, **settings)
    classifier.fit(X, y, one_scale=True).predict(1.1 * queries[:9000])  # which compiles the kernel
    times = []
    for scale in (1.0, 1.01, 1.02):
        fresh = scale * queries
        start = time.perf_counter()
        answers = classifier.predict(fresh)
        times.append(time.perf_counter() - start)
        assert answers.answered.mean() > 0.99
    return min(times)


def _seconds(work: Callable[[], Any]) -> float:
    """Return the least time of three runs, after one that compiles."""
    import torch

    times = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])
