"""Points that came in a phase, each in the seat of its arrival number, with the label that was released for it.

A seat is taken by every arrival, answered or not. One without a released label stays empty: no other arrival moves
up into it. The points are private: they are kept for the phase that they teach, and for nothing else.
"""

from typing import Any, NoReturn

import numpy as np

from quorate.compute.ensemble import deal_units
from quorate.compute.learners import Deal
from quorate.core.arrays import Integers
from quorate.core.mechanisms import NO_QUORUM
from quorate.core.rows import join_rows, take_rows


class Seats:
    """A fixed number of seats. It is private: it has no text and no copy."""

    __slots__ = ("_labels", "_points", "_seats", "_taken")

    def __init__(self, seats: int) -> None:
        self._seats, self._taken = seats, 0
        self._points: list[Any] = []
        self._labels: list[Integers] = []

    @property
    def taken(self) -> int:
        """How many arrivals there have been: everybody may know."""
        return self._taken

    @property
    def left(self) -> int:
        """How many seats are free."""
        return self._seats - self._taken

    def take(self, X: Any, labels: Integers) -> None:
        """Seat these arrivals in order; a label below 0 leaves the seat of its arrival empty."""
        self._points.append(X.copy() if isinstance(X, np.ndarray) else X)
        self._labels.append(np.maximum(labels, NO_QUORUM))  # refused or no quorum, both are empty; proof: step 3
        self._taken += len(labels)

    def since(self, taken: int) -> tuple[Any, Integers]:
        """Return points and labels, by seat, of the arrivals after the first `taken`."""
        parts, labels, end = list[Any](), list[Integers](), self._taken
        for X, known in zip(
            reversed(self._points), reversed(self._labels), strict=True
        ):  # few are new, and many are not
            if end <= taken:
                break
            end -= len(known)
            parts.append(take_rows(X, slice(max(0, taken - end), None)))
            labels.append(known[max(0, taken - end) :])
        return join_rows(parts[::-1]), np.concatenate([np.empty(0, dtype=np.int64), *labels[::-1]])

    def __repr__(self) -> str:
        return "<sealed seats>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("seats hold private points and cannot be copied, pickled or stored")


def deal_seats(labels: Integers, *, teachers: int) -> Deal:
    """Deal seats to teachers by a secret permutation of seat numbers; empty seats are dealt too, and bring no row."""
    dealt, _ = deal_units(np.arange(labels.size), labels.size, teachers=teachers)  # whatever the labels; proof: step 3
    owner = np.empty(labels.size, dtype=np.int64)
    owner[dealt.rows] = np.repeat(np.arange(teachers), dealt.sizes)
    return Deal.by_assignment(np.where(labels < 0, -1, owner), teachers=teachers)
