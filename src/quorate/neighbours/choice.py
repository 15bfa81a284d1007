"""Which radius and how much noise: from public points and public numbers alone, and what to expect of them.

Public points stand in for records and for queries. How often a record would vote, and how many votes a query would get,
follows from their distances; what the noise does to them is computed, not drawn. Where public points have labels, the
radius is the one that would answer the most of them correctly. Where they have none, it is the smallest one at which
noise does hardly more harm than at any other: a small radius keeps the neighbours alike.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from quorate.arrays import Floats, Integers
from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.neighbours.kernel import Kernel, Shape, squares_of
from quorate.neighbours.points import Metric, Points, Space
from quorate.neighbours.terms import Terms

__all__ = ["NeighbourPlan", "plan_neighbours"]

_MOST_RECORDS, _MOST_QUERIES = 4000, 1000  # public points that stand for either
_SHARES = tuple(2.0**-power for power in range(1, 13))  # of all records, that lie within a radius
_WEAR = (0.5, 1.0, 1.5, 2.0, 3.0)  # votes that a unit can pay for, in multiples of what a typical one would cast
_MARGIN = 0.5  # of all votes: by how much the right class leads, where no labels say
_HARM = 0.01  # more queries that noise may spoil, for a smaller radius
_MOMENTS = (0.125, 0.375, 0.625, 0.875)  # of the planned queries, at which answers are judged
_LATER = (0.5, 1.0, 2.0, 4.0)  # when to say how far units are worn, in multiples of the planned queries


@dataclass(frozen=True)
class NeighbourPlan:
    """A radius, how many votes of full weight a unit may cast, and what to expect after so many queries.

    `forecast` has lines of queries answered, the share of records worn out by then, and the share of answers right
    (None where public points have no labels).
    """

    epsilon: float
    delta: float
    records: int
    queries: int
    radius: float
    votes: float
    top: int
    kernel: Shape
    metric: Metric
    right: float | None
    spoilt: float
    forecast: tuple[tuple[int, float, float | None], ...]

    @property
    def feasible(self) -> bool:
        """Whether the noise is expected to spoil fewer than half of the answers."""
        return self.spoilt < 0.5

    @property
    def nearest(self) -> tuple[Any, ...]:
        """Changes of one number that would make the plan feasible: none is searched for."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Return the settings of the classifier that follows the plan."""
        names = ("epsilon", "delta", "queries", "records", "radius", "votes", "kernel", "metric")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "NeighbourPlan":
        """Return the plan that a document describes."""
        return cls(**document | {"forecast": tuple(tuple(line) for line in document["forecast"])})

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold."""
        return asdict(self) | {"forecast": [list(line) for line in self.forecast]}

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        worn = self.forecast[1][1]
        text = (
            f"radius {self.radius:.3g} ({self.metric}, {self.kernel} kernel): a unit may cast {self.votes:.3g} votes "
            f"of full weight. After {self.queries:,} queries about {worn:.0%} of the records are worn out, and noise "
            f"spoils about {self.spoilt:.1%} of the answers"
        )
        return text if self.right is None else f"{text}; about {self.right:.1%} are right"


def plan_neighbours(
    public: Any,
    labels: Any = None,
    *,
    records: int,
    queries: int,
    epsilon: float,
    delta: float,
    metric: Metric = "cosine",
    kernel: Shape = "linear",
    radius: float | None = None,
    votes: float | None = None,
    classes: int | None = None,
    top: int = 32,
) -> NeighbourPlan:
    """Return radius and votes for so many records and queries, by public rows and, where they have some, their labels.

    No private record is read: `records` is a number that is public, or made up. A `radius` or a number of `votes` that
    is given stays as it is.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) + np.repeat([[4.0], [-4.0]], 200, axis=0)
    >>> known = np.repeat([0, 1], 200)
    >>> plan = plan_neighbours(rows, known, records=20_000, queries=1000, epsilon=1.0, delta=1e-6)
    >>> plan.feasible, plan.right > 0.99
    (True, True)
    """
    check_count("records", records)
    check_count("queries", queries)
    rows = np.asarray(public, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 10:
        raise InvalidInput("a plan looks at at least 10 public rows; pass more, or set radius= and votes=")
    space = Space.of_public(metric, rows, features=rows.shape[1])
    chosen = _spread(len(rows), _MOST_RECORDS)
    scene = _Scene(
        space.points(rows[chosen]),
        None if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1][chosen],
        classes=classes or (2 if labels is None else len(np.unique(np.asarray(labels)))),
        records=records,
        queries=queries,
    )
    kernels = {
        reach: Kernel.within(reach, space, shape=kernel, top=top)
        for reach in (scene.radii(space) if radius is None else [radius])
    }
    tried = [
        (reach, number, look)
        for reach, within in kernels.items()
        for number, look in scene.looks(within, votes, epsilon=epsilon, delta=delta)
    ]
    reach, number, look = _best(tried)
    return NeighbourPlan(
        epsilon=epsilon,
        delta=delta,
        records=records,
        queries=queries,
        radius=reach,
        votes=number,
        top=top,
        kernel=kernel,
        metric=metric,
        right=look.right,
        spoilt=look.spoilt,
        forecast=scene.forecast(kernels[reach], number, epsilon=epsilon, delta=delta),
    )


@dataclass(frozen=True)
class _Look:
    """What is expected of the answers: the share that is right, and the share that noise spoils."""

    right: float | None
    spoilt: float


def _best(tried: Sequence[tuple[float, float, _Look]]) -> tuple[float, float, _Look]:
    """Return the radius and votes that answer the most correctly, or the smallest radius that noise hardly harms."""
    if tried[0][2].right is not None:
        return max(tried, key=lambda one: one[2].right or 0.0)
    least = min(look.spoilt for _, _, look in tried)
    harmless = [one for one in tried if one[2].spoilt <= least + _HARM]
    smallest = min(one[0] for one in harmless)
    return min((one for one in harmless if one[0] == smallest), key=lambda one: one[2].spoilt)


def _spread(rows: int, most: int) -> Integers:
    """Return at most so many rows, spread evenly over all."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.int64))


class _Scene:
    """Public points, each of which stands for a share of the records and of the queries."""

    def __init__(self, points: Points, codes: Integers | None, *, classes: int, records: int, queries: int) -> None:
        asked = _spread(len(points), _MOST_QUERIES)
        self._codes, self._classes, self._queries = codes, classes, queries
        self._truth = None if codes is None else codes[asked, np.newaxis]
        self._each = records / len(points)
        squares = squares_of(points)
        self._apart: NDArray[np.float32] = squares[asked, np.newaxis] + squares - 2 * (points[asked] @ points.T)
        self._apart[np.arange(len(asked)), asked] = np.inf  # no point is its own neighbour

    def radii(self, space: Space) -> list[float]:
        """Return radii within which a record in two, in four and so on would be, on average, the smallest last."""
        apart = np.sqrt(self._apart[np.isfinite(self._apart)])
        return [float(reach) for reach in np.quantile(apart, _SHARES) / space.unit if reach > 0]

    def looks(self, kernel: Kernel, votes: float | None, **guarantee: float) -> Iterator[tuple[float, _Look]]:
        """Yield numbers of votes, and what is then expected of all planned queries, on average while records wear out.

        Those that are tried are multiples of what a typical record would cast, in votes of full weight.
        """
        weights = self._weights(kernel)
        spent = self._spent(weights)
        typical = float(np.mean(spent)) / kernel.top**2
        for number in [max(1.0, factor * typical) for factor in _WEAR] if votes is None else [votes]:
            terms = Terms.calibrate(**guarantee, votes=number, top=kernel.top, classes=self._classes)
            yield number, self._over_time(weights, spent, terms)

    def _over_time(self, weights: NDArray[np.float32], spent: Floats, terms: Terms) -> _Look:
        """Return what is expected of all planned queries: late ones meet fewer records than a typical one does."""
        alive = [(moment * spent <= terms.capacity).astype(np.float64) for moment in _MOMENTS]
        looks = [self._judged(weights, one, terms) for one in alive]
        right = None if self._codes is None else float(np.mean([look.right or 0.0 for look in looks]))
        return _Look(right, float(np.mean([look.spoilt for look in looks])))

    def forecast(self, kernel: Kernel, votes: float, **guarantee: float) -> tuple[tuple[int, float, float | None], ...]:
        """Return lines of queries answered, the share of records worn out by then, and the share right at that time."""
        weights, lines = self._weights(kernel), []
        terms = Terms.calibrate(**guarantee, votes=votes, top=kernel.top, classes=self._classes)
        spent = self._spent(weights)
        for factor in _LATER:
            alive = (factor * spent <= terms.capacity).astype(np.float64)
            look = self._judged(weights, alive, terms)
            lines.append((math.ceil(factor * self._queries), float(1 - alive.mean()), look.right))
        return tuple(lines)

    def _weights(self, kernel: Kernel) -> NDArray[np.float32]:
        return kernel.weigh(np.float32(kernel.squared_radius) - self._apart)

    def _spent(self, weights: NDArray[np.float32]) -> Floats:
        """Return what a record in the place of each point would spend on the planned queries."""
        return np.asarray(self._queries * np.einsum("ij,ij->j", weights, weights) / len(weights), dtype=np.float64)

    def _judged(self, weights: NDArray[np.float32], alive: Floats, terms: Terms) -> _Look:
        each, noise = (alive * self._each).astype(np.float32), terms.scale * math.sqrt(min(2, self._classes - 1))
        total = weights @ each
        spoilt = np.minimum(1.0, (self._classes - 1) * ndtr(-_MARGIN * total / noise))
        if self._codes is None or self._truth is None:
            return _Look(None, float(spoilt.mean()))
        counts = weights @ (np.eye(self._classes, dtype=np.float32)[self._codes] * each[:, np.newaxis])
        own = np.take_along_axis(counts, self._truth, axis=1)
        lost = ndtr((counts - own) / noise)
        np.put_along_axis(lost, self._truth, 0.0, axis=1)
        return _Look(float(np.mean(np.maximum(0.0, 1 - lost.sum(axis=1)))), float(spoilt.mean()))
