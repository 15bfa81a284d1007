"""How far a ledger had come when it was last charged: the memory that an old copy of a ledger does not have.

One mark lies beside the model and one in the owner's state folder, so that restoring the whole model folder shows too.
A mark is written after each change is on the disk and before it is used.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quorate.errors import LedgerRefused
from quorate.ledger.chain import keyed_hash

__all__ = ["Mark", "Witness", "state_folder", "write_whole"]

_LENGTH = 480  # bytes of a mark, in the one sector that every disk writes whole


@dataclass(frozen=True, slots=True)
class Mark:
    """A ledger had this many entries, the last with this hash, and had spent this much."""

    seq: int
    head: str
    spent: tuple[int, int]
    in_database: bool = False


def state_folder() -> Path | None:
    """Return the folder for marks outside the models: `$QUORATE_STATE`, or the user's own folder for such things.

    None for a user without a home.
    """
    if "QUORATE_STATE" in os.environ:
        return Path(os.environ["QUORATE_STATE"]).absolute()
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser(os.path.join("~", ".local", "state"))
    return None if base.startswith("~") else Path(base).absolute() / "quorate"


class Witness:
    """The marks of one ledger."""

    def __init__(self, folder: Path, ledger: str, key: bytes, *, in_database: bool = False) -> None:
        self._ledger, self._key, self._in_database = ledger, key, in_database
        self._beside = Path(folder).absolute() / "ledger.mark"
        state = state_folder()
        self._outside = None if state is None else state / f"{keyed_hash(key, b'name', ledger.encode())[:32]}.mark"

    def marks(self) -> Iterator[Mark]:
        """Yield what the marks say. The one beside the model must be there; the other is made where it is missing."""
        beside = self._read(self._beside)
        if beside is None:
            raise LedgerRefused(
                f"{self._beside} is missing or was edited: nothing says how far its ledger had come; "
                "see `quorate ledger restore`"
            )
        yield beside
        if self._outside is None:
            return
        outside = self._read(self._outside)
        if outside is not None:
            yield outside
        elif os.path.exists(self._outside):
            raise LedgerRefused(
                f"{self._outside} was edited, or belongs to another model; see `quorate ledger restore`"
            )

    def readable(self) -> list[Mark]:
        """Return the marks that can be read, for a restore."""
        places = [place for place in (self._beside, self._outside) if place is not None]
        return [mark for mark in map(self._read, places) if mark is not None]

    def write(self, mark: Mark, *, near: bool = False, anew: bool = False) -> None:
        """Write the marks, unless they have come further; `anew` is for a ledger that begins, or was restored.

        `near` writes the one beside the model alone: nothing was charged. The mark in the owner's state folder is
        left out where that folder cannot be written.
        """
        about = {"seq": mark.seq, "head": mark.head, "spent": [str(quanta) for quanta in mark.spent]}
        text = json.dumps(about | {"in_database": self._in_database})
        text = json.dumps({"mark": text, "mac": self._mac(text)}).ljust(_LENGTH)
        try:
            self._advance(self._beside, mark, text, synced=not near, anew=anew)
        except OSError as error:
            raise LedgerRefused(f"{self._beside} cannot be written: {error.strerror}") from None
        if near or self._outside is None:
            return
        try:
            self._outside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._advance(self._outside, mark, text, synced=True, anew=anew)
        except OSError:
            if os.path.exists(self._outside):  # it would speak against the ledger from now on
                raise LedgerRefused(f"{self._outside} cannot be written; make room, or give it back to you") from None

    def _advance(self, path: Path, mark: Mark, text: str, *, synced: bool, anew: bool) -> None:
        """Write a mark over the one before, unless another process has gone further meanwhile.

        It fits into one sector, which a disk writes whole. Where it is not synced, a power cut may bring the one before
        it back; a process that dies does not.
        """
        with _locked(path.parent):
            kept = _text(path)
            before = self._proved(kept)
            if kept is None or len(kept) != _LENGTH:
                write_whole(path, text)
            elif anew or before is None or before.seq <= mark.seq:
                file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.pwrite(file, text.encode(), 0)
                    if synced:
                        os.fsync(file)
                finally:
                    os.close(file)

    def _read(self, path: Path) -> Mark | None:
        try:
            with _locked(path.parent):
                return self._proved(_text(path))
        except OSError:
            return None

    def _proved(self, kept: str | None) -> Mark | None:
        """Return the mark in this text, or None where it is none of this ledger."""
        try:
            outer = json.loads(kept or "")
            if outer["mac"] != self._mac(outer["mark"]):
                return None
            inner = json.loads(outer["mark"])
            renyi, slack = (int(quanta) for quanta in inner["spent"])
            return Mark(int(inner["seq"]), str(inner["head"]), (renyi, slack), bool(inner["in_database"]))
        except (ValueError, KeyError, TypeError):
            return None

    def _mac(self, text: str) -> str:
        return keyed_hash(self._key, b"mark", self._ledger.encode(), text.encode())


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except ValueError:
        return ""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked meanwhile has the folder open too
        os.close(lock)


def write_whole(path: Path, text: str) -> None:
    """Write all of a file or nothing, for its owner's eyes alone."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new = not os.path.exists(path)
    os.replace(beside, path)
    if new:
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
