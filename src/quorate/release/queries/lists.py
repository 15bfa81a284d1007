"""Any list of queries written out, and the nodes of a hierarchy."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.release.queries.base import Members, Queries, Rows, Whole, check_list_size, check_numbers, check_weights

_PAIRS = 4_000_000  # pairs of cells up to which the sensitivity is searched, not bounded


class Matrix(Queries):
    """Queries as a table of truth values, `rows`, one row a query and one column a cell."""

    cells: int

    def __init__(self, rows: ArrayLike) -> None:
        table = np.asarray(rows)
        if table.ndim != 2 or table.dtype != np.bool_ or not table.size:
            raise InvalidInput(
                f"queries must be a table of truth values, one row a query, not {table.dtype} of shape {table.shape}"
            )
        check_list_size(table.size // 8, "bytes of queries")
        self.rows: NDArray[np.bool_] = np.ascontiguousarray(table)
        self.count, self.cells = (int(size) for size in table.shape)

    @cached_property
    def sensitivity(self) -> int:
        """In how many rows two columns differ, at most; a bound where the columns are many."""
        ones = self.rows.sum(axis=0, dtype=np.int64)
        if self.cells**2 > _PAIRS:  # two columns differ where one of them is set, and nowhere twice
            changed = min(2 * int(ones.max()), self.count)
        else:
            dense = self.rows.astype(np.float32)
            shared = (dense.T @ dense).astype(np.int64)  # exact: whole numbers below 2**24
            changed = int((ones[:, None] + ones[None, :] - 2 * shared).max())
        return changed if self.count < 2**24 else self.count

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sum of the weights of each query's cells."""
        return _product(self.rows, check_weights(weights, self.cells))

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the answers of some of the queries."""
        return _product(self.rows[check_numbers(which, self.count)], check_weights(weights, self.cells))

    def members(self, query: int) -> NDArray[np.int64]:
        """Return the cells of one query."""
        return np.flatnonzero(self.rows[int(check_numbers(query, self.count))])

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the queries that contain it."""
        by_query, total = check_weights(values, self.count), np.zeros(self.cells)
        for start in range(0, self.count, 1024):
            total += by_query[start : start + 1024] @ self.rows[start : start + 1024]
        return total

    def __repr__(self) -> str:
        return f"Matrix({self.count} queries, {self.cells} cells)"


def _product(rows: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return rows @ weights in blocks: the truth values are not all turned into numbers at once."""
    parts = [rows[start : start + 1024] @ weights for start in range(0, len(rows), 1024)]
    return np.concatenate(parts) if parts else np.zeros(0)


class Levels(Queries):
    """Every node of each level, the top level first; `maps[k]` says for each cell in which node of level k it lies.

    The last level has one node for each cell.
    """

    cells: int

    def __init__(self, maps: Sequence[Whole]) -> None:
        self.maps = tuple(np.asarray(nodes, dtype=np.int64) for nodes in maps)
        self.sizes = tuple(int(nodes.max()) + 1 for nodes in self.maps)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.count, self.cells = int(self.offsets[-1]), self.sizes[-1]
        for upper, lower in zip(self.maps, self.maps[1:], strict=False):
            if len(set(zip(lower.tolist(), upper.tolist(), strict=True))) != int(lower.max()) + 1:
                raise InvalidInput("each node of a level lies in one node of the level above it")
        if not np.array_equal(self.maps[-1], np.arange(len(self.maps[-1]))):
            raise InvalidInput("the last level of a hierarchy has a node for each cell")

    def parents(self, level: int) -> Whole:
        """Return for each node of a level but the first the node of the level above that it lies in."""
        parents = np.empty(self.sizes[level], dtype=np.int64)
        parents[self.maps[level]] = self.maps[level - 1]
        return parents

    @property
    def squares(self) -> tuple[int, ...]:
        """The squared L2 change of each level when one record is replaced: it leaves one node and enters another."""
        return tuple(2 if size > 1 else 0 for size in self.sizes)

    @property
    def sensitivity(self) -> int:
        """The squared L2 change of all levels together when one record is replaced."""
        return sum(self.squares)

    def answers(self, weights: "ArrayLike | Rows") -> Floats:
        """Return the sum of the weights of each node's cells."""
        values = check_weights(weights, self.cells)
        pairs = zip(self.maps, self.sizes, strict=True)
        return np.concatenate([np.bincount(where, values, minlength=size) for where, size in pairs])

    def members(self, query: int) -> Members:
        """Return the cells of one node."""
        level = int(np.searchsorted(self.offsets, query, side="right")) - 1
        return np.flatnonzero(self.maps[level] == query - self.offsets[level])

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the nodes that it lies in."""
        if support is not None:
            raise InvalidInput("the nodes of a hierarchy are spread over cells, not over rows")
        by_query = np.asarray(values, dtype=np.float64)
        parts = [by_query[start:][where] for start, where in zip(self.offsets, self.maps, strict=False)]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)
