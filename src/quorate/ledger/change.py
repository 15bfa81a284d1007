"""One transaction on a ledger: what it holds, read and checked, and what is added to it."""

import hmac
import json
import time
from typing import Any

from quorate.errors import LedgerRefused
from quorate.ledger.chain import canonical, keyed_hash, link
from quorate.ledger.rules import Event, State, apply, from_json, to_json
from quorate.ledger.store import Statements
from quorate.ledger.witness import Mark

__all__ = ["Change", "Head", "entry_mac"]


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
        found = statements.run("SELECT seq, head, state, mac FROM quorate_snapshot WHERE ledger = ?", (ledger,))
        if not found:
            raise LedgerRefused("this place holds no ledger of this model")
        seq, mac, text, snapshot = found[0]
        if seq < seen.seq or (seq == seen.seq and mac != seen.mac):
            raise LedgerRefused("the ledger went back while it was in use: an old copy was put in its place")
        if seq != seen.seq:
            if seen.seq and entry_mac(statements, ledger, seen.seq) != seen.mac:
                raise LedgerRefused("the ledger is another than it was: an old copy was put in its place and went on")
            if not hmac.compare_digest(snapshot, _snapshot_mac(key, ledger, seq, mac, text)):
                raise LedgerRefused("the ledger's account was edited, or is locked with another key")
            seen.seq, seen.mac, seen.state = seq, mac, from_json(json.loads(text))
        return cls(statements, ledger, key, seen)

    @property
    def state(self) -> State:
        """What the ledger holds, with what was appended."""
        assert self._state is not None
        return self._state

    def check(self, mark: Mark) -> None:
        """Refuse a ledger that has not come as far as a mark says, or came there another way."""
        if entry_mac(self.statements, self.ledger, mark.seq) != mark.head:
            raise LedgerRefused(
                "the ledger is not the one that a mark speaks of: an old copy of it, or one of two copies in use; "
                "see `quorate ledger verify`"
            )

    def append(self, kind: str, body: dict[str, Any]) -> int:
        """Apply the rules to an event, add it as an entry, and return its number."""
        event = Event(kind, self.at, body)
        before = self._state
        self._state = apply(before, event)
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
            or before is None
            or kind in ("moved", "restored", "phase", "arrived", "chosen")
            or self._state.spent > before.spent
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


def _now(last: float) -> float:
    """Return the time, which does not go back, unless the last entry came from a clock that was far ahead."""
    now = time.time()
    return now if last > now + _AHEAD else max(now, last)


def entry_mac(statements: Statements, ledger: str, seq: int) -> str | None:
    """Return the hash of an entry, or None where there is none of this number."""
    found = statements.run("SELECT mac FROM quorate_entry WHERE ledger = ? AND seq = ?", (ledger, seq))
    return str(found[0][0]) if found else None


def _snapshot_mac(key: bytes, ledger: str, seq: int, head: str, text: str) -> str:
    return keyed_hash(key, b"snapshot", ledger.encode(), str(seq).encode(), head.encode(), text.encode())
