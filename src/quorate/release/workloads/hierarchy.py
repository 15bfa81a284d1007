"""A column with a public hierarchy: how many belong to each node of each level, perhaps by other columns."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.release.cover.base import check_cells
from quorate.release.queries import Levels, Whole
from quorate.release.workloads.bound import BoundWorkload, tidy_name
from quorate.release.workloads.columns import Columns
from quorate.tables.cells import CategoryCells

__all__ = ["HierarchyWorkload"]


class HierarchyWorkload(BoundWorkload):
    """Every node of a hierarchy in each group; the answers of a level add up to those of the level above.

    A query says the group and a node, of any level: `{"county": "north", "sex": "f"}`. Without the group it is the sum
    over all groups, and without the node the group itself.
    """

    queries: Levels

    def __init__(self, columns: Columns, column: str, by: Sequence[str]) -> None:
        chosen = columns.select([*by, column])
        cells = chosen.cells[column]
        if not isinstance(cells, CategoryCells) or not cells.parents or column in by:
            raise InvalidInput(f"a hierarchy is of a category with parents, which {column!r} is not")
        self.column, self.by = column, tuple(by)
        self._groups = math.prod(chosen.sizes[:-1])
        check_cells(cells.size * self._groups, f"the hierarchy of {column!r} by {len(by)} columns")
        levels = cells.levels()
        named = [tuple(cells.rest if name is None else name for name in names) for names, _ in levels]
        self._names = [("",), *named]  # of the group itself, and of each level
        group = np.repeat(np.arange(self._groups), cells.size)
        maps = [group]
        for names, where in levels:
            maps.append(group * len(names) + np.tile(where, self._groups))
        queries = Levels(maps)
        super().__init__(chosen, queries, queries.count)
        self._places = {"": (0, 0)} | ({} if cells.closed else {cells.rest: (len(levels), cells.size - 1)})
        for level, (names, _) in enumerate(levels, start=1):
            self._places |= {name: (level, place) for place, name in enumerate(names) if name is not None}

    def count(self, table: Any) -> Whole:
        """Return how many rows each cell has."""
        rows = self.encode(table)
        return np.bincount(rows.cell(range(len(rows.sizes))), minlength=self.queries.cells)

    def find(self, asked: Any) -> int:
        """Return the node that is asked for in a group."""
        numbers = self._numbers(asked)
        if len(numbers) != 1:
            raise InvalidInput(f"a query of this workload says {', '.join(self.columns.names)}")
        return int(numbers[0])

    def summed(self, asked: Any) -> Whole | None:
        """Return the nodes of all groups that add up to what is asked of some of the columns alone."""
        if not isinstance(asked, Mapping) or set(self.by) <= set(asked):
            return None
        return self._numbers(asked)

    def _numbers(self, asked: Any) -> Whole:
        if not isinstance(asked, Mapping) or not asked or not set(asked) <= set(self.columns.names):
            raise InvalidInput(f"a query of this workload says {' or '.join(self.columns.names)}, not {asked!r}")
        name = str(asked.get(self.column, ""))
        if name not in self._places:
            raise InvalidInput(f"column {self.column!r}: {name!r} is no node of its hierarchy")
        level, place = self._places[name]
        groups = np.zeros(1, dtype=np.int64)
        for other in self.by:
            size = self.columns.cells[other].size
            codes = [self.columns.code(other, asked[other])] if other in asked else list(range(size))
            groups = (groups[:, None] * size + np.array(codes)).ravel()
        return np.asarray(self.queries.offsets[level] + groups * len(self._names[level]) + place)

    def describe_sum(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of a sum over groups."""
        return self._named(str(asked.get(self.column, "")), {name: str(asked.get(name, "")) for name in self.by})

    def _name(self, number: int) -> dict[str, Any]:
        level = int(np.searchsorted(self.queries.offsets, number, side="right")) - 1
        group, place = divmod(number - int(self.queries.offsets[level]), len(self._names[level]))
        sizes = self.columns.sizes[:-1]
        codes = np.unravel_index(group, sizes) if sizes else ()
        groups = {name: self.columns.cells[name].name(int(code)) for name, code in zip(self.by, codes, strict=True)}
        return self._named(self._names[level][place], groups)

    def _named(self, node: str, groups: Mapping[str, str]) -> dict[str, Any]:
        said = [f"{name} = {value}" for name, value in groups.items() if value]
        said = [*([f"{self.column} = {node}"] if node else []), *said]
        return tidy_name(" and ".join(said) or "all", {**groups, self.column: node})

    def _settings(self) -> dict[str, Any]:
        return {"kind": "hierarchy", "column": self.column, "by": list(self.by)}
