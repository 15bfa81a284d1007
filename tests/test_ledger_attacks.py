"""Ledgers that were edited, cut short, swapped, rolled back or cannot be written: refused, or at worst overcharged."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from quorate.ensemble import Ensemble
from quorate.ensemble.estimators import EstimatorTeachers
from quorate.errors import BudgetSpent, InvalidInput, LedgerRefused
from quorate.ledger import Ledger
from quorate.ledger.sqlite import SQLiteStore
from quorate.ledger.witness import state_folder
from quorate.mechanisms import Quorum, SoftMajority
from quorate.privacy import Budget, Cost
from quorate.session import Request, Session

UNITS = 64
PRICE = Cost(renyi=1 / UNITS)


def _session(ledger, *, lease=8):
    """Return a session that answers a query for one unit of a budget of 64."""
    ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 60, classes=2))
    return Session(ensemble, SoftMajority(teachers=60, epsilon=1 / UNITS), ledger.budget(lease=lease), ledger=ledger)


def _request(number, caller=""):
    return Request(np.array([[float(number)]]), caller=caller, id=f"id{number}", body=b"%d" % number)


def _ask(session, *numbers, caller=""):
    return [session.ask_all([_request(number, caller)])[0].labels.tolist() for number in numbers]


def _open(path):
    return Ledger.open(path, fingerprint="m")


def _spent(path):
    """Return the units that are charged."""
    ledger = _open(path)
    try:
        return round(ledger.budget().spent().renyi * UNITS)
    finally:
        ledger._store.close()


def _edit(path, *statements):
    """Change the file behind the ledger's back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)


def _refused(path):
    """Return why the ledger does not open. It must say so itself."""
    with pytest.raises(LedgerRefused) as caught:
        _open(path)
    assert not Ledger._unchecked(path, fingerprint="m").verify().sound
    return str(caught.value)


def _copy_of(folder):
    copy = folder.with_name(f"{folder.name} copy")
    shutil.copytree(folder, copy)
    return copy


def _put_back(copy, folder):
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A ledger that was used: answers, a key, a lease that was returned."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    folder = tmp_path / "model"
    folder.mkdir()
    ledger = Ledger.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    ledger.add_key("alice", quota=5)
    session = _session(ledger)
    _ask(session, *range(12))
    session.close()
    return folder / "ledger.sqlite"


def test_a_ledger_that_nobody_touched_opens(path):
    ledger = _open(path)
    assert ledger.verify().sound
    assert _spent(path) == 12


_ENTRY = "UPDATE quorate_entry SET body = replace(body,"
EDITS = {
    "amount of a lease": f"{_ENTRY} '\"renyi\":\"', '\"renyi\":\"1') WHERE kind = 'leased'",
    "amount returned": f"{_ENTRY} '\"renyi\":\"', '\"renyi\":\"1') WHERE kind = 'returned'",
    "time of an entry": "UPDATE quorate_entry SET at = at - 1000 WHERE seq = 3",
    "kind of an entry": "UPDATE quorate_entry SET kind = 'wanted', body = '{}' WHERE kind = 'leased'",
    "hash of an entry": "UPDATE quorate_entry SET mac = '00' WHERE seq = 3",
    "last entry removed": "DELETE FROM quorate_entry WHERE seq = (SELECT max(seq) FROM quorate_entry)",
    "first entry removed": "DELETE FROM quorate_entry WHERE seq = 1",
    "middle entry removed": "DELETE FROM quorate_entry WHERE seq = 4",
    "all entries removed": "DELETE FROM quorate_entry",
    "entry doubled": "INSERT INTO quorate_entry SELECT ledger, seq + 1000, at, kind, body, mac FROM quorate_entry",
    "capacity at the opening": f"{_ENTRY} 'capacity\":[\"', 'capacity\":[\"9') WHERE seq = 1",
    "account": 'UPDATE quorate_snapshot SET state = replace(state, \'"spent":["\', \'"spent":["-\')',
    "account removed": "DELETE FROM quorate_snapshot",
    "account at another entry": "UPDATE quorate_snapshot SET seq = seq - 1",
    "quota of a key": "UPDATE quorate_snapshot SET state = replace(state, '\"quota\":5', '\"quota\":500')",
    "quota of a key when made": "UPDATE quorate_entry SET body = replace(body, '\"quota\":5', '\"quota\":500')",
    "an answer": "UPDATE quorate_answer SET label = 1 - label",
    "caller of an answer": "UPDATE quorate_answer SET caller = 'somebody else'",
    "an answer removed": "DELETE FROM quorate_answer WHERE query = (SELECT max(query) FROM quorate_answer)",
    "an answer added": "INSERT INTO quorate_answer SELECT ledger, 'x', query, label, seq FROM quorate_answer LIMIT 1",
    "an answer moved": "UPDATE quorate_answer SET seq = seq + 1",
    "an answer beyond the end": "UPDATE quorate_answer SET seq = seq + 100000",
    "an answer before the beginning": "UPDATE quorate_answer SET seq = -seq",
    "outcome of an id": "UPDATE quorate_request SET outcome = zeroblob(8)",
    "outcome of an id removed": "UPDATE quorate_request SET outcome = NULL",
    "an id forgotten": "DELETE FROM quorate_request WHERE id = 'id3'",
    "an id set free": "UPDATE quorate_request SET outcome = NULL, seq = NULL WHERE id = 'id3'",
    "an id renamed": "UPDATE quorate_request SET id = 'another' WHERE id = 'id3'",
    "body of an id": "UPDATE quorate_request SET body = x'00'",
    "an outcome without an entry": "UPDATE quorate_request SET seq = NULL WHERE id = 'id3'",
    "a table removed": "DROP TABLE quorate_answer",
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_ledger_is_refused(path, what):
    before = path.read_bytes()
    _edit(path, EDITS[what])
    assert path.read_bytes() != before or path.with_name("ledger.sqlite-wal").exists()  # it did change something
    _refused(path)


def test_an_edited_run_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)
    ledger = Ledger.create(path, Budget(epsilon=2.0, delta=1e-5, order=quorum.order), fingerprint="m")
    ledger.keep_run(7)
    ledger.close()
    for edit in ("UPDATE quorate_secret SET value = 8", "DELETE FROM quorate_secret"):
        _edit(path, edit)
        assert "secret noise" in _refused(path)


def test_consistent_edits_need_the_key(path):
    """Even whoever makes all tables agree with each other is found out."""
    from quorate.ledger.chain import link
    from quorate.ledger.rules import Event

    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("SELECT seq, at, kind, body FROM quorate_entry ORDER BY seq").fetchall()
        before = ""
        for seq, at, kind, body in rows:
            entry = link(b"a key of my own", before, seq, Event(kind, at, json.loads(body)))
            connection.execute("UPDATE quorate_entry SET mac = ? WHERE seq = ?", (entry.mac, seq))
            before = entry.mac
        connection.execute("UPDATE quorate_snapshot SET head = ?", (before,))
    assert "edited" in _refused(path)


@pytest.mark.parametrize("name", ["ledger.key", "ledger.mark", "ledger.sqlite"])
@pytest.mark.parametrize("what", ["removed", "emptied", "replaced"])
def test_a_file_that_is_gone_or_is_not_what_it_was_is_refused(path, tmp_path, name, what):
    file = path.with_name(name)
    if what == "removed":
        file.unlink()
    elif what == "emptied":
        file.write_bytes(b"")
    else:
        other = tmp_path / "other" / "ledger.sqlite"
        other.parent.mkdir()
        Ledger.create(other, Budget(epsilon=1.0, delta=0.0), fingerprint="m").close()
        shutil.copyfile(other.with_name(name), file)
    with pytest.raises(LedgerRefused):
        _open(path)


def test_another_models_ledger_is_refused_also_while_it_is_in_use(path, tmp_path):
    other = tmp_path / "other" / "ledger.sqlite"
    other.parent.mkdir()
    Ledger.create(other, Budget(epsilon=1.0, delta=0.0), fingerprint="another").close()
    session = _session(_open(path))
    _ask(session, 100)
    for name in ("ledger.sqlite", "ledger.key", "ledger.mark"):
        shutil.copyfile(other.with_name(name), path.with_name(f"new {name}"))
        os.replace(path.with_name(f"new {name}"), path.with_name(name))
    for number in range(101, 120):  # what is out on lease would pay for some
        with pytest.raises(LedgerRefused):
            _ask(session, number)
    with pytest.raises(LedgerRefused):
        _open(path)


def test_an_old_copy_of_the_file_is_refused(path):
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    session = _session(_open(path))
    _ask(session, 100)
    session.close()
    os.replace(copy, path)
    assert "rolled back" in _refused(path)


def test_an_old_copy_of_the_whole_folder_is_refused(path):
    copy = _copy_of(path.parent)
    session = _session(_open(path))
    _ask(session, 100)
    session.close()
    _put_back(copy, path.parent)
    assert "rolled back" in _refused(path)


def test_an_old_copy_is_refused_while_it_is_in_use(path):
    ledger = _open(path)
    session = _session(ledger)
    _ask(session, 100)
    copy = path.with_name("copy")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(path, copy)
    _ask(session, 101)
    os.replace(copy, path)
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        path.with_name(name).unlink(missing_ok=True)
    with pytest.raises(LedgerRefused, match="old copy"):
        _ask(session, 102)


def test_a_copy_that_lives_its_own_life_is_refused_here(path):
    """A twin that spent from a copy of the folder has gone another way, and cannot come home."""
    copy = _copy_of(path.parent)
    for place, number in ((path.parent, 100), (copy, 200)):
        session = None
        try:
            session = _session(_open(place / "ledger.sqlite"))
        except LedgerRefused:
            assert place == copy  # the mark outside both folders says that the budget was spent elsewhere
            return
        _ask(session, number)
        session.close()
    pytest.fail("two copies of one ledger both paid for answers")


def _abandoned(path, first, *more, checkpoint_after=None):
    """Have a process use the ledger and die without a word."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import sqlite3
from test_ledger_attacks import _ask, _open, _session
from pathlib import Path
path = Path({str(path)!r})
session = _session(_open(path))
for number in {[first, *more]!r}:
    _ask(session, number)
    if number == {checkpoint_after!r}:
        sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)")
print(_ask(session, {first}), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


def test_what_a_dead_process_had_out_stays_spent(path):
    _abandoned(path, 100)
    assert _spent(path) == 12 + 8
    assert _open(path).verify().sound


def test_a_log_that_was_removed_is_refused(path):
    """The charge, and the answers it paid for, were in the log alone."""
    _abandoned(path, 100, 101)
    path.with_name("ledger.sqlite-wal").unlink()
    assert "rolled back" in _refused(path)


def test_a_log_that_was_removed_after_the_charge_gives_nothing_back(path):
    """The charge was in the file, answers in the log: they may be forgotten, and stay paid for."""
    _abandoned(path, 100, 101, 102, checkpoint_after=100)
    path.with_name("ledger.sqlite-wal").unlink()
    with suppress(LedgerRefused):  # better still
        assert _spent(path) == 12 + 8


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_file_that_was_cut_short_is_refused_or_whole(path, share):
    _abandoned(path, 100, 101)
    log = path.with_name("ledger.sqlite-wal")
    os.truncate(log, int(log.stat().st_size * share))
    with suppress(LedgerRefused):
        assert _spent(path) == 12 + 8
    os.truncate(path, int(path.stat().st_size * share))
    with suppress(LedgerRefused):
        assert _spent(path) == 12 + 8  # a log that is there repairs it


def test_bytes_that_rot_are_refused_or_do_no_harm(path):
    """One byte in each page, one page at a time."""
    content = path.read_bytes()
    for place in range(100, len(content), 1021):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with suppress(LedgerRefused):
            assert _spent(path) == 12


def test_a_clock_that_goes_back_changes_nothing(path, monkeypatch):
    import quorate.ledger.change as change

    for ahead in (-86_400.0, 0.0, 86_400.0, -86_400.0):
        monkeypatch.setattr(change.time, "time", lambda ahead=ahead: 1_800_000_000.0 + ahead)
        session = _session(_open(path))
        _ask(session, 1000 + ahead)
        session.close()
    monkeypatch.undo()
    times = [entry.event.at for entry in _open(path).entries()]
    assert times == sorted(times)
    assert _spent(path) == 12 + 3  # two of the four asked the same query


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
    ledger = _open(path)
    session = _session(ledger)
    _ask(session, 100)
    real, switch = SQLiteStore._connected, []
    monkeypatch.setattr(SQLiteStore, "_connected", lambda store: _Failing(real(store), fail=bool(switch), done=done))
    granted = 1
    for number in range(101, 101 + 3 * UNITS):
        switch[:] = [True] if number % 3 == 0 else []
        try:
            replies = session.ask_all([_request(number)])[0]
        except LedgerRefused:
            assert switch
            continue
        if isinstance(replies, BudgetSpent):
            break
        granted += 1
    monkeypatch.undo()
    session.close()
    recounted = _open(path)
    assert recounted.verify().sound
    assert 12 + granted <= _spent(path) <= UNITS
    answered = sum(entry.event.body["answered"] for entry in recounted.entries() if entry.event.kind == "answered")
    assert answered >= 12 + granted


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
                granted += len(_ask(session, number))
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
    session = _session(_open(path))
    _ask(session, 100)
    granted = 1 + _limited(session, path, bytes_more)
    _ask(session, 5000)  # there is room again
    session.close()
    assert _open(path).verify().sound
    assert 12 + granted + 1 <= _spent(path) <= 12 + granted + 1 + 8


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
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_ledger_attacks import LedgerRefused, Path, _ask, _open, _session
path = Path({str(folder / path.name)!r})
_session(_open(path)).close()  # everything is imported: the next user may not read Python's own files
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    _ask(_session(_open(path)), 100)
except LedgerRefused as error:
    print("refused", error)
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
        assert ended.stdout.startswith(b"refused"), ended.stderr.decode() + ended.stdout.decode()
        assert _spent(folder / path.name) in (12, 12 + 8)


def test_two_that_open_at_once_share_what_there_is(path):
    sessions = [_session(_open(path)) for _ in range(3)]
    granted = 0
    for number in range(5000):
        reply = sessions[number % 3].ask_all([_request(3000 + number)])[0]
        if isinstance(reply, BudgetSpent):
            break
        granted += 1
    for session in sessions:
        session.close()
    assert 12 + granted == UNITS
    assert _spent(path) == UNITS


def test_a_lost_lock_file_lets_nobody_overspend(path):
    sessions = [_session(_open(path)) for _ in range(2)]
    _ask(sessions[0], 100)
    for name in ("ledger.lock", "ledger.turn"):
        path.with_name(name).unlink()
    _ask(sessions[1], 101)
    _ask(sessions[0], 102)
    for session in sessions:
        session.close()
    assert _open(path).verify().sound
    assert _spent(path) == 12 + 3


def test_a_mark_outside_that_was_edited_is_refused(path):
    (mark,) = state_folder().iterdir()
    mark.write_text("{}")
    assert "was edited" in _refused(path)
    mark.unlink()
    _open(path).close()


def test_a_model_is_never_overwritten(path):
    with pytest.raises(InvalidInput, match="never overwritten"):
        Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")


assert Path  # for the programs above
