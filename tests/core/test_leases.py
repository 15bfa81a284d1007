"""Leases and request ids: what several processes take out of one account, and what they answer from it."""

import dataclasses
import json
import os
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planted.bug import run_together
from quorate import Budget, BudgetSpent, Cost, InvalidInput
from quorate.compute.ensemble import Ensemble
from quorate.core.answerers import Votes
from quorate.core.errors import IdReused, InProgress, LedgerRefused, QuotaSpent, RateLimited
from quorate.core.ledger import Ledger, move, restore
from quorate.core.ledger import budget as leases
from quorate.core.ledger._rules import Event, apply, from_json, to_json
from quorate.core.mechanisms import Quorum, SoftMajority
from quorate.core.requests import Asked, Request
from quorate.core.session import Session

UNIT = Cost(renyi=1 / 64)


@pytest.fixture(autouse=True)
def large_leases(monkeypatch):
    """With 64 units in all, a fiftieth is one unit."""
    monkeypatch.setattr(leases, "_SHARES", 1)


@pytest.fixture(params=["sqlite", "postgres"])
def make(request, tmp_path):
    """Return what makes a ledger of 64 units, or opens it once more, in either store."""
    place = tmp_path / "ledger.sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")

    def made(*, again=False, budget=None):
        known = {"fingerprint": "m", "folder": tmp_path}
        return (
            Ledger.open(place, **known)
            if again
            else Ledger.create(place, budget or Budget(epsilon=1.0, delta=0.0), **known)
        )

    return made


class Parity:
    """Teachers who all vote for the parity of a query's one feature."""

    classes, teachers = 2, 5000

    def ballots(self, X):
        return np.eye(2, dtype=np.int64)[np.asarray(X)[:, 0].astype(int) % 2] * self.teachers


def parity_session(ledger, *, epsilon=1 / 64, lease=0):
    from quorate.compute.ensemble.estimators import EstimatorTeachers

    ensemble = Ensemble(EstimatorTeachers([(None, 0)] * 5000, classes=2))
    ensemble.count = lambda X: _Sealed(Parity().ballots(X))
    return Session(
        Votes(ensemble, SoftMajority(teachers=5000, epsilon_per_query=epsilon)),
        ledger.budget(lease=lease),
        ledger=ledger,
    )


class _Sealed:
    def __init__(self, votes):
        self._votes = votes

    def put_to(self, release):
        return release(self._votes)


def left_in(ledger):
    state = ledger.state()
    return round((state.capacity[0] - state.spent[0]) / state.capacity[0] * 64)


def test_a_lease_is_charged_when_taken_and_its_rest_returns(make):
    ledger = make()
    budget = ledger.budget(lease=16)
    budget.spend(UNIT)
    assert left_in(ledger) == 48
    entries = ledger.view().entries
    for _ in range(15):
        budget.spend(UNIT)  # from memory
    assert ledger.view().entries == entries
    budget.spend(UNIT)
    assert left_in(ledger) == 32
    budget.return_unused(all=True)
    assert left_in(ledger) == 64 - 17
    assert budget.remaining().renyi == (64 - 17) / 64
    assert ledger.verify().sound


def test_what_a_dead_process_had_out_stays_spent(make, monkeypatch):
    ledger = make()
    child = os.fork()
    if child == 0:
        make(again=True).budget(lease=16).spend(UNIT)
        os._exit(0)
    os.waitpid(child, 0)
    assert left_in(ledger) == 48
    budget = make(again=True).budget()
    began = time.monotonic()
    budget.spend(UNIT, times=48)
    with pytest.raises(BudgetSpent):
        budget.spend(UNIT)
    assert time.monotonic() - began < leases._PATIENCE[False] - 5  # nobody waits for the dead
    assert left_in(ledger) == 0
    assert ledger.view().leases == ()


def test_near_the_end_a_lease_is_returned_to_who_needs_it(make, monkeypatch):
    """Two servers, one of them idle with a lease: the last unit is still granted, and not one more."""
    monkeypatch.setitem(leases._PATIENCE, True, 60.0)  # this machine may be busy
    idle, busy = make(), make(again=True)
    first, second = idle.budget(lease=16), busy.budget(lease=16)
    first.spend(UNIT)
    stop = threading.Event()

    def on_idle():
        while not stop.wait(0.05):
            first.on_idle()

    thread = threading.Thread(target=on_idle)
    thread.start()
    granted = 1
    try:
        while True:
            second.spend(UNIT)
            granted += 1
    except BudgetSpent:
        stop.set()
        thread.join()
    assert granted == 64
    assert left_in(idle) == 0


def test_two_who_wait_for_each_other_do_not_wait_for_long(make, monkeypatch):
    monkeypatch.setitem(leases._PATIENCE, True, 0.5)
    ledgers = [make(), make(again=True)]
    budgets = [ledger.budget(lease=4) for ledger in ledgers]
    granted = [0, 0]

    def spend(which):
        try:
            while True:
                budgets[which].spend(UNIT)
                granted[which] += 1
        except BudgetSpent:
            budgets[which].return_unused(all=True)

    places = iter((0, 1))
    run_together(2, lambda: spend(next(places)))
    assert sum(granted) + left_in(ledgers[0]) == 64
    assert ledgers[0].verify().sound


def test_a_crash_loses_a_fiftieth_at_most(make, monkeypatch):
    monkeypatch.setattr(leases, "_SHARES", 50)
    ledger = make()
    small = Cost(renyi=1 / 8192)
    ledger.budget(lease=10**6).spend(small)
    assert ledger.view().left == 1 - 163 / 8192
    ledger.budget(lease=10**6).spend(UNIT)  # a lease of one: two would be more
    assert ledger.view().left == 1 - (163 + 128) / 8192


class Refused(Exception):
    pass


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.integers(0, 2), st.integers(1, 9)),
        st.tuples(st.just("settle"), st.integers(0, 2), st.integers(1, 9)),
        st.tuples(st.just("return"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("die"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 2), st.integers(0, 1)),
    ),
    max_size=25,
)


class Cut(Exception):
    """The connection broke: before the commit, or after it, and nobody can tell which."""


def cuttable(budget):
    """Make the next transaction of a budget's ledger fail once `cut` says so."""
    store, cut = budget._ledger._store, []
    plain = store.transaction

    @contextmanager
    def transaction(ledger, then=None):
        when = cut.pop() if cut else None
        with plain(ledger, then) as statements:
            yield statements
            if when == 0:
                raise Cut
        if when == 1:
            raise Cut

    store.transaction = transaction
    return cut


@settings(max_examples=60, deadline=None)
@example(steps=[("spend", 0, 1), ("cut", 0, 0), ("return", 0, 0), ("spend", 0, 5)], block=5)  # what was used is counted
@example(steps=[("cut", 0, 1), ("spend", 0, 1), ("spend", 0, 5), ("return", 0, 0)], block=5)  # leased, and not known
@given(steps=STEPS, block=st.sampled_from([0, 1, 5, 100]))
def test_whatever_happens_no_more_is_used_than_is_charged(tmp_path_factory, steps, block):
    leases._PATIENCE.update({True: 0.0, False: 0.0})
    try:
        path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
        first = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
        budgets = [Ledger.open(path, fingerprint="m").budget(lease=block) for _ in range(3)]
        cuts = [cuttable(budget) for budget in budgets]
        used = 0
        for kind, who, units in steps:
            try:
                if kind == "spend":
                    budgets[who].spend(UNIT, times=units)
                    used += units
                elif kind == "settle":
                    budgets[who].reserve(UNIT, times=units).settle(units // 2)
                    used += units // 2
                elif kind == "return":
                    budgets[who].return_unused(all=True)
                elif kind == "cut":
                    cuts[who][:] = [units]
                else:
                    budgets[who] = Ledger.open(path, fingerprint="m").budget(lease=block)
                    cuts[who] = cuttable(budgets[who])
            except (BudgetSpent, Cut):
                pass
            assert used <= 64 - left_in(first) <= 64
        assert first.verify().sound
        entries = list(first.entries())
        state = None
        for entry in entries:
            state = apply(state, entry.event)
            assert from_json(to_json(state)) == state
        assert state == first.state()
    finally:
        leases._PATIENCE.update({True: 2.0, False: 60.0})


def test_requests_of_one_group_get_their_own_answers(make):
    """Found in review: two requests that share a query were answered in each other's order."""
    session = parity_session(make(), epsilon=1 / 32)
    rows = [[0.0], [1.0], [2.0], [3.0]]
    asked = [[0, 1], [0, 3, 2], [1, 0]]
    requests = [Request(np.array([rows[row] for row in one]), caller) for one in asked for caller in ("a", "b")]
    replies = session.ask_all(requests)
    labels = [reply.labels.tolist() for reply in replies]
    expected = [[row % 2 for row in one] for one in asked for _ in "ab"]
    assert labels == expected
    assert 64 - left_in(session.ledger) == 16  # four queries of two callers


def test_an_id_is_answered_once(make):
    session = parity_session(make())
    one = Request(np.array([[1.0]]), "a", id="7", body=b"body")
    first = session.ask_all([one])[0]
    charged = left_in(session.ledger)
    for again in (session, parity_session(make(again=True))):
        (reply,) = again.ask_all([one])
        assert reply.labels.tolist() == first.labels.tolist()
        other, twin = again.ask_all([dataclasses.replace(one, X=np.array([[5.0]]), body=b"other"), one])
        assert isinstance(other, IdReused)
        assert not isinstance(twin, Exception)
    assert left_in(session.ledger) == charged
    assert session.ledger.verify().sound


def test_an_id_in_use_elsewhere_waits_unless_its_process_died(make):
    ledger, other = make(), make(again=True)
    asked = Asked("a", [b"x" * 16], id="7", body=b"body")
    assert not isinstance(ledger.admit([asked])[0], Exception)
    assert isinstance(other.admit([asked])[0], InProgress)
    child = os.fork()
    if child == 0:
        make(again=True).admit([dataclasses.replace(asked, id="8")])
        os._exit(0)
    os.waitpid(child, 0)
    assert not isinstance(other.admit([dataclasses.replace(asked, id="8")])[0], Exception)
    known = {}
    assert ledger.keep({("a", b"x" * 16): 1}, known, [asked]) == [[1]]
    assert other.admit([asked])[0].outcome == [1]


def test_who_was_taken_for_dead_answers_nothing(make, monkeypatch):
    ledger, other = make(), make(again=True)
    asked = Asked("a", [b"x" * 16], id="7", body=b"body")
    ledger.admit([asked])
    monkeypatch.setattr("quorate.core.ledger._requests.is_gone", lambda owner, silent, patience: True)
    other.admit([asked])
    (late,) = ledger.keep({("a", b"x" * 16): 0}, {}, [asked])
    assert isinstance(late, InProgress)
    known = {}
    assert other.keep({("a", b"x" * 16): 1}, known, [asked]) == [[0]]  # the answer that was kept first stands


def test_quota_and_rate_are_exact(make, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.0)  # rates are counted from minute to minute
    ledger = make()
    key = ledger.find_key(ledger.add_key("alice", quota=3, per_minute=2))
    session = parity_session(ledger)
    ask = lambda *values: session.ask_all([Request(np.array([[float(value)] for value in values]), key.id)])[0]  # noqa: E731
    assert not isinstance(ask(1, 2), Exception)
    assert isinstance(ask(3), RateLimited)
    with ledger.change() as change:  # a minute later
        change.at += 61
        change.append("wanted", {})
    assert isinstance(ask(3, 4), QuotaSpent)
    assert not isinstance(ask(3), Exception)
    assert isinstance(ask(5), QuotaSpent)
    assert ledger.view().keys[0].used == 3
    assert ledger.verify().sound


def test_rows_that_the_budget_refuses_are_not_counted_against_a_quota(make):
    ledger = make()
    key = ledger.find_key(ledger.add_key("alice", quota=100))
    session = parity_session(ledger, epsilon=1 / 4)
    (reply,) = session.ask_all([Request(np.arange(6.0)[:, None], key.id, id="1", body=b"b")])
    assert reply.refused.tolist() == [False] * 4 + [True] * 2
    assert ledger.view().keys[0].used == 4
    (spent,) = session.ask_all([Request(np.array([[9.0]]), key.id, id="2", body=b"c")])
    assert isinstance(spent, BudgetSpent)
    (again,) = session.ask_all([Request(np.arange(6.0)[:, None], key.id, id="1", body=b"b")])
    assert again.refused.tolist() == reply.refused.tolist()
    assert ledger.view().keys[0].used == 4


def test_a_run_goes_on_in_several_processes_with_one_noise(make):
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-9, teachers=400, no_quorums=5)
    budget = Budget(epsilon=2.0, delta=1e-9, order=quorum.order, slack=quorum.slack)
    run = quorum.open(budget)
    ledger = make(budget=budget)
    ledger.keep_run(run.end())
    sessions = []
    for opened in (ledger, make(again=True)):
        from quorate.compute.ensemble.estimators import EstimatorTeachers

        ensemble = Ensemble(EstimatorTeachers([(None, 0)] * 400, classes=2))
        ensemble.count = lambda X: _Sealed(np.full((len(X), 2), 200))  # a quorum in one run of 10**9
        sessions.append(Session(Votes(ensemble, quorum), opened.budget(lease=1), ledger=opened))
    assert sessions[0].answerer.run.threshold_noise == sessions[1].answerer.run.threshold_noise
    met = 0
    for number in range(12):
        (reply,) = sessions[number % 2].ask_all([Request(np.array([[float(number)]]))])
        if not isinstance(reply, Exception):
            met += int((reply.labels == -1).sum())
        for session in sessions:
            session.on_idle()
    assert met == 5  # as many as the run was paid for, in all processes together
    for session in sessions:
        session.close()
    assert make(again=True).verify().sound


def test_a_moved_ledger_spends_in_one_place(tmp_path, postgres_url):
    old = Ledger.create(tmp_path / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    token = old.add_key("alice", quota=5)
    old.keep_run(-7)
    session = parity_session(old)
    session.ask_all([Request(np.array([[1.0]]), old.find_key(token).id, id="1", body=b"b")])
    budget = old.budget(lease=4)
    new = move(tmp_path, postgres_url, fingerprint="m")
    assert (new.run(), left_in(new), new.find_key(token).used) == (-7, 63, 1)
    assert new.admit([Asked(new.find_key(token).id, [], id="1", body=b"b")])[0].outcome == [1]
    with pytest.raises(LedgerRefused, match="has moved to postgresql://"):
        budget.spend(UNIT)
    new.budget().spend(UNIT)
    assert left_in(new) == 62
    assert new.verify().sound


def test_an_interrupted_move_goes_on(tmp_path, postgres_url, monkeypatch):
    old = Ledger.create(tmp_path / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    old.budget().spend(UNIT)
    for broken in ("begin", "write_whole"):
        with monkeypatch.context() as patch:
            if broken == "begin":
                patch.setattr(Ledger, "begin", lambda *_, **__: (_ for _ in ()).throw(Refused))
            else:
                patch.setattr("quorate.core.ledger._moving.write_whole", lambda *_: (_ for _ in ()).throw(Refused))
            with pytest.raises(Refused):
                move(tmp_path, postgres_url, fingerprint="m")
    assert left_in(move(tmp_path, postgres_url, fingerprint="m")) == 63


@pytest.mark.parametrize("charge", ["mark", "all"])
def test_an_old_copy_is_refused_until_its_owner_restores_it(tmp_path, charge):
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    ledger.budget().spend(UNIT)
    ledger.close()
    copy = path.read_bytes()
    ledger.budget().spend(UNIT, times=10)
    ledger.close()
    path.write_bytes(copy)
    with pytest.raises(LedgerRefused, match="rolled back"):
        Ledger.open(path, fingerprint="m")
    with pytest.raises(LedgerRefused, match="went back while it was in use"):
        ledger.budget().spend(UNIT)
    restore(tmp_path, fingerprint="m", charge=charge)
    assert left_in(Ledger.open(path, fingerprint="m")) == (53 if charge == "mark" else 0)


def test_rules_refuse_what_cannot_be(make):
    state = make().state()
    bodies = {
        "leased": {"lease": "l", "owner": "o", "renyi": "-1", "slack": "0"},
        "returned": {"lease": "nobody", "renyi": "1", "slack": "0"},
        "lost": {"lease": "nobody"},
        "opened": {},
        "nonsense": {},
        "restored": {"spent": ["9" * 40, "0"]},
    }
    for kind, body in bodies.items():
        with pytest.raises(LedgerRefused):
            apply(state, Event(kind, state.at, body))


def test_an_interrupt_within_a_transaction_leaves_no_half_of_it(make):
    """Found in review: with PostgreSQL the next commit only ended a savepoint, and answers left unpaid."""
    ledger = make()
    budget = ledger.budget()

    def interrupted():
        with ledger.change() as change:
            change.append("wanted", {})
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        connection = getattr(ledger._store, "_connection", None) or ledger._store._held.get()
        if connection is not None:
            connection.execute("BEGIN")  # as if the interrupt had come while it was ending
        budget.spend(UNIT)
        assert left_in(make(again=True)) == left_in(ledger)
    assert left_in(ledger) == 61


def test_a_mark_that_cannot_be_written_does_not_drain_the_budget(make, monkeypatch):
    """Found in review: every try leased anew."""
    ledger = make()
    budget = ledger.budget(lease=8)
    with monkeypatch.context() as patch:
        patch.setattr(ledger.witness, "write", lambda *_, **__: (_ for _ in ()).throw(Refused))
        for _ in range(20):
            with pytest.raises(Refused):
                budget.spend(UNIT)
    assert left_in(ledger) == 56
    budget.spend(UNIT)
    budget.return_unused(all=True)
    assert left_in(ledger) == 63


def test_a_clock_that_was_ahead_does_not_stop_time(make):
    ledger = make()
    with ledger.change() as change:
        change.at += 86400
        change.append("wanted", {})
    with ledger.change() as change:
        change.append("wanted", {})
    assert ledger.state().at < time.time() + 60
    assert ledger.verify().sound


def test_an_id_that_was_given_up_elsewhere_is_not_kept(make, monkeypatch):
    """Found in review: an outcome was proved by an entry, and its row was gone."""
    ledger, other = make(), make(again=True)
    asked = Asked("a", [b"x" * 16], id="7", body=b"body")
    ledger.admit([asked])
    monkeypatch.setattr("quorate.core.ledger._requests.is_gone", lambda owner, silent, patience: True)
    other.admit([asked])
    other.keep({}, {}, [asked])  # refused as a whole: the id is free again
    (late,) = ledger.keep({("a", b"x" * 16): 1}, {}, [asked])
    assert isinstance(late, InProgress)
    assert ledger.verify().sound


def test_two_copies_in_use_at_once_are_found_out(tmp_path):
    """Found in review: a copied folder was only refused at its next start."""
    import shutil

    (tmp_path / "model").mkdir()
    ledger = Ledger.create(tmp_path / "model" / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    ledger.close()
    shutil.copytree(tmp_path / "model", tmp_path / "copy")
    copy = Ledger.open(tmp_path / "copy" / "ledger.sqlite", fingerprint="m")
    ledger.budget().spend(UNIT)
    with pytest.raises(LedgerRefused, match="not the one that a mark speaks of"):
        copy.budget().spend(UNIT)
    ledger.budget().spend(UNIT)


def test_hosts_that_restore_one_after_the_other_charge_all_that_was_spent(tmp_path, monkeypatch, postgres_url):
    """Found in review: what one host charged after its restore was swallowed by the other's."""
    import shutil

    places = {}
    for host in ("a", "b"):
        places[host] = tmp_path / host, tmp_path / f"state-{host}"
        for folder in places[host]:
            folder.mkdir()

    @contextmanager
    def on(host):
        with monkeypatch.context() as patch:
            patch.setenv("QUORATE_STATE", str(places[host][1]))
            yield {"fingerprint": "m", "folder": places[host][0]}

    with on("a") as known:
        ledger = Ledger.create(postgres_url, Budget(epsilon=1.0, delta=0.0), **known)
    shutil.copytree(places["a"][0], places["b"][0], dirs_exist_ok=True)
    with ledger.change() as change:  # a copy of the database, to come back to
        kept = {
            table: change.statements.run(f"SELECT * FROM {table}")
            for table in ("quorate_snapshot", "quorate_entry", "quorate_answer", "quorate_request")
        }
    for host, units in (("a", 10), ("b", 30)):
        with on(host) as known:
            opened = Ledger.open(postgres_url, **known)
            opened.budget().spend(UNIT, times=units)
            opened.close_store()
    with ledger._store.transaction("m") as statements:  # the old copy is put back
        for table, rows in kept.items():
            statements.run(f"DELETE FROM {table}")
            for row in rows:
                statements.run(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
    for host in ("a", "b"):
        with on(host) as known:
            with pytest.raises(LedgerRefused):
                Ledger.open(postgres_url, **known)
            (tmp_path / host / "ledger.json").write_text(json.dumps({"place": postgres_url}))
            restore(tmp_path / host, fingerprint="m", charge="mark")
            opened = Ledger.open(postgres_url, **known)
            if host == "a":
                assert left_in(opened) == 54
                opened.budget().spend(UNIT, times=20)
            else:
                assert left_in(opened) == 64 - 40 - 20
            opened.close_store()


def test_a_run_outlives_a_ledger_that_fails_when_it_is_given_back(make, monkeypatch):
    """Found in review: the run of that process was over for good."""
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-9, teachers=400, no_quorums=5)
    budget = Budget(epsilon=2.0, delta=1e-9, order=quorum.order, slack=quorum.slack)
    noise = quorum.open(budget).end()
    ledger = make(budget=budget)
    stored = ledger.budget()
    run = quorum.resume(stored, threshold_noise=noise)
    with monkeypatch.context() as patch:
        patch.setattr(type(stored), "return_unused", lambda self, **_: (_ for _ in ()).throw(Refused))
        with pytest.raises(Refused):
            run.answers([[400, 0]])
    assert run.no_quorums_left == 5
    assert run.answers([[400, 0]]).labels.tolist() == [0]


def test_a_server_sets_aside_a_lease_at_a_time(make, monkeypatch):
    """Found in review: a group of many rows held every no-quorum there was, and a kill lost them all."""
    monkeypatch.setattr(leases, "_SHARES", 50)
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=4000, no_quorums=100)
    budget = Budget(epsilon=2.0, delta=1e-5, order=quorum.order, slack=quorum.slack)
    noise = quorum.open(budget).end()
    ledger = make(budget=budget)
    stored = ledger.budget(lease=100)
    before = ledger.view().left
    seen = []
    run = quorum.resume(stored, threshold_noise=noise)
    plain = stored._charge
    monkeypatch.setattr(
        type(stored), "_charge", lambda self, each, counts: (seen.append(ledger.view().left), plain(each, counts))
    )
    run.answers([[4000, 0]] * 1000)
    assert before - min(seen) <= 1 / 50 + 1e-9


@pytest.mark.parametrize("caller", ["x" * 201, "a\0b", "\ud800", 5, None])
def test_a_caller_that_no_store_can_keep_is_refused_before_anything_is_drawn(make, caller):
    session = parity_session(make())
    with pytest.raises(InvalidInput, match="caller must"):
        session.ask(np.zeros((1, 1)), caller=caller)
    assert left_in(session.ledger) == 64
