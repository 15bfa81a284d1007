"""Verify a whole ledger and report its problems.

Four things are checked. The entries, replayed through the rules, must end at the stored account. Each entry must carry
the keyed hash of itself and of all earlier entries. Answers and requests must be those of their entries. And the ledger
must have come at least as far as its marks.
"""

import hmac
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from quorate.core.errors import LedgerRefused, QuorateError
from quorate.core.ledger._parts import EMPTY, MAC_BYTES, Part, check_parts, part_macs
from quorate.core.ledger._requests import answer_row, kept_row, request_row
from quorate.core.ledger._rules import Compaction, Event, State, apply
from quorate.core.ledger._store import Statements, Store
from quorate.core.ledger.chain import Change, Entry, Head, Mark, canonical, digest_rows, keyed_hash, link

NOISES = ("threshold", "limit")  # the names of the secret noises of a phase
Noises = tuple[int, int]  # of the threshold, and the limit of the cutoff
RUNS = ("run", "run 2")  # the names of the secret noises of open runs
_EDITED = b"edited"  # in place of a row: no digest is made of it
_MAC = 32  # bytes of a hash
_PART = 2000  # entries read in one transaction: others need not wait long


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification. The ledger is sound if `problems` is empty."""

    entries: int
    head: str
    problems: tuple[str, ...]
    macs: bytes = field(default=b"", repr=False)  # of all entries since the last compaction, for the marks
    compacted: bytes = field(default=b"", repr=False)  # and the first bytes of those before it

    @property
    def sound(self) -> bool:
        """Whether the ledger has no problems."""
        return not self.problems

    def has(self, mark: Mark) -> bool:
        """Return whether the entries contain the entry of a mark, with the same hash."""
        since = mark.seq - 1 - len(self.compacted) // MAC_BYTES
        if since < 0:
            return mark.head[: 2 * MAC_BYTES] == _at(self.compacted, mark.seq - 1, MAC_BYTES)
        return mark.head == _at(self.macs, since, _MAC)


def _at(hashes: bytes, index: int, length: int) -> str:
    return hashes[index * length : (index + 1) * length].hex()


def read_entries(store: Store, ledger: str, start: int = 1) -> Iterator[Entry]:
    """Yield the entries of a ledger, oldest first; raise `LedgerRefused` if one is missing."""
    while True:
        with store.transaction(ledger) as statements:
            part = _part(statements, ledger, start)
        if part and part[0].seq != start:  # An export without them would look complete.
            raise LedgerRefused(f"entry {start} is missing, or was compacted while this was read; read it again")
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


class Given:
    """The answers and requests of one entry, or of several."""

    __slots__ = ("answers", "requests")

    def __init__(self) -> None:
        self.answers: list[tuple[str, bytes, int]] = []
        self.requests: list[tuple[str, str, bytes, bytes | None, str, float]] = []

    def rows(self, at: float) -> list[bytes]:
        """Return them as the digest of their entry counts them, which was written at this time."""
        rows = [answer_row(*answer) for answer in self.answers]
        for caller, name, body, outcome, owner, written in self.requests:
            rows.append(request_row(caller, name, body, outcome or b""))
            if (owner, written) != ("", at):  # nobody holds a request that was answered
                rows.append(_EDITED)
        return rows

    def kept_rows(self) -> list[bytes]:
        """Return them as the digest of a part counts them, when no entry says any more when they were written."""
        rows = [answer_row(*answer) for answer in self.answers]
        for caller, name, body, outcome, owner, written in self.requests:
            rows.append(kept_row(request_row(caller, name, body, outcome or b""), owner, written))
        return rows


def _read_answers(statements: Statements, ledger: str, first: int, last: int) -> dict[int, Given]:
    """Return what the entries from `first` to `last` gave, by their numbers."""
    by_entry: dict[int, Given] = defaultdict(Given)
    span = "WHERE ledger = ? AND seq BETWEEN ? AND ?"
    for seq, *answer in statements.run(
        f"SELECT seq, caller, query, label FROM quorate_answer {span}",  # noqa: S608
        (ledger, first, last),
    ):
        by_entry[seq].answers.append(tuple(answer))
    for seq, *request in statements.run(
        f"SELECT seq, caller, id, body, outcome, owner, at FROM quorate_request {span}",  # noqa: S608
        (ledger, first, last),
    ):
        by_entry[seq].requests.append(tuple(request))
    return by_entry


class Replay:
    """A replay of the entries, from the first one or from the last compaction.

    `collect` is called with each sound entry and its answers and requests.
    """

    def __init__(self, ledger: str, key: bytes, *, collect: Callable[[Entry, Given], None] | None = None) -> None:
        self.ledger, self.key, self._collect = ledger, key, collect
        self.state: State | None = None
        self.compaction: Compaction | None = None  # where it began
        self._began: tuple[Compaction | None, str] = (None, "")
        self.parts: list[Part] = []
        self.compacted = bytearray()  # the first bytes of the hashes before that
        self.macs = bytearray()  # and whole ones since
        self.over = False  # whether all entries were read
        self.kept = 0  # the last entry whose answers are kept
        self.removed = 0  # the first whose answers are not, since a phase was opened that forgot those before it

    @property
    def seq(self) -> int:
        """The last entry that was replayed."""
        return len(self.compacted) // MAC_BYTES + len(self.macs) // _MAC

    @property
    def head(self) -> str:
        """The hash of that entry."""
        return self.macs[-_MAC:].hex()

    def begin(self, store: Store) -> str | None:
        """Read the digests of compacted entries, and return their problem, if any."""
        with store.transaction(self.ledger) as statements:
            self._began = _began(statements, self.ledger, self.key)
            self.compaction = self._began[0]
            if self.compaction is None:
                return None
            self.parts = check_parts(statements, self.ledger, self.compaction)
        for part in self.parts:
            with store.transaction(self.ledger) as statements:
                self.compacted += part_macs(statements, self.ledger, part)
                if part.last <= self.compaction.forgotten:  # proof: step 15
                    continue
                rows = _part_rows(statements, self.ledger, part)
            if rows and digest_rows(rows) != part.digest:
                return f"answers of entries {part.first} to {part.last} were edited, added or removed"
            self.kept = part.last if rows else self.kept
            if not rows and part.digest != EMPTY:
                self.removed = self.removed or part.last
        if self.seq != self.compaction.through:
            return "what is left of compacted entries was edited"
        return None

    def is_outdated(self, statements: Statements) -> bool:
        """Return whether entries or answers were removed since the replay began, so that a problem may be spurious."""
        return _began(statements, self.ledger, self.key) != self._began

    def advance(self, statements: Statements) -> str | None:
        """Replay some entries, and return the problem of the first unsound entry, if any."""
        try:
            part = _part(statements, self.ledger, self.seq + 1)
        except (ValueError, TypeError):
            return f"entries after {self.seq} cannot be read"
        by_entry = _read_answers(statements, self.ledger, part[0].seq, part[-1].seq) if part else {}
        for entry in part:
            problem = self._add(entry, by_entry.pop(entry.seq, Given()))
            if problem is not None:
                return problem
        self.over = len(part) < _PART  # not: until nothing is left, for others may write as fast as this reads
        return None

    def _add(self, entry: Entry, answers: Given) -> str | None:
        """Replay one entry, and return its problem, if any."""
        seq, body = self.seq + 1, entry.event.body
        if entry.seq != seq:
            return f"entry {seq} is missing"
        begins = self.compaction is not None and not self.macs
        previous = str(body.get("head", "")) if begins else self.head
        if not hmac.compare_digest(entry.mac, link(self.key, previous, seq, entry.event).mac):
            return f"entry {seq} was edited, or is locked with another key"
        if (begins or entry.event.kind == "compacted") and not self._compacts(entry):
            return f"entry {seq} is not the compaction that the account speaks of"
        try:
            self.state = apply(self.state, entry.event)
        except (QuorateError, KeyError, TypeError, ValueError):
            return f"entry {seq} is one that the rules do not allow"
        problem = self._check_answers(entry, answers)
        if problem is None:
            self.macs += bytes.fromhex(entry.mac)
            if self._collect is not None:
                self._collect(entry, answers)
        return problem

    def _compacts(self, entry: Entry) -> bool:
        """Return whether this entry is a compaction, with the same parts as the one that the replay began with."""
        body = entry.event.body
        if entry.event.kind != "compacted" or body["through"] != entry.seq - 1:
            return False
        return self.compaction is None or bool(self.macs) or body["parts"] == self.compaction.parts

    def _check_answers(self, entry: Entry, answers: Given) -> str | None:
        """Compare the stored answers with the digest of the entry, allowing for answers that were forgotten since."""
        rows = answers.rows(entry.event.at)
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

    def result(self, *problems: str) -> Verification:
        """Return the result of the replay, with these problems."""
        return Verification(
            entries=self.seq, head=self.head, problems=problems, macs=bytes(self.macs), compacted=bytes(self.compacted)
        )


def _began(statements: Statements, ledger: str, key: bytes) -> tuple[Compaction | None, str]:
    """Return the last compaction and the file of the last opened phase, both of which remove entries or answers.

    If the account cannot be read, return neither; the end of the replay reports it.
    """
    try:
        state = Change.read(statements, ledger, key, Head()).state
    except LedgerRefused:
        return None, ""
    return state.compaction, "" if state.phase is None else state.phase.seated


def check_chain(store: Store, ledger: str, key: bytes, run_mac: Callable[..., str]) -> Verification:
    """Replay the whole ledger, up to the first unsound entry."""
    while True:
        replay = Replay(ledger, key)
        verification = _check_entries(store, replay, run_mac)
        if verification.sound:
            return verification
        with store.transaction(ledger) as statements:
            if not replay.is_outdated(statements):
                return verification


def _part_rows(statements: Statements, ledger: str, part: Part) -> list[bytes]:
    """Return the stored answers and requests of a part, in the form of its digest."""
    entries = _read_answers(statements, ledger, part.first, part.last).values()
    return [row for answers in entries for row in answers.kept_rows()]


def _check_entries(store: Store, replay: Replay, run_mac: Callable[..., str]) -> Verification:
    problem = replay.begin(store)
    while problem is None:
        with store.transaction(replay.ledger) as statements:
            problem = replay.advance(statements)
            if problem is None and replay.over:  # in the same transaction: others may write as fast as this reads
                return replay.result(*check_end(statements, replay, run_mac))
    return replay.result(problem)


def _secrets(statements: Statements, ledger: str) -> dict[str, int]:
    """Return the stored secret noises by name."""
    rows = statements.run("SELECT name, value FROM quorate_secret WHERE ledger = ?", (ledger,))
    return {name: int(value) for name, value in rows}


def run_noises(statements: Statements, ledger: str) -> tuple[int, ...]:
    """Return the secret noises of open runs, in the order in which they were kept."""
    noises = _secrets(statements, ledger)
    return tuple(noises[name] for name in RUNS if name in noises)


def phase_mac(key: bytes, ledger: str, number: int, noises: Noises) -> str:
    """Return the keyed hash of the secret noises of a phase."""
    return keyed_hash(key, b"phase", ledger.encode(), *(str(part).encode() for part in (number, *noises)))


def noises_of(statements: Statements, ledger: str) -> Noises | None:
    """Return the stored secret noises of a phase, or None if one is missing."""
    noises = _secrets(statements, ledger)
    return (noises[NOISES[0]], noises[NOISES[1]]) if all(name in noises for name in NOISES) else None


def check_end(statements: Statements, replay: Replay, run_mac: Callable[..., str]) -> Iterator[str]:
    """Compare the stored account, and rows beyond the last entry, with the entries."""
    if replay.removed:
        yield f"answers of entry {replay.removed} were edited, added or removed"
    if replay.state is None:
        yield "it belongs to another model, or the model's manifest was changed"
        return
    snapshot = Change.read(statements, replay.ledger, replay.key, Head())
    if snapshot.seq != replay.seq or snapshot.mark().head != replay.head:
        yield f"the account was kept at entry {snapshot.seq}, and the entries end at {replay.seq}"
    elif snapshot.state != replay.state:
        yield "the account is not the one that the entries add up to"
    if not replay.state.fingerprint.startswith(replay.ledger):
        yield "it belongs to another model; each model answers from the budget it was made with"
    if any(statements.run(statement, values)[0][0] for statement, values in _beyond(replay.ledger, replay.seq)):
        yield "answers are kept that no entry speaks of"
    yield from _check_noises(statements, replay, replay.state, run_mac)


def _check_noises(statements: Statements, replay: Replay, state: State, run_mac: Callable[..., str]) -> Iterator[str]:
    """Compare the stored secret noises with their keyed hashes in the account."""
    runs = run_noises(statements, replay.ledger)
    if state.run != (run_mac(*runs) if runs else None):
        yield "the run's secret noise was edited or removed"
    noises, phase = noises_of(statements, replay.ledger), state.phase
    mac = None if noises is None or phase is None else phase_mac(replay.key, replay.ledger, phase.number, noises)
    if (noises is None) != (phase is None) or (phase is not None and phase.noise != mac):
        yield "the secret noises of the phase were edited or removed"


def _beyond(ledger: str, last: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield statements that count rows without an entry. Each uses an index, since there may be millions of rows."""
    for table in ("quorate_answer", "quorate_request"):
        yield f"SELECT count(*) FROM {table} WHERE ledger = ? AND seq > ?", (ledger, last)  # noqa: S608
        yield f"SELECT count(*) FROM {table} WHERE ledger = ? AND seq < 0", (ledger,)  # noqa: S608
    unnumbered = "SELECT caller, id FROM quorate_request WHERE ledger = ? AND seq IS NULL"
    yield (
        f"SELECT count(*) FROM quorate_request WHERE ledger = ? AND (caller, id) IN ({unnumbered}) "  # noqa: S608
        "AND outcome IS NOT NULL",
        (ledger, ledger),
    )


def check_marks(verification: Verification, marks: Sequence[Mark]) -> Verification:
    """Compare the ledger with marks that were read before it."""
    problems = list(verification.problems)
    if not problems:
        for mark in marks:
            if mark.seq > verification.entries:
                problems.append(
                    f"it was rolled back: it ends at entry {verification.entries}, and had come to {mark.seq}; an old "
                    "copy gives budget back (see `quorate ledger restore`)"
                )
                break
            if mark.seq and not verification.has(mark):
                problems.append(f"it is another ledger than the one used here before: they differ by entry {mark.seq}")
                break
    return replace(verification, problems=tuple(problems), macs=b"", compacted=b"")
