"""Processes that die, disks that fill up, clocks that go wrong: nothing is given back, and nothing is spent unseen."""

import os
import resource
import shutil
import signal
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from quorate.core.errors import BudgetSpent, LedgerRefused
from quorate.core.ledger import chain
from quorate.core.ledger._store import SQLiteStore
from support.forked import run_forked
from support.ledger_in_use import LEASE, SPENT, UNITS, ask, make_used, open_ledger, request_of, session_of, units_spent


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The file of a used ledger."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    make_used(tmp_path / "model" / "ledger.sqlite", tmp_path / "model")
    return tmp_path / "model" / "ledger.sqlite"


def _abandoned(path, first, *more, checkpoint_after=None):
    """Have a process use the ledger and die without a word."""
    code = f"""
import os, signal, sqlite3
from support.ledger_in_use import ask, open_ledger, session_of
from pathlib import Path
path = Path({str(path)!r})
session = session_of(open_ledger(path))
for number in {[first, *more]!r}:
    ask(session, number)
    if number == {checkpoint_after!r}:
        sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)")
print(ask(session, {first}), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    status, _, errors = run_forked(code)
    assert status == -signal.SIGKILL, errors


def test_a_log_that_was_removed_is_refused(path):
    """The charge, and the answers it paid for, were in the log alone."""
    _abandoned(path, 100, 101)
    path.with_name("ledger.sqlite-wal").unlink()
    with pytest.raises(LedgerRefused, match="rolled back"):
        open_ledger(path)


def test_a_log_that_was_removed_after_the_charge_gives_nothing_back(path):
    """The charge was in the file, answers in the log: they may be forgotten, and stay paid for."""
    _abandoned(path, 100, 101, 102, checkpoint_after=100)
    path.with_name("ledger.sqlite-wal").unlink()
    with suppress(LedgerRefused):  # better still
        assert units_spent(path) == SPENT + LEASE


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_file_that_was_cut_short_is_refused_or_whole(path, share):
    _abandoned(path, 100, 101)
    log = path.with_name("ledger.sqlite-wal")
    os.truncate(log, int(log.stat().st_size * share))
    with suppress(LedgerRefused):
        assert units_spent(path) == SPENT + LEASE
    os.truncate(path, int(path.stat().st_size * share))
    with suppress(LedgerRefused):
        assert units_spent(path) == SPENT + LEASE  # a log that is there repairs it


def test_bytes_that_rot_are_refused_or_do_no_harm(path):
    """One byte in each page, one page at a time."""
    content = path.read_bytes()
    for place in range(100, len(content), 1021):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with suppress(LedgerRefused):
            assert units_spent(path) == SPENT


def test_a_clock_that_goes_wrong_changes_nothing(path, monkeypatch):
    day = 86_400.0
    for number, ahead in enumerate((-day, 0.0, -1.0, day, -day, 0.0)):
        monkeypatch.setattr(chain.time, "time", lambda ahead=ahead: 1_800_000_000.0 + ahead)
        session = session_of(open_ledger(path))
        ask(session, 100 + number, 100)
        session.close()
    monkeypatch.undo()
    assert open_ledger(path).verify().sound
    assert units_spent(path) == SPENT + 6


class _Failing:
    """A connection whose commits fail when told to, after or before they are done."""

    def __init__(self, connection, *, fail, done):
        self._connection, self.fail, self.done = connection, fail, done

    def execute(self, statement, *values):
        if self.fail and statement == "COMMIT":
            if self.done:
                self._connection.execute("COMMIT")
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("done", [False, True])
def test_a_commit_that_fails_pays_for_nothing(path, done, monkeypatch):
    """Whether or not it reached the disk, what it was to charge is not spent from memory."""
    ledger = open_ledger(path)
    session = session_of(ledger)
    ask(session, 100)
    real, switch = SQLiteStore._connected, []
    monkeypatch.setattr(SQLiteStore, "_connected", lambda store: _Failing(real(store), fail=bool(switch), done=done))
    granted = 1
    for number in range(101, 161):
        switch[:] = [True] if number % 3 == 0 else []
        try:
            replies = session.ask_all([request_of(number)])[0]
        except LedgerRefused:
            assert switch
            continue
        assert not isinstance(replies, BudgetSpent)
        granted += 1
    monkeypatch.undo()
    session.close()
    recounted = open_ledger(path)
    assert recounted.verify().sound
    assert SPENT + granted <= units_spent(path) <= UNITS
    answered = sum(entry.event.body["answered"] for entry in recounted.entries() if entry.event.kind == "answered")
    assert answered >= SPENT + granted


def _limited(session, path, bytes_more):
    """Ask until nothing more can be written, and return how many were answered."""
    log = path.with_name("ledger.sqlite-wal")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    granted = 0
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + bytes_more, before[1]))
        for number in range(2000, 2000 + UNITS):
            try:
                granted += len(ask(session, number))
            except LedgerRefused:
                break
        else:
            pytest.fail("the limit was never met")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    return granted


@pytest.mark.parametrize("bytes_more", [0, 5_000, 20_000, 60_000])
def test_a_full_disk_stops_the_answers_and_loses_nothing(path, bytes_more):
    session = session_of(open_ledger(path))
    ask(session, 100)
    granted = 1 + _limited(session, path, bytes_more)
    ask(session, 5000)  # there is room again
    session.close()
    assert open_ledger(path).verify().sound
    assert SPENT + granted + 1 <= units_spent(path) <= SPENT + granted + 1 + 8


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
@pytest.mark.parametrize("what", ["folder", "file"])
def test_who_may_not_write_is_refused(path, what):
    with tempfile.TemporaryDirectory() as home:  # pytest's own folders are closed to others
        os.chmod(home, 0o755)
        folder = Path(home) / "model"
        shutil.copytree(path.parent, folder)
        for file in folder.iterdir():
            file.chmod(0o666 if what == "folder" else 0o444)
        folder.chmod(0o755 if what == "folder" else 0o777)
        code = f"""
import os
from pathlib import Path
from quorate.core.errors import LedgerRefused
from support.ledger_in_use import ask, open_ledger, session_of
path = Path({str(folder / path.name)!r})
session_of(open_ledger(path)).close()  # everything is imported: the next user may not read Python's own files
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    ask(session_of(open_ledger(path)), 100)
except LedgerRefused as error:
    print("refused", error)
"""
        status, said, errors = run_forked(code)
        assert (status, said[:7]) == (0, "refused"), errors
        assert units_spent(folder / path.name) in (SPENT, SPENT + LEASE)


def test_two_that_open_at_once_share_what_there_is(path):
    sessions = [session_of(open_ledger(path)) for _ in range(3)]
    granted = 440
    assert len(sessions[0].ask_all([request_of(7000, rows=granted)])[0].labels) == granted
    for number in range(UNITS):
        reply = sessions[number % 3].ask_all([request_of(3000 + number)])[0]
        if isinstance(reply, BudgetSpent):
            break
        granted += 1
    for session in sessions:
        session.close()
    assert SPENT + granted == UNITS
    assert units_spent(path) == UNITS


def test_a_lost_lock_file_lets_nobody_overspend(path):
    sessions = [session_of(open_ledger(path)) for _ in range(2)]
    ask(sessions[0], 100)
    for name in ("ledger.lock", "ledger.turn"):
        path.with_name(name).unlink()
    ask(sessions[1], 101)
    ask(sessions[0], 102)
    for session in sessions:
        session.close()
    assert open_ledger(path).verify().sound
    assert units_spent(path) == SPENT + 3
