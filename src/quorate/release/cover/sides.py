"""Queries about the faces of lines: all that lies above one."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.release.cover.arrangement import Faces
from quorate.release.queries import Floats, Rows, check_weights
from quorate.release.queries.line import check_numbers

__all__ = ["Sides"]


class Sides:
    """Query r is the faces above line r, and the last query is all faces. The last cell is in no query.

    >>> from fractions import Fraction
    >>> from quorate.release.cover.arrangement import Lines, find_faces
    >>> queries = Sides(find_faces(Lines([Fraction(0), Fraction(0)], [Fraction(0), Fraction(1)])))
    >>> queries.answers([1, 2, 4, 100])
    array([6., 4., 7.])
    """

    def __init__(self, faces: Faces) -> None:
        self._found, self._lines, self._faces = faces, faces.lines, len(faces)

    @property
    def count(self) -> int:
        """How many queries there are.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.count
        2
        """
        return self._lines + 1

    @property
    def cells(self) -> int:
        """How many cells there are.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.cells
        3
        """
        return self._faces + 1

    @property
    def sensitivity(self) -> int:
        """A record that crosses all lines, or leaves the plane from above all of them, changes that many counts.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.sensitivity
        2
        """
        return self._lines + 1

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sum of the weights above each line, and of all faces.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.answers([1, 2, 0])
        array([2., 3.])
        """
        each = check_weights(weights, self.cells)[:-1]
        return np.append(self._found.sums(each), each.sum())

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the answers of some queries.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.some([0], [1, 2, 0])
        array([2.])
        """
        return np.asarray(self.answers(weights)[check_numbers(which, self.count)])

    def members(self, query: int) -> slice | NDArray[np.int64]:
        """Return the faces above a line, or all.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.members(0)
        array([1])
        """
        number = int(check_numbers(query, self.count))
        return slice(0, self._faces) if number == self._lines else np.flatnonzero(self._found.above(number))

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each face the sum of the values of the lines that it lies above.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.spread([10, 1])
        array([ 1., 11.,  0.])
        """
        given = check_weights(values, self.count)
        return np.append(self._found.spread(given[:-1]) + given[-1], 0.0)

    def largest(self, weights: ArrayLike | Rows) -> float:
        """Return the largest absolute answer.

        >>> from quorate.concepts import Halfspaces
        >>> from quorate.release.cover import make_cover
        >>> make_cover(Halfspaces(2), [[0.0, 0.0], [0.0, 2.0]]).queries.largest([1, -3, 0])
        3.0
        """
        return float(np.abs(self.answers(weights)).max())

    def __repr__(self) -> str:
        return f"Sides({self._lines} lines, {self._faces} faces)"
