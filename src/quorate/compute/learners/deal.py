"""Which rows belong to which teacher. The deal is secret: it is never printed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput


class Deal:
    """Rows dealt to teachers: each row to one teacher at most, and to a teacher any number of rows, none included.

    `rows` holds the row numbers, teacher after teacher; `sizes` says how many of them belong to each.
    """

    rows: Integers
    sizes: Integers

    def __init__(self, rows: Any, sizes: Any) -> None:
        self.rows, self.sizes = _integers("rows", rows), _integers("sizes", sizes)
        if self.sizes.size < 1 or self.sizes.min() < 0 or self.sizes.sum() != self.rows.size:
            raise InvalidInput("sizes must name at least 1 teacher, and sum to the number of rows that are dealt")
        if self.rows.size and self.rows.min() < 0:
            raise InvalidInput("rows must be row numbers of at least 0")
        if self.rows.size and np.bincount(self.rows).max() > 1:
            raise InvalidInput("each row must be dealt to one teacher at most: a row dealt twice would vote twice")

    @classmethod
    def of(cls, chunks: Sequence[Any]) -> "Deal":
        """Return the deal that gives the rows `chunks[j]` to teacher j."""
        parts = [_integers("a chunk", chunk) for chunk in chunks]
        rows = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        return cls(rows, np.array([part.size for part in parts], dtype=np.int64))

    @classmethod
    def by_assignment(cls, assignment: Any, *, teachers: int) -> "Deal":
        """Return the deal that gives row i to teacher `assignment[i]`, or to nobody where that is -1."""
        teachers = check_count("teachers", teachers)
        owner = _integers("assignment", assignment)
        if owner.size and (owner.min() < -1 or owner.max() >= teachers):
            raise InvalidInput(f"assignment must be of numbers from 0 to {teachers - 1}, or -1 for nobody")
        rows = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner + 1, minlength=teachers + 1)
        return cls(rows[sizes[0] :], sizes[1:])

    @property
    def teachers(self) -> int:
        """The number of teachers, those without rows included."""
        return int(self.sizes.size)

    def __repr__(self) -> str:
        return f"Deal(teachers={self.teachers})"


def _integers(name: str, values: Any) -> Integers:
    given = np.asarray(values)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size > 0):
        raise InvalidInput(f"{name} must be a vector of integers, not {given.dtype} of shape {given.shape}")
    return given.astype(np.int64, copy=False)
