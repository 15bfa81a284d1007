"""A compacted ledger has the same account, gives the same answers, and is as hard to edit; also one half compacted."""

import json
import shutil
import sqlite3
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from quorate.core.errors import BudgetSpent, IdReused, InvalidInput, LedgerRefused
from quorate.core.ledger import Ledger, Phase, check_export, export_entries, move, restore
from quorate.core.ledger import _compaction as compaction
from quorate.core.ledger import _verify as verify
from quorate.core.ledger._rules import Event, apply, to_json
from quorate.core.ledger.chain import Mark
from quorate.core.privacy import Budget
from quorate.core.requests import Asked, Request
from support.ledger_in_use import (
    LEASE,
    SPENT,
    UNITS,
    ask,
    edit,
    make_used,
    open_ledger,
    path,
    request_of,
    session_of,
    units_spent,
    used,
)

__all__ = ["path", "used"]  # fixtures


def count(ledger, table):
    with ledger.change() as change:
        return change.statements.run(f"SELECT count(*) FROM quorate_{table}")[0][0]


def kept_labels(ledger):
    """Return what was answered, in the order of the numbers that were asked."""
    return ask(session_of(ledger), *range(SPENT))


def test_a_compaction_changes_neither_the_account_nor_an_answer(used, monkeypatch):
    monkeypatch.setattr(compaction, "_ENTRIES", 3)
    ledger = open_ledger(*used)
    told = kept_labels(ledger)
    before, answers = ledger.state(), count(ledger, "answer")
    for _ in range(3):
        compacted = ledger.compact()
        assert compacted.through == ledger.view().entries - 1
        assert count(ledger, "entry") == 1
        assert ledger.verify().sound
        after = ledger.state()
        assert (after.spent, after.keys, after.capacity) == (before.spent, before.keys, before.capacity)
    assert count(ledger, "answer") == answers == ledger.count_answers()
    session = session_of(open_ledger(*used))
    queries = [session.ask_all([Request(request_of(number).X)])[0].labels.tolist() for number in range(SPENT)]
    assert told == ask(session, *range(SPENT)) == queries
    session.close()
    assert units_spent(*used) == SPENT  # nothing was drawn
    open_ledger(*used).compact()
    assert units_spent(*used) == SPENT


def test_a_server_goes_on_while_others_compact(used):
    session, ledger = session_of(open_ledger(*used)), open_ledger(*used)
    told = []
    for number in range(100, 110):
        told += ask(session, number)
        ledger.compact()
    assert ask(session, *range(100, 110)) == told
    session.close()
    assert units_spent(*used) == SPENT + 10


def test_answers_that_are_forgotten_are_paid_for_again_and_their_ids_are_refused(used):
    session = session_of(open_ledger(*used))
    ask(session, 50)
    open_ledger(*used).compact(answers_days=0)
    assert session.ledger.count_answers() == SPENT + 1  # as many as were ever drawn
    assert count(session.ledger, "answer") == 0
    (reply,) = session.ask_all([request_of(3)])
    assert isinstance(reply, IdReused)
    (reply,) = session.ask_all([Request(request_of(3).X, id="new", body=b"3")])
    assert not reply.refused.any()
    assert session.ledger.count_answers() == SPENT + 2
    session.close()
    assert units_spent(*used) == SPENT + 2
    open_ledger(*used).compact()
    assert open_ledger(*used).count_answers() == SPENT + 2
    (reply,) = session_of(open_ledger(*used)).ask_all([request_of(3)])
    assert isinstance(reply, IdReused)


def test_young_answers_are_kept(used):
    ledger = open_ledger(*used)
    ledger.compact(answers_days=1)
    assert ledger.state().answers_forgotten == 0
    assert count(ledger, "answer") == SPENT
    for days in (-1, float("nan")):
        with pytest.raises(InvalidInput, match="days"):
            ledger.compact(answers_days=days)


class Interrupted(Exception):
    """Power cut."""


def interrupting(ledger, number):
    """Let the transaction of this number, counted from 0, fail: before it is committed, or (odd) right after."""
    real, seen = ledger._store.transaction, [0]

    @contextmanager
    def transaction(name, then=None):
        mine, seen[0] = seen[0], seen[0] + 1
        with real(name, then) as statements:
            yield statements
            if mine == number // 2 and number % 2 == 0:
                raise Interrupted
        if mine == number // 2:
            raise Interrupted

    ledger._store.transaction = transaction


@pytest.mark.parametrize("days", [None, 0])
def test_wherever_it_is_interrupted_nothing_is_lost_or_given_back(tmp_path, monkeypatch, days):
    monkeypatch.setattr(compaction, "_ENTRIES", 5)
    monkeypatch.setattr(compaction, "_SWEPT", 4)
    number, ended, compacted = 0, False, set()
    while not ended:
        path = tmp_path / str(number) / "ledger.sqlite"
        make_used(path, path.parent)
        session, ledger = session_of(open_ledger(path)), open_ledger(path)
        told = ask(session, 3, 50)  # a lease is out, of a process that goes on
        spent = ledger.state().spent
        interrupting(ledger, number)
        try:
            ledger.compact(answers_days=days)
            ended = True
        except Interrupted:
            number += 1
        again = open_ledger(path)  # reads and checks all of it
        assert again.state().spent == spent
        assert again.count_answers() == SPENT + 1
        compacted.add(again.state().compaction is not None)
        for place, asked in enumerate((3, 50)):  # the last is that of the last entry that is forgotten
            (reply,) = session.ask_all([request_of(asked)])
            assert isinstance(reply, IdReused) if again.state().forgotten else reply.labels.tolist() == told[place]
        again.compact()  # goes on where the other one was interrupted
        assert (count(again, "entry"), again.verify().sound) == (1, True)
        session.close()
        assert units_spent(path) == SPENT + 1
    assert compacted == {True, False}
    assert number > 10


def meanwhile(ledger, number, act):
    """Let something happen before the transaction of this number, counted from 0."""
    real, seen = ledger._store.transaction, [0]

    @contextmanager
    def transaction(name, then=None):
        mine, seen[0] = seen[0], seen[0] + 1
        if mine == number:
            act()
        with real(name, then) as statements:
            yield statements

    ledger._store.transaction = transaction
    return seen


@pytest.mark.parametrize("days", [None, 0])
def test_two_processes_compact_at_once(tmp_path, monkeypatch, days):
    """Whoever comes second begins anew from what the first has left, and says nothing of an edited ledger."""
    monkeypatch.setattr(compaction, "_SWEPT", 4)
    number, ended = 0, False
    while not ended:
        path = tmp_path / str(number) / "ledger.sqlite"
        make_used(path, path.parent)
        spent = units_spent(path)
        ledger, other = open_ledger(path), open_ledger(path)
        seen = meanwhile(ledger, number, lambda other=other: other.compact(answers_days=days))
        ledger.compact(answers_days=None if number % 2 else days)
        ended, number = seen[0] <= number, number + 1
        again = open_ledger(path)
        assert (again.count_answers(), count(again, "entry"), units_spent(path)) == (SPENT, 1, spent)
        again.close_store()
    assert number > 5


@pytest.mark.parametrize("what", ["verify", "compact"])
def test_a_phase_that_opens_meanwhile_is_no_edit(tmp_path, what):
    """It forgets answers that were read before it."""
    for number in range(5):
        path = tmp_path / str(number) / "ledger.sqlite"
        path.parent.mkdir()
        server = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
        first, second = (Phase(number=n, seats=9, noise="", files={}, seated=str(n)) for n in (1, 2))
        kept = server.keep_phase(None, first, noises=(1, 2))
        asked = [Asked("", [b""], "id", b"body")]
        server.admit(asked)
        kept = server.keep_phase(kept, replace(kept, taken=1), asked=asked, outcomes=[[1]])
        server.compact()
        ledger = open_ledger(path)
        opening = partial(server.keep_phase, kept, second, noises=(3, 4))
        meanwhile(ledger, number, opening)
        assert ledger.compact().through if what == "compact" else ledger.verify().sound
        assert open_ledger(path).verify().sound


def test_a_part_ends_where_it_holds_many_answers(path, monkeypatch):
    """A start reads the answers of a part in one statement, which a database gives a few seconds."""
    monkeypatch.setattr(compaction, "_ROWS", 4)
    ledger = open_ledger(path)
    ledger.compact()
    assert count(ledger, "part") > SPENT // 4
    assert open_ledger(path).compact().through


def test_an_export_does_not_skip_what_is_compacted_while_it_is_read(path, monkeypatch):
    monkeypatch.setattr(verify, "_PART", 2)
    ledger = open_ledger(path)
    entries = ledger.entries()
    assert [next(entries).seq, next(entries).seq] == [1, 2]
    open_ledger(path).compact()
    with pytest.raises(LedgerRefused, match="entry 3 "):
        next(entries)


def test_a_role_that_makes_no_tables_compacts(tmp_path, postgres_url):
    """Only the first compaction in a database takes the right to make a table."""
    make_used(postgres_url, tmp_path)
    open_ledger(postgres_url, tmp_path).compact()
    edit(postgres_url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    role = f"server_{tmp_path.name[-4:]}".replace("-", "_")
    edit(postgres_url, f"CREATE ROLE {role}")
    edit(postgres_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    joined = "&" if "?" in postgres_url else "?"
    ledger = open_ledger(f"{postgres_url}{joined}options=-crole%3D{role}", tmp_path)
    assert ledger.compact().through > 1


EDITS = {
    "hash of entries": "UPDATE quorate_part SET macs = ZERO",
    "seal and hash": "UPDATE quorate_part SET seal = digest",
    "number of answers": "UPDATE quorate_part SET answers = answers + 1",
    "time": "UPDATE quorate_part SET at = at + 1",
    "a part removed": "DELETE FROM quorate_part WHERE first = 1",
    "all parts removed": "DELETE FROM quorate_part",
    "table removed": "DROP TABLE quorate_part",
    "the compaction removed": "DELETE FROM quorate_entry WHERE kind = 'compacted'",
    "all entries removed": "DELETE FROM quorate_entry",
    "account in the compaction": 'UPDATE quorate_entry SET body = replace(body, \'"spent":["\', \'"spent":["0\')',
    "account": "UPDATE quorate_snapshot SET state = replace(state, '\"forgotten\":0', '\"forgotten\":9')",
    "an answer": "UPDATE quorate_answer SET label = 1 - label",
    "an answer removed": "DELETE FROM quorate_answer WHERE query = (SELECT query FROM quorate_answer LIMIT 1)",
    "an answer moved": "UPDATE quorate_answer SET seq = seq + 1",
    "all answers set free": "UPDATE quorate_answer SET seq = 0",
    "outcome of an id": "UPDATE quorate_request SET outcome = ZERO",
    "an id forgotten": "DELETE FROM quorate_request WHERE id = 'id3'",
    "an id set free": "UPDATE quorate_request SET outcome = NULL, seq = NULL WHERE id = 'id3'",
    "time of an id": "UPDATE quorate_request SET at = at + 1",
}


@pytest.mark.parametrize(
    ("used", "what"),
    [("sqlite", what) for what in EDITS] + [("postgres", what) for what in ("hash of entries", "an answer")],
    indirect=["used"],
)
def test_an_edited_ledger_is_refused(used, what, monkeypatch):
    monkeypatch.setattr(compaction, "_ENTRIES", 4)
    place, folder = used
    ledger = open_ledger(place, folder)
    ledger.compact()
    ledger.close_store()
    zero = "zeroblob(8)" if place == folder / "ledger.sqlite" else "'\\x0000000000000000'::bytea"
    assert edit(place, EDITS[what].replace("ZERO", zero)) or what == "table removed"
    with pytest.raises(LedgerRefused):
        open_ledger(place, folder)
    assert not Ledger.unchecked(place, fingerprint="m", folder=folder).verify().sound


def test_a_forged_compaction_is_refused(path):
    """Without the key nobody can begin anew from another account, and with it the rules do not allow it."""
    ledger = open_ledger(path)
    state = ledger.state()
    forged = to_json(state) | {"spent": ["0", "0"]}
    body = {"through": 5, "head": "", "state": forged, "parts": "", "forgotten": 0, "answers_forgotten": 0}
    with pytest.raises(LedgerRefused, match="must have the account"):
        apply(state, Event("compacted", state.at, body))
    with pytest.raises(LedgerRefused, match="must have the account"), ledger.change() as change:
        change.append("compacted", body)
    ledger.compact()
    ledger.close_store()
    with sqlite3.connect(path) as connection:
        (text,) = connection.execute("SELECT body FROM quorate_entry").fetchone()
        told = json.loads(text)
        told["state"]["spent"] = ["0", "0"]
        spelled = json.dumps(told, sort_keys=True, separators=(",", ":"))
        connection.execute("UPDATE quorate_entry SET body = ?", (spelled,))
    with pytest.raises(LedgerRefused, match="was edited"):
        open_ledger(path)


def test_a_copy_from_before_is_refused(path):
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    ledger = open_ledger(path)
    ledger.compact()
    ledger.close()
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        path.with_name(name).unlink(missing_ok=True)
    shutil.copyfile(copy, path)
    with pytest.raises(LedgerRefused, match="rolled back"):
        open_ledger(path)


def test_marks_and_processes_from_before_are_still_held_against_it(path):
    """A host that was away, or a process that slept, finds its own history, and refuses another one."""
    slept = open_ledger(path)
    mark = Mark(slept.view().entries, slept.view().head, (0, 0))
    stranger = open_ledger(path)
    stranger.state()
    session = session_of(open_ledger(path))
    ask(session, 100)
    session.ledger.compact()
    session.close()
    assert slept.state().compaction is not None
    for wrong in (False, True):
        head = ("0" if mark.head[0] != "0" else "1") + mark.head[1:] if wrong else mark.head
        slept.witness.write(Mark(mark.seq, head, (0, 0)), anew=True)
        if wrong:
            assert "another ledger" in slept.verify().problems[0]
            with pytest.raises(LedgerRefused, match="mark"), slept.change() as change:
                change.charged = True
            stranger._seen.mac = head
            with pytest.raises(LedgerRefused, match="went on"):
                stranger.state()
        else:
            assert slept.verify().sound
            with slept.change() as change:
                change.charged = True
            slept.witness.write(mark, anew=True)


def test_a_compacted_ledger_moves_and_is_restored(path, postgres_url):
    folder = path.parent
    session = session_of(open_ledger(path))
    session.ledger.compact(answers_days=0)
    told = ask(session, 100, 101)
    session.ledger.compact()
    session.close()
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    session = session_of(open_ledger(path))
    ask(session, 102)
    session.close()
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        path.with_name(name).unlink(missing_ok=True)
    shutil.copyfile(copy, path)
    restore(folder, fingerprint="m", charge="mark")
    assert units_spent(path) >= SPENT + 3
    open_ledger(path).compact()
    assert restore(folder, fingerprint="m", charge="mark").left > 0  # what was lost before is still known
    assert units_spent(path) < SPENT + 2 * LEASE + 3
    moved = move(folder, postgres_url, fingerprint="m")
    session = session_of(moved)
    assert ask(session, 100, 101) == told
    (reply,) = session.ask_all([request_of(3)])
    assert isinstance(reply, IdReused)
    assert moved.count_answers() == SPENT + 2
    moved.compact()
    assert moved.verify().sound


def test_an_export_from_before_is_compared_by_its_hashes(path):
    ledger = open_ledger(path)
    before = [json.dumps(line) for line in export_entries(ledger)]
    ledger.compact()
    session = session_of(ledger)
    ask(session, 100)
    after = [json.dumps(line) for line in export_entries(ledger)]
    assert json.loads(after[0])["kind"] == "compacted"
    assert "capacity" not in after[0]  # the account in it is sealed
    assert check_export(ledger, before) == len(before)
    assert check_export(ledger, after) == len(after)
    edited = json.loads(before[2])
    edited["mac"] = "0" * 64
    with pytest.raises(LedgerRefused, match="entry 3 "):
        check_export(ledger, [*before[:2], json.dumps(edited)])
    with pytest.raises(LedgerRefused, match="more entries"):
        check_export(ledger, [*after, after[-1]])


def test_a_model_that_goes_on_from_its_answers_does_not_forget_them(path):
    ledger = open_ledger(path)
    ledger.keep({("online", b"query 0"): 7}, {}, [])
    with pytest.raises(InvalidInput, match="goes on"):
        ledger.compact(answers_days=0)
    ledger.compact()
    assert ledger.recall("online", [b"query 0"]) == {("online", b"query 0"): 7}


def test_random_histories_with_compactions_end_at_the_same_account(path):
    """The same requests, with and without compactions in between, cost the same and are answered the same."""
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, 400, size=60).tolist()
    twin = path.parent.with_name("twin")
    shutil.copytree(path.parent, twin)
    spent = []
    for place, compacts in ((path, True), (twin / "ledger.sqlite", False)):
        with suppress(FileNotFoundError):
            shutil.rmtree(path.parent.with_name("state"))
        session = session_of(open_ledger(place))
        for number in numbers:
            with suppress(BudgetSpent):
                ask(session, number)
            if compacts and number % 4 == 0:
                open_ledger(place).compact()
        session.close()
        spent.append(units_spent(place))
    assert spent[0] == spent[1] == len({*range(SPENT), *numbers}) <= UNITS


def test_no_statement_of_a_request_or_a_start_goes_through_all_answers(path):
    """With a million answers, going through all of them would take longer than everything else together."""
    ledger = open_ledger(path)
    session, real, seen = session_of(ledger), type(ledger._store).transaction, []

    @contextmanager
    def traced(self, name, then=None):
        with real(self, name, then) as statements:
            run, many = statements.run, statements.run_many
            statements.run = lambda text, values=(): seen.append((text, tuple(values))) or run(text, values)
            statements.run_many = lambda text, rows: seen.extend((text, tuple(row)) for row in rows) or many(text, rows)
            yield statements

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(ledger._store), "transaction", traced)
        session.ask_all([Request(request_of(200, rows=30).X, id="a", body=b"a"), request_of(3), request_of(201)])
        ledger.verify()
    ledger.close_store()
    with sqlite3.connect(path) as connection:
        for text, values in seen:
            for *_, plan in connection.execute(f"EXPLAIN QUERY PLAN {text}", values):
                for table in ("quorate_answer", "quorate_request"):
                    assert not plan.startswith(f"SCAN {table}"), text
                    assert not (plan.startswith(f"SEARCH {table}") and plan.endswith("(ledger=?)")), text
                    if " IN (?" in text:
                        assert f"{table}_seq" not in plan, text
    assert any(" IN (?" in text for text, _ in seen)


def test_an_account_that_moved_away_is_not_compacted(path):
    ledger = open_ledger(path)
    with ledger.change() as change:
        change.append("moved", {"to": "elsewhere"})
    with pytest.raises(LedgerRefused, match="moved"):
        ledger.compact()
