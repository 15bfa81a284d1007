"""The table of copies in docs/howto/backup.md: each row, with a ledger in use."""

import shutil

import pytest

from quorate.core.errors import LedgerRefused
from quorate.core.ledger import restore
from quorate.core.ledger._store import with_password
from support.ledger_in_use import SPENT, ask, make_used, open_ledger, session_of, units_spent


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
