"""The updates of a growing release as files of its folder; the ledger records the hash of each.

A file is on disk before the ledger records its hash, and the ledger entry before answers leave. So an update is drawn
once, whatever crashes, and an old copy of the folder is refused. The files hold exact counts for the owner alone.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.disk import sync_path, write_new
from quorate.core.errors import LedgerRefused
from quorate.core.ledger import LOST, Ledger
from quorate.core.requests import OWN_CALLER
from quorate.models.saving.codecs import arrays_from, arrays_of
from quorate.release.domain import SealedCounts

_HASHES = 2**63  # a ledger keeps numbers below this


@dataclass(frozen=True)
class KeptUpdate:
    """One update: its name, the number of its records, the noisy measurements, and secrets of the owner.

    The secrets are the exact vectors and the ids of the counted people. They are sealed and written to the owner's file
    alone.
    """

    name: str
    records: int
    noisy: list[NDArray[np.int64]]
    vectors: SealedCounts
    people: SealedCounts


class UpdateFiles:
    """The files of the updates; the ledger records the hash of each."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._ledger = path, ledger

    def keep(self, number: int, update: KeptUpdate) -> None:
        """Write an update, then record it in the ledger, which refuses a number that is taken."""
        self._check_current()
        content = _content(update)
        path = self._file(number, _hash(content))
        write_new(path, content, synced=True)
        sync_path(self._path)
        self._ledger.keep_own({_key(number): _hash(content)})
        for other in self._path.glob(f"update-{number:04}-*"):
            if other != path:  # a run ended before its ledger entry, so that its file was never answered from
                other.unlink(missing_ok=True)

    def read(self) -> list[KeptUpdate]:
        """Return the updates that the ledger records; other files were never answered from."""
        self._check_current()
        updates: list[KeptUpdate] = []
        while (digest := self._recall_digest(len(updates) + 1)) is not None:
            path = self._file(len(updates) + 1, digest)
            try:
                content = path.read_bytes()
            except OSError:
                raise LedgerRefused(f"{path} is missing; restore it to continue the release") from None
            if _hash(content) != digest:
                raise LedgerRefused(f"{path} was changed; restore it to continue the release")
            updates.append(_update(arrays_from(content)))
        return updates

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def _file(self, number: int, digest: int) -> Path:
        return self._path / f"update-{number:04}-{digest:016x}.npz"

    def _recall_digest(self, number: int) -> int | None:
        return self._ledger.recall(OWN_CALLER, [_key(number)]).get((OWN_CALLER, _key(number)))

    def _check_current(self) -> None:
        if self._ledger.choice() == LOST:
            raise LedgerRefused(
                "this ledger was restored from an old copy and may lack later updates, so that no update "
                "can follow. Start another release; its epsilon adds to that of the old one"
            )


def _key(number: int) -> bytes:
    return b"update %d" % number


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:8]) % _HASHES


def _content(update: KeptUpdate) -> bytes:
    """Return the content of an update's file, for the owner alone; nothing is released here."""
    vectors: list[NDArray[Any]] = update.vectors.put_to(list)
    people: NDArray[Any] | None = update.people.put_to(lambda digests: digests)
    arrays: dict[str, Any] = {f"noisy{number}": part for number, part in enumerate(update.noisy)}
    arrays |= {f"exact{number}": part for number, part in enumerate(vectors)}
    arrays |= {"name": np.frombuffer(update.name.encode(), dtype=np.uint8), "records": np.array([update.records])}
    return arrays_of(True, **arrays, **({} if people is None else {"people": people}))


def _update(arrays: dict[str, NDArray[Any]]) -> KeptUpdate:
    parts = range(sum(name.startswith("noisy") for name in arrays))
    return KeptUpdate(
        arrays["name"].tobytes().decode(),
        int(arrays["records"][0]),
        [arrays[f"noisy{number}"] for number in parts],
        SealedCounts([arrays[f"exact{number}"] for number in parts]),
        SealedCounts(arrays.get("people")),
    )
