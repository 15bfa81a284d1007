"""Compaction: one entry begins anew from the account as it is, and the entries before it go.

First all entries are replayed, and what must be left of them is gathered. Then, in one transaction, the entry is
written that carries the account, with what is left. Only then are the old entries, and answers that are to be
forgotten, removed bit by bit: nobody reads them any more, so that it does not matter where this is interrupted.
"""

import itertools
import math
import time
from typing import Any

from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger._parts import MAC_BYTES, Part, add_parts, check_parts, part_macs
from quorate.core.ledger._requests import FORGET
from quorate.core.ledger._rules import Compaction, to_json
from quorate.core.ledger._verify import Given, Replay, check_end
from quorate.core.ledger.chain import Change, Entry, LedgerPart
from quorate.core.requests import OWN_CALLER

_ENTRIES = 10_000  # of a part, at most
_ROWS = 50_000  # answers and requests after which a part ends: a start reads those of one part in one statement
_DAY = 86_400  # seconds, which a part is no longer than: answers are forgotten by whole parts
_SWEPT = 5000  # entries removed in one transaction: others need not wait long


class _Gathered:
    """What is left of the entries that were replayed: whole parts, and the one that is being made."""

    def __init__(self) -> None:
        self.parts: list[tuple[Part, bytes]] = []
        self.forgets = False  # whether a phase was opened, which forgets all answers before it
        self.lost: Any = None  # what the last restore said
        self._first, self._at, self._macs = 0, 0.0, bytearray()
        self._answers, self._rows = 0, list[bytes]()

    def add(self, entry: Entry, answers: Given) -> None:
        """Add an entry."""
        event = entry.event
        full = len(self._macs) >= _ENTRIES * MAC_BYTES or len(self._rows) >= _ROWS
        if self._macs and (full or event.at // _DAY != self._at // _DAY):
            self.close()
        if event.kind == "phase":
            self.forgets, self._rows = True, []
            self.parts = [(part.without_answers(), macs) for part, macs in self.parts]
        self.lost = event.body.get("lost") if event.kind in ("restored", "compacted") else self.lost
        self._first = self._first if self._macs else entry.seq
        self._at = event.at
        self._macs += bytes.fromhex(entry.mac)[:MAC_BYTES]
        self._answers += len(answers.answers)
        self._rows += answers.kept_rows()

    def close(self) -> None:
        """End the part that is being made."""
        if self._macs:
            macs = bytes(self._macs)
            self.parts.append((Part.of(self._first, self._at, answers=self._answers, rows=self._rows, macs=macs), macs))
            self._macs, self._answers, self._rows = bytearray(), 0, []


class Compacting(LedgerPart):
    """The part of a `Ledger` that compacts."""

    def compact(self, *, answers_days: float | None = None) -> Compaction:
        """Let entries go, so that the next start need not read them; what they add up to stays.

        With `answers_days`, answers older than that are forgotten: asked again, they are drawn and paid for again, but
        their ids stay used. Others may use the ledger meanwhile. What was interrupted can be called again.
        """
        if answers_days is not None and not answers_days >= 0:
            raise InvalidInput(f"answers_days must be a number of days, 0 or more, got {answers_days!r}")
        while (compaction := self._write_compaction(answers_days)) is None:
            pass  # what is there now is replayed
        self._sweep(compaction)
        return compaction

    def _write_compaction(self, answers_days: float | None) -> Compaction | None:
        """Replay the ledger and write the entry that begins anew; None where some of it went meanwhile."""
        gathered = _Gathered()
        replay = Replay(self._id, self._key, collect=gathered.add)
        problem = replay.begin(self._store)
        while problem is None and not replay.over:
            with self._store.transaction(self._id) as statements:
                problem = replay.advance(statements)
        with self.change() as change:
            if replay.is_outdated(change.statements):
                return None  # entries and answers are gone, and parts are not those that were read
            _refuse(problem)
            replay.over = False
            while not replay.over:  # what was written meanwhile
                _refuse(replay.advance(change.statements))
            for problem in check_end(change.statements, replay, self._run_mac):
                _refuse(problem)
            gathered.close()
            self._append(change, replay, gathered, answers_days)
            return change.state.compaction

    def _append(self, change: Change, replay: Replay, gathered: _Gathered, answers_days: float | None) -> None:
        state = change.state
        if answers_days is not None and state.phase is not None:
            raise InvalidInput("an everlasting model forgets its answers by itself, with each phase")
        statement = "SELECT label FROM quorate_answer WHERE ledger = ? AND caller = ? LIMIT 1"
        if answers_days is not None and change.statements.run(statement, (self._id, OWN_CALLER)):
            raise InvalidInput("this model goes on from what it has answered, and cannot forget it")
        earlier = [part.without_answers() for part in replay.parts] if gathered.forgets else replay.parts
        parts = [*earlier, *(part for part, _ in gathered.parts)]
        forgotten, answers = state.forgotten, state.answers_forgotten
        since = -math.inf if answers_days is None else change.at - answers_days * _DAY
        for part in itertools.takewhile(lambda part: part.at < since, parts):
            if part.last > state.forgotten:
                forgotten, answers = part.last, answers + part.answers
        body = {
            "through": change.seq,
            "head": replay.head,
            "state": to_json(state),
            "parts": add_parts(change.statements, self._id, earlier, gathered.parts),
            "forgotten": forgotten,
            "answers_forgotten": answers,
            "lost": gathered.lost,
        }
        change.append("compacted", body)  # proof: step 14

    def _sweep(self, compaction: Compaction) -> None:
        """Remove what nobody reads any more, a little at a time."""
        entries = "DELETE FROM quorate_entry WHERE ledger = ?", (self._id,)
        answers = "DELETE FROM quorate_answer WHERE ledger = ?", (self._id,)
        self._remove("quorate_entry", *entries, last=compaction.through)
        self._remove("quorate_answer", *answers, last=compaction.forgotten)
        self._remove("quorate_request", FORGET, (b"", self._id), last=compaction.forgotten)

    def _remove(self, table: str, statement: str, values: tuple[Any, ...], *, last: int) -> None:
        first = 1
        while first <= last:
            with self._store.transaction(self._id) as statements:
                lowest = f"SELECT min(seq) FROM {table} WHERE ledger = ? AND seq > 0"  # noqa: S608
                (first,) = statements.run(lowest, (self._id,))[0]
                if first is None or first > last:
                    return
                end = min(last, first + _SWEPT - 1)
                statements.run(f"{statement} AND seq BETWEEN ? AND ?", (*values, first, end))
            time.sleep(0)  # others may have a turn

    def compacted_macs(self) -> bytes:
        """Return the first bytes of the hashes of the entries that are gone."""
        with self.change() as change:
            if change.state.compaction is None:
                return b""
            parts = check_parts(change.statements, self._id, change.state.compaction)
            return b"".join(part_macs(change.statements, self._id, part) for part in parts)


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise LedgerRefused(f"a ledger that is not sound is not compacted: {problem}")
