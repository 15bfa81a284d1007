"""One axis of real numbers, cut between public values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.line import cut_points

__all__ = ["Axis"]

Values = NDArray[np.float64]


class Axis:
    """A line without bounds, cut halfway between neighbours among the public values: each cell has one of them.

    A value at a cut belongs to the cell above it. With no public value there is one cell, as if 0 were public.
    """

    def __init__(self, values: Values) -> None:
        self.values = np.unique(values) if values.size else np.zeros(1)
        self.cuts = cut_points(self.values)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.values.size)

    def locate(self, values: Values) -> Integers:
        """Return the cell of each value."""
        return np.asarray(np.searchsorted(self.cuts, values, side="right"), dtype=np.int64)

    def below(self, bounds: Any, *, included: bool = False) -> Integers:
        """Return how many public values lie below each bound, or at and below it where that is `included`."""
        given = np.asarray(bounds, dtype=np.float64)
        if np.isnan(given).any():
            raise InvalidInput("the ends of a query must be numbers, not NaN; infinity is one")
        return np.asarray(np.searchsorted(self.values, given, side="right" if included else "left"), dtype=np.int64)

    def edge(self, cell: int) -> float:
        """Return the lower end of a cell, from minus infinity for the first to infinity after the last."""
        if cell <= 0:
            return -np.inf
        return float(self.cuts[cell - 1]) if cell < self.cells else np.inf
