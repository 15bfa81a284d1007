"""Queries about one column in each group of other columns: thresholds, ranges, and the nodes of a hierarchy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.release.domain import Between
from quorate.release.queries import NOTHING, Levels, Prefixes, Queries, Ranges, Whole
from quorate.release.queries.base import check_cells
from quorate.release.workloads._bound import BoundWorkload, tidy_name
from quorate.release.workloads._columns import Columns
from quorate.tables.cells import CategoryCells, DateCells, NumberCells


class GroupedWorkload(BoundWorkload):
    """Queries about a column for each combination of the columns `by`, the last column fastest."""

    def __init__(self, columns: Columns, column: str, by: Sequence[str], queries: Queries, count_queries: int) -> None:
        self.column, self.by = column, tuple(by)
        super().__init__(columns, queries, count_queries)

    def _name_group(self, group: int) -> dict[str, str]:
        """Return the cell of each column of a group by its name."""
        sizes = self.columns.sizes[:-1]
        codes = np.unravel_index(group, sizes) if sizes else ()
        return {name: self.columns.cells[name].name(int(code)) for name, code in zip(self.by, codes, strict=True)}


def _select(columns: Columns, column: str, by: Sequence[str], noun: str) -> tuple[Columns, int]:
    """Return the group columns with the column itself, and the number of groups."""
    chosen = columns.select([*by, column])
    groups = math.prod(chosen.sizes[:-1])
    check_cells(chosen.cells[column].size * groups, f"{noun} of {column!r} by {len(by)} columns")
    return chosen, groups


class LineWorkload(GroupedWorkload):
    """For each group, the records below each cut of a column of numbers, or between each two.

    Each group is a separate line with the cells of the column, including the cell for missing numbers.
    """

    queries: Prefixes | Ranges

    def __init__(self, columns: Columns, column: str, by: Sequence[str], kind: Literal["thresholds", "ranges"]) -> None:
        cells = columns.select([*by, column]).cells[column]
        if not isinstance(cells, NumberCells) or column in by:
            raise InvalidInput(f"{kind} are of a column of numbers or dates, which {column!r} is not; use marginals")
        chosen, groups = _select(columns, column, by, kind)
        self.kind, self._cuts, self._line = kind, cells.values, cells
        self._plain = Ranges(cells.line)  # ranges of one group, without the cell for missing numbers
        self._queries_per_group = cells.line if kind == "thresholds" else self._plain.count
        queries = (Prefixes if kind == "thresholds" else Ranges)(cells.size, groups)
        super().__init__(chosen, column, by, queries, self._queries_per_group * groups)

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the prefix of a group's line for each threshold, or the engine's range for each range."""
        wanted = np.asarray(numbers, dtype=np.int64)
        nothing = wanted == NOTHING
        group, index = np.divmod(np.where(nothing, 0, wanted), self._queries_per_group)
        start = group * self._line.size
        if isinstance(self.queries, Prefixes):
            plus = start + index
        else:
            first, last = self._plain.pair(index)
            plus = self.queries.number(start + first, start + last)
        return np.where(nothing, NOTHING, plus), np.full_like(wanted, NOTHING)

    def _find(self, request: Any) -> int:
        """Return the query at the nearest cuts: `{column: end}`, for ranges `{column: (lower, upper)}`."""
        group, (lower, upper) = self._read_request(request)
        first, last = self._nearest(lower), self._nearest(upper)
        if self.kind == "ranges" and first >= last:
            raise InvalidInput(f"column {self.column!r}: no cut of the column lies between these two ends")
        return self._number_run(group, first, last)

    def _bracket(self, request: Any) -> Between | None:
        """Return the cells entirely within the ends, and those that also overlap them in part."""
        if not isinstance(request, Mapping):
            return None
        group, ends = self._read_request(request)
        low, high = (self._locate(end) for end in ends)
        if low[1] == high[1] == 0.0:
            return None
        if ends[0] >= ends[1]:
            raise InvalidInput(f"column {self.column!r}: the lower end of a range must be below the upper one")
        within = [1.0 - low[1]] * (low[1] > 0) + [high[1]] * (high[1] > 0)
        weight = high[1] - low[1] if low[0] == high[0] else sum(within) / len(within)
        inner = self._number_run(group, low[0] + (low[1] > 0), high[0])
        return Between(inner, self._number_run(group, low[0], high[0] + (high[1] > 0)), weight)

    def _read_request(self, request: Any) -> tuple[int, tuple[float, float]]:
        """Return the group and the two ends that a request names."""
        names = self.columns.names
        if not isinstance(request, Mapping) or set(request) != set(names):
            text = ", ".join(map(str, request)) if isinstance(request, Mapping) else repr(request)
            raise InvalidInput(f"a query of this workload says {', '.join(names)}, not {text}")
        group = 0
        for name in self.by:
            group = group * self.columns.cells[name].size + self.columns.code(name, request[name])
        if self.kind == "thresholds":
            return group, (-math.inf, self._read_end(request[self.column]))
        try:
            lower, upper = request[self.column]
        except (TypeError, ValueError):
            raise InvalidInput(f"column {self.column!r}: a range is asked by its two ends") from None
        low, high = -math.inf if lower is None else self._read_end(lower), math.inf if upper is None else upper
        return group, (low, self._read_end(high))

    def _number_run(self, group: int, first: int, last: int) -> int:
        """Return the query of the cells from `first` to before `last` in a group."""
        if first >= last:
            return NOTHING
        index = last - 1 if self.kind == "thresholds" else int(self._plain.number(first, last - 1))
        return group * self._queries_per_group + index

    def even_columns(self, below: Floats, cells: int) -> Columns:
        """Return the column with cuts that split the records evenly, from the shares below all cuts and in total."""
        if self.kind != "thresholds" or self.by:
            raise InvalidInput("quantiles are read off thresholds of one column, without groups")
        rising = np.maximum.accumulate(below[:-1])
        wanted = below[-1] * np.arange(1, cells) / cells
        chosen = sorted({int(np.abs(rising - share).argmin()) for share in wanted}) if rising.size else []
        kind: Any = self.columns.kinds[self.column]
        dated = isinstance(self._line, DateCells)
        cuts = [self._line.format_number(self._cuts[index]) if dated else self._cuts[index] for index in chosen]
        return Columns({self.column: replace(kind, cuts=cuts, spans=None)})

    def _read_end(self, end: Any) -> float:
        try:
            return self._line.number(end)
        except InvalidInput:
            holds = self._line.holds
            raise InvalidInput(f"column {self.column!r}: an end must be a {holds}, not {end!r}") from None

    def _nearest(self, end: float) -> int:
        """Return the cell that begins at the cut nearest to an end: 0 for minus infinity, all for infinity."""
        cell, below = self._locate(end)
        return cell + (below > 0.5 or (below > 0.0 and cell == 0))

    def _locate(self, end: float) -> tuple[int, float]:
        """Return the cell of an end, and the share of the cell below it: 0 at a cut, a half in an open cell."""
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
        group, index = divmod(number, self._queries_per_group)
        groups = self._name_group(group)
        first, last = (0, index) if self.kind == "thresholds" else (int(end) for end in self._plain.pair(index))
        name, text = self._name_run(first, last)
        texts = [text, *(f"{column} = {value}" for column, value in groups.items())]
        return tidy_name(" and ".join(texts), {**groups, self.column: name})

    def _name_run(self, first: int, last: int) -> tuple[str, str]:
        """Return the name of a run of cells, and its comparison."""
        cuts, column = self._cuts, self.column
        lower, upper = first > 0, last < len(cuts)
        low = self._line.format_number(cuts[first - 1]) if lower else ""
        high = self._line.format_number(cuts[last]) if upper else ""
        if lower and upper:
            return f"{low} to below {high}", f"{column} >= {low} and {column} < {high}"
        if lower:
            return f"{low} and above", f"{column} >= {low}"
        holds = self._line.holds
        return (f"below {high}", f"{column} < {high}") if upper else (f"any {holds}", f"{column} is a {holds}")

    def _settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "column": self.column, "by": list(self.by)}


class HierarchyWorkload(GroupedWorkload):
    """Every node of a hierarchy in each group; the answers of a level add up to those of the level above.

    A query names the group and a node of any level: `{"county": "north", "sex": "f"}`. Without the group it is the sum
    over all groups, and without the node the whole group.
    """

    queries: Levels

    def __init__(self, columns: Columns, column: str, by: Sequence[str]) -> None:
        cells = columns.select([*by, column]).cells[column]
        if not isinstance(cells, CategoryCells) or not cells.parents or column in by:
            raise InvalidInput(f"a hierarchy is of a category with parents, which {column!r} is not")
        chosen, groups = _select(columns, column, by, "the hierarchy")
        levels = cells.levels()
        self._names = [("",), *(tuple(cells.rest if name is None else name for name in names) for names, _ in levels)]
        group = np.repeat(np.arange(groups), cells.size)
        maps = [group, *(group * len(names) + np.tile(nodes, groups) for names, nodes in levels)]
        self._positions = {"": (0, 0)} | ({} if cells.closed else {cells.rest: (len(levels), cells.size - 1)})
        for level, (names, _) in enumerate(levels, start=1):
            self._positions |= {name: (level, index) for index, name in enumerate(names) if name is not None}
        queries = Levels(maps)
        super().__init__(chosen, column, by, queries, queries.count)

    def _find(self, request: Any) -> int:
        numbers = self._find_nodes(request)
        if len(numbers) != 1:
            raise InvalidInput(f"a query of this workload says {', '.join(self.columns.names)}")
        return int(numbers[0])

    def _addends(self, request: Any) -> Whole | None:
        """Return the nodes of all groups that add up to a request of some of the columns alone."""
        if not isinstance(request, Mapping) or set(self.by) <= set(request):
            return None
        return self._find_nodes(request)

    def _find_nodes(self, request: Any) -> Whole:
        if not isinstance(request, Mapping) or not request or not set(request) <= set(self.columns.names):
            raise InvalidInput(f"a query of this workload says {' or '.join(self.columns.names)}, not {request!r}")
        name = str(request.get(self.column, ""))
        if name not in self._positions:
            raise InvalidInput(f"column {self.column!r}: {name!r} is no node of its hierarchy")
        level, index = self._positions[name]
        groups = np.zeros(1, dtype=np.int64)
        for column in self.by:
            size = self.columns.cells[column].size
            codes = [self.columns.code(column, request[column])] if column in request else list(range(size))
            groups = (groups[:, None] * size + np.array(codes)).ravel()
        return np.asarray(self.queries.offsets[level] + groups * len(self._names[level]) + index)

    def _name_sum(self, request: Mapping[str, Any]) -> dict[str, Any]:
        groups = {name: str(request.get(name, "")) for name in self.by}
        return self._make_name(str(request.get(self.column, "")), groups)

    def _name(self, number: int) -> dict[str, Any]:
        level = int(np.searchsorted(self.queries.offsets, number, side="right")) - 1
        group, index = divmod(number - int(self.queries.offsets[level]), len(self._names[level]))
        return self._make_name(self._names[level][index], self._name_group(group))

    def _make_name(self, node: str, groups: Mapping[str, str]) -> dict[str, Any]:
        pairs = {self.column: node, **groups}
        text = " and ".join(f"{name} = {value}" for name, value in pairs.items() if value)
        return tidy_name(text or "all", {**groups, self.column: node})

    def _settings(self) -> dict[str, Any]:
        return {"kind": "hierarchy", "column": self.column, "by": list(self.by)}
