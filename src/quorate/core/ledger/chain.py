"""Entries that hang together by keyed hashes, one transaction that adds to them, and how far a ledger had come.

Each entry carries a hash of itself and of the one before it. The key lies beside the model and not in the ledger, so
that whoever can write the ledger alone cannot change, remove or add an entry unseen. A mark says how far the ledger had
come: the memory that an old copy of a ledger does not have.

One mark lies beside the model and one in the owner's state folder, so that restoring the whole model folder shows too.
A mark is written after each change is on the disk and before it is used. Where the one in the state folder cannot be
written nothing is spent, unless that was waived: such a folder could be rolled back unseen.
"""

import fcntl
import hashlib
import hmac
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.core.disk import write_whole
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger._parts import fits_part
from quorate.core.ledger._rules import Event, State, apply, from_json, to_json
from quorate.core.ledger._store import Statements, Store

MARK_FILE = "ledger.mark"
_LENGTH = 480  # bytes of a mark, in the one sector that every disk writes whole
_WAIVER = "QUORATE_OUTSIDE_MARK"
_REMEDY = (
    "set QUORATE_STATE to a folder that lasts, on another volume than the model, or say --no-outside-mark "
    f"(outside_mark=False, {_WAIVER}=false) where you understand that a copy that is put back spends again"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a ledger in its place, with the hash that ties it to all before it."""

    seq: int
    event: Event
    mac: str


def canonical(value: Mapping[str, Any]) -> str:
    """Return the one text that a JSON object is written as."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def keyed_hash(key: bytes, *parts: bytes) -> str:
    """Return the keyed hash of these parts, in hexadecimal. No two lists of parts are hashed alike."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(8, "big"))
        mac.update(part)
    return mac.hexdigest()


def link(key: bytes, previous: str, seq: int, event: Event) -> Entry:
    """Return the entry that follows the one whose hash is `previous`."""
    parts = (previous, str(seq), event.kind, repr(float(event.at)), canonical(event.body))
    return Entry(seq, event, keyed_hash(key, *(part.encode() for part in parts)))


def digest_rows(rows: list[bytes]) -> str:
    """Return the hash of a set of rows, in whatever order they come. No row may be the beginning of another."""
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()


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
    if chosen := os.environ.get("QUORATE_STATE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser(os.path.join("~", ".local", "state"))
    return None if base.startswith("~") else Path(base).absolute() / "quorate"


def folder_outside(model: Path) -> Path | None:
    """Return the folder for marks, or None if it lies in that of the model, with which it would be rolled back."""
    state = state_folder()
    return None if state is None or state.resolve().is_relative_to(Path(model).resolve()) else state


def is_outside_mark_required() -> bool:
    """Return whether `$QUORATE_OUTSIDE_MARK` leaves it at its default: nothing is spent without such a mark."""
    text = os.environ.get(_WAIVER, "true").lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"{_WAIVER} must be true or false, got {text!r}")
    return text == "true"


class Witness:
    """The marks of one ledger.

    `is_waived` says that budget may be spent without a mark outside the folder of the model.
    """

    def __init__(self, folder: Path, ledger: str, key: bytes, *, in_database: bool = False) -> None:
        self._ledger, self._key, self._in_database = ledger, key, in_database
        self.is_waived = in_database or not is_outside_mark_required()  # A database is not rolled back with a folder.
        self._beside = Path(folder).absolute() / MARK_FILE
        state = folder_outside(folder)
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
        paths = [path for path in (self._beside, self._outside) if path is not None]
        return [mark for mark in map(self._read, paths) if mark is not None]

    def write(self, mark: Mark, *, near: bool = False, anew: bool = False) -> None:
        """Write the marks, unless they have come further; `anew` is for a ledger that begins, or was restored.

        `near` writes the one beside the model alone: nothing was charged.
        """
        try:
            self._advance(self._beside, mark, synced=not near, anew=anew)
        except OSError as error:
            raise LedgerRefused(f"{self._beside} cannot be written: {error.strerror}") from None
        if near:
            return
        try:
            self._write_outside(mark, anew=anew)
        except OSError:  # A ledger that begins spends nothing yet: `check_outside` comes before that.
            if self.has_outside() or not (anew or self.is_waived):
                raise self._unwritten() from None

    def check_outside(self, mark: Mark) -> None:
        """Refuse to spend where no mark is kept outside the folder."""
        if not self.keeps_outside(mark) and (self.has_outside() or not self.is_waived):
            raise self._unwritten()  # One that stays behind would speak against the ledger.

    def keeps_outside(self, mark: Mark) -> bool:
        """Return whether a mark can be written outside the folder. Where there is none, write this one."""
        try:
            if self._outside is None or not os.access(self._outside, os.W_OK):
                self._write_outside(mark)
        except OSError:
            return False
        return True

    def _write_outside(self, mark: Mark, *, anew: bool = False) -> None:
        if self._outside is None:
            raise FileNotFoundError
        self._outside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._advance(self._outside, mark, synced=True, anew=anew)

    def has_outside(self) -> bool:
        """Return whether there is a mark outside the folder."""
        return self._outside is not None and os.path.exists(self._outside)

    def _unwritten(self) -> LedgerRefused:
        reason = "no state folder outside the model" if self._outside is None else f"{self._outside} cannot be written"
        remedy = "give it back to you, or make room" if self.has_outside() else _REMEDY
        return LedgerRefused(f"{reason}, so that an old copy would not show; {remedy}", cause="no_outside_mark")

    def _advance(self, path: Path, mark: Mark, *, synced: bool, anew: bool) -> None:
        """Write a mark over the one before, unless another process has gone further meanwhile.

        It fits into one sector, which a disk writes whole. Where it is not synced, a power cut may bring the one before
        it back; a process that dies does not.
        """
        about = {"seq": mark.seq, "head": mark.head, "spent": [str(quanta) for quanta in mark.spent]}
        text = json.dumps(about | {"in_database": self._in_database})
        text = json.dumps({"mark": text, "mac": self._mac(text)}).ljust(_LENGTH)
        with _locked(path.parent):
            content = _text(path)
            current = self._proved(content)
            if content is None or len(content) != _LENGTH:
                write_whole(path, text)
            elif anew or current is None or current.seq <= mark.seq:
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

    def _proved(self, text: str | None) -> Mark | None:
        """Return the mark in this text, or None where it is none of this ledger."""
        try:
            outer = json.loads(text or "")
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


_AHEAD = 300.0  # seconds by which the clocks of two hosts may differ


class Head:
    """The last state that this process has seen, so that a ledger that goes back while it runs shows."""

    __slots__ = ("mac", "seq", "state")

    def __init__(self) -> None:
        self.seq, self.mac = 0, ""
        self.state: State | None = None

    def mark(self) -> Mark:
        """Return how far the ledger had come."""
        return Mark(self.seq, self.mac, (0, 0) if self.state is None else self.state.spent)


class Change:
    """An open transaction. `append` applies the rules and adds an entry; nothing is written if it raises."""

    def __init__(self, statements: Statements, ledger: str, key: bytes, head: Head) -> None:
        self.statements, self.ledger, self._key = statements, ledger, key
        self.seq, self._mac, self._state = head.seq, head.mac, head.state
        self.at = _now(0.0 if head.state is None else head.state.at)
        self.appended = 0
        self.charged = self.anew = False

    @classmethod
    def read(cls, statements: Statements, ledger: str, key: bytes, seen: Head) -> "Change":
        """Read what the ledger holds now, and refuse it where it is not what this process has seen, or later."""
        rows = statements.run("SELECT seq, head, state, mac FROM quorate_snapshot WHERE ledger = ?", (ledger,))
        if not rows:
            raise LedgerRefused("this place holds no ledger of this model")
        seq, mac, text, snapshot = rows[0]
        if seq < seen.seq or (seq == seen.seq and mac != seen.mac):
            raise LedgerRefused("the ledger went back while it was in use: an old copy was put in its place")
        if seq != seen.seq:
            if not hmac.compare_digest(snapshot, _snapshot_mac(key, ledger, seq, mac, text)):
                raise LedgerRefused("the ledger's account was edited, or is locked with another key")
            state = from_json(json.loads(text))
            if seen.seq and not _has_entry(statements, ledger, state, seen.mark()):
                raise LedgerRefused("the ledger is another than it was: an old copy was put in its place and went on")
            seen.seq, seen.mac, seen.state = seq, mac, state
        return cls(statements, ledger, key, seen)

    @property
    def state(self) -> State:
        """What the ledger holds, with what was appended."""
        assert self._state is not None
        return self._state

    def check(self, mark: Mark) -> None:
        """Refuse a ledger that has not come as far as a mark says, or came there another way."""
        if not _has_entry(self.statements, self.ledger, self.state, mark):
            raise LedgerRefused(
                "the ledger is not the one that a mark speaks of: an old copy of it, or one of two copies in use; "
                "see `quorate ledger verify`"
            )

    def append(self, kind: str, body: dict[str, Any]) -> int:
        """Apply the rules to an event, add it as an entry, and return its number."""
        event = Event(kind, self.at, body)
        previous = self._state
        self._state = apply(previous, event)
        entry = link(self._key, self._mac, self.seq + 1, event)
        self.seq, self._mac = entry.seq, entry.mac
        self.statements.run(
            "INSERT INTO quorate_entry VALUES (?, ?, ?, ?, ?, ?)",
            (self.ledger, entry.seq, event.at, kind, canonical(body), entry.mac),
        )
        self.appended += 1
        # An arrival uses up what its phase has paid for, and a choice its share: an old copy must not repeat either.
        self.charged = (
            self.charged
            or previous is None
            or kind in ("moved", "restored", "phase", "arrived", "chosen", "compacted")
            or self._state.spent > previous.spent
        )
        self.anew = self.anew or kind == "restored"
        return entry.seq

    def write(self) -> None:
        """Write what the ledger holds now, where something was appended."""
        if self.appended:
            text = canonical(to_json(self.state))
            mac = _snapshot_mac(self._key, self.ledger, self.seq, self._mac, text)
            self.statements.run(
                "INSERT INTO quorate_snapshot VALUES (?, ?, ?, ?, ?) ON CONFLICT (ledger) DO UPDATE SET "
                "seq = excluded.seq, head = excluded.head, state = excluded.state, mac = excluded.mac",
                (self.ledger, self.seq, self._mac, text, mac),
            )

    def committed(self, seen: Head) -> None:
        """Remember, once it is on the disk, how far the ledger has come."""
        seen.seq, seen.mac, seen.state = self.seq, self._mac, self._state

    def mark(self) -> Mark:
        """Return how far the ledger has come, for a witness."""
        return Mark(seq=self.seq, head=self._mac, spent=self.state.spent)


class LedgerPart(ABC):
    """What every part of a `Ledger` uses of the whole."""

    _store: Store
    _id: str
    _key: bytes

    @abstractmethod
    def change(self) -> AbstractContextManager[Change]:
        """Open one transaction on the ledger."""

    @abstractmethod
    def state(self) -> State:
        """Return what the ledger holds now."""

    @abstractmethod
    def _owner(self) -> str: ...

    @abstractmethod
    def _run_mac(self, *noises: int) -> str: ...


def _now(last: float) -> float:
    """Return the time, which does not go back, unless the last entry came from a clock that was far ahead."""
    now = time.time()
    return now if last > now + _AHEAD else max(now, last)


def _has_entry(statements: Statements, ledger: str, state: State, mark: Mark) -> bool:
    """Return whether the ledger has come to where a mark was made, on the same way."""
    if state.compaction is not None and mark.seq <= state.compaction.through:  # proof: step 16
        return fits_part(statements, ledger, state.compaction, mark.seq, mark.head)
    rows = statements.run("SELECT mac FROM quorate_entry WHERE ledger = ? AND seq = ?", (ledger, mark.seq))
    return bool(rows) and rows[0][0] == mark.head


def _snapshot_mac(key: bytes, ledger: str, seq: int, head: str, text: str) -> str:
    return keyed_hash(key, b"snapshot", ledger.encode(), str(seq).encode(), head.encode(), text.encode())
