"""The base of lists of queries, and weighted rows of codes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Floats
from quorate.core.checks import check_count
from quorate.core.errors import Infeasible, InvalidInput

MOST_LISTED = 50_000_000  # answers or cells that are written out at once: 400 MB of numbers
LARGEST = 20_000_000  # cells that public values define, at most: 160 MB for each list of numbers about them
NOTHING = -1  # the number of the empty query, whose answer is exactly 0
Whole = NDArray[np.int64]
Members = slice | NDArray[np.int64]
_BLOCK = 2**17  # records that are counted together, so that their cells stay in the cache of a processor


def code_type(sizes: Sequence[int]) -> Any:
    """Return the narrowest type of whole numbers that holds the codes of columns of these sizes."""
    return np.min_scalar_type(max(sizes, default=1) - 1)


@dataclass(frozen=True, repr=False)
class Rows:
    """Records over categorical columns: `codes[i, j]` from 0 to `sizes[j]` - 1, and one weight a record.

    They are kept as `narrow`, in the smallest type that holds them all, which is for comparisons and indices alone.
    """

    narrow: NDArray[Any]
    sizes: tuple[int, ...]
    weights: NDArray[np.float64]

    def __init__(self, codes: Any, sizes: Sequence[int], weights: Any = None) -> None:
        array = np.asarray(codes)
        checked = tuple(check_count("size", size) for size in sizes)
        if array.ndim != 2 or array.shape[1] != len(checked) or array.dtype.kind not in "iu":
            raise InvalidInput(
                f"codes must be whole numbers, one row a record and one column for each of {len(checked)} sizes, "
                f"not {array.dtype} of shape {array.shape}"
            )
        if array.size and (array.min() < 0 or bool((array.max(axis=0) >= np.array(checked)).any())):
            raise InvalidInput("codes must lie between 0 and the size of their column less 1; declare every category")
        table = np.ascontiguousarray(array.T, dtype=code_type(checked)).T  # a column's codes stand side by side
        is_one = weights is None
        row_weights = np.broadcast_to(1.0, len(table)) if is_one else np.asarray(weights, dtype=np.float64)
        if row_weights.shape != (len(table),) or not np.isfinite(row_weights).all():
            raise InvalidInput("weights must be finite numbers, one a record")
        for name, value in (("narrow", table), ("sizes", checked), ("weights", row_weights)):
            object.__setattr__(self, name, value)

    @property
    def codes(self) -> NDArray[np.int64]:
        """The codes as whole numbers for any arithmetic."""
        return self.narrow.astype(np.int64)

    @property
    def records(self) -> int:
        """The number of records, regardless of their weights."""
        return len(self.narrow)

    def cell(self, columns: Sequence[int], records: slice = slice(None)) -> NDArray[np.int64]:
        """Return the number of each record's cell in the table of these columns, the last one running fastest."""
        codes = self.narrow[records]
        number = np.zeros(len(codes), dtype=np.int64)
        self._count_cells(columns)
        for column in columns:
            number *= self.sizes[column]
            number += codes[:, column]
        return number

    def sum_cells(self, columns: Sequence[int]) -> Floats:
        """Return the total weight of the records in each cell of the table of these columns."""
        cells = self._count_cells(columns)
        totals, step, is_unweighted = np.zeros(cells), max(_BLOCK, cells), self.is_unweighted
        for start in range(0, self.records, step):
            block = slice(start, start + step)
            weights = None if is_unweighted else self.weights[block]
            totals += np.bincount(self.cell(columns, block), weights, minlength=cells)
        return totals

    def _count_cells(self, columns: Sequence[int]) -> int:
        """Return the number of cells of the table of these columns."""
        if (cells := math.prod(self.sizes[column] for column in columns)) >= 2**62:
            raise InvalidInput("the table of these columns has too many cells to number")
        return cells

    @property
    def is_unweighted(self) -> bool:
        """Whether each record has weight 1."""
        return self.weights.strides == (0,) or bool((self.weights == 1.0).all())

    def weighted(self, weights: Any) -> "Rows":
        """Return the same records with other weights."""
        return Rows(self.narrow, self.sizes, weights)

    def merged(self) -> "Rows":
        """Return the distinct records, each with the total weight of its copies."""
        codes, inverse = np.unique(self.narrow, axis=0, return_inverse=True)
        return Rows(codes, self.sizes, np.bincount(inverse.ravel(), self.weights, minlength=len(codes)))

    def __repr__(self) -> str:
        return f"Rows({self.records} records, {len(self.sizes)} columns)"  # the records may be private


class TableCounts(Rows):
    """Records of which the counts of some tables are known, and nothing else: their codes were not kept."""

    tables: Mapping[tuple[int, ...], Whole]

    def __init__(self, sizes: Sequence[int], tables: Mapping[tuple[int, ...], Whole]) -> None:
        super().__init__(np.empty((0, len(sizes)), dtype=np.uint8), sizes)
        object.__setattr__(self, "tables", tables)

    @property
    def records(self) -> int:
        """The number of records, each of which is in one cell of each table."""
        return int(next(iter(self.tables.values())).sum())

    def sum_cells(self, columns: Sequence[int]) -> Floats:
        """Return the number of records in each cell of the table of these columns, added up from one that has them."""
        wanted = tuple(columns)
        self._count_cells(wanted)
        for counted, counts in self.tables.items():
            if set(wanted) <= set(counted):
                table = counts.reshape([self.sizes[column] for column in counted])
                remaining = [column for column in counted if column in wanted]
                table = table.sum(axis=tuple(axis for axis, column in enumerate(counted) if column not in wanted))
                ordered = table.transpose([remaining.index(column) for column in wanted])
                return np.asarray(ordered.ravel(), dtype=np.float64)
        raise Infeasible("these records were counted for tables of fewer columns; give them in memory")


class Queries(ABC):
    """A finite list of queries, each the set of cells (numbered from 0) whose records it counts.

    `count` is the number of queries, `cells` the number of cells, None where they are too many to list.
    `sensitivity` is the squared L2 change of the vector of all counts when one record is replaced (a whole number, the
    least one or a bound above it); one count alone changes by at most 1.
    """

    count: int
    cells: int | None

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """The squared L2 change of all counts together when one record is replaced."""

    @abstractmethod
    def answers(self, weights: "ArrayLike | Rows") -> Floats:
        """Return the sum of the weights of each query's cells."""

    @abstractmethod
    def members(self, query: int) -> Members:
        """Return the cells of one query."""

    @abstractmethod
    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell (or row of the support) the sum of the values of the queries that contain it."""

    def some(self, which: ArrayLike, weights: "ArrayLike | Rows") -> Floats:
        """Return the answers of the queries of these numbers alone."""
        return np.asarray(self.answers(weights)[check_numbers(which, self.count)])


def check_numbers(which: ArrayLike, count: int) -> Whole:
    """Return numbers of queries as an array."""
    numbers = np.asarray(which)
    if numbers.dtype.kind not in "iu" or (numbers.size and (numbers.min() < 0 or numbers.max() >= count)):
        raise InvalidInput(f"a query has a whole number from 0 to {count - 1}")
    return numbers.astype(np.int64)


def check_weights(weights: Any, cells: int | None) -> Floats:
    """Return one finite number a cell, of any sign and scale."""
    cells = check_whole(cells)
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"weights must be {cells} numbers, one a cell, not {type(weights).__name__}") from None
    if values.shape != (cells,):
        raise InvalidInput(f"weights must be {cells} numbers, one a cell, not an array of shape {values.shape}")
    if not np.isfinite(values).all():
        raise InvalidInput("weights must be finite numbers")
    return values


def check_whole(cells: int | None) -> int:
    """Return the number of cells, or refuse where they are too many to list."""
    if cells is None:
        raise Infeasible("these cells are too many to list; give Rows (records with their codes) instead of weights")
    return cells


def check_list_size(count: int, noun: str) -> None:
    """Refuse to write out more numbers than `MOST_LISTED`."""
    if count > MOST_LISTED:
        raise Infeasible(f"{count} {noun} are more than the {MOST_LISTED} that are written out at once; ask for some")


def check_cells(cells: int, noun: str) -> None:
    """Refuse too many cells."""
    if cells > LARGEST:
        raise Infeasible(f"{noun} have {cells} cells, above {LARGEST}; pass fewer public points, or round them")
