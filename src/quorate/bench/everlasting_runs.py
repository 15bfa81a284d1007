"""Everlasting prediction played through phases, and what came of it: shares, drift, seconds.

Points of the line are uniform on the unit interval, and the boundary is at its middle; drift is measured in mass.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.checks import check_count, check_delta, check_positive
from quorate.concepts import Thresholds
from quorate.everlasting import EverlastingClassifier
from quorate.everlasting.directions import MeanDirection

__all__ = [
    "Course",
    "halfspace_course",
    "line_course",
    "line_drift",
    "line_points",
    "line_truth",
    "published_records",
    "run_phases",
]

_PROBES = 4001
_BATCH = 50_000
_TAU = 1.1e10  # the paper's tau must be above this


@dataclass(frozen=True)
class Course:
    """What came of several phases: shares over all of their queries, and the largest drift that was met."""

    queries: int
    no_quorum: int
    refused: int
    wrong: int
    drift: float
    seconds: float

    @property
    def no_quorum_percent(self) -> float:
        """Queries without a quorum, in percent of those that were not refused.

        >>> Course(queries=200, no_quorum=2, refused=100, wrong=1, drift=0.001, seconds=1.0).no_quorum_percent
        2.0
        """
        return 100 * self.no_quorum / max(1, self.queries - self.refused)

    @property
    def error_percent(self) -> float:
        """Wrong answers, in percent of all answers.

        >>> Course(queries=200, no_quorum=0, refused=0, wrong=1, drift=0.001, seconds=1.0).error_percent
        0.5
        """
        return 100 * self.wrong / max(1, self.queries - self.refused - self.no_quorum)


def run_phases(
    classifier: EverlastingClassifier,
    draw: Callable[[int], tuple[Any, Any]],
    *,
    records: int,
    phases: int,
    drift: Callable[[EverlastingClassifier], float] = lambda _: 0.0,
) -> Course:
    """Fit on fresh records and ask through several phases, in batches; `draw` gives points with their labels.

    >>> def draw(rows):
    ...     X = line_points(rows)
    ...     return X, line_truth(X)
    >>> made = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=100)
    >>> course = run_phases(made, draw, records=20_000, phases=1)
    >>> course.queries, course.error_percent < 20
    (20000, True)
    """
    start = time.perf_counter()
    arrivals = classifier.fit(*draw(records)).session_.answerer
    counts, largest = np.zeros(4, dtype=np.int64), 0.0
    for _ in range(phases):
        left = arrivals.seats.left or arrivals.next_size()
        while left:
            X, truth = draw(min(_BATCH, left))
            left -= len(X)
            made = classifier.predict(X)
            wrong = int(np.count_nonzero(made.labels[made.answered].astype(np.int64) != truth[made.answered]))
            counts += len(X), int(made.no_quorum.sum()), made.refused, wrong
        largest = max(largest, drift(classifier))
    queries, no_quorum, refused, wrong = counts.tolist()
    return Course(queries, no_quorum, refused, wrong, drift=largest, seconds=time.perf_counter() - start)


def line_points(rows: int) -> Any:
    """Return uniform points of the unit interval."""
    return np.random.default_rng().random((rows, 1))


def line_truth(X: Any) -> Any:
    """Return which points lie in the upper half.

    >>> line_truth(np.array([[0.2], [0.7]]))
    array([0, 1])
    """
    return (X[:, 0] >= 0.5).astype(np.int64)


def line_drift(classifier: EverlastingClassifier) -> float:
    """Return how far the boundary of the majority lies from the middle: the owner's look at his own teachers."""
    probes = np.linspace(0.3, 0.7, _PROBES)[:, np.newaxis]
    ahead = classifier.session_.answerer.ensemble.count(probes).put_to(lambda votes: votes[:, 1] > votes[:, 0])
    return abs(0.7 - 0.4 * float(ahead.mean()) - 0.5)


def line_course(*, records: int, phases: int, **settings: Any) -> Course:
    """Play phases of thresholds on the unit interval; as many queries in each as there are records, unless they grow.

    >>> line_course(records=10_000, phases=2, epsilon=8.0, no_quorums=100, chunk=3, delta=1e-5).error_percent < 20
    True
    """

    def draw(rows: int) -> tuple[Any, Any]:
        X = line_points(rows)
        return X, line_truth(X)

    chosen: dict[str, Any] = {"delta": 1e-6, "chunk": 3, "classes": [0, 1]} | settings
    made = EverlastingClassifier(Thresholds(), **chosen)
    return run_phases(made, draw, records=records, phases=phases, drift=line_drift)


def halfspace_course(estimator: Any = None, *, dimensions: int, records: int, phases: int, **settings: Any) -> Course:
    """Play phases of a halfspace through the origin among Gaussian points, at epsilon 2; directions of one row teach.

    >>> halfspace_course(dimensions=2, records=5000, phases=1, epsilon=16.0, no_quorums=100).error_percent < 30
    True
    """
    slope = np.ones(dimensions)

    def draw(rows: int) -> tuple[Any, Any]:
        X = np.random.default_rng().normal(size=(rows, dimensions))
        return X, (X @ slope >= 0).astype(np.int64)

    chosen: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "chunk": 1, "classes": [0, 1]} | settings
    made = EverlastingClassifier(MeanDirection() if estimator is None else estimator, **chosen)
    return run_phases(made, draw, records=records, phases=phases)


def published_records(*, vc_dimension: int, epsilon: float, delta: float, alpha: float, beta: float) -> float:
    """Return the n of GenericBBL (Naor, Nissim, Stemmer and Yan 2023, section 5), logarithms to base 2.

    For error 6 alpha with probability 1 - 4 beta, at epsilon below 1 and alpha, beta and delta below 1/16; epsilon = 1
    is taken as the limit.

    >>> f"{published_records(vc_dimension=1, epsilon=1.0, delta=1e-6, alpha=0.05, beta=0.05):.1e}"
    '3.6e+25'
    """
    epsilon, alpha, beta = (
        check_positive("epsilon", epsilon),
        check_positive("alpha", alpha),
        check_positive("beta", beta),
    )
    delta, dimension = check_delta(delta, zero=False), check_count("vc_dimension", vc_dimension)
    learning = 8 * dimension * math.log2(26 / alpha) + 4 * math.log2(4 / beta)
    chances = math.log2(1 / delta) * math.log2(8 * learning / (epsilon * alpha**2 * beta * delta)) ** 2
    return 8 * _TAU / (alpha**3 * epsilon**2) * learning**2 * chances * (3 + math.exp(epsilon + 4))
