"""Secure sums: each pair of sites agrees on a stream of masks, which one of them adds and the other subtracts.

Masked counts are whole numbers mod 2**64. Without the secrets of a site they look uniform. Summed over all sites the
masks cancel, and the sum of the counts is left (Bonawitz and others 2017). Their recovery from dropped sites is left
out: a batch without the answer of every site is refused. Proof: PROOF.md, steps 5 and 6.
"""

import secrets as system_secrets
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
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
