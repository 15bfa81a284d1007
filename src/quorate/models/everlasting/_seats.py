"""Points that came in a phase, each in the seat of its arrival number, with the label that was released for it.

A seat is taken by every arrival, answered or not. One without a released label stays empty: no other arrival moves
up into it. The points are private: they are kept for the phase that they teach, and for nothing else.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import deal_units
from quorate.compute.learners import Deal
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput, LedgerRefused
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
    def arrivals(self) -> int:
        """How many arrivals there have been: everybody may know."""
        return self._taken

    @property
    def free(self) -> int:
        """How many seats are free."""
        return self._seats - self._taken

    def take(self, X: Any, labels: Integers) -> None:
        """Seat these arrivals in order; a label below 0 leaves the seat of its arrival empty."""
        self._points.append(X.copy() if isinstance(X, np.ndarray) else X)
        self._labels.append(np.maximum(labels, NO_QUORUM))  # refused or no quorum, both are empty; proof: step 3
        self._taken += len(labels)

    def since(self, first: int) -> tuple[Any, Integers]:
        """Return points and labels, by seat, of the arrivals after the first `taken`."""
        parts, labels, end = list[Any](), list[Integers](), self._taken
        for X, part_labels in zip(
            reversed(self._points), reversed(self._labels), strict=True
        ):  # few are new, and many are not
            if end <= first:
                break
            end -= len(part_labels)
            parts.append(take_rows(X, slice(max(0, first - end), None)))
            labels.append(part_labels[max(0, first - end) :])
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


class SeatsFile:
    """The file of one phase. `sealer` makes the keyed hash, which goes on from row to row."""

    def __init__(self, path: Path, *, features: int, sealer: Callable[[], Any]) -> None:
        self.path, self._sealer = path, sealer
        self._type = np.dtype([("point", "<f8", (features,)), ("label", "<i8")])
        self._hash, self._rows = sealer(), 0

    @classmethod
    def create(cls, path: Path, *, features: int, sealer: Callable[[], Any]) -> "SeatsFile":
        """Make an empty file for its owner's eyes alone."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return cls(path, features=features, sealer=sealer)

    @property
    def digest(self) -> str:
        """The keyed hash of all rows so far."""
        return str(self._hash.hexdigest())

    def digest_with(self, points: Any, labels: Integers) -> str:
        """Return what the keyed hash will be when these rows are added."""
        hashed = self._hash.copy()
        hashed.update(self._row_bytes(points, labels))
        return str(hashed.hexdigest())

    def _row_bytes(self, points: Any, labels: Integers) -> bytes:
        rows = np.empty(len(labels), dtype=self._type)
        rows["point"], rows["label"] = points, labels
        return rows.tobytes()

    def append(self, points: Any, labels: Integers) -> None:
        """Add rows, and wait until they are on the disk."""
        if len(labels) == 0:
            return
        content = self._row_bytes(points, labels)
        file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            start = self._rows * self._type.itemsize
            os.ftruncate(file, start)  # what an append that failed has left
            view = memoryview(content)
            while view:
                written = os.pwrite(file, view, start)
                view, start = view[written:], start + written
            os.fsync(file)
        finally:
            os.close(file)
        self._hash.update(content)
        self._rows += len(labels)

    def read(self, rows: int, digest: str) -> tuple[NDArray[np.float64], Integers]:
        """Return the first rows, which must be those that the ledger speaks of, and cut off what comes after them."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LedgerRefused(f"{self.path} is missing from the model") from None
        except OSError as error:
            raise InvalidInput(f"{self.path} cannot be opened: {error.strerror}") from None
        try:
            if stat.S_IMODE(os.fstat(file).st_mode) & 0o077:
                raise InvalidInput(f"{self.path} holds people's points and others may read it; chmod 600 it")
            size = rows * self._type.itemsize
            with open(os.dup(file), "rb") as readable:
                content = readable.read(size)
            self._hash, self._rows = self._sealer(), rows
            self._hash.update(content)
            if len(content) != size or self.digest != digest:
                raise LedgerRefused(
                    f"{self.path} is not the one that the ledger speaks of: it was changed or cut short"
                )
            if os.fstat(file).st_size > size:
                os.ftruncate(file, size)  # their answers never left
                os.fsync(file)
        finally:
            os.close(file)
        stored = np.frombuffer(content, dtype=self._type)
        return stored["point"].astype(np.float64), stored["label"].astype(np.int64)
