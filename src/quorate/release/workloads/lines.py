"""Thresholds and ranges of a column of numbers, perhaps by the values of other columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.release.cover.base import check_cells
from quorate.release.queries import NOTHING, Prefixes, Ranges, Whole
from quorate.release.workloads.bound import Between, BoundWorkload, check_asked, tidy_name
from quorate.release.workloads.columns import Columns
from quorate.tables.cells import DateCells, NumberCells


class LineWorkload(BoundWorkload):
    """For each combination of the other columns, what lies below each cut, or between each two.

    Each group is a line of its own, with the cells of the column, that for no number among them.
    """

    queries: Prefixes | Ranges

    def __init__(self, columns: Columns, column: str, by: Sequence[str], kind: Literal["thresholds", "ranges"]) -> None:
        chosen = columns.select([*by, column])
        cells = chosen.cells[column]
        if not isinstance(cells, NumberCells) or column in by:
            raise InvalidInput(f"{kind} are of a column of numbers or dates, which {column!r} is not; use marginals")
        self.column, self.by, self.kind, self._cuts, self._line = column, tuple(by), kind, cells.values, cells
        self._cells, self._groups = cells.size, math.prod(chosen.sizes[:-1])
        check_cells(self._cells * self._groups, f"{kind} of {column!r} by {len(by)} columns")
        self._plain = Ranges(cells.line)  # those of one group, without what is no number
        each = cells.line if kind == "thresholds" else self._plain.count
        make = Prefixes if kind == "thresholds" else Ranges
        super().__init__(chosen, make(self._cells, self._groups), each * self._groups)
        self._each = each

    def count(self, table: Any) -> Whole:
        """Return how many rows each cell has."""
        rows = self.encode(table)
        return np.bincount(rows.cell(range(len(rows.sizes))), minlength=self._cells * self._groups)

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the prefix of a group's line that each threshold is, or the range that each range is."""
        asked = np.asarray(numbers, dtype=np.int64)
        nothing = asked == NOTHING
        group, index = np.divmod(np.where(nothing, 0, asked), self._each)
        start = group * self._cells
        if isinstance(self.queries, Prefixes):
            plus = start + index
        else:
            first, last = self._plain.pair(index)
            plus = self.queries.number(start + first, start + last)
        return np.where(nothing, NOTHING, plus), np.full_like(asked, NOTHING)

    def find(self, asked: Any) -> int:
        """Return the query at the nearest cuts: `{column: end}`, for ranges `{column: (lower, upper)}`."""
        group, (lower, upper) = self._read_request(asked)
        first, last = self._nearest(lower), self._nearest(upper)
        if self.kind == "ranges" and first >= last:
            raise InvalidInput(f"column {self.column!r}: no cut of the column lies between these two ends")
        return self._run(group, first, last)

    def between(self, asked: Any) -> Between | None:
        """Return the cells that lie within the ends as a whole, and those that also lie there in part."""
        if not isinstance(asked, Mapping):
            return None
        group, ends = self._read_request(asked)
        low, high = (self._place(end) for end in ends)
        if low[1] == high[1] == 0.0:
            return None
        if ends[0] >= ends[1]:
            raise InvalidInput(f"column {self.column!r}: the lower end of a range must be below the upper one")
        within = [1.0 - low[1]] * (low[1] > 0) + [high[1]] * (high[1] > 0)
        weight = high[1] - low[1] if low[0] == high[0] else sum(within) / len(within)
        inner = self._run(group, low[0] + (low[1] > 0), high[0])
        return Between(inner, self._run(group, low[0], high[0] + (high[1] > 0)), weight)

    def _read_request(self, asked: Any) -> tuple[int, tuple[float, float]]:
        """Return the group and the two ends that are asked for."""
        given = check_asked(asked, self.columns.names)
        group = 0
        for name in self.by:
            group = group * self.columns.cells[name].size + self.columns.code(name, given[name])
        if self.kind == "thresholds":
            return group, (-math.inf, self._number(given[self.column]))
        try:
            lower, upper = given[self.column]
        except (TypeError, ValueError):
            raise InvalidInput(f"column {self.column!r}: a range is asked by its two ends") from None
        low, high = -math.inf if lower is None else self._number(lower), math.inf if upper is None else upper
        return group, (low, self._number(high))

    def _run(self, group: int, first: int, last: int) -> int:
        """Return the query of the cells from `first` to before `last` in a group."""
        if first >= last:
            return NOTHING
        index = last - 1 if self.kind == "thresholds" else int(self._plain.number(first, last - 1))
        return group * self._each + index

    def even_columns(self, below: Floats, cells: int) -> Columns:
        """Return the column with cuts that split the records evenly, given the shares below all cuts and at all."""
        if self.kind != "thresholds" or self.by:
            raise InvalidInput("quantiles are read off thresholds of one column, without groups")
        rising = np.maximum.accumulate(below[:-1])
        wanted = below[-1] * np.arange(1, cells) / cells
        chosen = sorted({int(np.abs(rising - share).argmin()) for share in wanted}) if rising.size else []
        kind: Any = self.columns.kinds[self.column]
        dated = isinstance(self._line, DateCells)
        cuts = [self._line.written(self._cuts[index]) if dated else self._cuts[index] for index in chosen]
        return Columns({self.column: replace(kind, cuts=cuts, spans=None)})

    def answers_itself(self, asked: Any) -> bool:
        """Return whether the ends that are asked for are cuts of the column: others are moved to the nearest."""
        given = asked[self.column] if isinstance(asked, Mapping) else None
        ends = given if isinstance(given, tuple | list) else [given]
        numbers = [self._line.number(end) for end in ends if end is not None]
        return all(math.isinf(number) or number in self._cuts for number in numbers)

    def _number(self, end: Any) -> float:
        try:
            return self._line.number(end)
        except InvalidInput:
            holds = self._line.holds
            raise InvalidInput(f"column {self.column!r}: an end must be a {holds}, not {end!r}") from None

    def _nearest(self, end: float) -> int:
        """Return the cell that begins at the cut nearest to an end: 0 for minus infinity, all for infinity."""
        cuts = np.array(self._cuts)
        if math.isinf(end) or not cuts.size:
            return 0 if end == -math.inf else cuts.size + 1
        return 1 + int(np.abs(cuts - end).argmin())

    def _place(self, end: float) -> tuple[int, float]:
        """Return the cell that an end lies in, and which share of it lies below: 0 at a cut, a half in an open cell."""
        cuts = np.array(self._cuts)
        if math.isinf(end):
            return (0, 0.0) if end < 0 else (cuts.size + 1, 0.0)
        cell = int(np.searchsorted(cuts, end, side="right"))
        if cell and cuts[cell - 1] == end:
            return cell, 0.0
        if not 0 < cell < cuts.size:
            return cell, 0.5
        return cell, float((end - cuts[cell - 1]) / (cuts[cell] - cuts[cell - 1]))

    def _name(self, number: int) -> dict[str, Any]:
        group, index = divmod(number, self._each)
        sizes = self.columns.sizes[:-1]
        codes = np.unravel_index(group, sizes) if sizes else ()
        named = {name: self.columns.cells[name].name(int(c)) for name, c in zip(self.by, codes, strict=True)}
        first, last = (0, index) if self.kind == "thresholds" else (int(end) for end in self._plain.pair(index))
        named[self.column], text = self._between(first, last)
        others = [f"{name} = {named[name]}" for name in self.by]
        return tidy_name(" and ".join([text, *others]), named)

    def _between(self, first: int, last: int) -> tuple[str, str]:
        """Return the name of a run of cells, and the comparison that says it."""
        cuts, column = self._cuts, self.column
        lower, upper = first > 0, last < len(cuts)
        low = self._line.written(cuts[first - 1]) if lower else ""
        high = self._line.written(cuts[last]) if upper else ""
        if lower and upper:
            return f"{low} to below {high}", f"{column} >= {low} and {column} < {high}"
        if lower:
            return f"{low} and above", f"{column} >= {low}"
        holds = self._line.holds
        return (f"below {high}", f"{column} < {high}") if upper else (f"any {holds}", f"{column} is a {holds}")

    def _settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "column": self.column, "by": list(self.by)}
