"""The messages between a coordinator and a site, as plain values, and the masks that hide counts in them.

`server` and `coordinator` encode the messages. Each pair of sites agrees on a stream of masks, which one of them adds
and the other subtracts. Masked counts are whole numbers mod 2**64. Without the secrets of a site they look uniform.
Summed over all sites the masks cancel, and the sum of the counts is left (Bonawitz and others 2017). Recovery from
dropped sites is left out: a batch without the answer of every site is refused. Proof: PROOF.md, steps 5 and 6.
"""

import hashlib
import json
import re
import secrets as system_secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput

if TYPE_CHECKING:
    from quorate.service.sites._keys import Card, Keys


Stream = Callable[[bytes, bytes, int], bytes]
Masked = NDArray[np.uint64]


def stream(secret: bytes, context: bytes, size: int) -> bytes:
    """Return pseudorandom bytes: the ChaCha20 stream under the HKDF-SHA256 key of the secret and the context."""
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415  a site that sends plain counts needs none
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    key = HKDF(hashes.SHA256(), length=32, salt=None, info=b"quorate masks " + context).derive(secret)
    words: bytes = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(size))
    return words


class Masks:
    """The masks of one site: the secret that it shares with each other one, by its name.

    >>> import hashlib
    >>> def words(secret, context, size):  # a stream for this example
    ...     return hashlib.shake_256(secret + context).digest(size)
    >>> north = Masks("north", {"south": b"only we know"}, stream=words)
    >>> south = Masks("south", {"north": b"only we know"}, stream=words)
    >>> counts = np.array([[3, 7], [8, 2]])
    >>> sum(site.masked(counts, b"batch 1") for site in (north, south)).view(np.int64)
    array([[ 6, 14],
           [16,  4]])
    """

    def __init__(self, name: str, secrets: Mapping[str, bytes], *, stream: Stream = stream) -> None:
        if not secrets or name in secrets:
            raise InvalidInput("masks are shared with at least 1 other site, each of another name")
        if len(set(secrets.values())) < len(secrets):
            raise InvalidInput(
                "two cards have the same key of masks: one of them is a copy, by which masks could cancel"
            )
        self.name, self._secrets, self._stream = name, dict(secrets), stream

    @property
    def roster(self) -> list[str]:
        """The names of all sites that add up, in order."""
        return sorted([self.name, *self._secrets])

    def masked(self, counts: Integers, context: bytes) -> Masked:
        """Return the counts with the masks of this context, mod 2**64. A context must not be used twice."""
        masked = counts.astype(np.int64).view(np.uint64)
        for other, secret in self._secrets.items():
            words = self._stream(secret, self._bound(other, context), 8 * counts.size)
            mask = np.frombuffer(words, dtype="<u8").reshape(counts.shape)
            masked = masked + mask if self.name < other else masked - mask  # unsigned: mod 2**64; proof: step 6
        return masked

    def _bound(self, other: str, context: bytes) -> bytes:
        """Return the public binding of a stream: this pair of sites, and the context. proof: step 5."""
        return f"{min(self.name, other)} {max(self.name, other)} ".encode() + context

    def __repr__(self) -> str:
        return f"<masks of {self.name}>"


def masks_of(keys: "Keys", peers: Iterable["Card"]) -> Masks:
    """Return the masks of a party with its peers."""
    cards = list(peers)
    if len({card.name for card in cards}) < len(cards):
        raise InvalidInput("two cards have the same name")
    return Masks(keys.card.name, {card.name: keys.shared(card) for card in cards})


def unmasked(total: Masked, teachers: int) -> Integers:
    """Return the sums of all sites' masked counts, whose rows add up to the teachers, as counts.

    Valid sums are unchanged. Sums of a dishonest site are clipped, from the first class on, to the remaining teachers.
    A moved ballot at an honest site still moves one ballot, so a draw from the counts costs no more (proof: step 7).

    >>> unmasked(np.array([[3, 0, 4], [9, 2, -4]]).view(np.uint64), 7).tolist()
    [[3, 0, 4], [7, 0, 0]]
    """
    cut = np.uint64(2**62 + system_secrets.randbits(63))  # where the numbers mod 2**64 begin: a liar cannot meet it
    within = np.clip(np.cumsum(total, axis=1, dtype=np.uint64) + cut, cut, cut + np.uint64(teachers)) - cut
    reached = np.maximum.accumulate(within, axis=1)  # by each class and those before it
    return np.diff(reached, axis=1, prepend=np.uint64(0)).astype(np.int64)


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
