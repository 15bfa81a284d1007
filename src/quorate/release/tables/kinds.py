"""Kinds of columns as cells: listed categories, or a line that is cut. Each has a last cell for all else."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.checks import set_validated
from quorate.errors import InvalidInput
from quorate.release.tables.values import read_numbers, read_texts
from quorate.tables.values import canonical_text

__all__ = ["OTHER", "Categories", "Cuts", "Kind"]

OTHER = "other"  # how the last cell is called in names of queries

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Categories:
    """A column of texts from a declared list. The last code is for what is not on it, and for what is missing.

    >>> Categories(["red", "green"]).codes(pa.array(["green", "blue", None]))
    array([1, 2, 2])
    """

    values: tuple[str, ...]

    def __init__(self, values: Iterable[Any]) -> None:
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InvalidInput(f"categories must be a list of texts, not {values!r}")
        given = tuple(values)
        if not given or not all(isinstance(value, str | int | float | bool | np.generic) for value in given):
            raise InvalidInput("categories must be a list of at least one text, number or truth value")
        set_validated(self, values=tuple(canonical_text(v.item() if isinstance(v, np.generic) else v) for v in given))
        for text in self.values:
            if self.values.count(text) > 1:
                raise InvalidInput(f"categories must differ: {text!r} stands twice")

    @property
    def size(self) -> int:
        """How many codes there are.

        >>> Categories(["red", "green"]).size
        3
        """
        return len(self.values) + 1

    def codes(self, column: pa.Array) -> Codes:
        """Return the code of each value.

        >>> Categories([1, 2]).codes(pa.array([2.0, 7.0]))
        array([1, 2])
        """
        return read_texts(column, self.values)

    def name(self, code: int) -> str:
        """Return the category of a code.

        >>> Categories(["red"]).name(0), Categories(["red"]).name(1)
        ('red', 'other')
        """
        return self.values[code] if code < len(self.values) else OTHER

    def centre(self, code: int) -> str | None:
        """Return a value of this code, None for all that is not declared.

        >>> Categories(["red"]).centre(1) is None
        True
        """
        return self.values[code] if code < len(self.values) else None

    def code(self, value: Any) -> int:
        """Return the code of a declared value, or refuse one that is not declared.

        >>> Categories(["red"]).code("blue")
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: 'blue' is not among the declared categories 'red'
        """
        text = canonical_text(value)
        if text == OTHER and OTHER not in self.values:
            return len(self.values)
        if text not in self.values:
            shown = ", ".join(repr(each) for each in self.values[:20]) + (", ..." if len(self.values) > 20 else "")
            raise InvalidInput(f"{text!r} is not among the declared categories {shown}")
        return self.values.index(text)

    def to_dict(self) -> dict[str, Any]:
        """Return the description of this kind.

        >>> Categories(["red"]).to_dict()
        {'categories': ['red']}
        """
        return {"categories": list(self.values)}


@dataclass(frozen=True)
class Cuts:
    """A column of numbers without bounds, cut at rising numbers. The last code is for what is missing or no number.

    A cell runs from a cut, included, to the next one, excluded; the first and the last one have no end.

    >>> Cuts([18, 65]).codes(pa.array([5.0, 18.0, float("inf"), None]))
    array([0, 1, 2, 3])
    """

    values: tuple[float, ...]

    def __init__(self, values: Iterable[float]) -> None:
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InvalidInput(f"cuts must be a list of rising numbers, not {values!r}")
        given = list(values)
        if not all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in given):
            raise InvalidInput("cuts must be a list of rising numbers")
        set_validated(self, values=tuple(float(value) for value in given))
        rising = all(low < high for low, high in itertools.pairwise(self.values))
        if not rising or not all(math.isfinite(value) for value in self.values):
            raise InvalidInput("cuts must be finite numbers, each larger than the one before")

    @property
    def size(self) -> int:
        """How many codes there are.

        >>> Cuts([18, 65]).size
        4
        """
        return len(self.values) + 2

    def codes(self, column: pa.Array) -> Codes:
        """Return the code of each value.

        >>> Cuts([0]).codes(pa.array(["-1.5", "2", "none"]))
        array([0, 1, 2])
        """
        numbers = read_numbers(column)
        found = np.searchsorted(np.array(self.values), numbers, side="right").astype(np.int64)
        found[np.isnan(numbers)] = self.size - 1
        return found

    def name(self, code: int) -> str:
        """Return the cell of a code as text.

        >>> Cuts([18, 65]).name(0), Cuts([18, 65]).name(1), Cuts([18, 65]).name(3)
        ('below 18', '18 to below 65', 'other')
        """
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
        """Return a number of this cell, None for what is no number.

        >>> [Cuts([18, 65]).centre(code) for code in range(4)]
        [-5.5, 41.5, 88.5, None]
        """
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
        """Return the code of a number, or of the name of a cell.

        >>> Cuts([18, 65]).code(30), Cuts([18, 65]).code("18 to below 65")
        (1, 1)
        """
        if isinstance(value, str):
            for code in range(self.size):
                if self.name(code) == value:
                    return code
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
            raise InvalidInput(f"a number, or the name of a cell such as {self.name(0)!r}, is expected, not {value!r}")
        return int(np.searchsorted(np.array(self.values), float(value), side="right"))

    def to_dict(self) -> dict[str, Any]:
        """Return the description of this kind.

        >>> Cuts([18, 65]).to_dict()
        {'cuts': [18.0, 65.0]}
        """
        return {"cuts": list(self.values)}


Kind = Categories | Cuts
