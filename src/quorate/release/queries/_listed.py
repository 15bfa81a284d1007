"""Queries about listed cells: prefixes and ranges of lines, boxes of a grid, tables of truth values, hierarchies."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Floats
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.release.queries.base import (
    Members,
    Queries,
    Rows,
    Whole,
    check_list_size,
    check_numbers,
    check_weights,
)

_PAIRS = 4_000_000  # pairs of cells up to which the sensitivity is searched, not bounded


class _Line(Queries):
    """Queries about lines of cells of equal length, numbered line by line."""

    cells: int

    def __init__(self, cells: int, lines: int = 1) -> None:
        self.length, self.lines = check_count("cells", cells), check_count("lines", lines)
        self.cells = self.count = self.length * self.lines

    def _by_line(self, weights: ArrayLike | Rows) -> Floats:
        return check_weights(weights, self.cells).reshape(self.lines, self.length)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.length}{f', lines={self.lines}' if self.lines > 1 else ''})"


class Prefixes(_Line):
    """Thresholds: query j is cell j and those before it on its line. The last one of a line is all of it."""

    @property
    def sensitivity(self) -> int:
        """A record that moves from the first cell of a line to its last, or to another line, changes most counts."""
        return 2 * self.length if self.lines > 1 else self.length - 1

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the running sums of each line."""
        return np.cumsum(self._by_line(weights), axis=1).ravel()

    def members(self, query: int) -> slice:
        """Return the cells of one query."""
        number = int(check_numbers(query, self.cells))
        return slice(number - number % self.length, number + 1)

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the queries that contain it."""
        return np.cumsum(self._by_line(values)[:, ::-1], axis=1)[:, ::-1].ravel()


class Ranges(_Line):
    """Intervals: every pair first <= last of cells of a line, numbered pair by pair with `last` running fastest."""

    def __init__(self, cells: int, lines: int = 1) -> None:
        super().__init__(cells, lines)
        self._each = self.length * (self.length + 1) // 2  # ranges of one line
        self.count = self._each * self.lines

    @property
    def sensitivity(self) -> int:
        """Moving a record by d cells changes d (length + 1 - d) counts: most at half the way, or to another line."""
        half = (self.length + 1) // 2
        if self.lines > 1:
            return 2 * half * (self.length + 1 - half)
        half = min(half, self.length - 1)
        return half * (self.length + 1 - half)

    def number(self, first: ArrayLike, last: ArrayLike) -> NDArray[np.int64]:
        """Return the numbers of the queries that run from cell `first` to cell `last` of the same line."""
        line, start = np.divmod(check_numbers(first, self.cells), self.length)
        other, end = np.divmod(check_numbers(last, self.cells), self.length)
        if bool((line != other).any()) or bool((start > end).any()):
            raise InvalidInput("the first cell of a range must not lie beyond its last, or on another line")
        return np.asarray(line * self._each + start * self.length - start * (start - 1) // 2 + end - start)

    def pair(self, which: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last cells of the queries of these numbers."""
        line, number = np.divmod(check_numbers(which, self.count), self._each)
        twice = 2 * self.length + 1
        start = np.floor((twice - np.sqrt(float(twice) ** 2 - 8.0 * number)) / 2).astype(np.int64)
        for _ in range(2):  # the root may be off by one after rounding
            begin = start * self.length - start * (start - 1) // 2
            start = start - (begin > number) + (number >= begin + self.length - start)
        end = number - (start * self.length - start * (start - 1) // 2) + start
        return line * self.length + start, line * self.length + end

    def _ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and the last cells of all queries, in their order."""
        first, last = np.triu_indices(self.length)
        begin = np.arange(self.lines)[:, np.newaxis] * self.length
        return (begin + first).ravel(), (begin + last).ravel()

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over all ranges: refused where there are more of them than can be written out."""
        check_list_size(self.count, "ranges")
        sums = np.concatenate([[0.0], np.cumsum(check_weights(weights, self.cells))])
        first, last = self._ends()
        return np.asarray(sums[last + 1] - sums[first])

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over the ranges of these numbers."""
        sums = np.concatenate([[0.0], np.cumsum(check_weights(weights, self.cells))])
        first, last = self.pair(which)
        return np.asarray(sums[last + 1] - sums[first])

    def members(self, query: int) -> slice:
        """Return the cells of one query."""
        first, last = self.pair(query)
        return slice(int(first), int(last) + 1)

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the ranges that contain it."""
        check_list_size(self.count, "ranges")
        by_query = check_weights(values, self.count)
        first, last = self._ends()
        begins = np.bincount(first, by_query, minlength=self.cells + 1)
        ends = np.bincount(last + 1, by_query, minlength=self.cells + 1)
        return np.cumsum(begins - ends)[: self.cells]


class BoxRanges(Queries):
    """Boxes on a grid of up to three dimensions: one range an axis. Cells and boxes are numbered with the last axis
    running fastest.
    """

    cells: int

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(check_count("shape", size) for size in shape)
        self._axes = tuple(Ranges(size) for size in self.shape)
        self.count, self.cells = math.prod(axis.count for axis in self._axes), math.prod(self.shape)

    @property
    def sensitivity(self) -> int:
        """The largest number of boxes with one of two cells and not the other; a bound where the grid is large."""
        if self.cells == 1:
            return 0
        around = [np.arange(1, size + 1) * np.arange(size, 0, -1) for size in self.shape]
        if self.cells**2 > _PAIRS:
            return 2 * math.prod(int(axis.max()) for axis in around)
        shared = np.ones((1, 1), dtype=np.int64)
        for size in self.shape:
            index = np.arange(size)
            low, high = np.minimum.outer(index, index), np.maximum.outer(index, index)
            shared = np.kron(shared, (low + 1) * (size - high))
        alone = np.diag(shared)
        return int((alone[:, None] + alone[None, :] - 2 * shared).max())

    def number(self, first: Sequence[ArrayLike], last: Sequence[ArrayLike]) -> NDArray[np.int64]:
        """Return the numbers of the boxes from the cells `first` to the cells `last`, one array an axis each."""
        parts = [axis.number(low, high) for axis, low, high in zip(self._axes, first, last, strict=True)]
        return np.asarray(np.ravel_multi_index(tuple(parts), tuple(axis.count for axis in self._axes)))

    def bounds(self, which: ArrayLike) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the first and last cells of these boxes, one pair of arrays an axis."""
        parts = np.unravel_index(check_numbers(which, self.count), tuple(axis.count for axis in self._axes))
        return [axis.pair(part) for axis, part in zip(self._axes, parts, strict=True)]

    def _sums(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over all boxes that begin at the origin, with a leading zero on each axis."""
        grid = check_weights(weights, self.cells).reshape(self.shape)
        for axis in range(grid.ndim):
            grid = np.cumsum(grid, axis=axis)
        return np.pad(grid, [(1, 0)] * grid.ndim)

    def answers(self, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over all boxes: refused where there are more of them than can be written out."""
        check_list_size(self.count, "boxes")
        sums = self._sums(weights)
        for axis, size in enumerate(self.shape):
            first, last = np.triu_indices(size)
            sums = np.take(sums, last + 1, axis=axis) - np.take(sums, first, axis=axis)
        return sums.ravel()

    def some(self, which: ArrayLike, weights: ArrayLike | Rows) -> Floats:
        """Return the sums over the boxes of these numbers."""
        sums, bounds = self._sums(weights), self.bounds(which)
        total = np.zeros(np.shape(bounds[0][0]))
        for corner in range(2 ** len(self.shape)):
            low = [corner >> axis & 1 for axis in range(len(self.shape))]
            index = tuple(first if side else last + 1 for side, (first, last) in zip(low, bounds, strict=True))
            total = total + (-1) ** sum(low) * sums[index]
        return np.asarray(total)

    def members(self, query: int) -> NDArray[np.int64]:
        """Return the cells of one box."""
        axes = [np.arange(int(first), int(last) + 1) for first, last in self.bounds(query)]
        return np.asarray(np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), self.shape)).ravel()

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the boxes that contain it."""
        check_list_size(self.count, "boxes")
        grid = check_weights(values, self.count).reshape([axis.count for axis in self._axes])
        for axis, size in enumerate(self.shape):
            first, last = np.triu_indices(size)
            moved = np.moveaxis(grid, axis, 0)
            steps = np.zeros((size + 1, *moved.shape[1:]))
            np.add.at(steps, first, moved)
            np.subtract.at(steps, last + 1, moved)
            grid = np.moveaxis(np.cumsum(steps, axis=0)[:size], 0, axis)
        return grid.ravel()

    def __repr__(self) -> str:
        return f"BoxRanges({self.shape})"


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
        """The largest number of rows in which two columns differ; a bound where the columns are many."""
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

    The last level has one node for each cell, and each node of a level lies in one node of the level above it.
    """

    cells: int

    def __init__(self, maps: Sequence[Whole]) -> None:
        self.maps = tuple(np.asarray(nodes, dtype=np.int64) for nodes in maps)
        self.sizes = tuple(int(nodes.max()) + 1 for nodes in self.maps)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.count, self.cells = int(self.offsets[-1]), self.sizes[-1]

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
        by_query = np.asarray(values, dtype=np.float64)
        parts = [by_query[start:][where] for start, where in zip(self.offsets, self.maps, strict=False)]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)
