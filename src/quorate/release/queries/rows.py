"""A support: records by their codes, with a weight each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

__all__ = ["Rows"]


@dataclass(frozen=True, repr=False)
class Rows:
    """Records over categorical columns: `codes[i, j]` from 0 to `sizes[j]` - 1, and one weight a record."""

    codes: NDArray[np.int64]
    sizes: tuple[int, ...]
    weights: NDArray[np.float64]

    def __init__(self, codes: Any, sizes: Sequence[int], weights: Any = None) -> None:
        given = np.asarray(codes)
        checked = tuple(check_count("size", size) for size in sizes)
        if given.ndim != 2 or given.shape[1] != len(checked) or given.dtype.kind not in "iu":
            raise InvalidInput(
                f"codes must be whole numbers, one row a record and one column for each of {len(checked)} sizes, "
                f"not {given.dtype} of shape {given.shape}"
            )
        table = np.ascontiguousarray(given.T, dtype=np.int64).T  # a column's codes stand side by side
        if table.size and (table.min() < 0 or bool((table.max(axis=0) >= np.array(checked)).any())):
            raise InvalidInput("codes must lie between 0 and the size of their column less 1; declare every category")
        each = np.ones(len(table)) if weights is None else np.asarray(weights, dtype=np.float64)
        if each.shape != (len(table),) or not np.isfinite(each).all():
            raise InvalidInput("weights must be finite numbers, one a record")
        for name, value in (("codes", table), ("sizes", checked), ("weights", each)):
            object.__setattr__(self, name, value)

    @property
    def records(self) -> int:
        """How many records there are, whatever their weights."""
        return len(self.codes)

    def cell(self, columns: Sequence[int]) -> NDArray[np.int64]:
        """Return the number of each record's cell in the table of these columns, the last one running fastest."""
        number = np.zeros(len(self.codes), dtype=np.int64)
        if math.prod(self.sizes[column] for column in columns) >= 2**62:
            raise InvalidInput("the table of these columns has too many cells to number")
        for column in columns:
            number *= self.sizes[column]
            number += self.codes[:, column]
        return number

    def weighted(self, weights: Any) -> "Rows":
        """Return the same records with other weights."""
        return Rows(self.codes, self.sizes, weights)

    def merged(self) -> "Rows":
        """Return the distinct records, each with the weights of its likes added up."""
        codes, inverse = np.unique(self.codes, axis=0, return_inverse=True)
        return Rows(codes, self.sizes, np.bincount(inverse.ravel(), self.weights, minlength=len(codes)))

    def __repr__(self) -> str:
        return f"Rows({self.records} records, {len(self.sizes)} columns)"  # the records may be private
