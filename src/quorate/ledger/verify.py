"""Read a whole ledger and say what is wrong with it.

The entries are replayed through the rules and must end at the account that is kept; each must carry the keyed hash of
itself and of all before it; answers and requests must be those that the entries were made with; and the ledger must
have come at least as far as its marks say.
"""

import hmac
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quorate.errors import QuorateError
from quorate.ledger.chain import Change, Entry, Head, Mark, canonical, digest_rows, keyed_hash, link
from quorate.ledger.requests import answer_row, request_row
from quorate.ledger.rules import Event, State, apply
from quorate.ledger.store import Statements, Store

__all__ = [
    "NOISES",
    "RUNS",
    "Noises",
    "Verification",
    "check_chain",
    "check_marks",
    "noises_of",
    "phase_mac",
    "read_entries",
    "run_noises",
]

NOISES = ("threshold", "limit")  # the names of the secret noises of a phase
Noises = tuple[int, int]  # of the threshold, and the limit of the cutoff
RUNS = ("run", "run 2")  # the names of the secret noises of open runs
_OWNER = re.compile(r"[0-9a-f]{16}@[^/]*/[0-9a-f-]*/[^/]*/\d+/\d*")  # as `Ledger` names who holds an id
_EDITED = b"edited"  # in place of a row: no digest is made of it
_PART = 2000  # entries read in one transaction: others need not wait long


@dataclass(frozen=True, slots=True)
class Verification:
    """What was read, and what is wrong with it: nothing, where `problems` is empty."""

    entries: int
    head: str
    problems: tuple[str, ...]
    macs: tuple[str, ...] = ()  # of all entries, for the marks

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def read_entries(store: Store, ledger: str, start: int = 1) -> Iterator[Entry]:
    """Yield the entries of a ledger, oldest first."""
    while True:
        with store.transaction(ledger) as statements:
            part = _part(statements, ledger, start)
        yield from part
        if len(part) < _PART:  # not: until nothing is left, for others may write as fast as this reads
            return
        start = part[-1].seq + 1


def _part(statements: Statements, ledger: str, start: int) -> list[Entry]:
    rows = statements.run(
        "SELECT seq, at, kind, body, mac FROM quorate_entry WHERE ledger = ? AND seq >= ? ORDER BY seq LIMIT ?",
        (ledger, start, _PART),
    )
    return [Entry(seq, Event(kind, at, _body(body)), mac) for seq, at, kind, body, mac in rows]


def _body(text: str) -> Any:
    """Return the body of an entry, in the one spelling that it was written in."""
    body = json.loads(text)
    if canonical(body) != text:
        raise ValueError("this was not written here")
    return body


class _Replay:
    """The entries so far, replayed."""

    def __init__(self, ledger: str, key: bytes) -> None:
        self.ledger, self.key = ledger, key
        self.state: State | None = None
        self.macs: list[str] = []
        self.kept = 0  # the last entry whose answers are kept
        self.removed = 0  # the first whose answers are not, since a phase was opened that forgot those before it

    def add(self, entry: Entry, rows: list[bytes]) -> str | None:
        """Replay one entry, and return what is wrong with it."""
        before = self.macs[-1] if self.macs else ""
        if entry.seq != len(self.macs) + 1:
            return f"entry {len(self.macs) + 1} is missing"
        if not hmac.compare_digest(entry.mac, link(self.key, before, entry.seq, entry.event).mac):
            return f"entry {entry.seq} was edited, or is locked with another key"
        try:
            self.state = apply(self.state, entry.event)
        except (QuorateError, KeyError, TypeError, ValueError):
            return f"entry {entry.seq} is one that the rules do not allow"
        problem = self._check_answers(entry, rows)
        if problem is None:
            self.macs.append(entry.mac)
        return problem

    def _check_answers(self, entry: Entry, rows: list[bytes]) -> str | None:
        """Hold the answers that are kept against those that the entry was made with, or that were forgotten since."""
        if rows and "digest" not in entry.event.body:
            return f"answers claim to belong to entry {entry.seq}, which gave none"
        self.kept = entry.seq if rows else self.kept
        if "digest" in entry.event.body and entry.event.body["digest"] != digest_rows(rows):
            if rows:
                return f"answers of entry {entry.seq} were edited, added or removed"
            self.removed = self.removed or entry.seq
        if entry.event.kind == "phase":
            if self.kept:
                return f"answers of entry {self.kept} are kept, which entry {entry.seq} says are forgotten"
            self.removed = 0
        return None


def check_chain(store: Store, ledger: str, key: bytes, run_mac: Callable[..., str]) -> Verification:
    """Replay the whole ledger. It stops at the first entry that is wrong."""
    replay = _Replay(ledger, key)
    while True:
        with store.transaction(ledger) as statements:
            try:
                part = _part(statements, ledger, len(replay.macs) + 1)
            except (ValueError, TypeError):
                return _found(replay, f"entries after {len(replay.macs)} cannot be read")
            rows = _rows(statements, ledger, part)
            for entry in part:
                problem = replay.add(entry, rows.pop(entry.seq, []))
                if problem is not None:
                    return _found(replay, problem)
            if len(part) < _PART:  # in the same transaction: others may write as fast as this reads
                return _found(replay, *_end(statements, replay, run_mac))


def _found(replay: _Replay, *problems: str) -> Verification:
    macs = tuple(replay.macs)
    return Verification(entries=len(macs), head=macs[-1] if macs else "", problems=problems, macs=macs)


def run_noises(statements: Statements, ledger: str) -> tuple[int, ...]:
    """Return the secret noises of open runs, in the order in which they were kept."""
    rows = statements.run("SELECT name, value FROM quorate_secret WHERE ledger = ?", (ledger,))
    kept = {name: int(value) for name, value in rows}
    return tuple(kept[name] for name in RUNS if name in kept)


def phase_mac(key: bytes, ledger: str, number: int, noises: Noises) -> str:
    """Return the keyed hash of the secret noises of a phase."""
    return keyed_hash(key, b"phase", ledger.encode(), *(str(part).encode() for part in (number, *noises)))


def noises_of(statements: Statements, ledger: str) -> Noises | None:
    """Return the secret noises that are kept, or None where one is missing."""
    noises = {
        name: int(value)
        for name, value in statements.run("SELECT name, value FROM quorate_secret WHERE ledger = ?", (ledger,))
    }
    return (noises[NOISES[0]], noises[NOISES[1]]) if all(name in noises for name in NOISES) else None


def _rows(statements: Statements, ledger: str, part: list[Entry]) -> dict[int, list[bytes]]:
    """Return the answers and requests of these entries, as their digests count them."""
    rows: dict[int, list[bytes]] = {}
    if not part:
        return rows
    span = (ledger, part[0].seq, part[-1].seq)
    answers = statements.run(
        "SELECT seq, caller, query, label FROM quorate_answer WHERE ledger = ? AND seq BETWEEN ? AND ?", span
    )
    for seq, caller, query, label in answers:
        rows.setdefault(seq, []).append(answer_row(caller, query, label))
    requests = statements.run(
        "SELECT seq, caller, id, body, outcome, owner, at FROM quorate_request "
        "WHERE ledger = ? AND seq BETWEEN ? AND ?",
        span,
    )
    times = {entry.seq: entry.event.at for entry in part}
    for seq, caller, name, body, outcome, owner, at in requests:
        rows.setdefault(seq, []).append(request_row(caller, name, body, outcome or b""))
        # Nobody holds a request that was answered. An older version left its owner there, which nothing proves.
        if (owner == "" or _OWNER.fullmatch(owner) is None) and (owner, at) != ("", times.get(seq)):
            rows[seq].append(_EDITED)
    return rows


def _end(statements: Statements, replay: _Replay, run_mac: Callable[..., str]) -> Iterator[str]:
    """Hold the account that is kept, and what lies beyond the last entry, against the entries."""
    last = len(replay.macs)
    if replay.removed:
        yield f"answers of entry {replay.removed} were edited, added or removed"
    if replay.state is None:
        yield "it belongs to another model, or the model's manifest was changed"
        return
    kept = Change.read(statements, replay.ledger, replay.key, Head())
    if kept.seq != last or kept.mark().head != replay.macs[-1]:
        yield f"the account was kept at entry {kept.seq}, and the entries end at {last}"
    elif kept.state != replay.state:
        yield "the account is not the one that the entries add up to"
    if not replay.state.fingerprint.startswith(replay.ledger):
        yield "it belongs to another model; each model answers from the budget it was made with"
    for table in ("quorate_answer", "quorate_request"):
        beyond = statements.run(
            f"SELECT count(*) FROM {table} WHERE ledger = ? AND (seq > ? OR seq < 1)",  # noqa: S608
            (replay.ledger, last),
        )
        if beyond[0][0]:
            yield "answers are kept that no entry speaks of"
    unnumbered = "SELECT count(*) FROM quorate_request WHERE ledger = ? AND seq IS NULL AND outcome IS NOT NULL"
    if statements.run(unnumbered, (replay.ledger,))[0][0]:
        yield "answers are kept that no entry speaks of"
    runs = run_noises(statements, replay.ledger)
    if replay.state.run != (run_mac(*runs) if runs else None):
        yield "the run's secret noise was edited or removed"
    noises, phase = noises_of(statements, replay.ledger), replay.state.phase
    known = None if noises is None or phase is None else phase_mac(replay.key, replay.ledger, phase.number, noises)
    if (noises is None) != (phase is None) or (phase is not None and phase.noise != known):
        yield "the secret noises of the phase were edited or removed"


def check_marks(verification: Verification, marks: Sequence[Mark]) -> Verification:
    """Hold the ledger against marks that were read before it."""
    problems = list(verification.problems)
    if not problems:
        for mark in marks:
            if mark.seq > verification.entries:
                problems.append(
                    f"it was rolled back: it ends at entry {verification.entries}, and had come to {mark.seq}; an old "
                    "copy gives budget back (see `quorate ledger restore`)"
                )
                break
            if mark.seq and verification.macs[mark.seq - 1] != mark.head:
                problems.append(f"it is another ledger than the one used here before: they differ by entry {mark.seq}")
                break
    return replace(verification, problems=tuple(problems), macs=())
