"""Records as units with a fixed number of places for rows, so that all sizes downstream are public.

A unit is a row, or a person where `groups` are given. A person has `most` places; rows beyond are left out, the last
ones first, and places that are not needed hold a row that no class of hypotheses can use. So replacing one unit
replaces at most `most` rows, in places that belong to it, and changes nothing else, not even a shape.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core.hypotheses.points import Labels, Points
from quorate.tables.persons import unit_numbers

NO_LABEL = -1  # of a place without a row


class UnitRows:
    """Rows and their labels, unit after unit, `most` places each. It is private: it has no text and no copy."""

    __slots__ = ("labels", "most", "points", "units")

    def __init__(self, points: Points, labels: Labels, *, most: int) -> None:
        self.points, self.labels, self.most = points, labels, most
        self.units = len(labels) // most

    @property
    def owners(self) -> NDArray[np.int64]:
        """The unit of each place."""
        return np.repeat(np.arange(self.units), self.most)

    def places(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of these units."""
        return (units[:, np.newaxis] * self.most + np.arange(self.most)).ravel()

    def to_arrays(self) -> dict[str, Any]:
        """Return the rows as arrays, for the owner's own file and for nothing else."""
        return {"points": self.points, "labels": self.labels, "most": self.most}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "UnitRows":
        """Return the rows of `to_arrays`."""
        return cls(arrays["points"], arrays["labels"], most=int(arrays["most"]))

    def __repr__(self) -> str:
        return "<sealed records>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("private records cannot be copied or pickled from here")


def fill_unit_rows(points: Points, labels: Labels, *, groups: Any = None, most: int = 1) -> UnitRows:
    """Return checked rows in their places; without `groups` each row is a unit with one place."""
    if groups is None:
        return UnitRows(points.copy(), labels.copy(), most=1)  # the caller may change its own arrays later
    units, count = unit_numbers(len(labels), groups)
    order = np.argsort(units, kind="stable")
    starts = np.searchsorted(units[order], np.arange(count))
    rank = np.arange(len(labels)) - starts[units[order]]
    rows, positions = order[rank < most], (units[order] * most + rank)[rank < most]
    filled, codes = np.full((count * most, points.shape[1]), np.nan), np.full(count * most, NO_LABEL)
    filled[positions], codes[positions] = points[rows], labels[rows]
    return UnitRows(filled, codes, most=most)
