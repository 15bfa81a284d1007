"""Records in blocks of so many rows, as factors whose products with those of queries say how near they are, exactly.

A block is as much work whatever is in it: a row where no record is takes part in all that is computed, with no weight.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.models.knn._kernel import Points, squares_of

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
