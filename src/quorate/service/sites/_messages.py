"""The messages between a coordinator and a site, as plain values; `server` and `coordinator` encode them."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput

Mode = Literal["counts", "sums", "noise"]
MODES: tuple[Mode, ...] = ("counts", "sums", "noise")  # What the coordinator sees.

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class About:
    """The description of a site, which is public within the federation."""

    name: str
    teachers: int
    labels: list[Any]
    features: int
    unit: str
    mode: Mode
    schema: str = ""  # the hash of the schema by which its queries are encoded; "" for plain numbers


@dataclass(frozen=True)
class Declaration:
    """The declared use of the counts: the mechanism, the sites whose counts are summed, and the mode."""

    mechanism: dict[str, Any]
    roster: list[str]
    mode: Mode

    def digest(self) -> bytes:
        """Return a hash of all of it."""
        text = json.dumps([self.mechanism, self.roster, self.mode], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True)
class Enrolled:
    """The acceptance of a declaration by a site: how many queries it can pay for, and its name since its start."""

    payable: int
    start: str


@dataclass(frozen=True)
class Batch:
    """Queries under a declaration: rows of 64-bit floats, an id that is used once, and the `start` of each site."""

    id: str
    declaration: Declaration
    starts: dict[str, str]
    rows: int
    columns: int
    data: bytes

    @classmethod
    def of(cls, id: str, declaration: Declaration, X: Floats, starts: Mapping[str, str] | None = None) -> "Batch":
        """Return the message for canonical queries; `starts` is needed only with masks."""
        data = np.ascontiguousarray(X, dtype="<f8").tobytes()
        return cls(id, declaration, dict(starts or {}), len(X), X.shape[1], data)

    def context(self) -> bytes:
        """Return a hash of all of it: masks and replies are bound to it."""
        begun = hashlib.sha256(json.dumps(self.starts, sort_keys=True).encode()).digest()
        shape = f"{self.id} {self.rows} {self.columns} ".encode()
        return hashlib.sha256(self.declaration.digest() + begun + shape + self.data).digest()  # proof: step 5

    def queries(self) -> NDArray[np.float64]:
        """Return the rows, or raise an error that names the problem of the message."""
        if not _ID.fullmatch(self.id):
            raise InvalidInput("the id of a batch must be 32 hexadecimal digits")
        if self.rows < 1 or self.columns < 1 or len(self.data) != 8 * self.rows * self.columns:
            raise InvalidInput("a batch must have at least 1 row of 64-bit floats, and as many as it says")
        return np.frombuffer(self.data, dtype="<f8").astype(np.float64).reshape(self.rows, self.columns)


@dataclass(frozen=True)
class Counted:
    """The reply to a batch: 64-bit integers, a row per query and a column per class, and the binding of the batch."""

    id: str
    context: bytes
    counts: bytes
    payable: int

    def totals(self, rows: int, classes: int) -> NDArray[np.uint64] | None:
        """Return the integers, or None if their number does not match the batch."""
        if len(self.counts) != 8 * rows * classes:
            return None
        return np.frombuffer(self.counts, dtype="<u8").astype(np.uint64).reshape(rows, classes)
