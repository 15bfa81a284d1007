"""A full disk, a ledger that is gone, a database that is stopped or hung: said soon, and over when it is over."""

import fcntl
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from quorate import Budget, InvalidInput
from quorate.core.errors import LedgerRefused
from quorate.core.ledger import Ledger
from quorate.core.ledger import _postgres as postgres
from quorate.core.ledger import _store as store


@pytest.fixture
def on_disk(tmp_path):
    return Ledger.create(tmp_path / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")


def test_a_probe_is_written_and_leaves_no_entry(on_disk):
    before = on_disk.view()
    for _ in range(3):
        on_disk.probe()
    assert on_disk.view() == before
    assert on_disk.verify().sound


@pytest.mark.parametrize("cause", ["disk_full", "missing"])
def test_a_probe_says_what_is_wrong_with_a_file(on_disk, tmp_path, monkeypatch, cause):
    with monkeypatch.context() as patch:
        if cause == "disk_full":
            patch.setattr(store, "_LEAST_FREE_BYTES", 2**80)
        else:
            (tmp_path / "ledger.sqlite").rename(tmp_path / "elsewhere")
        with pytest.raises(LedgerRefused) as caught:
            on_disk.probe()
        assert caught.value.cause == cause
    if cause == "missing":
        (tmp_path / "elsewhere").rename(tmp_path / "ledger.sqlite")
    on_disk.probe()


def test_keys_are_known_while_the_ledger_cannot_be_read(on_disk, tmp_path, monkeypatch):
    """Nothing is answered then; but who reads metrics is let in."""
    token = on_disk.add_key("reader", scopes=["budget"])
    on_disk.read_keys()
    (tmp_path / "ledger.sqlite").rename(tmp_path / "elsewhere")
    clock = time.monotonic()
    for later, known in ((5, True), (601, False)):
        monkeypatch.setattr(time, "monotonic", lambda later=later: clock + later)
        if known:
            assert on_disk.find_key(token).name == "reader"
        else:
            with pytest.raises(LedgerRefused):
                on_disk.find_key(token)


def _processes(server):
    children = Path(f"/proc/{server.process}/task/{server.process}/children").read_text().split()
    return [server.process, *map(int, children)]


def wait_for_answers(ledger):
    """Wait until the database answers again, which takes a busy machine more than one try."""
    end = time.monotonic() + 60
    while True:
        time.sleep(postgres._PAUSE)
        try:
            return ledger.probe()
        except LedgerRefused:
            assert time.monotonic() < end


def test_a_hung_database_is_not_waited_for(tmp_path, postgres_server, postgres_url, monkeypatch):
    monkeypatch.setenv("QUORATE_DATABASE_SECONDS", "1")
    ledger = Ledger.create(postgres_url, Budget(epsilon=1.0, delta=0.0), fingerprint="m", folder=tmp_path)
    ledger.probe()
    processes = _processes(postgres_server)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(LedgerRefused) as first:
            ledger.probe()
        assert 0.9 < time.monotonic() - start < 30  # a second, and room for a busy machine: it hangs for good
        with pytest.raises(LedgerRefused) as second:  # at once: nobody waits for what has just not answered
            ledger.state()
        assert time.monotonic() - start < 30
        assert first.value.cause == second.value.cause == "database_unanswering"
        assert 0 < second.value.retry_after <= postgres._PAUSE
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    wait_for_answers(ledger)
    assert ledger.verify().sound


def test_a_commit_that_hangs_is_over_and_the_ledger_stays_sound(tmp_path, postgres_server, postgres_url, monkeypatch):
    monkeypatch.setenv("QUORATE_DATABASE_SECONDS", "1")
    ledger = Ledger.create(postgres_url, Budget(epsilon=1.0, delta=0.0), fingerprint="m", folder=tmp_path)
    ledger.probe()
    processes = _processes(postgres_server)
    start = time.monotonic()

    def change_and_hang():
        with ledger.change() as change:
            change.append("wanted", {})
            write = change.write
            change.write = lambda: (write(), [os.kill(process, signal.SIGSTOP) for process in processes])

    try:
        with pytest.raises(LedgerRefused):
            change_and_hang()
        assert time.monotonic() - start < 30
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    wait_for_answers(ledger)
    assert ledger.view().entries in (1, 2)  # nobody knows, until the ledger is read again
    assert ledger.verify().sound


def test_the_wait_is_a_setting(monkeypatch):
    monkeypatch.setenv("QUORATE_DATABASE_SECONDS", "soon")
    with pytest.raises(InvalidInput, match="QUORATE_DATABASE_SECONDS"):
        postgres.patience()


@pytest.fixture
def held(on_disk, monkeypatch):
    """A ledger that waits for half a second, whose lock somebody else holds until the test releases it."""
    monkeypatch.setenv("QUORATE_DATABASE_SECONDS", "0.5")
    path = Path(on_disk.place)
    ledger = Ledger.open(path, fingerprint="m")
    with open(path.with_suffix(".lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield ledger, lambda: fcntl.flock(lock, fcntl.LOCK_UN)


def test_a_lock_that_another_process_holds_is_not_waited_for(held):
    ledger, release = held
    took = []
    for _ in range(6):
        began = time.monotonic()
        with pytest.raises(LedgerRefused, match="locked by another process") as caught:
            ledger.state()
        took.append(time.monotonic() - began)
        assert caught.value.cause == "locked"
        assert 0 < caught.value.retry_after <= 1
        time.sleep(max(0.0, 0.3 - took[-1]))
    assert max(took) < 3
    assert min(took) < 0.1  # For a second after a wait that was given up nobody waits.
    assert sum(thread.name == "quorate-lock" for thread in threading.enumerate()) == 1
    release()
    time.sleep(1.1)
    assert ledger.verify().sound


def test_a_wait_that_was_given_up_leaves_no_lock(held):
    """The thread of that wait gets the lock some time, and must let go of it."""
    ledger, release = held
    with pytest.raises(LedgerRefused):
        ledger.state()
    release()
    end = time.monotonic() + 20
    while any(thread.name == "quorate-lock" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
    other = Ledger.open(ledger.place, fingerprint="m")
    assert other.verify().sound


def test_a_database_that_another_program_locks_is_not_waited_for(on_disk, monkeypatch):
    monkeypatch.setenv("QUORATE_DATABASE_SECONDS", "0.5")
    ledger = Ledger.open(on_disk.place, fingerprint="m")
    with closing(sqlite3.connect(on_disk.place, isolation_level=None)) as program:
        program.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        with pytest.raises(LedgerRefused) as caught:
            ledger.state()
        assert caught.value.cause == "locked"
        assert time.monotonic() - began < 3
        program.execute("ROLLBACK")
    assert ledger.verify().sound
