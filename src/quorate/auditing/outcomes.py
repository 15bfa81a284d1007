"""What was seen in many plays, as codes: one whole number for each distinct row, and orders to look at them in."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput

__all__ = ["Codes", "encode"]

_SHOWN = 6  # outcomes that an event names
_DENSE = 2**22  # codes that are counted without sorting
_FEW = 4096  # outcomes that are ordered one by one: of more, plays say too little about each


@dataclass(frozen=True, eq=False)
class Codes:
    """The codes of two worlds' plays; `table` holds the row that each code stands for, in increasing order."""

    first: Integers
    second: Integers
    table: NDArray[np.generic]
    name: str = "outcome"

    def orders(self, ones: Integers, others: Integers) -> Iterator[Integers]:
        """Yield ranks of the codes, learnt on these plays: those likely in the first world only come first."""
        if self.table.shape[1] == 1:
            yield from self.natural_orders(ones, others)
        else:
            yield _ranks(self._column_ratios(ones, others))
        if np.count_nonzero(np.bincount(ones)) <= _FEW:  # decided by the plays to choose on, like all else here
            yield _ranks(_ratios(ones, others, len(self.table)))

    def natural_orders(self, ones: Integers, others: Integers) -> Iterator[Integers]:
        """Give the increasing and the decreasing order: of use where outcomes are numbers."""
        up = np.arange(len(self.table))
        yield up
        yield up[::-1].copy()

    def _column_ratios(self, ones: Integers, others: Integers) -> NDArray[np.float64]:
        """Return the sum over columns of the logarithm of each column's own ratio: of use where most rows are rare."""
        total = np.zeros(len(self.table))
        for column in self.table.T:
            _, inverse = np.unique(column, return_inverse=True)
            total += _ratios(inverse[ones], inverse[others], int(inverse.max()) + 1)[inverse]
        return total

    def say(self, members: NDArray[np.bool_]) -> str:
        """Return the event in words."""
        inside = np.flatnonzero(members)
        rows = [_text(row) for row in self.table[inside[:_SHOWN]]]
        if inside.size == 1:
            return f"{self.name} = {rows[0]}"
        if self.table.shape[1] == 1 and len(self.table) > 2 and inside.size > 1:
            if inside[-1] == inside.size - 1:
                return f"{self.name} <= {_text(self.table[inside[-1]])}"
            if inside[0] == len(members) - inside.size:
                return f"{self.name} >= {rows[0]}"
        more = f" and {inside.size - _SHOWN} more" if inside.size > _SHOWN else ""
        return f"{self.name} in {{{', '.join(rows)}{more}}}"


def encode(first: object, second: object) -> Codes:
    """Return the codes of what was seen in both worlds: whole numbers of shape (plays,) or (plays, k)."""
    ones, others = (_rows(name, values) for name, values in (("first", first), ("second", second)))
    if ones.shape[1] != others.shape[1]:
        raise InvalidInput(f"both worlds must show as much a play, not {ones.shape[1]} and {others.shape[1]} numbers")
    both = np.concatenate([ones, others])
    joint = np.zeros(len(both), dtype=np.int64)
    for column in both.T:
        codes, size = _compact(column)
        joint, _ = _compact(joint * size + codes)
    size = int(joint.max()) + 1
    table = np.empty((size, both.shape[1]), dtype=np.int64)
    table[joint] = both
    return Codes(joint[: len(ones)], joint[len(ones) :], table)


def _rows(name: str, values: object) -> Integers:
    try:
        rows = np.asarray(values)
    except ValueError:
        raise InvalidInput(f"{name} must hold as many whole numbers in every play") from None
    if rows.dtype.kind not in "iub" or rows.ndim not in {1, 2} or rows.size == 0:
        raise InvalidInput(f"{name} must hold whole numbers, one play a row, not {rows.dtype} of shape {rows.shape}")
    if int(rows.max()) >= 2**63:
        raise InvalidInput(f"{name} must hold whole numbers below 2**63")
    return rows.astype(np.int64).reshape(len(rows), -1)


def _compact(values: Integers) -> tuple[Integers, int]:
    """Return the same values numbered from 0 without gaps, in increasing order, and how many there are."""
    least, most = int(values.min()), int(values.max())
    if most - least < _DENSE:
        shifted = values - least
        used = np.flatnonzero(np.bincount(shifted))
        place = np.zeros(most - least + 1, dtype=np.int64)
        place[used] = np.arange(used.size)
        return place[shifted], used.size
    distinct, inverse = np.unique(values, return_inverse=True)
    return inverse, distinct.size


def _ratios(ones: Integers, others: Integers, size: int) -> NDArray[np.float64]:
    """Return the logarithm of the likelihood ratio of each code, drawn towards 0 where few plays speak of it."""
    counts = np.bincount(ones, minlength=size), np.bincount(others, minlength=size)
    return np.log((counts[0] + 1) / (ones.size + 1)) - np.log((counts[1] + 1) / (others.size + 1))


def _ranks(scores: NDArray[np.float64]) -> Integers:
    """Return the rank of each code, the largest score first; equal scores keep the order of the codes."""
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(scores.size)
    return ranks


def _text(row: NDArray[np.generic]) -> str:
    values = [f"{value:.6g}" for value in row.tolist()]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"
