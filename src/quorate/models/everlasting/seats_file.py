"""The points of a phase on the disk: one row after the other in a plain file that its owner alone may read.

A row is the point's features as 64-bit floats and the label of its seat as a 64-bit whole number, little-endian. The
file only grows; how far it counts, and a keyed hash of all rows so far, stand in the ledger. Rows beyond that belong to
answers that never left, and are cut off.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput, LedgerRefused


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
        hashed.update(self._packed(points, labels))
        return str(hashed.hexdigest())

    def _packed(self, points: Any, labels: Integers) -> bytes:
        rows = np.empty(len(labels), dtype=self._type)
        rows["point"], rows["label"] = points, labels
        return rows.tobytes()

    def append(self, points: Any, labels: Integers) -> None:
        """Add rows, and wait until they are on the disk."""
        if len(labels) == 0:
            return
        content = self._packed(points, labels)
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
        kept = np.frombuffer(content, dtype=self._type)
        return kept["point"].astype(np.float64), kept["label"].astype(np.int64)
