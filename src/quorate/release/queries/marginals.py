"""Marginals, the cells of tables over a few columns each, and the possible cells under constraints.

Constraints are declared on groups of columns. A record is possible if its codes are possible in every group, so one
table of truth values for each group is enough.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count, check_positive
from quorate.core.errors import InvalidInput
from quorate.release.queries.base import Queries, Rows, check_list_size, check_numbers, check_weights, check_whole

Truths = NDArray[np.bool_]
Clique = tuple[int, ...]  # numbers of columns
_MOST_CELLS = 200_000_000  # of a whole table that is held at all: 1.6 GB
_MOST_QUERIES = 2**31


@dataclass(frozen=True, repr=False, eq=False)
class Possible:
    """The possible combinations of codes for each group of columns; no column is in two groups."""

    groups: tuple[tuple[tuple[int, ...], Truths], ...]

    def table(self, columns: Sequence[int], sizes: Sequence[int]) -> Truths:
        """Return the mask of possible cells in the table of these columns, the last running fastest."""
        mask = np.ones([sizes[column] for column in columns], dtype=np.bool_)
        for members, table in self.groups:
            if shared := [column for column in members if column in columns]:
                seen = table.any(axis=tuple(index for index, column in enumerate(members) if column not in columns))
                order = sorted(range(len(shared)), key=lambda index: columns.index(shared[index]))
                shape = [sizes[column] if column in shared else 1 for column in columns]
                mask &= np.asarray(seen).transpose(order).reshape(shape)
        return mask.ravel()

    def cliques(self, cliques: Sequence[Sequence[int]], sizes: Sequence[int]) -> Truths:
        """Return the masks of possible cells in the tables of these cliques, one after the other."""
        return np.concatenate([self.table(clique, sizes) for clique in cliques])

    def records(self, codes: Integers) -> Truths:
        """Return the mask of possible records."""
        mask = np.ones(len(codes), dtype=np.bool_)
        for members, table in self.groups:
            mask &= table[tuple(codes[:, column] for column in members)]
        return mask

    def filter_rows(self, rows: Rows) -> Rows:
        """Return the possible records; without any, one repaired record."""
        mask = self.records(rows.narrow)
        if not mask.any():
            return Rows(self.repair_codes(rows.codes[:1]), rows.sizes)
        return rows if mask.all() else Rows(rows.narrow[mask], rows.sizes, rows.weights[mask])

    def repair_codes(self, codes: Integers) -> Integers:
        """Return possible records: an impossible group of codes is replaced by that of a possible record.

        A generator of a fixed seed draws that record. Without any, the first possible combination is used.
        """
        codes, chance = codes.copy(), np.random.default_rng(3)
        for members, table in self.groups:
            columns = np.array(members)
            mask = table[tuple(codes[:, columns].T)]
            if mask.all():
                continue
            if mask.any():
                donors = chance.choice(np.flatnonzero(mask), size=int((~mask).sum()))
                codes[np.ix_(~mask, columns)] = codes[np.ix_(donors, columns)]
            else:
                codes[np.ix_(~mask, columns)] = np.argwhere(table)[0]
        return codes


def clear_weights(weights: Floats, mask: Truths) -> Floats:
    """Return weights without those of impossible cells or records; uniform weights where none remain."""
    possible = np.where(mask, np.maximum(weights, 0.0), 0.0)
    total = float(possible.sum())
    return np.asarray(possible / total if total > 0 else mask / mask.sum())


class Marginals(Queries):
    """Every cell of the table of each clique (a tuple of column numbers), clique by clique, the last column fastest.

    Weights are given on the whole table (`cells` numbers, the last column fastest) or as `Rows`. `importance` says what
    an engine makes small: None the largest error of all; or the mean error of a marginal, each weighted by its number.
    `possible` has the possible cells; None allows all. It changes the post-processing, not the measurement.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        cliques: Sequence[Sequence[int]],
        importance: Sequence[float] | None = None,
        possible: Possible | None = None,
    ) -> None:
        self.possible = possible
        self.sizes = tuple(check_count("size", size) for size in sizes)
        self.cliques = _check_cliques(cliques, len(self.sizes))
        self.shapes = tuple(tuple(self.sizes[column] for column in clique) for clique in self.cliques)
        ends = list(itertools.accumulate((math.prod(shape) for shape in self.shapes), initial=0))
        if ends[-1] > _MOST_QUERIES:
            raise InvalidInput(f"these marginals have {ends[-1]} cells, more than the {_MOST_QUERIES} that fit")
        self.offsets, self.count = np.array(ends, dtype=np.int64), ends[-1]
        table_cells = math.prod(self.sizes)
        self.cells = table_cells if table_cells <= _MOST_CELLS else None
        self.importance = (
            None if importance is None else tuple(check_positive("weight", weight) for weight in importance)
        )
        if self.importance is not None and len(self.importance) != len(self.cliques):
            raise InvalidInput(f"{len(self.cliques)} marginals take as many weights, not {len(self.importance)}")

    @classmethod
    def of_order(cls, sizes: Sequence[int], order: int, possible: Possible | None = None) -> "Marginals":
        """Return all marginals of `order` columns."""
        cliques = list(itertools.combinations(range(len(sizes)), check_count("order", order)))
        return cls(sizes, cliques, possible=possible)

    @property
    def squares(self) -> tuple[int, ...]:
        """The squared L2 change of each marginal when one record is replaced: it leaves one cell and enters another."""
        return tuple(2 if math.prod(shape) > 1 else 0 for shape in self.shapes)

    @property
    def sensitivity(self) -> int:
        """The squared L2 change of all marginals together when one record is replaced."""
        return sum(self.squares)

    @cached_property
    def mask(self) -> Truths | None:
        """The mask of queries about possible cells; None where all are possible."""
        return None if self.possible is None else self.possible.cliques(self.cliques, self.sizes)

    def column_shares(self, answers: Floats, column: int) -> Floats | None:
        """Return the shares of a column's codes in the first marginal that has it; None where none has it."""
        index = next((number for number, clique in enumerate(self.cliques) if column in clique), None)
        if index is None:
            return None
        table = answers[self.offsets[index] : self.offsets[index + 1]].reshape(self.shapes[index])
        return np.asarray(
            table.sum(axis=tuple(axis for axis, name in enumerate(self.cliques[index]) if name != column))
        )

    def number(self, clique: int, codes: ArrayLike) -> int:
        """Return the number of the query for these codes of a clique's columns."""
        values = [int(code) for code in np.asarray(codes).ravel()]
        return int(self.offsets[clique]) + int(np.ravel_multi_index(values, self.shapes[clique]))

    def find(self, query: int) -> tuple[int, tuple[int, ...]]:
        """Return the clique of a query and its codes."""
        number = int(check_numbers(query, self.count))
        clique = int(np.searchsorted(self.offsets, number, side="right")) - 1
        index = np.unravel_index(number - int(self.offsets[clique]), self.shapes[clique])
        return clique, tuple(int(code) for code in index)

    def table(self, clique: int, weights: ArrayLike | Rows) -> Floats:
        """Return the marginal of one clique."""
        columns = self.cliques[clique]
        if isinstance(weights, Rows):
            self._check_rows(weights)
            return weights.sum_cells(columns)
        table = check_weights(weights, self.cells).reshape(self.sizes)
        return _project(table, tuple(range(len(self.sizes))), columns).ravel()

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return all marginals, one after the other; on a whole table each is summed from the smallest at hand."""
        check_list_size(self.count, "queries")
        if isinstance(weights, Rows):
            return np.concatenate([self.table(clique, weights) for clique in range(len(self.cliques))])
        table = check_weights(weights, self.cells).reshape(self.sizes)
        tables: dict[frozenset[int], tuple[tuple[int, ...], Floats]] = {
            frozenset(range(len(self.sizes))): (tuple(range(len(self.sizes))), table)
        }
        parts = []
        for columns in self.cliques:
            parts.append(_smallest(tables, frozenset(columns), columns).ravel())
        return np.concatenate(parts)

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the answers of some queries: only the marginals that they belong to are counted."""
        numbers = check_numbers(which, self.count)
        answers = np.zeros(numbers.shape)
        owner = np.searchsorted(self.offsets, numbers, side="right") - 1
        for clique in np.unique(owner):
            mine = owner == clique
            answers[mine] = self.table(int(clique), weights)[numbers[mine] - self.offsets[clique]]
        return answers

    def slab(self, query: int) -> tuple[slice | int, ...]:
        """Return the index of one query's cells in the whole table, for a view and not a copy."""
        clique, codes = self.find(query)
        fixed: dict[int, int] = dict(zip(self.cliques[clique], codes, strict=True))
        return tuple(fixed.get(column, slice(None)) for column in range(len(self.sizes)))

    def members(self, query: int) -> NDArray[np.int64]:
        """Return the cells of one query in the whole table."""
        return np.arange(check_whole(self.cells), dtype=np.int64).reshape(self.sizes)[self.slab(query)].ravel()

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell of the whole table, or for each row of `support`, the sum of its queries' values."""
        by_query = check_weights(values, self.count)
        if support is not None:
            self._check_rows(support)
            rows = np.zeros(support.records)
            for clique, columns in enumerate(self.cliques):
                rows += by_query[self.offsets[clique] : self.offsets[clique + 1]][support.cell(columns)]
            return rows
        check_whole(self.cells)
        total = np.zeros(self.sizes)
        for clique, columns in enumerate(self.cliques):
            part = by_query[self.offsets[clique] : self.offsets[clique + 1]].reshape(self.shapes[clique])
            order = np.argsort(columns)
            shape = [self.sizes[column] if column in columns else 1 for column in range(len(self.sizes))]
            total += part.transpose(order).reshape(shape)
        return total.ravel()

    def _check_rows(self, rows: Rows) -> None:
        if rows.sizes != self.sizes:
            raise InvalidInput(f"rows have columns of sizes {rows.sizes}, and these marginals are over {self.sizes}")

    def __repr__(self) -> str:
        return f"Marginals({len(self.cliques)} marginals of {len(self.sizes)} columns, {self.count} queries)"


def _check_cliques(cliques: Sequence[Sequence[int]], columns: int) -> tuple[tuple[int, ...], ...]:
    """Return lists of different columns, at least one list."""
    checked = tuple(tuple(int(column) for column in clique) for clique in cliques)
    if not checked:
        raise InvalidInput("marginals take at least one clique of columns")
    for clique in checked:
        if len(set(clique)) != len(clique) or not set(clique) <= set(range(columns)):
            raise InvalidInput(f"a clique names different columns from 0 to {columns - 1}, not {clique}")
    return checked


def _project(table: Floats, columns: tuple[int, ...], wanted: Sequence[int]) -> Floats:
    """Return the sums of a table over all columns but the wanted ones, in the order wanted."""
    gone = tuple(index for index, column in enumerate(columns) if column not in wanted)
    remaining = [column for column in columns if column in wanted]
    return np.asarray(table.sum(axis=gone)).transpose([remaining.index(column) for column in wanted])


def _smallest(
    tables: dict[frozenset[int], tuple[tuple[int, ...], Floats]], wanted: frozenset[int], order: tuple[int, ...]
) -> Floats:
    """Return a marginal of the smallest kept table that has its columns, keeping a table on the way down."""
    source = min((names for names in tables if wanted <= names), key=lambda names: tables[names][1].size)
    while len(source) - len(wanted) > 1:  # sum one column out at a time, the longest first, and keep what comes out
        columns, table = tables[source]
        longest = max(source - wanted, key=lambda column: table.shape[columns.index(column)])
        remaining = tuple(column for column in columns if column != longest)
        source = source - {longest}
        tables[source] = (remaining, _project(table, columns, remaining))
    columns, table = tables[source]
    return _project(table, columns, order)
