"""Columns encoded as cells for releases. Each column has a last cell for all that is missing or not declared."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.tables.columns import Category, Date, Kind, Number
from quorate.tables.lenient import read_numbers, read_texts
from quorate.tables.read import canonical_text, shown_names

__all__ = ["OTHER", "CategoryCells", "Cells", "NumberCells", "cells_of"]

OTHER = "other"  # how the last cell is called in names of queries

Codes = NDArray[np.int64]


class CategoryCells:
    """One cell for each category, and a last one for everything else."""

    def __init__(self, values: tuple[str, ...]) -> None:
        self.values, self.size = values, len(values) + 1

    def codes(self, column: pa.Array) -> Codes:
        """Return the cell of each value. No value raises."""
        return read_texts(column, self.values)

    def name(self, code: int) -> str:
        """Return the name of a cell."""
        return self.values[code] if code < len(self.values) else OTHER

    def centre(self, code: int) -> str | None:
        """Return a value in this cell; None for the last one."""
        return self.values[code] if code < len(self.values) else None

    def code(self, value: Any) -> int:
        """Return the cell of a declared value, or refuse one that is not declared."""
        text = canonical_text(value)
        if text == OTHER and OTHER not in self.values:
            return len(self.values)
        if text not in self.values:
            raise InvalidInput(f"{text!r} is not among the declared categories {shown_names(self.values)}")
        return self.values.index(text)

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration that a release writes down."""
        return {"categories": list(self.values)}


class NumberCells:
    """The line, cut at rising numbers, and a last cell for what is missing or no number.

    A cell runs from a cut, included, to the next one, excluded; the first and the last cell of the line are unbounded.
    """

    def __init__(self, values: tuple[float, ...]) -> None:
        self.values, self.size = values, len(values) + 2

    def codes(self, column: pa.Array) -> Codes:
        """Return the cell of each value. No value raises."""
        numbers = read_numbers(column)
        codes = np.searchsorted(np.array(self.values), numbers, side="right").astype(np.int64)
        codes[np.isnan(numbers)] = self.size - 1
        return codes

    def name(self, code: int) -> str:
        """Return the name of a cell."""
        if code == self.size - 1:
            return OTHER
        if not self.values:
            return "any number"
        if code == 0:
            return f"below {self.values[0]:.15g}"
        if code == len(self.values):
            return f"{self.values[-1]:.15g} and above"
        return f"{self.values[code - 1]:.15g} to below {self.values[code]:.15g}"

    def centre(self, code: int) -> float | None:
        """Return a number in this cell, near the cut where the cell is unbounded; None for the last one."""
        if code == self.size - 1:
            return None
        if not self.values:
            return 0.0
        width = self.values[-1] - self.values[0] or 2.0
        half = width / (2 * max(1, len(self.values) - 1))
        if code == 0:
            return min(self.values[0] - half, math.nextafter(self.values[0], -math.inf))
        if code == len(self.values):
            return self.values[-1] + half
        middle = self.values[code - 1] / 2 + self.values[code] / 2
        return middle if self.values[code - 1] <= middle < self.values[code] else self.values[code - 1]

    def code(self, value: Any) -> int:
        """Return the cell of a number, or the cell of this name."""
        if isinstance(value, str):
            for code in range(self.size):
                if self.name(code) == value:
                    return code
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
            raise InvalidInput(f"a number, or the name of a cell such as {self.name(0)!r}, is expected, not {value!r}")
        return int(np.searchsorted(np.array(self.values), float(value), side="right"))

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration that a release writes down."""
        return {"cuts": list(self.values)}


Cells = CategoryCells | NumberCells


def cells_of(kind: Kind) -> Cells:
    """Return the cells of a declared column; a number must say where it is cut."""
    if isinstance(kind, Category):
        return CategoryCells(tuple(kind.categories))
    if not isinstance(kind, Number) or isinstance(kind, Date):
        raise InvalidInput("a release takes numbers and categories: turn dates into numbers, and leave texts out")
    if kind.cuts is None:
        raise InvalidInput("a release needs the cuts of a number: declare them, or leave the column to public rows")
    return NumberCells(tuple(kind.cuts))
