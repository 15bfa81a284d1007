"""Ledgers that were edited, swapped, copied or rolled back are refused, in use and when they are opened."""

import json
import os
import shutil
import sqlite3
from contextlib import closing, suppress

import pytest

from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import Ledger, restore
from quorate.core.ledger._rules import Event
from quorate.core.ledger._store import with_password
from quorate.core.ledger.chain import link, state_folder
from quorate.core.mechanisms import Quorum
from quorate.core.privacy import Budget
from support.ledger_in_use import SPENT, ask, edit, make_used, open_ledger, path, session_of, units_spent, used

__all__ = ["path", "used"]  # fixtures


def _refused(place, folder=None):
    """Return why the ledger does not open. It must say so itself."""
    with pytest.raises(LedgerRefused) as caught:
        open_ledger(place, folder)
    assert not Ledger.unchecked(place, fingerprint="m", folder=folder).verify().sound
    return str(caught.value)


def test_a_mark_outside_that_was_edited_is_refused(path):
    (mark,) = state_folder().iterdir()
    mark.write_text("{}")
    assert "was edited" in _refused(path)
    mark.unlink()
    open_ledger(path).close()


def _copy_of(folder):
    copy = folder.with_name(f"{folder.name} copy")
    shutil.copytree(folder, copy)
    return copy


def _put_back(copy, folder):
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def test_a_ledger_that_nobody_touched_opens(used):
    assert open_ledger(*used).verify().sound
    assert units_spent(*used) == SPENT


_ENTRY = "UPDATE quorate_entry SET body = replace(body,"
EDITS = {
    "amount of a lease": f"{_ENTRY} '\"renyi\":\"', '\"renyi\":\"1') WHERE kind = 'leased'",
    "amount returned": f"{_ENTRY} '\"renyi\":\"', '\"renyi\":\"1') WHERE kind = 'returned'",
    "time of an entry": "UPDATE quorate_entry SET at = at - 1000 WHERE seq = 3",
    "kind of an entry": "UPDATE quorate_entry SET kind = 'wanted', body = '{}' WHERE kind = 'leased'",
    "spelling of an entry": f"{_ENTRY} ':', ': ') WHERE kind = 'leased'",
    "owner of an answered request": "UPDATE quorate_request SET owner = 'x' WHERE outcome IS NOT NULL",
    "time of an answered request": "UPDATE quorate_request SET at = at + 0.000001 WHERE outcome IS NOT NULL",
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
    "an answer removed": "DELETE FROM quorate_answer WHERE query = (SELECT query FROM quorate_answer LIMIT 1)",
    "an answer added": "INSERT INTO quorate_answer SELECT ledger, 'x', query, label, seq FROM quorate_answer LIMIT 1",
    "an answer moved": "UPDATE quorate_answer SET seq = seq + 1",
    "an answer beyond the end": "UPDATE quorate_answer SET seq = seq + 100000",
    "an answer before the beginning": "UPDATE quorate_answer SET seq = -seq",
    "outcome of an id": "UPDATE quorate_request SET outcome = ZERO",
    "outcome of an id removed": "UPDATE quorate_request SET outcome = NULL",
    "an id forgotten": "DELETE FROM quorate_request WHERE id = 'id3'",
    "an id set free": "UPDATE quorate_request SET outcome = NULL, seq = NULL WHERE id = 'id3'",
    "an id renamed": "UPDATE quorate_request SET id = 'another' WHERE id = 'id3'",
    "body of an id": "UPDATE quorate_request SET body = ZERO",
    "an outcome without an entry": "UPDATE quorate_request SET seq = NULL WHERE id = 'id3'",
    "a table removed": "DROP TABLE quorate_answer",
}


_BOTH = ("amount of a lease", "last entry removed", "account", "quota of a key", "an answer", "a table removed")


@pytest.mark.parametrize(
    ("used", "what"),
    [("sqlite", what) for what in EDITS] + [("postgres", what) for what in _BOTH],  # the rules are the same for both
    indirect=["used"],
)
def test_an_edited_ledger_is_refused(used, what):
    place, folder = used
    zero = "zeroblob(8)" if place == folder / "ledger.sqlite" else "'\\x0000000000000000'::bytea"
    changed = edit(place, EDITS[what].replace("ZERO", zero))
    assert changed or what == "a table removed"
    _refused(place, folder)


def test_a_database_put_back_to_an_earlier_day_is_refused(used):
    place, folder = used
    tables = ("snapshot", "entry", "answer", "request")
    for table in tables:
        edit(place, f"CREATE TABLE day_{table} AS SELECT * FROM quorate_{table}")
    session = session_of(open_ledger(place, folder))
    ask(session, 100)
    for table in tables:
        edit(place, f"DELETE FROM quorate_{table}")
        edit(place, f"INSERT INTO quorate_{table} SELECT * FROM day_{table}")
    with pytest.raises(LedgerRefused, match="old copy"):
        ask(session, 101)
    assert "rolled back" in _refused(place, folder)


def test_an_edited_run_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)
    ledger = Ledger.create(path, Budget(epsilon=2.0, delta=1e-5, order=quorum.order), fingerprint="m")
    ledger.keep_run(7)
    ledger.close()
    for statement in ("UPDATE quorate_secret SET value = 8", "DELETE FROM quorate_secret"):
        edit(path, statement)
        assert "secret noise" in _refused(path)


def test_consistent_edits_need_the_key(path):
    """Even whoever makes all tables agree with each other is found out."""
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
        open_ledger(path)


def test_another_models_ledger_is_refused_also_while_it_is_in_use(path, tmp_path):
    other = tmp_path / "other" / "ledger.sqlite"
    other.parent.mkdir()
    Ledger.create(other, Budget(epsilon=1.0, delta=0.0), fingerprint="another").close()
    session = session_of(open_ledger(path))
    ask(session, 100)
    for name in ("ledger.sqlite", "ledger.key", "ledger.mark"):
        shutil.copyfile(other.with_name(name), path.with_name(f"new {name}"))
        os.replace(path.with_name(f"new {name}"), path.with_name(name))
    for number in range(101, 120):  # what is out on lease would pay for some
        with pytest.raises(LedgerRefused):
            ask(session, number)
    with pytest.raises(LedgerRefused):
        open_ledger(path)


def _without_state(path, monkeypatch, place="read-only"):
    """Let no mark be written outside, as in a container whose home is read-only, or with the model's own volume."""
    home = path.parent.parent
    (home / "file").touch()
    (home / "link").symlink_to(path.parent)
    folders = {"read-only": home / "file", "inside": path.parent, "link": home / "link"}
    monkeypatch.setenv("QUORATE_STATE", str(folders[place] / "state"))


@pytest.mark.parametrize("place", ["read-only", "inside", "link"])
def test_a_folder_that_is_put_back_spends_nothing_where_no_mark_is_kept_outside(path, monkeypatch, place):
    _without_state(path, monkeypatch, place)
    copy = _copy_of(path.parent)
    for number in range(4):
        _put_back(copy, path.parent)
        session = session_of(open_ledger(path))
        with pytest.raises(LedgerRefused, match="--no-outside-mark") as refused:
            ask(session, 100 + number)
        assert refused.value.cause == "no_outside_mark"
        assert ask(session, 0)  # What was answered before is answered again.
        session.close()
        session.ledger.close()  # also where nothing can be spent
        assert units_spent(path) == SPENT


@pytest.mark.parametrize("waiver", ["environment", "argument"])
def test_who_says_so_spends_without_a_mark_outside(path, monkeypatch, waiver):
    _without_state(path, monkeypatch)
    if waiver == "environment":
        monkeypatch.setenv("QUORATE_OUTSIDE_MARK", "false")
    ledger = open_ledger(path)
    if waiver == "argument":
        ledger.witness.is_waived = True
    session = session_of(ledger)
    ask(session, 100)
    session.close()
    assert units_spent(path) == SPENT + 1


def test_a_waiver_does_not_hide_a_mark_that_is_there(path, monkeypatch):
    copy = _copy_of(path.parent)
    session = session_of(open_ledger(path))
    ask(session, 100)
    session.close()
    _put_back(copy, path.parent)
    monkeypatch.setenv("QUORATE_OUTSIDE_MARK", "false")
    assert "rolled back" in _refused(path)


def test_an_empty_setting_is_none(monkeypatch):
    """The mark would lie in the folder from which a command happens to be called."""
    monkeypatch.delenv("QUORATE_STATE")
    usual = state_folder()
    monkeypatch.setenv("QUORATE_STATE", "")
    assert state_folder() == usual


def test_a_waiver_is_true_or_false(path, monkeypatch):
    monkeypatch.setenv("QUORATE_OUTSIDE_MARK", "perhaps")
    with pytest.raises(InvalidInput, match="QUORATE_OUTSIDE_MARK must"):
        open_ledger(path)


def test_a_machine_that_has_no_mark_yet_makes_one_before_it_spends(path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(path.parent.parent / "another machine"))
    session = session_of(open_ledger(path))
    copy = _copy_of(path.parent)
    ask(session, 100)
    session.close()
    _put_back(copy, path.parent)
    assert "rolled back" in _refused(path)


def test_a_database_needs_no_mark_outside(postgres_url, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "file" / "state"))
    make_used(postgres_url, tmp_path / "model")
    session = session_of(open_ledger(postgres_url, tmp_path / "model"))
    ask(session, 100)
    session.close()
    assert units_spent(postgres_url, tmp_path / "model") == SPENT + 1


def test_an_old_copy_is_refused_while_it_is_in_use(path):
    ledger = open_ledger(path)
    session = session_of(ledger)
    ask(session, 100)
    copy = path.with_name("copy")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(path, copy)
    ask(session, 101)
    os.replace(copy, path)
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        path.with_name(name).unlink(missing_ok=True)
    with pytest.raises(LedgerRefused, match="old copy"):
        ask(session, 102)


def test_another_history_is_refused_while_it_is_in_use(path):
    """An old copy is put in place, and somebody who had seen no more goes on from it and overtakes all others."""
    session, other = session_of(open_ledger(path)), session_of(open_ledger(path))
    ask(other, 100)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    ask(session, 101)  # on a lease that the copy does not know of
    os.replace(copy, path)
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        path.with_name(name).unlink(missing_ok=True)
    with suppress(LedgerRefused):  # or the mark tells
        ask(other, *range(200, 210))
    with pytest.raises(LedgerRefused):
        ask(session, 102)


def test_a_damaged_schema_is_refused_like_any_other_damage(path):
    content = path.read_bytes()
    place = content.index(b"quorate_request") + 2
    path.write_bytes(content[:place] + bytes([content[place] ^ 0xC7]) + content[place + 1 :])  # no letter of any text
    assert "is not a ledger" in _refused(path)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that goes to a machine: each has its own state folder."""

    def go_to(name):
        monkeypatch.setenv("QUORATE_STATE", str(tmp_path / f"state of {name}"))

    go_to("first")
    return go_to


@pytest.fixture
def folder(machine, tmp_path):
    make_used(tmp_path / "model" / "ledger.sqlite", tmp_path / "model")
    return tmp_path / "model"


def spend(folder, *queries, place=None):
    session = session_of(open_ledger(place or folder / "ledger.sqlite", folder))
    try:
        ask(session, *queries)
    finally:
        session.close()


def copy_of(folder):
    return shutil.copytree(folder, folder.with_name(f"copy of {folder.name}"))


def put_back(copy, folder):
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def test_an_earlier_copy_on_the_same_machine_is_refused(folder):
    copy = copy_of(folder)
    spend(folder, 100)
    put_back(copy, folder)
    with pytest.raises(LedgerRefused, match="rolled back"):
        spend(folder, 101)


def test_nothing_is_spent_where_the_state_folder_cannot_be_written(folder, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(LedgerRefused, match="--no-outside-mark"):
        spend(folder, 100)
    spend(folder, 0)  # An old answer is repeated.
    copy = copy_of(folder)
    monkeypatch.setenv("QUORATE_OUTSIDE_MARK", "false")
    for _ in range(2):
        spend(folder, 102)
        assert units_spent(folder / "ledger.sqlite") == SPENT + 1
        put_back(copy, folder)  # Not noticed: the guide says so.


def test_a_state_folder_that_is_put_back_too_is_not_noticed(folder, machine):
    copy = copy_of(folder)
    spend(folder, 100)
    put_back(copy, folder)
    machine("first, rebuilt")
    assert not open_ledger(folder / "ledger.sqlite").check_outside()  # Which the log of a server says.
    spend(folder, 101)
    assert open_ledger(folder / "ledger.sqlite").check_outside()


def test_a_copy_on_another_machine_is_another_budget(folder, machine):
    copy = copy_of(folder)
    spend(folder, 100)
    machine("second")
    spend(copy, 100)
    assert units_spent(copy / "ledger.sqlite") == SPENT + 1


def test_of_two_copies_on_one_machine_the_second_is_refused(folder):
    copy = copy_of(folder)
    spend(folder, 100)
    with pytest.raises(LedgerRefused):
        spend(copy, 101)


def test_a_backup_is_refused_until_it_is_restored(folder, machine):
    backup = copy_of(folder)
    (backup / "ledger.mark").unlink()
    spend(folder, 100)
    put_back(backup, folder)
    with pytest.raises(LedgerRefused, match=r"ledger\.mark is missing"):
        spend(folder, 101)
    machine("second")
    with pytest.raises(LedgerRefused, match=r"ledger\.mark is missing"):
        spend(folder, 101)
    machine("first")
    restore(folder, fingerprint="m", charge="mark")
    assert units_spent(folder / "ledger.sqlite") == SPENT + 1
    spend(folder, 101)


def test_the_password_of_a_database_comes_from_the_environment(monkeypatch):
    plain = "postgresql://quorate@postgres/quorate"
    monkeypatch.setenv("QUORATE_LEDGER", "postgresql://quorate:secret@postgres/quorate")
    assert with_password(plain) == "postgresql://quorate:secret@postgres/quorate"
    assert with_password("postgresql://quorate@elsewhere/quorate") == "postgresql://quorate@elsewhere/quorate"


def test_copies_of_a_folder_share_a_database(postgres_url, machine, tmp_path):
    folder = tmp_path / "shared"
    make_used(postgres_url, folder)
    copy = copy_of(folder)
    spend(folder, 100, place=postgres_url)
    machine("second")
    spend(copy, 101, place=postgres_url)
    assert units_spent(postgres_url, folder) == SPENT + 2
