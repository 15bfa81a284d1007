"""Queries about cells in a row: all that lies up to a cell, and all that lies between two."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.release.queries.protocol import Floats, check_listed, check_weights
from quorate.release.queries.rows import Rows

__all__ = ["Prefixes", "Ranges", "check_numbers"]


def check_numbers(which: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return numbers of queries as an array.

    >>> check_numbers([0, 2], 3)
    array([0, 2])
    """
    numbers = np.asarray(which)
    if numbers.dtype.kind not in "iu" or (numbers.size and (numbers.min() < 0 or numbers.max() >= count)):
        raise InvalidInput(f"a query has a whole number from 0 to {count - 1}")
    return numbers.astype(np.int64)


class Prefixes:
    """Thresholds: query j is the cells 0 to j. The last one is every cell.

    >>> Prefixes(4).answers([1, 2, 3, 4])
    array([ 1.,  3.,  6., 10.])
    """

    def __init__(self, cells: int) -> None:
        self._cells = check_count("cells", cells)

    @property
    def count(self) -> int:
        """How many queries there are.

        >>> Prefixes(4).count
        4
        """
        return self._cells

    @property
    def cells(self) -> int:
        """How many cells there are.

        >>> Prefixes(4).cells
        4
        """
        return self._cells

    @property
    def sensitivity(self) -> int:
        """A record that moves from the first cell to the last changes every count but the last.

        >>> Prefixes(4).sensitivity
        3
        """
        return self._cells - 1

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the running sums.

        >>> Prefixes(2).answers([0.5, 0.5])
        array([0.5, 1. ])
        """
        return np.cumsum(check_weights(weights, self._cells))

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the running sums at some cells.

        >>> Prefixes(4).some([1, 3], [1, 2, 3, 4])
        array([ 3., 10.])
        """
        return self.answers(weights)[check_numbers(which, self._cells)]

    def members(self, query: int) -> slice:
        """Return the cells of one query.

        >>> Prefixes(4).members(1)
        slice(0, 2, None)
        """
        return slice(0, int(check_numbers(query, self._cells)) + 1)

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the queries that contain it.

        >>> Prefixes(3).spread([1, 1, 1])
        array([3., 2., 1.])
        """
        return np.cumsum(check_weights(values, self._cells)[::-1])[::-1]

    def largest(self, weights: ArrayLike | Rows) -> float:
        """Return the largest absolute answer.

        >>> Prefixes(3).largest([1, -3, 1])
        2.0
        """
        return float(np.abs(self.answers(weights)).max())

    def __repr__(self) -> str:
        return f"Prefixes({self._cells})"


class Ranges:
    """Intervals: every pair first <= last of cells, numbered pair by pair with `last` running fastest.

    >>> Ranges(3).answers([1, 2, 4])
    array([1., 3., 7., 2., 6., 4.])
    """

    def __init__(self, cells: int) -> None:
        self._cells = check_count("cells", cells)

    @property
    def count(self) -> int:
        """How many queries there are.

        >>> Ranges(10_000).count
        50005000
        """
        return self._cells * (self._cells + 1) // 2

    @property
    def cells(self) -> int:
        """How many cells there are.

        >>> Ranges(4).cells
        4
        """
        return self._cells

    @property
    def sensitivity(self) -> int:
        """A record that moves d cells on changes d (cells + 1 - d) counts: most at half the way.

        >>> Ranges(3).sensitivity
        4
        """
        half = min((self._cells + 1) // 2, self._cells - 1)
        return half * (self._cells + 1 - half)

    def number(self, first: ArrayLike, last: ArrayLike) -> NDArray[np.int64]:
        """Return the numbers of the queries that run from cell `first` to cell `last`.

        >>> Ranges(3).number(1, 2)
        array(4)
        """
        start, end = check_numbers(first, self._cells), check_numbers(last, self._cells)
        if bool((start > end).any()):
            raise InvalidInput("the first cell of a range must not lie beyond its last")
        return np.asarray(start * self._cells - start * (start - 1) // 2 + end - start)

    def pair(self, which: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last cells of the queries of these numbers.

        >>> Ranges(3).pair([4])
        (array([1]), array([2]))
        """
        number = check_numbers(which, self.count)
        twice = 2 * self._cells + 1
        start = np.floor((twice - np.sqrt(float(twice) ** 2 - 8.0 * number)) / 2).astype(np.int64)
        for _ in range(2):  # the root may be off by one after rounding
            begin = start * self._cells - start * (start - 1) // 2
            start = start - (begin > number) + (number >= begin + self._cells - start)
        return start, number - (start * self._cells - start * (start - 1) // 2) + start

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over all ranges: refused where there are more of them than can be written out.

        >>> Ranges(2).answers([1, 2])
        array([1., 3., 2.])
        """
        check_listed(self.count, "ranges")
        sums = np.concatenate([[0.0], np.cumsum(check_weights(weights, self._cells))])
        first, last = np.triu_indices(self._cells)
        return np.asarray(sums[last + 1] - sums[first])

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over the ranges of these numbers.

        >>> Ranges(10_000).some([0, 1], [1] * 10_000)
        array([1., 2.])
        """
        sums = np.concatenate([[0.0], np.cumsum(check_weights(weights, self._cells))])
        first, last = self.pair(which)
        return np.asarray(sums[last + 1] - sums[first])

    def members(self, query: int) -> slice:
        """Return the cells of one query.

        >>> Ranges(3).members(4)
        slice(1, 3, None)
        """
        first, last = self.pair(query)
        return slice(int(first), int(last) + 1)

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the ranges that contain it.

        >>> Ranges(2).spread([1, 1, 1])
        array([2., 2.])
        """
        check_listed(self.count, "ranges")
        each = check_weights(values, self.count)
        first, last = np.triu_indices(self._cells)
        begins = np.bincount(first, each, minlength=self._cells + 1)
        ends = np.bincount(last + 1, each, minlength=self._cells + 1)
        return np.cumsum(begins - ends)[: self._cells]

    def largest(self, weights: ArrayLike | Rows) -> float:
        """Return the largest absolute sum over a range: the highest running sum less the lowest.

        >>> Ranges(4).largest([1, -3, -1, 2])
        4.0
        """
        sums = np.cumsum(check_weights(weights, self._cells))
        rise = float((sums - np.minimum.accumulate(np.concatenate([[0.0], sums[:-1]]))).max())
        fall = float((np.maximum.accumulate(np.concatenate([[0.0], sums[:-1]])) - sums).max())
        return max(rise, fall)

    def __repr__(self) -> str:
        return f"Ranges({self._cells})"
