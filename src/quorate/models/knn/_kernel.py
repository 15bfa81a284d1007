"""The weight of a record's vote: a whole number, by the squared distance between two points (PROOF.md, step 2).

Records stand in blocks of a fixed number of rows, as factors whose products with those of queries are exact distances.
A block is the same work whatever it contains: a row without a record takes part in all products, with no weight.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_choice, check_count, check_positive
from quorate.core.errors import InvalidInput
from quorate.models.linear.exact import lengths

Metric = Literal["cosine", "euclidean"]
Points = NDArray[np.float32]  # whole numbers, which 32-bit floats hold exactly

LONGEST = 1447  # of a point: its square is below 2**21, and so no sum of a distance exceeds 2**24; proof: step 2


@dataclass(frozen=True, eq=False)
class Space:
    """How rows become points: taken relative to a public centre, then scaled to one length or by a public reach.

    With the metric "cosine" all points have about the same length, so that distances are those between directions.
    With "euclidean" a row at the distance `reach` from the centre has the largest length, and rows further out are
    moved towards the centre onto that sphere.

    >>> space = Space("euclidean", np.zeros(2), reach=10.0)
    >>> space.points(np.array([[10.0, 0.0], [0.0, -5.0], [0.0, 99.0]])).tolist()
    [[1445.0, 0.0], [0.0, -722.0], [0.0, 1445.0]]
    """

    metric: Metric
    centre: Floats
    reach: float = 1.0

    @classmethod
    def of_public(cls, metric: Metric, public: Floats | None, *, features: int) -> "Space":
        """Return the space whose centre and reach are those of public rows. Cosines can do without them."""
        if public is None:
            if metric == "euclidean":
                raise InvalidInput(
                    "the scale of distances is taken from public rows: pass public= (--public), or "
                    "metric='cosine' (--metric cosine)"
                )
            return cls(metric, np.zeros(features))
        centre = np.asarray(public, dtype=np.float64).mean(axis=0)
        reach = float(lengths(public - centre).max())
        return cls(metric, centre, check_positive("the spread of public rows", reach))

    @property
    def length(self) -> int:
        """The length of a point before its entries are rounded."""
        return math.floor(LONGEST - math.sqrt(len(self.centre)) / 2 - 1)

    @property
    def unit(self) -> float:
        """The distance between points that stands for a distance of 1: between rows, or between directions."""
        return self.length / (self.reach if self.metric == "euclidean" else 1.0)

    def points(self, X: Any) -> Points:
        """Return the point of each row. No value raises or warns: rows are private."""
        with np.errstate(all="ignore"):
            rows = np.asarray(X, dtype=np.float64) - self.centre
            long = lengths(rows)
            farthest = np.maximum(long, self.reach) if self.metric == "euclidean" else np.maximum(long, 1e-300)
            integers = np.rint(rows * (self.length / farthest)[:, np.newaxis])
        integers = np.fmax(np.fmin(integers, LONGEST), -LONGEST)  # what is no number becomes one
        integers[np.einsum("ij,ij->i", integers, integers) > LONGEST**2] = 0  # proof: step 1
        return integers.astype(np.float32)


Shape = Literal["flat", "linear"]
_TOGETHER = 1024  # queries whose distances to public points are computed at once


def squares_of(points: Points) -> NDArray[np.float32]:
    """Return the squared length of each point, which a 32-bit float holds exactly."""
    return np.asarray(np.einsum("ij,ij->i", points, points))


def squared_distances(queries: Points, points: Points) -> NDArray[np.float32]:
    """Return the squared distance of each query to each point: whole numbers below 2**24, exact in every order."""
    return np.asarray(squares_of(queries)[:, np.newaxis] + squares_of(points) - 2 * (queries @ points.T))


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel:
    """Weights from `top`, at no distance, to 0, at the radius and beyond.

    "linear" weights fall in proportion to the squared distance (Epanechnikov's kernel); "flat" ones are all `top`. The
    radius is that of `squared_radius`; or, where there are public `anchors`, the distance of a query to the one of this
    `rank` among them, the nearest first: small where points are dense, and large where they are few.

    >>> kernel = Kernel(shape="linear", squared_radius=100, top=32)
    >>> squared_distances = np.array([[0, 1, 50, 99, 100, 400]], dtype=np.float32)
    >>> kernel.weigh(100 - squared_distances, np.array([100], dtype=np.float32)).tolist()
    [[32.0, 31.0, 16.0, 0.0, 0.0, 0.0]]
    >>> near = Kernel(shape="linear", top=32, anchors=np.array([[0], [3], [9]], dtype=np.float32), rank=2)
    >>> near.squared_radii(np.array([[0], [100]], dtype=np.float32)).tolist()
    [9.0, 9409.0]
    """

    shape: Shape
    top: int
    squared_radius: int | None = None
    anchors: Points | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        check_choice("kernel", self.shape, ("flat", "linear"))
        if self.anchors is None:
            check_count("squared_radius", self.squared_radius, most=(2 * LONGEST) ** 2)  # proof: step 2
        else:
            check_count("rank", self.rank, most=len(self.anchors))

    @classmethod
    def within(cls, radius: float, space: Space, *, shape: Shape, top: int) -> "Kernel":
        """Return the kernel of one radius for all queries, in the units of a space's rows or directions."""
        squared = round(min(radius * space.unit, 2.0 * LONGEST) ** 2)
        return cls(shape=shape, squared_radius=max(1, squared), top=top)

    def squared_radii(self, queries: Points) -> NDArray[np.float32]:
        """Return the squared radius of each query, a whole number of at least 1, by public points alone."""
        if self.anchors is None or self.rank is None:
            return np.full(len(queries), self.squared_radius, dtype=np.float32)
        radii = np.empty(len(queries), dtype=np.float32)
        for start in range(0, len(queries), _TOGETHER):
            block = slice(start, start + _TOGETHER)
            distances = squared_distances(queries[block], self.anchors)
            radii[block] = np.partition(distances, self.rank - 1, axis=1)[:, self.rank - 1]
        return np.maximum(radii, np.float32(1))  # proof: step 2

    def weigh(self, short: NDArray[np.float32], squared_radii: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights in the place of what squared distances fall short of the squared radius of each row by."""
        if self.shape == "flat":
            np.clip(short, 0, 1, out=short)  # whole numbers: 1 within the radius, 0 elsewhere
            return np.multiply(short, np.float32(self.top), out=short)
        scales = np.float32(self.top) / squared_radii
        is_shared = len(scales) > 0 and bool((scales == scales[0]).all())  # of all queries: NumPy is faster then
        np.multiply(short, scales[0] if is_shared else scales[:, np.newaxis], out=short)
        np.floor(short, out=short)
        return np.clip(short, 0, self.top, out=short)  # proof: step 2


BLOCK_ROWS = 4096
_TOGETHER, _PARTS = 16, 16  # a unit pays for at most so many queries at once, and for no more than a part of a batch
_FAR = 2.0**23  # stands for the square of a point where no record is: beyond every radius


class Block:
    """Rows of units, none of which is in two blocks: their factors, one record a column, their codes and owners."""

    def __init__(self, features: int, width: int) -> None:
        self.factors: Points = np.zeros((features + 2, width), dtype=np.float32)
        self.codes: Integers = np.zeros(width, dtype=np.int64)
        self.owners: Integers = np.zeros(width, dtype=np.int64)  # which unit each row is of; 0 where no record is
        self.taken = 0
        self.changes = 0  # of what is in the rows: a copy on a device is as good as this number says
        self.clear(slice(None))

    @property
    def room(self) -> int:
        """How many more rows there is room for: those of units that were forgotten are not used again."""
        return len(self.codes) - self.taken

    def reserve(self, rows: int) -> int:
        """Set rows aside, in which no record is yet, and return the place of the first."""
        self.changes += 1
        first, self.taken = self.taken, self.taken + rows
        return first

    def add(self, first: int, points: Points, codes: Integers, owners: Integers) -> None:
        """Put records into rows that were reserved. Their factors come last: without them a row has no weight."""
        rows = slice(first, first + len(points))
        self.changes += 1  # before anything changes: an interrupt leaves no copy that passes for this; proof: step 10
        self.codes[rows], self.owners[rows] = codes, owners
        self.factors[:, rows] = record_factors(points)  # proof: step 6

    def clear(self, rows: slice) -> None:
        """Leave no record in these rows: they have no weight on any query."""
        self.changes += 1
        self.factors[:, rows], self.codes[rows], self.owners[rows] = 0, 0, 0
        self.factors[-1, rows] = -_FAR

    def points(self, rows: slice) -> Points:
        """Return the points in these rows."""
        return np.ascontiguousarray(self.factors[:-2, rows].T) / np.float32(2)


def record_factors(points: Points) -> Points:
    """Return columns whose products with `query_factors` are by how much distances fall short of a radius, squared."""
    return np.vstack([2 * points.T, np.ones(len(points)), -squares_of(points)]).astype(np.float32)


def query_factors(points: Points, squared_radii: NDArray[np.float32]) -> Points:
    """Return a row for each query."""
    return np.column_stack([points, squared_radii - squares_of(points), np.ones(len(points))]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Batch:
    """Queries that are counted at once: their factors, their squared radii, and how many a unit pays for together."""

    factors: Points
    radii: NDArray[np.float32]
    together: int

    @classmethod
    def of(cls, points: Points, squared_radii: NDArray[np.float32]) -> "Batch":
        """Return the batch, filled up with queries that no record has a weight on."""
        together = min(_TOGETHER, max(1, math.ceil(len(points) / _PARTS)))
        filled = math.ceil(len(points) / together) * together
        factors, radii = np.zeros((filled, points.shape[1] + 2), dtype=np.float32), np.ones(filled, dtype=np.float32)
        factors[: len(points)], radii[: len(points)] = query_factors(points, squared_radii), squared_radii
        return cls(factors, radii, together)

    def parts(self, rows: int, *, queries: int, scores: int) -> Iterator[slice]:
        """Yield the queries, at most this many and of at most this many scores with the rows, in full groups."""
        size = max(1, min(queries, scores // max(1, rows)) // self.together) * self.together
        for start in range(0, len(self.radii), size):
            yield slice(start, min(start + size, len(self.radii)))
