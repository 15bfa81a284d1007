"""What every list of queries can do."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.queries.rows import Rows

__all__ = [
    "MOST_LISTED",
    "NOTHING",
    "Numbered",
    "Queries",
    "Whole",
    "check_listed",
    "check_numbers",
    "check_weights",
    "check_whole",
]

MOST_LISTED = 50_000_000  # answers or cells that are written out at once: 400 MB of numbers
NOTHING = -1  # the number of a query that no record fulfils; its answer is 0, exactly

Whole = NDArray[np.int64]
Members = slice | NDArray[np.int64]


class Queries(ABC):
    """A finite list of queries, each the set of cells (numbered from 0) whose records it counts.

    `sensitivity` is the squared L2 change of the vector of all counts when one record is replaced (a whole number, the
    least one or a bound above it); one count alone changes by at most 1.
    """

    @property
    @abstractmethod
    def count(self) -> int:
        """How many queries there are."""

    @property
    @abstractmethod
    def cells(self) -> int | None:
        """How many cells there are, None where they are too many to list."""

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

    def largest(self, weights: "ArrayLike | Rows") -> float:
        """Return the largest absolute answer of signed weights, without listing where the structure allows."""
        return float(np.abs(self.answers(weights)).max())


class Numbered:
    """Something asked by numbers of its own: each is one of `queries`, or one of them less another, or nothing."""

    queries: Queries

    @property
    def has_differences(self) -> bool:
        """Whether some number is the difference of two of `queries`, and errs as both of them."""
        return False

    def parts(self, numbers: ArrayLike) -> tuple[Whole, Whole]:
        """Return the two queries whose difference each number is; `NOTHING` where there is none."""
        plus = np.asarray(numbers, dtype=np.int64)
        return plus, np.full_like(plus, NOTHING)

    def read(self, answers: ArrayLike, numbers: ArrayLike) -> Floats:
        """Return the answers of these numbers, given the answers of all of `queries`."""
        known = np.append(np.asarray(answers, dtype=np.float64), 0.0)  # `NOTHING` is the last place
        plus, minus = self.parts(numbers)
        return np.asarray(known[plus] - known[minus])


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


def check_listed(count: int, what: str) -> None:
    """Refuse to write out more numbers than `MOST_LISTED`."""
    if count > MOST_LISTED:
        raise Infeasible(f"{count} {what} are more than the {MOST_LISTED} that are written out at once; ask for some")
