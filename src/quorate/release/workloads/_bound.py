"""A workload on known columns: its queries, their names, and the cell of each record."""

import json
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.compute.blocks import add_blocks
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.domain import Between, Domain, SealedCounts, as_list, check_listable
from quorate.release.queries import NOTHING, Queries, Rows, Whole
from quorate.release.queries.marginals import Truths
from quorate.release.workloads._columns import Columns
from quorate.tables.files import TableStream
from quorate.tables.results import make_table

_MOST_COUNTED = 2**24  # cells of all tables together that are counted part by part: 128 MB
_NO_UNITS = np.empty(0, dtype=np.int64)  # every row is a unit
_OURS = {"query", "asked", "answer", "error", "low", "high", "gap"}  # columns of a tidy table that are not the user's


class BoundWorkload(Domain):
    """The queries of a workload on a table with declared columns.

    They have numbers from 0 to `count_queries` - 1. A request is such a number, a query's name as `describe` gives it,
    or a mapping from columns to values. Hooks map a request to its query, to the two queries that bracket it, or to the
    queries that add up to it.
    """

    def __init__(self, columns: Columns, queries: Queries, count_queries: int) -> None:
        self.columns, self.queries, self.count_queries = columns, queries, count_queries
        self.possible = columns.possible  # refuses unsatisfiable constraints before anything is paid
        self._public: Floats | Rows | None = None
        self._numbers_by_name: dict[str, int] | None = None

    @abstractmethod
    def _find(self, request: Any) -> int:
        """Return the number of the query that a mapping names."""

    def _find_name(self, text: str) -> int:
        """Return the number of the query of this name, as `describe` gives it."""
        if self._numbers_by_name is None:
            self._numbers_by_name = {row["query"]: number for number, row in enumerate(self.describe())}
        if text not in self._numbers_by_name:
            first = next(iter(self._numbers_by_name))
            raise InvalidInput(
                f"no query of this workload is called {text!r}; they are called as {first!r} is, and one can be asked "
                'by its values: {"column": value}'
            )
        return self._numbers_by_name[text]

    def _bracket(self, request: Any) -> Between | None:
        """Return the two queries that bracket a request, or None if it is a query itself."""
        return None

    def _addends(self, request: Any) -> Whole | None:
        """Return the numbers of the queries that add up to a request, or None if it is a query itself."""
        return None

    def _name_sum(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name of a request that queries add up to."""
        return {}

    @abstractmethod
    def _name(self, number: int) -> dict[str, Any]:
        """Return the name of one query, as one row of a tidy table."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return the settings that, with the columns, recreate this workload."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        return self.columns.sizes

    def encode(self, table: Any) -> Rows:
        """Return the codes of each row. No value raises."""
        return self.columns.encode(table)

    def count(self, records: Any) -> Whole | Rows:
        """Return the number of rows in each cell of the whole table."""
        rows = self.encode(records)
        return rows.sum_cells(range(len(rows.sizes))).astype(np.int64)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The tables, by their columns, whose counts are all that queries need: by default the whole one."""
        return (tuple(range(len(self.sizes))),)

    def seal_parts(self, private: Any) -> tuple[SealedCounts, int]:
        """Return the records of a stream, or of a table that a cluster reads, by the cells of their tables.

        Each part is counted where it is read, and whole numbers are added: nothing of a record is kept.
        """
        entries = [math.prod(self.sizes[column] for column in columns) for columns in self.tables]
        if sum(entries) > _MOST_COUNTED and isinstance(private, TableStream):
            return self.seal(private)
        if sum(entries) > _MOST_COUNTED:
            raise Infeasible(
                f"the tables of these columns have {sum(entries)} cells, above the {_MOST_COUNTED} that a cluster "
                "counts; take a lower order, fewer columns or fewer cells of each"
            )
        count = partial(_count_cells, self.columns, self.tables)
        if isinstance(private, TableStream):
            total = add_blocks(count, ((table, _NO_UNITS) for table in private), sum(entries))
        else:
            total = private.map_add(count, sum(entries))
        parts = np.split(total, np.cumsum(entries)[:-1])
        records = int(parts[0].sum())
        if records == 0:
            raise InvalidInput("private must hold at least one record")
        return SealedCounts(self._keep_counts(parts)), records

    def _keep_counts(self, tables: Sequence[Whole]) -> Whole | Rows:
        """Return the counts of the tables as an engine takes them."""
        return tables[0]

    def keep_public(self, counts: Whole | Floats | Rows | None) -> None:
        """Keep public records by their codes or cells."""
        self._public = counts if counts is None or isinstance(counts, Rows) else counts.astype(np.float64)

    def public(self) -> Floats | Rows | None:
        """Return the public records by their codes or cells."""
        return self._public

    def identity(self) -> bytes:
        """Return the workload, its columns and the public records."""
        counts = self._public
        public = b"" if counts is None else counts.codes.tobytes() if isinstance(counts, Rows) else counts.tobytes()
        return json.dumps(self.to_dict(), sort_keys=True).encode() + public

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the workload with its columns and the counted public records."""
        counts, workload = self._public, {"workload": self.to_dict()}
        if isinstance(counts, Rows):
            return workload, {"public": counts.codes, "public_weights": counts.weights}
        return workload, {} if counts is None else {"public_weights": counts}

    @classmethod
    def from_state(cls, workload: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "BoundWorkload":
        """Return the workload of `to_state`."""
        domain = cls.from_dict(workload)
        weights: Any = arrays.get("public_weights")
        domain.keep_public(Rows(arrays["public"], domain.sizes, weights) if "public" in arrays else weights)
        return domain

    def find(self, requests: Any) -> Whole:
        """Return the query numbers of these numbers, names, mappings or expressions."""
        numbers = np.array([self._number(request) for request in as_list(requests)], dtype=np.int64)
        if numbers.size and not (numbers.min() >= NOTHING and numbers.max() < self.count_queries):
            raise InvalidInput(f"a query of this workload has a number from 0 to {self.count_queries - 1}")
        return numbers

    def _number(self, request: Any) -> int:
        if isinstance(request, int | np.integer) and not isinstance(request, bool):
            return int(request)
        return int(self._find_name(request) if isinstance(request, str) else self._find(request))

    def find_sums(self, requests: Any) -> tuple[Whole, Whole]:
        """Return the query numbers that add up to each request; for a bracketed request, the outer query."""
        listed = [] if isinstance(requests, np.ndarray) else as_list(requests)
        sums = [self._numbers_of(request) for request in listed]
        if all(numbers is None for numbers in sums):
            return super().find_sums(requests)
        pairs = zip(sums, listed, strict=True)
        lists = [self.find([request]) if numbers is None else numbers for numbers, request in pairs]
        return np.concatenate(lists), np.cumsum([0, *map(len, lists[:-1])])

    def _numbers_of(self, request: Any) -> Whole | None:
        bracket = self._bracket(request)
        return self._addends(request) if bracket is None else np.array([bracket.outer], dtype=np.int64)

    def between(self, requests: Any) -> list[Between | None]:
        """Return the two queries that bracket each request, or None if it is a query itself."""
        return [] if isinstance(requests, np.ndarray) else [self._bracket(request) for request in as_list(requests)]

    def every(self) -> Whole:
        """Return the numbers of all queries of the workload."""
        check_listable(self.count_queries)
        return np.arange(self.count_queries, dtype=np.int64)

    def describe(self, numbers: Iterable[int] | None = None, requests: Any = None) -> list[dict[str, Any]]:
        """Return the names of all queries, or of some, one row a query with the same columns.

        With `requests`, a row also has the request, if a nearby query answers it or the query is part of its sum.
        """
        which = range(self.count_queries) if numbers is None else [int(number) for number in numbers]
        if numbers is not None and any(not 0 <= number < self.count_queries for number in which):
            raise InvalidInput(f"a query of this workload has a number from 0 to {self.count_queries - 1}")
        names = [self._name(number) for number in which]
        for name, request in zip(names, () if requests is None else as_list(requests), strict=requests is not None):
            if self._addends(request) is not None:
                name.update(self._name_sum(request))
            elif self._bracket(request) is not None:
                name["asked"] = json.dumps(request)
        return names

    def mask_possible(self, cells: int, support: Rows | None) -> Truths | None:
        """Return the mask of cells, or rows of the support, that satisfy the constraints; None without constraints."""
        if self.possible is None:
            return None
        return self.possible.records(self.cell_codes(np.arange(cells)) if support is None else support.codes)

    def rows(self, cells: Whole, support: Rows | None) -> Any:
        """Return records of these cells, or of these rows, as a table."""
        return make_table(self.decode(self.cell_codes(cells) if support is None else support.codes[cells]))

    def cell_codes(self, cells: ArrayLike) -> Whole:
        """Return the codes of cells of the whole table, by their numbers."""
        return np.stack(np.unravel_index(np.asarray(cells, dtype=np.int64), self.sizes), axis=-1)

    def decode(self, codes: ArrayLike) -> dict[str, list[Any]]:
        """Return a value for each code, column by column."""
        return self.columns.decode(np.asarray(codes, dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object of public values that recreates this workload."""
        return {"workload": self._settings(), "columns": self.columns.to_dict()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "BoundWorkload":
        """Return the workload of `to_dict`."""
        from quorate.release.workloads._workload import Workload  # noqa: PLC0415  (it makes these)

        if not isinstance(document, Mapping) or set(document) != {"workload", "columns"}:
            raise InvalidInput('a workload on columns is an object with "workload" and "columns"')
        return Workload.from_dict(document["workload"]).bind(columns=Columns.from_dict(document["columns"]))


def _count_cells(columns: Columns, tables: Sequence[tuple[int, ...]], table: Any, _units: Integers) -> Whole:
    """Return the number of rows of a table in each cell of the tables of these columns, one after the other."""
    rows = columns.encode(table)
    return np.concatenate([rows.sum_cells(members) for members in tables]).astype(np.int64)


def tidy_name(text: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name of a query as a row of a tidy table; a column that is called like one of ours is in its text."""
    return {"query": text, **{name: value for name, value in values.items() if name not in _OURS}}
