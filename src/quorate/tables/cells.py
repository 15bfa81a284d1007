"""Columns encoded as cells for releases.

The last cell of each column counts missing and undeclared values. A closed column has no such cell: its owner declares
that every record has a declared value, and an undeclared value counts in the first cell.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput
from quorate.tables.columns import Category, Date, Kind, Number
from quorate.tables.containers import shown_names
from quorate.tables.dates import DateUnit, date_of, declared_moment, read_moments
from quorate.tables.reading import MISSING_TEXTS, Rules
from quorate.tables.values import canonical_text, read_codes, read_numbers

_EXACT = 2.0**53  # 64-bit floats represent all smaller whole numbers.
_DECIMALS = 3  # of a synthetic number, within the width of its cell
_ALONE = 2.0  # how wide the cells on both sides of a lone cut are taken to be
OTHER = "other"  # how the last cell is called in names of queries
_UNDECLARED = "not declared"  # how it is called where a category, or a node above one, is called "other"

Codes = NDArray[np.int64]
Span = tuple[float, ...]
Spans = tuple[Span, ...]


class CategoryCells:
    """One cell for each category, and a last one for everything else, called `rest`; `parents` are above them."""

    def __init__(
        self, values: tuple[str, ...], *, closed: bool = False, parents: Mapping[str, str] | None = None
    ) -> None:
        self.values, self.closed, self.size = values, closed, len(values) + (not closed)
        self.parents = {} if parents is None else dict(parents)
        self.rest, names = OTHER, {*values, *self.parents.values()}
        while self.rest in names:
            self.rest = _UNDECLARED if self.rest == OTHER else f"({self.rest})"

    def levels(self) -> list[tuple[tuple[str | None, ...], Codes]]:
        """Return the levels of the hierarchy, the top first: the names of each, and where each cell belongs.

        None is the node of undeclared values.
        """
        names: list[str | None] = [*self.values, *([] if self.closed else [None])]
        levels: list[tuple[tuple[str | None, ...], Codes]] = [(tuple(names), np.arange(self.size))]
        while any(name in self.parents for name in names):
            above = [None if name is None else self.parents.get(name, name) for name in names]
            names = list(dict.fromkeys(above))  # Undeclared values stay separate from nodes of any name.
            index = {name: number for number, name in enumerate(names)}
            levels.append((tuple(names), np.array([index[name] for name in above])[levels[-1][1]]))
        return levels[::-1]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    def codes(self, column: pa.Array, rules: Rules = MISSING_TEXTS) -> Codes:
        """Return the cell of each value, read by these rules. No value raises."""
        codes = read_codes(column, self.values, rules)
        codes[codes < 0] = len(self.values)
        return np.where(codes < self.size, codes, 0)

    def name(self, code: int) -> str:
        """Return the name of a cell."""
        return self.values[code] if code < len(self.values) else self.rest

    def centre(self, code: int, share: float = 0.5) -> str | None:
        """Return the value of this cell; None for the last one."""
        return self.values[code] if code < len(self.values) else None

    def code(self, value: Any) -> int:
        """Return the cell of a declared value, or refuse an undeclared one; None is in the last cell.

        What is not declared as it is written is read as a record would be: 1 for 1.0, or true for True.
        """
        text = canonical_text(value)
        if (value is None or text == self.rest) and not self.closed:
            return len(self.values)
        if text in self._places:
            return self._places[text]
        index = int(read_codes(pa.array([text], type=pa.large_string()), self.values)[0])
        if not 0 <= index < len(self.values):
            raise InvalidInput(f"{text!r} is not among the declared categories {shown_names(self.values)}")
        return index


class NumberCells:
    """The line, cut at rising numbers, and a last cell for missing values and non-numbers.

    With a `unit` the numbers are dates, or dates with times, in units since the beginning of 1970, in UTC.

    A cell runs from a cut, included, to the next one, excluded; the first and the last cell of the line are unbounded.
    Synthetic values end there at `bounds`, where these are known in public; `spans` say for each cell of the line
    between which points they are spread, as many from each point to the next.
    """

    def __init__(
        self,
        values: tuple[float, ...],
        *,
        unit: DateUnit | None = None,
        closed: bool = False,
        bounds: Span | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.values, self.unit, self.closed, self.bounds, self.spans = values, unit, closed, bounds, spans
        self.holds = "number" if unit is None else "date"
        self.line = len(values) + 1  # cells that the line is cut into
        self.size = self.line + (not closed)

    def codes(self, column: pa.Array, rules: Rules = MISSING_TEXTS) -> Codes:
        """Return the cell of each value, read by these rules. No value raises."""
        numbers = read_numbers(column, rules) if self.unit is None else read_moments(column, self.unit, rules)
        codes = np.searchsorted(np.array(self.values), numbers, side="right").astype(np.int64)
        codes[np.isnan(numbers)] = 0 if self.closed else self.line
        return codes

    def format_number(self, number: float) -> str:
        """Return a place on the line as people read it."""
        return f"{number:.15g}" if self.unit is None else str(date_of(number, self.unit))

    def number(self, value: Any) -> float:
        """Return the place on the line that a value names, or refuse it. A date may be a text or one of Python."""
        number = math.nan
        if self.unit is not None:
            value = declared_moment(value.isoformat() if isinstance(value, date) else value, self.unit)
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:  # a whole number beyond all floats
                number = math.inf if value > 0 else -math.inf
        if math.isnan(number):
            raise InvalidInput(f"a {self.holds} is expected, not {value!r}")
        return number

    def name(self, code: int) -> str:
        """Return the name of a cell."""
        if code == self.line:
            return OTHER
        if not self.values:
            return f"any {self.holds}"
        low, high = self._ends(code)
        alone = math.nextafter(low, math.inf) == high  # one value has this cell to itself
        if math.isfinite(low) and alone:
            return f"exactly {self.format_number(low)}"
        below, above = self._above_one_value(code - 1), self._above_one_value(code)
        if code == 0:
            return f"below {self.format_number(high)}" if above is None else f"{above} and below"
        if code == len(self.values):
            return f"{self.format_number(low)} and above" if below is None else f"above {below}"
        first = self.format_number(low) if below is None else f"above {below}"
        return f"{first} to below {self.format_number(high)}" if above is None else f"{first} up to {above}"

    def _above_one_value(self, index: int) -> str | None:
        """Return the value that a cut stands just above, if a cell ends there that the value has to itself, or 0."""
        if not 0 <= index < len(self.values):
            return None
        value = math.nextafter(self.values[index], -math.inf)
        return self.format_number(value) if value in (0.0, *self.values[max(index - 1, 0) : index]) else None

    def centre(self, code: int, share: float = 0.5) -> Any:
        """Return a value in this cell, near the cut of an unbounded cell; None for the cell of non-numbers.

        It is the middle one, or one that has another share of the cell below it. Where all cuts are whole numbers the
        value is one, if it is one that floats tell apart; others have no more decimals than the cell has room for.
        """
        if code == self.line:
            return None
        middle = self._place(code, share)
        low, high = self._ends(code)
        floor = math.floor(middle) if abs(middle) < _EXACT else middle
        if self.unit is not None:
            return self.format_number(floor if low <= floor < high else middle)
        if low <= floor < high and all(cut.is_integer() for cut in self.values):
            return floor
        width = 2.0 * (self._place(code, 0.75) - self._place(code, 0.25))
        if not 0.0 < width < math.inf:
            return middle
        short = round(middle, max(0, math.ceil(-math.log10(width)) + _DECIMALS))
        return short if low <= short < high else middle

    def _ends(self, code: int) -> tuple[float, float]:
        return (self.values[code - 1] if code else -math.inf), [*self.values, math.inf][code]

    def _place(self, code: int, share: float) -> float:
        """Return the place with this share of a cell below it; an unbounded one is taken to be as wide as the next."""
        cuts, span = self.values, self._span(code)
        if span is not None:
            low, high = self._ends(code)
            index, within = divmod(share * (len(span) - 1), 1.0) if share < 1.0 else (len(span) - 2, 1.0)
            first, last = span[int(index) : int(index) + 2]
            inner = first * (1.0 - within) + last * within
            return min(max(inner, low, first), last, math.nextafter(high, -math.inf))
        if not cuts:
            return 0.0
        if code == 0:
            width = cuts[1] - cuts[0] if len(cuts) > 1 else _ALONE
            return min(cuts[0] - width * (1.0 - share), math.nextafter(cuts[0], -math.inf))
        if code == len(cuts):
            return cuts[-1] + (cuts[-1] - cuts[-2] if len(cuts) > 1 else _ALONE) * share
        index = self.values[code - 1] * (1.0 - share) + self.values[code] * share
        return index if self.values[code - 1] <= index < self.values[code] else self.values[code - 1]

    def _span(self, code: int) -> Span | None:
        """Return from where to where the values of a cell are spread, if that is known in public."""
        if self.spans is not None:
            return self.spans[code]
        low, high = self._ends(code)
        bottom, top = self.bounds or (math.inf, -math.inf)
        span = (low if math.isfinite(low) else bottom), (high if math.isfinite(high) else top)
        return span if span[0] <= span[1] and span != (low, high) and span[0] < high else None

    def between(self, ends: Sequence[Any]) -> Codes:
        """Return the cells from one cut to another; None is the end of the line."""
        if len(ends) != 2:
            raise InvalidInput(f"a range must be [low, high], got {len(ends)} values")
        low, high = (None if end is None else self.number(end) for end in ends)
        for end in (low, high):
            if end is not None and end not in self.values:
                near = sorted(sorted(self.values, key=lambda cut: abs(cut - end))[:3])
                shown = ", ".join(map(self.format_number, near)) or "none"
                raise InvalidInput(
                    f"the ends of a range must be cuts, got {self.format_number(end)}; the nearest cuts are {shown}"
                )
        first = 0 if low is None else self.values.index(low) + 1
        last = self.line if high is None else self.values.index(high) + 1
        if first >= last:
            raise InvalidInput("the lower end of a range must be below the upper one")
        return np.arange(first, last)

    def name_between(self, first: int, last: int) -> str:
        """Return the name of neighbouring cells of the line together."""
        low, high = self._ends(first)[0], self._ends(last)[1]
        if math.isinf(low):
            return f"any {self.holds}" if math.isinf(high) else f"below {self.format_number(high)}"
        above = f"{self.format_number(low)} and above"
        return above if math.isinf(high) else f"{self.format_number(low)} to below {self.format_number(high)}"

    @cached_property
    def _codes_by_name(self) -> dict[str, int]:
        return {self.name(code): code for code in range(self.size)}

    def code(self, value: Any) -> int:
        """Return the cell of a value, or the cell of this name; None is in the last cell."""
        if value is None and not self.closed:
            return self.line
        if isinstance(value, str) and value in self._codes_by_name:
            return self._codes_by_name[value]
        try:
            return int(np.searchsorted(np.array(self.values), self.number(value), side="right"))
        except InvalidInput:
            expected = f"a {self.holds}, or the name of a cell such as {self.name(0)!r}, is expected"
            raise InvalidInput(f"{expected}, not {value!r}") from None


class DateCells(NumberCells):
    """The cells of a line of dates, which has a unit."""


Cells = CategoryCells | NumberCells


def cells_of(kind: Kind) -> Cells:
    """Return the cells of a declared column; a number must say where it is cut."""
    if isinstance(kind, Category):
        return CategoryCells(tuple(kind.categories), closed=kind.closed, parents=kind.parents)
    if not isinstance(kind, Number):
        raise InvalidInput("a release takes numbers, dates and categories: leave texts out")
    if kind.cuts is None:
        holds, advice = "number", "or leave the column to public rows (marginals of private records alone find them)"
        if isinstance(kind, Date):
            holds, advice = "date", f"as in Date(cuts=['2024-01-01', '2024-07-01']), {advice}"
        raise InvalidInput(f"a release needs the cuts of a {holds}: declare them, {advice}")
    bounds = None if kind.low is None or kind.high is None else (kind.low, kind.high)
    cuts, spans = tuple(kind.cuts), None if kind.spans is None else tuple(tuple(span) for span in kind.spans)
    unit = kind.unit if isinstance(kind, Date) else None
    cells = NumberCells if unit is None else DateCells
    return cells(cuts, unit=unit, closed=kind.closed, bounds=bounds, spans=spans)
