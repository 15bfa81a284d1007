"""Broken builds, put into a server before it starts: the harness must find each of them."""

import threading
import time
from functools import partial

_LATE = 0.5  # seconds, so that a slow machine is not taken for a sound build


def put_in(plant):
    """Break this process as `plant` says; do nothing for None."""
    if plant is not None:
        _PLANTS[plant]()


def _answers_first(delay=0.0):
    """Send answers, and write them down at the same time, or later."""
    from quorate.core.ledger import Ledger
    from quorate.core.requests import outcome_of

    real = Ledger.keep

    def keep(*arguments, **counted):
        time.sleep(delay)
        real(*arguments, **counted)

    def keep_later(self, fresh, known, asked, **counted):
        known.update(fresh)
        threading.Thread(target=keep, args=(self, fresh, dict(known), asked), kwargs=counted).start()
        return [outcome_of(one, known) for one in asked]

    Ledger.keep = keep_later


def _draws_first():
    """Spend a lease from memory, then charge it."""
    from quorate.core.ledger.budget import LeasedBudget

    def take_later(self, unit, most):
        more = [one * max(most, 20) for one in unit]
        self._at_hand = tuple(have + one for have, one in zip(self._at_hand, more, strict=True))
        threading.Thread(target=charge, args=(self, more)).start()

    def charge(self, more):
        from quorate.core.ledger.budget import owner_name

        time.sleep(_LATE)
        with self._ledger.change() as change:
            body = {"lease": self.name, "owner": owner_name(), "renyi": str(more[0]), "slack": str(more[1])}
            change.append("leased", body)

    LeasedBudget._take = take_later


def _not_synced():
    """Leave it to the operating system, or to the database, when the log reaches the disk."""
    from quorate.core.ledger._postgres import PostgresStore
    from quorate.core.ledger._store import SQLiteStore

    def planted(connected, statement):
        def connected_without_sync(self):
            connection = connected(self)
            connection.execute(statement)
            return connection

        return connected_without_sync

    SQLiteStore._connected = planted(SQLiteStore._connected, "PRAGMA synchronous = OFF")
    PostgresStore._connected = planted(PostgresStore._connected, "SET synchronous_commit = off")


def _strangers():
    """Not a bug: be on a host of one's own, where others cannot see whether a process lives, and wait for nobody."""
    import os

    from quorate.core.ledger import _requests as requests
    from quorate.core.ledger import budget

    budget._SILENT = requests._ID_SECONDS = 0.05
    budget._space = lambda: f"host {os.getpid()}"


_PLANTS = {
    "answers_first": _answers_first,
    "answers_long_before": partial(_answers_first, _LATE),
    "draws_first": _draws_first,
    "not_synced": _not_synced,
    "strangers": _strangers,
}
