"""Everlasting prediction played through phases, and what came of it: shares, drift, seconds.

Points of the line are uniform on the unit interval, and the boundary is at its middle; drift is measured in mass.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.models.concepts import Thresholds
from quorate.models.everlasting import EverlastingClassifier
from quorate.models.everlasting.directions import MeanDirection

__all__ = [
    "Course",
    "halfspace_course",
    "line_course",
    "line_drift",
    "line_points",
    "line_truth",
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
        """Queries without a quorum, in percent of those that were not refused."""
        return 100 * self.no_quorum / max(1, self.queries - self.refused)

    @property
    def error_percent(self) -> float:
        """Wrong answers, in percent of all answers."""
        return 100 * self.wrong / max(1, self.queries - self.refused - self.no_quorum)


def run_phases(
    classifier: EverlastingClassifier,
    draw: Callable[[int], tuple[Any, Any]],
    *,
    records: int,
    phases: int,
    drift: Callable[[EverlastingClassifier], float] = lambda _: 0.0,
) -> Course:
    """Fit on fresh records and ask through several phases, in batches; `draw` gives points with their labels."""
    start = time.perf_counter()
    arrivals = classifier.fit(*draw(records)).session_.answerer
    counts, largest = np.zeros(4, dtype=np.int64), 0.0
    for _ in range(phases):
        left = arrivals.seats.left or arrivals.next_size()
        while left:
            X, truth = draw(min(_BATCH, left))
            left -= len(X)
            predictions = classifier.predict(X)
            answered = predictions.answered
            wrong = int(np.count_nonzero(predictions.labels[answered].astype(np.int64) != truth[answered]))
            counts += len(X), int(predictions.no_quorum.sum()), predictions.refused, wrong
        largest = max(largest, drift(classifier))
    queries, no_quorum, refused, wrong = counts.tolist()
    return Course(queries, no_quorum, refused, wrong, drift=largest, seconds=time.perf_counter() - start)


def line_points(rows: int) -> Any:
    """Return uniform points of the unit interval."""
    return np.random.default_rng().random((rows, 1))


def line_truth(X: Any) -> Any:
    """Return which points lie in the upper half."""
    return (X[:, 0] >= 0.5).astype(np.int64)


def line_drift(classifier: EverlastingClassifier) -> float:
    """Return how far the boundary of the majority lies from the middle: the owner's look at his own teachers."""
    probes = np.linspace(0.3, 0.7, _PROBES)[:, np.newaxis]
    ahead = classifier.session_.answerer.ensemble.count(probes).put_to(lambda votes: votes[:, 1] > votes[:, 0])
    return abs(0.7 - 0.4 * float(ahead.mean()) - 0.5)


def line_course(*, records: int, phases: int, **settings: Any) -> Course:
    """Play phases of thresholds on the unit interval; each has as many queries as records, unless they grow."""

    def draw(rows: int) -> tuple[Any, Any]:
        X = line_points(rows)
        return X, line_truth(X)

    chosen: dict[str, Any] = {"delta": 1e-6, "chunk": 3, "classes": [0, 1]} | settings
    classifier = EverlastingClassifier(Thresholds(both_directions=False), **chosen)
    return run_phases(classifier, draw, records=records, phases=phases, drift=line_drift)


def halfspace_course(estimator: Any = None, *, dimensions: int, records: int, phases: int, **settings: Any) -> Course:
    """Play phases of a halfspace through the origin among Gaussian points, at epsilon 2; one-row directions teach."""
    slope = np.ones(dimensions)

    def draw(rows: int) -> tuple[Any, Any]:
        X = np.random.default_rng().normal(size=(rows, dimensions))
        return X, (X @ slope >= 0).astype(np.int64)

    chosen: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "chunk": 1, "classes": [0, 1]} | settings
    classifier = EverlastingClassifier(MeanDirection() if estimator is None else estimator, **chosen)
    return run_phases(classifier, draw, records=records, phases=phases)
