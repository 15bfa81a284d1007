"""What every list of queries can do."""

from abc import abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.errors import Infeasible, InvalidInput
from quorate.release.queries.rows import Rows

__all__ = ["MOST_LISTED", "Floats", "Queries", "check_listed", "check_weights", "check_whole"]

MOST_LISTED = 50_000_000  # answers or cells that are written out at once: 400 MB of numbers

Floats = NDArray[np.float64]
Members = slice | NDArray[np.int64]


@runtime_checkable
class Queries(Protocol):
    """A finite list of queries, each the set of cells (numbered from 0) whose records it counts.

    `sensitivity` is the squared L2 change of the vector of all counts when one record is replaced (a whole number, the
    least one or a bound above it); one count alone changes by at most 1.

    >>> from quorate.release.queries import Prefixes
    >>> isinstance(Prefixes(10), Queries)
    True
    """

    @property
    @abstractmethod
    def count(self) -> int:
        """How many queries there are."""
        ...

    @property
    @abstractmethod
    def cells(self) -> int | None:
        """How many cells there are, None where they are too many to list."""
        ...

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """The squared L2 change of all counts together when one record is replaced."""
        ...

    @abstractmethod
    def answers(self, weights: "ArrayLike | Rows") -> Floats:
        """Return the sum of the weights of each query's cells."""
        ...

    @abstractmethod
    def some(self, which: ArrayLike, weights: "ArrayLike | Rows") -> Floats:
        """Return the answers of the queries of these numbers alone."""
        ...

    @abstractmethod
    def members(self, query: int) -> Members:
        """Return the cells of one query."""
        ...

    @abstractmethod
    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell (or row of the support) the sum of the values of the queries that contain it."""
        ...

    @abstractmethod
    def largest(self, weights: "ArrayLike | Rows") -> float:
        """Return the largest absolute answer of signed weights, without listing where the structure allows."""
        ...


def check_weights(weights: Any, cells: int | None) -> Floats:
    """Return one finite number a cell, of any sign and scale.

    >>> check_weights([1, 2], 2)
    array([1., 2.])
    """
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
    """Return the number of cells, or refuse where they are too many to list.

    >>> check_whole(6)
    6
    """
    if cells is None:
        raise Infeasible("these cells are too many to list; give Rows (records with their codes) instead of weights")
    return cells


def check_listed(count: int, what: str) -> None:
    """Refuse to write out more numbers than `MOST_LISTED`.

    >>> check_listed(10, "queries")
    """
    if count > MOST_LISTED:
        raise Infeasible(f"{count} {what} are more than the {MOST_LISTED} that are written out at once; ask for some")
