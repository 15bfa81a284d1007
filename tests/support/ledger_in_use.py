"""A ledger that was used, for tests that do things to it: 512 units, of which 12 were spent."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import Votes
from quorate.core.ledger import Ledger
from quorate.core.ledger._store import is_url
from quorate.core.mechanisms import SoftMajority
from quorate.core.privacy import Budget
from quorate.core.requests import Request
from quorate.core.session import Session

UNITS, SPENT, LEASE = 512, 12, 8


def make_used(place, folder):
    """Make a ledger of answers, a key, and a lease that was returned."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger.create(place, Budget(epsilon=1.0, delta=0.0), fingerprint="m", folder=folder)
    ledger.add_key("alice", quota=5)
    session = session_of(ledger)
    for first in range(0, SPENT, 4):
        session.ask_all([request_of(number) for number in range(first, first + 4)])
    session.close()


def open_ledger(place, folder=None):
    """Open it as a server does."""
    return Ledger.open(place, fingerprint="m", folder=folder)


def session_of(ledger, *, lease=LEASE):
    """Return a session that answers a query for one unit."""
    ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 60, classes=2))
    return Session(
        Votes(ensemble, SoftMajority(teachers=60, epsilon_per_query=1 / UNITS)),
        ledger.budget(lease=lease),
        ledger=ledger,
    )


def request_of(number, *, rows=1):
    return Request(np.arange(rows)[:, None] / UNITS + number, id=f"id{number}", body=b"%d" % number)


def ask(session, *numbers):
    """Ask these queries one after the other."""
    return [session.ask_all([request_of(number)])[0].labels.tolist() for number in numbers]


def units_spent(place, folder=None):
    """Return the units that are charged, once the ledger was found in order."""
    ledger = open_ledger(place, folder)
    try:
        return round(ledger.budget().spent().renyi * UNITS)
    finally:
        ledger._store.close()


def edit(place, statement):
    """Change the ledger behind its back, and return whether anything changed."""
    if is_url(place):
        import psycopg

        with psycopg.connect(place) as connection:
            return connection.execute(statement).rowcount
    with closing(sqlite3.connect(place)) as connection, connection:
        return connection.execute(statement).rowcount


@pytest.fixture(params=["sqlite", "postgres"])
def used(request, tmp_path, monkeypatch):
    """A used ledger in each store: its place, and the folder of its model."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    folder = tmp_path / "model"
    place = request.getfixturevalue("postgres_url") if request.param == "postgres" else folder / "ledger.sqlite"
    make_used(place, folder)
    return place, folder


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The file of a used ledger."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    make_used(tmp_path / "model" / "ledger.sqlite", tmp_path / "model")
    return tmp_path / "model" / "ledger.sqlite"
