"""Phases of everlasting prediction in a ledger: how far one has come, its secret noises, and what it has answered.

Points are not kept here. They lie in a file beside the model, and the ledger holds a keyed hash of them, which tells
whoever has the ledger alone nothing. Points are on the disk before the entry that speaks of them, and that entry before
the answers leave. When a phase opens, what was asked and answered before it is forgotten; ids stay used.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from quorate.core.errors import LedgerRefused
from quorate.core.ledger._requests import forget_requests, note_activity, pack, request_row
from quorate.core.ledger._rules import Phase
from quorate.core.ledger._verify import NOISES, Noises, noises_of, phase_mac
from quorate.core.ledger.chain import Change, LedgerPart, digest_rows
from quorate.core.requests import REFUSED, Asked, Outcome


def import_phase(change: Change, phase: Phase, noises: Noises) -> None:
    """Go on with a phase that comes from another place."""
    _open(change, phase, noises, [])
    if not phase.lost:  # one that is lost stays so, and nobody arrives in it
        _arrive(change, phase, digest_rows([]))


def _open(change: Change, phase: Phase, noises: Noises, requests: Sequence[Asked]) -> None:
    """Open a phase. Requests that were under way were counted in the one before, and may have arrived in this one."""
    names = ("number", "seats", "noise", "files", "seated", "points", "lost")
    body = {name: value for name, value in asdict(phase).items() if name in names}
    rows: Counter[str] = Counter()
    for request in requests:
        if request.caller in change.state.keys:
            rows[request.caller] += len(request.queries)  # models/everlasting/PROOF.md, step 24
    change.append("phase", body | {"files": dict(phase.files)} | ({"rows": dict(rows)} if rows else {}))
    change.statements.run_many(
        "INSERT INTO quorate_secret VALUES (?, ?, ?) ON CONFLICT (ledger, name) DO UPDATE SET value = excluded.value",
        [(change.ledger, name, noise) for name, noise in zip(NOISES, noises, strict=True)],
    )
    forget_requests(change)


def _arrive(change: Change, phase: Phase, digest: str) -> int:
    body = {"phase": phase.number, "taken": phase.taken, "met": phase.met, "closed": phase.closed}
    return change.append("arrived", body | {"points": phase.points, "digest": digest})


class Phases(LedgerPart):
    """The part of a `Ledger` that keeps phases."""

    def phase(self) -> tuple[Phase, Noises] | None:
        """Return the phase that is open and its secret noises, or None where there is none."""
        with self.change() as change:
            phase, noises = change.state.phase, noises_of(change.statements, self._id)
        if phase is None:
            return None
        if noises is None or phase_mac(self._key, self._id, phase.number, noises) != phase.noise:
            raise LedgerRefused("the secret noises of the phase were edited or removed")
        return phase, noises

    def sealer(self) -> "hmac.HMAC":
        """Return what hashes points under the ledger's key, so that their hash tells nobody else anything."""
        return hmac.new(self._key, b"points" + self._id.encode(), digestmod=hashlib.sha256)

    def keep_phase(
        self,
        before: Phase | None,
        after: Phase,
        *,
        noises: Noises | None = None,
        write: Callable[[], None] = lambda: None,
        asked: Sequence[Asked] = (),
        outcomes: Sequence[Outcome] = (),
    ) -> Phase:
        """Keep how far a phase has come and what requests were answered, in one transaction, before answers leave.

        `before` is what the ledger must say until now. With `noises` a phase is opened. `write` puts points on the
        disk, and is called before anything here speaks of them. Returns the phase as it is kept.
        """
        with self.change() as change:
            if change.state.phase != before:
                raise LedgerRefused("another process has answered from this model meanwhile; one asks it at a time")
            write()
            if noises is not None:
                after = replace(after, noise=phase_mac(self._key, self._id, after.number, noises))
                _open(change, after, noises, asked)
            done = [
                (request, pack(outcome))
                for request, outcome in zip(asked, outcomes, strict=True)
                if request.id is not None
            ]
            rows = [request_row(request.caller, request.id or "", request.body, packed) for request, packed in done]
            seq = _arrive(change, after, digest_rows(rows))
            updated = change.statements.run_many(
                "UPDATE quorate_request SET outcome = ?, seq = ?, owner = '', at = ? "
                "WHERE ledger = ? AND caller = ? AND id = ? AND owner = ? AND outcome IS NULL",
                [
                    (packed, seq, change.at, self._id, request.caller, request.id, self._owner())
                    for request, packed in done
                ],
            )
            if updated != len(done):
                raise LedgerRefused("another process is answering one of these requests; one asks it at a time")
            note_activity(change, _count_outcomes(outcomes))
            assert change.state.phase is not None
            return change.state.phase


def _count_outcomes(outcomes: Sequence[Outcome]) -> dict[str, int]:
    labels = [label for outcome in outcomes for label in outcome]
    refused, answered = labels.count(REFUSED), sum(label >= 0 for label in labels)
    return {
        "answered": answered,
        "no_quorums": len(labels) - answered - refused,
        "repeated": 0,
        "refused": refused,
    }
