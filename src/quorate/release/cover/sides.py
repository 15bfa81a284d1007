"""Queries about the faces of lines: all that lies above one, packed into bits."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.release.queries import Floats, Rows, check_weights
from quorate.release.queries.line import check_numbers

__all__ = ["Sides"]

_BLOCK = 4096
_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1).astype(np.float64)  # 256 x 8


class Sides:
    """Query r is the faces above line r, and the last query is all faces. The last cell is in no query.

    `bits` has one row a face, as `find_faces` gives them. It is held once, packed, with the bits of eight lines of all
    faces side by side: sums over all lines take one pass each over eighths of the table.

    >>> queries = Sides(np.packbits([[False, False], [True, False], [True, True]], axis=1), lines=2)
    >>> queries.answers([1, 2, 4, 100])
    array([6., 4., 7.])
    """

    def __init__(self, bits: NDArray[np.uint8], lines: int) -> None:
        self._lines, self._faces = lines, len(bits)
        self._bytes = np.empty(bits.shape[::-1], dtype=np.uint8)
        for start in range(0, len(bits), _BLOCK):  # turned in parts that fit the cache
            self._bytes[:, start : start + _BLOCK] = bits[start : start + _BLOCK].T

    @property
    def count(self) -> int:
        """How many queries there are.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).count
        2
        """
        return self._lines + 1

    @property
    def cells(self) -> int:
        """How many cells there are.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).cells
        3
        """
        return self._faces + 1

    @property
    def sensitivity(self) -> int:
        """A record that crosses all lines, or leaves the plane from above all of them, changes that many counts.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).sensitivity
        2
        """
        return self._lines + 1

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sum of the weights above each line, and of all faces.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).answers([1, 2, 0])
        array([2., 3.])
        """
        each = check_weights(weights, self.cells)[:-1]
        some = np.flatnonzero(each)  # most faces hold no record
        sparse = some.size < self._faces / 4
        given = each[some] if sparse else each
        columns = (column[some] if sparse else column for column in self._bytes)
        sums = [np.bincount(column, given, minlength=256) @ _BYTES for column in columns]
        return np.append(np.concatenate([np.empty(0), *sums])[: self._lines], each.sum())

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the answers of some queries.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).some([0], [1, 2, 0])
        array([2.])
        """
        numbers = check_numbers(which, self.count)
        if numbers.size > self._lines // 8:
            return self.answers(weights)[numbers]
        each = check_weights(weights, self.cells)[:-1]
        sums = [float(each @ self._above(int(number))) for number in numbers.ravel()]
        return np.array(sums).reshape(numbers.shape)

    def members(self, query: int) -> slice | NDArray[np.int64]:
        """Return the faces above a line, or all.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).members(0)
        array([1])
        """
        number = int(check_numbers(query, self.count))
        return slice(0, self._faces) if number == self._lines else np.flatnonzero(self._above(number))

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each face the sum of the values of the lines that it lies above.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).spread([10, 1])
        array([ 1., 11.,  0.])
        """
        given = check_weights(values, self.count)
        padded = np.zeros(8 * len(self._bytes))
        padded[: self._lines] = given[:-1]
        total = np.full(self.cells, given[-1])
        total[-1] = 0.0
        for column, eight in zip(self._bytes, padded.reshape(-1, 8), strict=True):
            total[:-1] += (_BYTES @ eight)[column]
        return total

    def largest(self, weights: ArrayLike | Rows) -> float:
        """Return the largest absolute answer.

        >>> Sides(np.packbits([[False], [True]], axis=1), lines=1).largest([1, -3, 0])
        3.0
        """
        return float(np.abs(self.answers(weights)).max())

    def _above(self, line: int) -> NDArray[np.uint8]:
        if line == self._lines:
            return np.ones(self._faces, dtype=np.uint8)
        return np.asarray((self._bytes[line >> 3] >> (7 - (line & 7))) & 1, dtype=np.uint8)

    def __repr__(self) -> str:
        return f"Sides({self._lines} lines, {self._faces} faces)"
