"""Compactions of a ledger, each with one mistake: budget comes back, an id is answered twice, anybody sets the account.

All of it runs on an entropy tape.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from planted.bug import Caught, kind_bug
from quorate.auditing.replay import entropy_tape
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import Votes
from quorate.core.errors import LedgerRefused
from quorate.core.ledger import Ledger, Verification
from quorate.core.ledger._rules import Compaction
from quorate.core.ledger.chain import canonical
from quorate.core.mechanisms import SoftMajority
from quorate.core.privacy import Budget
from quorate.core.requests import Replies, Request
from quorate.core.session import Session
from support.quiet_folder import quiet_folder

_TEACHERS, _UNITS, _LEASE, _ASKED = 60, 512, 8, 3


class ReturnsLeases(Ledger):
    """Tidies up before it compacts: what is out on lease, of processes that may be dead, is returned."""

    def compact(self, *, answers_days: float | None = None) -> Compaction:
        with self.change() as change:
            for name, lease in list(change.state.leases.items()):
                amounts = {"renyi": str(lease.renyi), "slack": str(lease.slack)}
                change.append("returned", {"lease": name} | amounts)  # the mistake
        return super().compact(answers_days=answers_days)


class FreesIds(Ledger):
    """Forgets the ids of old requests together with their outcomes."""

    def compact(self, *, answers_days: float | None = None) -> Compaction:
        compaction = super().compact(answers_days=answers_days)
        with self.change() as change:
            statement = "DELETE FROM quorate_request WHERE ledger = ? AND seq <= ?"
            change.statements.run(statement, (change.ledger, compaction.forgotten))  # the mistake
        return compaction


class TrustsTheStore(Ledger):
    """Begins with the account that the last compaction carries, and proves nothing of it."""

    def verify(self) -> Verification:
        return Verification(entries=0, head="", problems=())  # the mistake


def _session(ledger: Ledger) -> Session:
    ensemble = Ensemble(EstimatorTeachers([(None, place % 2) for place in range(_TEACHERS)], classes=2))
    majority = SoftMajority(teachers=_TEACHERS, epsilon_per_query=1 / _UNITS)
    return Session(Votes(ensemble, majority), ledger.budget(lease=_LEASE), ledger=ledger)


def _ledger(kind: type[Ledger], folder: Path) -> Ledger:
    return kind.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="planted")


def _asked(session: Session, number: int) -> Any:
    (reply,) = session.ask_all([Request(np.array([[float(number)]]), id=f"{number}", body=b"%d" % number)])
    return reply


def compact_after_answers(kind: type[Ledger]) -> Caught:
    """Answer from a lease, compact, and hold what is charged against what was drawn."""
    with quiet_folder() as folder, entropy_tape(0):
        ledger = _ledger(kind, folder)
        session = _session(ledger)
        drawn = sum(isinstance(_asked(session, number), Replies) for number in range(_ASKED))
        ledger.compact()
        charged = ledger.view().spent.renyi * _UNITS
    evidence = f"{drawn} answers were drawn, and {charged:g} are charged"
    return Caught("ledger", evidence, found=drawn > charged)


def ask_an_id_again(kind: type[Ledger]) -> Caught:
    """Ask with one id, have its outcome forgotten, and ask with it again."""
    with quiet_folder() as folder, entropy_tape(0):
        ledger, outcomes = _ledger(kind, folder), 0
        session = _session(ledger)
        for _ in range(3):
            outcomes += isinstance(_asked(session, 1), Replies)
            ledger.compact(answers_days=0)
    return Caught("ledger", f"outcomes of one id: {outcomes}", found=outcomes > 1)


def lower_what_is_spent(kind: type[Ledger]) -> Caught:
    """Edit the account in the entry that compacts, in the store and without the key, and open the ledger."""
    with quiet_folder() as folder, entropy_tape(0):
        ledger, path = _ledger(kind, folder), folder / "ledger.sqlite"
        _asked(_session(ledger), 1)
        ledger.compact()
        ledger.close_store()
        with closing(sqlite3.connect(path)) as connection, connection:
            (text,) = connection.execute("SELECT body FROM quorate_entry").fetchone()
            body = json.loads(text)
            body["state"]["spent"] = ["0", "0"]
            connection.execute("UPDATE quorate_entry SET body = ?", (canonical(body),))
        try:
            kind.open(path, fingerprint="planted").close_store()
        except LedgerRefused:
            return Caught("ledger", "an edited compaction is refused", found=False)
    return Caught("ledger", "an edited compaction is taken for the account", found=True)


COMPACTIONS = (
    kind_bug("compaction_returns_leases", "state", ReturnsLeases, Ledger, compact_after_answers),
    kind_bug("compaction_frees_ids", "state", FreesIds, Ledger, ask_an_id_again),
    kind_bug("compaction_not_proved", "state", TrustsTheStore, Ledger, lower_what_is_spent),
)
