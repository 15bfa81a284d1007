"""Queries about cells in a row: all that lies up to a cell, and all that lies between two."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.arrays import Floats
from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.release.queries.protocol import Queries, check_listed, check_numbers, check_weights
from quorate.release.queries.rows import Rows

__all__ = ["Prefixes", "Ranges"]


class _Line(Queries):
    """Queries about so many cells in a row."""

    def __init__(self, cells: int) -> None:
        self._cells = check_count("cells", cells)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return self._cells

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._cells})"


class Prefixes(_Line):
    """Thresholds: query j is the cells 0 to j. The last one is every cell."""

    @property
    def count(self) -> int:
        """How many queries there are."""
        return self._cells

    @property
    def sensitivity(self) -> int:
        """A record that moves from the first cell to the last changes every count but the last."""
        return self._cells - 1

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the running sums."""
        return np.cumsum(check_weights(weights, self._cells))

    def members(self, query: int) -> slice:
        """Return the cells of one query."""
        return slice(0, int(check_numbers(query, self._cells)) + 1)

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the queries that contain it."""
        return np.cumsum(check_weights(values, self._cells)[::-1])[::-1]


class Ranges(_Line):
    """Intervals: every pair first <= last of cells, numbered pair by pair with `last` running fastest."""

    @property
    def count(self) -> int:
        """How many queries there are."""
        return self._cells * (self._cells + 1) // 2

    @property
    def sensitivity(self) -> int:
        """A record that moves d cells on changes d (cells + 1 - d) counts: most at half the way."""
        half = min((self._cells + 1) // 2, self._cells - 1)
        return half * (self._cells + 1 - half)

    def number(self, first: ArrayLike, last: ArrayLike) -> NDArray[np.int64]:
        """Return the numbers of the queries that run from cell `first` to cell `last`."""
        start, end = check_numbers(first, self._cells), check_numbers(last, self._cells)
        if bool((start > end).any()):
            raise InvalidInput("the first cell of a range must not lie beyond its last")
        return np.asarray(start * self._cells - start * (start - 1) // 2 + end - start)

    def pair(self, which: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last cells of the queries of these numbers."""
        number = check_numbers(which, self.count)
        twice = 2 * self._cells + 1
        start = np.floor((twice - np.sqrt(float(twice) ** 2 - 8.0 * number)) / 2).astype(np.int64)
        for _ in range(2):  # the root may be off by one after rounding
            begin = start * self._cells - start * (start - 1) // 2
            start = start - (begin > number) + (number >= begin + self._cells - start)
        return start, number - (start * self._cells - start * (start - 1) // 2) + start

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over all ranges: refused where there are more of them than can be written out."""
        check_listed(self.count, "ranges")
        sums = np.concatenate([[0.0], np.cumsum(check_weights(weights, self._cells))])
        first, last = np.triu_indices(self._cells)
        return np.asarray(sums[last + 1] - sums[first])

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over the ranges of these numbers."""
        sums = np.concatenate([[0.0], np.cumsum(check_weights(weights, self._cells))])
        first, last = self.pair(which)
        return np.asarray(sums[last + 1] - sums[first])

    def members(self, query: int) -> slice:
        """Return the cells of one query."""
        first, last = self.pair(query)
        return slice(int(first), int(last) + 1)

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the ranges that contain it."""
        check_listed(self.count, "ranges")
        each = check_weights(values, self.count)
        first, last = np.triu_indices(self._cells)
        begins = np.bincount(first, each, minlength=self._cells + 1)
        ends = np.bincount(last + 1, each, minlength=self._cells + 1)
        return np.cumsum(begins - ends)[: self._cells]

    def largest(self, weights: ArrayLike | Rows) -> float:
        """Return the largest absolute sum over a range: the highest running sum less the lowest."""
        sums = np.cumsum(check_weights(weights, self._cells))
        rise = float((sums - np.minimum.accumulate(np.concatenate([[0.0], sums[:-1]]))).max())
        fall = float((np.maximum.accumulate(np.concatenate([[0.0], sums[:-1]])) - sums).max())
        return max(rise, fall)
