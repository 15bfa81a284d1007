"""Workloads on known columns: marginals, and the nodes of a hierarchy."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quorate.core.checks import check_count
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.cover.base import check_cells
from quorate.release.queries import MOST_LISTED, Levels, Marginals, Numbered, Queries, Rows, Whole
from quorate.release.workloads.columns import Columns, names_of
from quorate.tables.cells import CategoryCells

_OURS = {"query", "asked", "answer", "error", "low", "high", "gap"}  # columns of a tidy table that are not the user's


@dataclass(frozen=True)
class Between:
    """What is asked at ends that are no cuts: it lies between two queries, the one within the other.

    `weight` is the share of what lies between them that is taken to belong, if values spread evenly between two cuts.
    """

    inner: int
    outer: int
    weight: float


class BoundWorkload(Numbered, ABC):
    """What is asked of a table whose columns are known. It holds public things alone.

    The workload's queries have numbers from 0 to `count_queries` - 1. Each is one of the engine's `queries`, or one of
    them less another: `parts` says which.
    """

    def __init__(self, columns: Columns, queries: Queries, count_queries: int) -> None:
        self.columns, self.queries, self.count_queries = columns, queries, count_queries
        self.possible = columns.possible  # constraints that cannot be kept are refused here, before anything is paid

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each column has."""
        return self.columns.sizes

    def encode(self, table: Any) -> Rows:
        """Return the codes of each row. No value raises."""
        return self.columns.encode(table)

    def unread(self, table: Any) -> tuple[str, ...]:
        """Return the columns of a table that are asked about by nobody because nobody has declared them."""
        return ()

    @abstractmethod
    def count(self, table: Any) -> "Whole | Rows":
        """Return what an engine takes: how many rows each cell has, or the rows themselves by their codes."""

    @abstractmethod
    def find(self, asked: Any) -> int:
        """Return the number of the query that is asked for."""

    def answers_itself(self, asked: Any) -> bool:
        """Return whether this very query is answered, and not one near it."""
        return True

    def between(self, asked: Any) -> Between | None:
        """Return the two queries between which lies what is asked, None where it is a query itself."""
        return None

    def summed(self, asked: Any) -> Whole | None:
        """Return the numbers of the queries that add up to what is asked, None where it is one of them itself."""
        return None

    def describe_sum(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of what queries add up to."""
        return {}

    @abstractmethod
    def _name(self, number: int) -> dict[str, Any]:
        """Return the name of one query, as one row of a tidy table."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return what is needed beside the columns to make this workload again."""

    def describe(self, numbers: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """Return the names of all queries, or of some, one row a query with the same columns."""
        which = range(self.count_queries) if numbers is None else [int(number) for number in numbers]
        if numbers is not None and any(not 0 <= number < self.count_queries for number in which):
            raise InvalidInput(f"a query of this workload has a number from 0 to {self.count_queries - 1}")
        return [self._name(number) for number in which]

    def cell_codes(self, cells: ArrayLike) -> Whole:
        """Return the codes of cells of the whole table, by their numbers."""
        return np.stack(np.unravel_index(np.asarray(cells, dtype=np.int64), self.sizes), axis=-1)

    def decode(self, codes: ArrayLike) -> dict[str, list[Any]]:
        """Return a value for each code, column by column."""
        return self.columns.decode(np.asarray(codes, dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object from which this is made again. It holds public things alone."""
        return {"workload": self._settings(), "columns": self.columns.to_dict()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "BoundWorkload":
        """Return the workload that `to_dict` has described."""
        from quorate.release.workloads.workload import Workload  # noqa: PLC0415  (it makes these)

        if not isinstance(document, Mapping) or set(document) != {"workload", "columns"}:
            raise InvalidInput('a workload on columns is an object with "workload" and "columns"')
        return Workload.from_dict(document["workload"]).bind(columns=Columns.from_dict(document["columns"]))


def tidy_name(text: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name of a query as a row of a tidy table; a column that is called like one of ours is in its text."""
    return {"query": text, **{name: value for name, value in named.items() if name not in _OURS}}


def check_asked(asked: Any, names: Iterable[str]) -> Mapping[str, Any]:
    """Return what is asked as a mapping from columns, or refuse it."""
    expected = list(names)
    if not isinstance(asked, Mapping) or set(asked) != set(expected):
        given = ", ".join(map(str, asked)) if isinstance(asked, Mapping) else repr(asked)
        raise InvalidInput(f"a query of this workload says {', '.join(expected)}, not {given}")
    return asked


class MarginalWorkload(BoundWorkload):
    """Every cell of the table of each `order` columns, the cells of what is not declared among them."""

    queries: Marginals

    def __init__(self, columns: Columns, order: int) -> None:
        self.order = check_count("order", order)
        if self.order > len(columns.names):
            raise InvalidInput(f"marginals of {order} columns need as many columns, not {len(columns.names)}")
        _check_size(columns.sizes, self.order)
        queries = Marginals.of_order(columns.sizes, self.order, columns.possible)
        super().__init__(columns, queries, queries.count)

    def unread(self, table: Any) -> tuple[str, ...]:
        """Return the columns of a table that are not declared: marginals are of all columns."""
        return tuple(name for name in names_of(table) if name not in self.columns.names)

    def count(self, table: Any) -> Rows:
        """Return the rows by their codes."""
        return self.encode(table)

    def find(self, asked: Any) -> int:
        """Return the number of the query for a value of each of its columns."""
        if not isinstance(asked, Mapping) or len(asked) != self.order:
            raise InvalidInput(
                "a query of this workload is a mapping such as {'column': value}, with values of at most "
                f"{self.order} columns"
            )
        codes = self._codes(asked)
        clique = tuple(sorted(codes))
        return self.queries.number(self.queries.cliques.index(clique), [codes[column] for column in clique])

    def summed(self, asked: Any) -> Whole | None:
        """Return the cells of a table that add up to what is asked of fewer columns: those of the smallest table."""
        if not isinstance(asked, Mapping) or not 0 < len(asked) < self.order:
            return None
        codes = self._codes(asked)
        tables = [position for position, clique in enumerate(self.queries.cliques) if set(codes) <= set(clique)]
        position = min(tables, key=lambda table: math.prod(self.queries.shapes[table]))
        index = tuple(codes.get(column, slice(None)) for column in self.queries.cliques[position])
        cells = np.arange(math.prod(self.queries.shapes[position])).reshape(self.queries.shapes[position])
        return np.asarray(cells[index].ravel() + self.queries.offsets[position])

    def describe_sum(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of what is asked of fewer columns than a table has."""
        return self._make_name(self._codes(asked))

    def _codes(self, asked: Mapping[str, Any]) -> dict[int, int]:
        chosen = self.columns.select(list(asked))
        return {self.columns.names.index(name): chosen.code(name, value) for name, value in asked.items()}

    def _name(self, number: int) -> dict[str, Any]:
        clique, codes = self.queries.find(number)
        return self._make_name(dict(zip(self.queries.cliques[clique], codes, strict=True)))

    def _make_name(self, codes: Mapping[int, int]) -> dict[str, Any]:
        names = self.columns.names
        said = {names[column]: self.columns.cells[names[column]].name(codes[column]) for column in sorted(codes)}
        text = " and ".join(f"{name} = {value}" for name, value in said.items())  # a category may be a blank
        return tidy_name(text, dict.fromkeys(names, "") | said)

    def _settings(self) -> dict[str, Any]:
        return {"kind": "marginals", "order": self.order}


def cells_of_orders(sizes: Sequence[int], order: int) -> list[int]:
    """Return how many cells all marginals of no column, of one, and so on up to `order` have.

    They are symmetric polynomials of the sizes: no marginal is listed.
    """
    sums = [1] + [0] * order
    for size in sizes:
        for degree in range(order, 0, -1):
            sums[degree] += size * sums[degree - 1]
    return sums


def _check_size(sizes: tuple[int, ...], order: int) -> None:
    """Refuse more queries than can be listed, before any is."""
    queries = cells_of_orders(sizes, order)[order]
    if queries > MOST_LISTED:
        raise Infeasible(
            f"all marginals of {order} of these {len(sizes)} columns are {queries} queries, above {MOST_LISTED}; "
            "take a lower order, fewer columns or fewer cells of each"
        )


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
            self._places |= {name: (level, index) for index, name in enumerate(names) if name is not None}

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
        level, index = self._places[name]
        groups = np.zeros(1, dtype=np.int64)
        for other in self.by:
            size = self.columns.cells[other].size
            codes = [self.columns.code(other, asked[other])] if other in asked else list(range(size))
            groups = (groups[:, None] * size + np.array(codes)).ravel()
        return np.asarray(self.queries.offsets[level] + groups * len(self._names[level]) + index)

    def describe_sum(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of a sum over groups."""
        return self._make_name(str(asked.get(self.column, "")), {name: str(asked.get(name, "")) for name in self.by})

    def _name(self, number: int) -> dict[str, Any]:
        level = int(np.searchsorted(self.queries.offsets, number, side="right")) - 1
        group, index = divmod(number - int(self.queries.offsets[level]), len(self._names[level]))
        sizes = self.columns.sizes[:-1]
        codes = np.unravel_index(group, sizes) if sizes else ()
        groups = {name: self.columns.cells[name].name(int(code)) for name, code in zip(self.by, codes, strict=True)}
        return self._make_name(self._names[level][index], groups)

    def _make_name(self, node: str, groups: Mapping[str, str]) -> dict[str, Any]:
        said = [f"{name} = {value}" for name, value in groups.items() if value]
        said = [*([f"{self.column} = {node}"] if node else []), *said]
        return tidy_name(" and ".join(said) or "all", {**groups, self.column: node})

    def _settings(self) -> dict[str, Any]:
        return {"kind": "hierarchy", "column": self.column, "by": list(self.by)}
