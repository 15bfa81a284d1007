"""Shares of keys and projects: each caller has what it was given and not one no-quorum more, whoever dies meanwhile."""

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate import Budget, BudgetSpent, InvalidInput
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.answerers import OneByOne, Votes
from quorate.core.errors import (
    InProgress,
    KeyClosed,
    LedgerRefused,
    QuotaSpent,
    RateLimited,
    ShareInUse,
    ShareSpent,
    SiteRefused,
)
from quorate.core.ledger import Ledger, budget, move
from quorate.core.ledger._approvals import is_wider
from quorate.core.ledger._rules import Event, Phase, apply
from quorate.core.ledger._shares import Key, allow, hold_for
from quorate.core.mechanisms import NO_QUORUM, ConfidentMax, Quorum, SoftMajority
from quorate.core.privacy import Cost
from quorate.core.privacy.budget import to_quanta
from quorate.core.requests import Admitted, Asked, Request
from quorate.core.session import Session
from quorate.service._batcher import RequestBatcher

TEACHERS = 400
ALLOWED = 40  # no-quorums that the whole budget pays for


@pytest.fixture(params=["sqlite", "postgres"])
def make(request, tmp_path):
    """Return what makes a ledger with a Quorum run, or opens it once more, in either store."""
    place = tmp_path / "ledger.sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    # A tie is answered in as many runs as the slack says: at this delta in one of 10**9.
    quorum = Quorum.calibrate(epsilon=20.0, delta=1e-9, teachers=TEACHERS, no_quorums=ALLOWED)

    def made(*, again=False, lease=0):
        known = {"fingerprint": "m", "folder": tmp_path}
        if again:
            ledger = Ledger.open(place, **known)
        else:
            budget = Budget(epsilon=20.0, delta=1e-9, order=quorum.order, slack=quorum.slack)
            noise = quorum.open(budget).end()
            ledger = Ledger.create(place, budget, **known)
            ledger.keep_run(noise)
        return ledger, session_of(ledger, quorum, lease=lease)

    return made


class Sealed:
    """Teachers who are split on queries below 1000, and agree on the others."""

    def __init__(self, X):
        split = np.asarray(X)[:, 0] < 1000
        half = TEACHERS // 2
        self._votes = np.where(split[:, None], [[half, half]], [[0, TEACHERS]])

    def put_to(self, release):
        return release(self._votes)


def session_of(ledger, mechanism, *, lease=0):
    ensemble = Ensemble(EstimatorTeachers([(None, 0)] * TEACHERS, classes=2))
    ensemble.count = Sealed
    return Session(Votes(ensemble, mechanism), ledger.budget(lease=lease), ledger=ledger)


def rows(*values):
    return np.array([[float(value)] for value in values])


def key_of(ledger, name, **limits):
    return ledger.find_key(ledger.add_key(name, **limits)).id


def met_in(reply):
    return 0 if isinstance(reply, Exception) else int((~reply.refused & (reply.labels == NO_QUORUM)).sum())


def test_a_burner_spends_its_own_share_and_others_are_answered(make):
    ledger, session = make()
    burner, other = key_of(ledger, "burner", no_quorums=5), key_of(ledger, "other")
    replies = session.ask_all([Request(rows(*range(30)), burner), Request(rows(2000, 2001, 1), other)])
    assert (met_in(replies[0]), replies[0].refused.sum()) == (5, 25)
    assert replies[1].labels.tolist() == [1, 1, -1]
    (spent,) = session.ask_all([Request(rows(31), burner)])
    assert isinstance(spent, ShareSpent)
    (again,) = session.ask_all([Request(rows(0, 1), burner)])  # what was answered is answered again
    assert again.labels.tolist() == [-1, -1]
    assert session.ask_all([Request(rows(3000), other)])[0].labels.tolist() == [1]
    (refused,) = session.ask_all([Request(rows(3000), burner)])  # any answer may turn out to be a no-quorum
    assert isinstance(refused, ShareSpent)
    keys = {key.name: key for key in ledger.view().keys}
    assert (keys["burner"].met, keys["other"].met) == (5, 1)
    assert keys["burner"].spent == 5 * keys["other"].spent > 0
    assert not ledger.state().holds
    assert ledger.verify().sound


def test_a_share_is_exact_over_workers_and_requests(make):
    """Four processes' sessions, four callers with shares, requests in turn: each meets its share, and no more."""
    ledger, first = make(lease=2)
    sessions = [first, *(make(again=True, lease=2)[1] for _ in range(3))]
    callers = {key_of(ledger, f"caller {share}", no_quorums=share): share for share in (1, 3, 4, 7)}
    met = dict.fromkeys(callers, 0)
    for turn in range(3):
        for place, session in enumerate(sessions):
            asked = [Request(rows(100 * place + turn, 900 - 20 * place - turn), caller) for caller in callers]
            for caller, reply in zip(callers, session.ask_all(asked), strict=True):
                met[caller] += met_in(reply)
    assert met == callers
    assert {key.id: key.met for key in ledger.view().keys} == callers
    for session in sessions:
        session.close()
    assert make(again=True)[0].verify().sound


def test_shares_may_overbook_a_total_that_is_never_overdrawn(make):
    ledger, session = make()
    callers = [key_of(ledger, str(number), no_quorums=ALLOWED - 10) for number in range(3)]
    met = [met_in(session.ask_all([Request(rows(*range(ALLOWED)), caller)])[0]) for caller in callers]
    assert met == [30, 10, 0]
    (ended,) = session.ask_all([Request(rows(77), callers[2])])
    assert type(ended) is BudgetSpent  # of everybody: its own share is whole


def test_a_project_has_one_share_among_its_keys(make):
    ledger, session = make()
    ledger.set_project("ward", no_quorums=4, quota=20)
    callers = [key_of(ledger, name, project="ward", no_quorums=3) for name in ("a", "b")]
    outside = key_of(ledger, "c")
    replies = session.ask_all([Request(rows(1, 2, 3, 4), caller) for caller in callers] + [Request(rows(5), outside)])
    assert [met_in(reply) for reply in replies] == [3, 1, 1]
    (project,) = ledger.view().projects
    assert (project.met, project.used) == (4, 4)  # refused rows are given back
    with pytest.raises(InvalidInput, match="no project 'x'"):
        ledger.change_key(outside, project="x")
    (refused,) = session.ask_all([Request(rows(*range(2000, 2017)), callers[0])])
    assert isinstance(refused, QuotaSpent)


def test_a_share_of_the_cost_is_exact(tmp_path):
    """For a mechanism that charges for every answer."""
    ledger = Ledger.create(tmp_path / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    session = session_of(ledger, SoftMajority(teachers=TEACHERS, epsilon_per_query=1 / 64))
    caller, other = key_of(ledger, "caller", budget=5 / 64), key_of(ledger, "other")
    replies = session.ask_all([Request(rows(*range(2000, 2008)), caller), Request(rows(2000), other)])
    assert (~replies[0].refused).sum() == 5
    keys = {key.name: key for key in ledger.view().keys}
    assert keys["caller"].spent == keys["caller"].cost == 5 * keys["other"].spent
    ledger.change_key(caller, budget=6 / 64)
    replies = [session.ask_all([Request(rows(row), caller)])[0] for row in (3000, 3001)]
    assert not isinstance(replies[0], Exception)
    assert isinstance(replies[1], ShareSpent)
    assert ledger.verify().sound


def test_what_a_killed_process_had_set_aside_stays_charged(make):
    ledger, session = make()
    caller = key_of(ledger, "caller", no_quorums=3)
    child = os.fork()
    if child == 0:  # sets aside, and dies before it keeps anything
        _, dying = make(again=True)
        dying.answerer.draw = lambda X: os.kill(os.getpid(), signal.SIGKILL)
        dying.ask_all([Request(rows(1), caller)])
        os._exit(0)  # never
    os.waitpid(child, 0)
    assert len(ledger.state().holds) == 1
    met = sum(met_in(session.ask_all([Request(rows(turn), caller)])[0]) for turn in range(10))
    assert met == 2
    (key,) = ledger.view().keys
    assert (key.met, ledger.state().holds) == (3, {})
    assert ledger.verify().sound


def test_a_share_that_is_set_aside_elsewhere_is_not_called_spent(make):
    ledger, session = make()
    _, elsewhere = make(again=True)
    caller = key_of(ledger, "caller", no_quorums=1)
    drawn, seen = elsewhere.answerer.draw, []

    def meanwhile(X):
        seen.extend(session.ask_all([Request(rows(8), caller)]))
        return drawn(X)

    elsewhere.answerer.draw = meanwhile
    (reply,) = elsewhere.ask_all([Request(rows(2000), caller)])
    assert isinstance(seen[0], ShareInUse)
    assert reply.labels.tolist() == [1]
    assert met_in(session.ask_all([Request(rows(8), caller)])[0]) == 1  # it came back


def test_a_failure_in_the_middle_charges_the_share_and_not_more(make):
    ledger, session = make()
    caller = key_of(ledger, "caller", no_quorums=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.answerer, "draw", lambda X: (_ for _ in ()).throw(LedgerRefused("gone")))
        with pytest.raises(LedgerRefused):
            session.ask_all([Request(rows(1), caller)])
    assert sum(met_in(session.ask_all([Request(rows(turn), caller)])[0]) for turn in range(10)) == 2


@pytest.mark.parametrize("scale", [20.0, 21.0, 24.0, 25.0])
def test_a_row_of_two_costs_is_set_aside_as_it_is_charged(tmp_path, scale):
    """Each of its costs is rounded up by itself, which may come to a quantum more than their sum."""
    mechanism = ConfidentMax(teachers=TEACHERS, classes=2, threshold=300, test_scale=scale, winner_scale=scale / 2)
    ledger = Ledger.create(tmp_path / "ledger.sqlite", Budget(epsilon=3.0, delta=1e-5), fingerprint="m")
    session = session_of(ledger, mechanism)
    caller = key_of(ledger, "caller", budget=0.5)
    reply = session.ask(rows(*range(2000, 2100)), caller=caller)
    (key,) = ledger.view().keys
    assert 0 < key.spent <= key.cost < key.spent + to_quanta(session.answerer.row_cost())[0]
    assert 0 < reply.refused.sum() < 100


@pytest.mark.parametrize("next_one", ["other", "caller"])
def test_what_failed_stays_charged_whoever_is_answered_next(make, next_one):
    """An answer of somebody else, or one that is known already, must not let go of what a failure left set aside."""
    ledger, session = make()
    keys = {"caller": key_of(ledger, "caller", no_quorums=2), "other": key_of(ledger, "other")}
    session.ask_all([Request(rows(2000), key) for key in keys.values()])
    drawn, draw = [], session.answerer.draw
    session.answerer.draw = lambda X: drawn.append(draw(X)) or drawn[-1]
    for turn in range(4):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "keep", lambda *given, **named: (_ for _ in ()).throw(LedgerRefused("gone")))
            with contextlib.suppress(LedgerRefused):
                session.ask_all([Request(rows(turn), keys["caller"])])
        session.ask_all([Request(rows(2000), keys[next_one])])
    assert sum(int((answers.labels == NO_QUORUM).sum()) for answers in drawn) == 2
    assert next(key.met for key in ledger.view().keys if key.id == keys["caller"]) == 2


def failing_on(session, row):
    """Let drawing fail on a row, as a published student may, and return the list of all rows that are drawn."""
    drawn, draw = [], session.answerer.draw

    def drawing(X):
        if row in X[:, 0]:
            raise ValueError("somebody's own code")
        answers = draw(X)
        drawn.extend(X[: len(answers.labels), 0].tolist())
        return answers

    session.answerer.draw = drawing
    return drawn


@pytest.mark.parametrize("share", [{}, {"no_quorums": 3}, {"budget": 0.5}])
@pytest.mark.parametrize("place", [0, 2, 5])
def test_who_is_answered_together_with_a_request_that_fails_pays_once(make, share, place):
    """Each time that a server tried again, all rows counted once more, and what was set aside was charged."""
    ledger, session = make()
    burner, other = key_of(ledger, "burner", quota=20), key_of(ledger, "other", quota=2, per_minute=2, **share)
    drawn = failing_on(session, 666.0)
    asked = [Request(rows(2000 + turn), burner, id=f"b{turn}") for turn in range(5)]
    asked.insert(place, Request(rows(1, 3000), other, id="mine"))
    asked.insert(3, Request(rows(666), burner, id="wrong"))
    replies = RequestBatcher(session.ask_all)._answer(asked)
    mine = replies[asked.index(next(one for one in asked if one.caller == other))]
    assert [type(reply) for reply in replies].count(ValueError) == 1
    assert mine.labels.tolist() == [-1, 1]
    assert drawn.count(1.0) == drawn.count(3000.0) == 1 or not share  # a share is drawn for apart
    keys = {key.name: key for key in ledger.view().keys}
    assert (keys["other"].used, keys["other"].in_minute, keys["other"].met) == (2, 2, 1)
    assert (keys["burner"].used, keys["burner"].met) == (6, 0)  # what fails alone is counted
    if share:
        assert keys["other"].spent == to_quanta(session.answerer.row_cost())[0]
    assert not ledger.state().holds
    assert ledger.verify().sound
    (again,) = session.ask_all([Request(rows(1, 3000), other, id="mine")])
    assert again.labels.tolist() == [-1, 1]


def test_what_a_failed_draw_may_have_used_stays_charged_and_its_id_is_free(make):
    ledger, session = make()
    caller = key_of(ledger, "caller", no_quorums=3, quota=9)
    failing_on(session, 666.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="own code"):
            session.ask_all([Request(rows(666), caller, id="mine")])
    key = ledger.state().keys[caller]
    assert (key.met, key.used) == (2, 2)  # else no quota and no rate would limit who fails on purpose
    (reply,) = session.ask_all([Request(rows(1, 2, 3), caller, id="mine", body=b"another")])
    assert met_in(reply) == 1
    assert ledger.verify().sound


def test_a_draw_that_fails_after_it_was_paid_for_is_in_the_figures_of_keys_without_limits(make):
    ledger, session = make()
    callers = [key_of(ledger, name) for name in ("one", "other")]
    before, draw = session.budget.paid, session.answerer.draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.answerer, "draw", lambda X: (draw(X), 1 / 0))
        with pytest.raises(ZeroDivisionError):
            session.ask_all([Request(rows(1, 2, 3), callers[0]), Request(rows(4), callers[1])])
    paid, keys = session.budget.paid - before, ledger.state().keys
    assert paid == 4 * to_quanta(session.answerer.row_cost())[0]
    assert [keys[caller].spent for caller in callers] == [3 * paid // 4, paid // 4]
    assert [keys[caller].used for caller in callers] == [0, 0]  # the two are tried again, each by itself
    assert ledger.verify().sound


def test_a_site_that_is_gone_uses_up_no_quota(make):
    ledger, session = make()
    caller = key_of(ledger, "caller", quota=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.answerer, "draw", lambda X: (_ for _ in ()).throw(SiteRefused("gone", site="north")))
        for _ in range(3):
            with pytest.raises(SiteRefused):
                session.ask_all([Request(rows(1, 2000), caller)])
    assert session.ask_all([Request(rows(1, 2000), caller)])[0].labels.tolist() == [-1, 1]


def test_rows_that_were_withdrawn_count_neither_in_their_minute_nor_in_their_phase(make):
    ledger, _ = make()
    caller = key_of(ledger, "caller", per_minute=5)
    state, at = ledger.state(), 1200.0

    def after(state, kind, at, **body):
        return apply(state, Event(kind, at, {"owner": "me", "rows": {caller: 4}} | body))

    admitted = after(state, "admitted", at, held={})
    assert admitted.keys[caller].in_phase == admitted.keys[caller].in_minute == 4
    back = after(admitted, "withdrawn", at + 1, used={}, minute=1200).keys[caller]
    assert (back.used, back.in_minute, back.in_phase) == (0, 0, 0)
    later = after(after(admitted, "admitted", at + 60, held={}), "withdrawn", at + 61, used={}, minute=1200)
    assert (later.keys[caller].used, later.keys[caller].in_minute) == (4, 4)  # those of the minute before
    with pytest.raises(LedgerRefused, match="the returned quota"):
        after(state, "withdrawn", at, used={}, minute=1200)
    limited = after(admitted, "admitted", at + 120, held={caller: [1, None]})
    with pytest.raises(LedgerRefused, match="at most its reservation"):
        after(limited, "withdrawn", at + 121, used={caller: [2, 0]}, minute=1320)


def test_what_was_paid_for_before_the_budget_was_found_spent_is_charged(make):
    ledger, session = make()
    caller = key_of(ledger, "caller", budget=0.5)

    def paid_and_refused(X):
        session.budget.spend(session.answerer.row_cost())
        raise BudgetSpent("the rest is out on another's lease")

    session.answerer.draw = paid_and_refused
    assert isinstance(session.ask_all([Request(rows(1), caller)])[0], BudgetSpent)
    assert ledger.view().keys[0].spent > 0


def test_a_limit_that_was_lowered_meanwhile_refuses_its_caller_alone(make):
    ledger, _ = make()
    caller, other = key_of(ledger, "caller", no_quorums=3, budget=0.5), key_of(ledger, "other")
    ledger.admit([Asked(caller, [b"x" * 16])])  # and it is still being answered
    ledger.change_key(caller, no_quorums=0)
    _, session = make(again=True)
    refused, reply = session.ask_all([Request(rows(1), caller), Request(rows(2000), other)])
    assert isinstance(refused, ShareSpent)
    assert reply.labels.tolist() == [1]


def test_a_model_without_a_budget_answers_keys_that_have_a_share(make):
    ledger, _ = make()
    caller = key_of(ledger, "caller", no_quorums=1, budget=0.5)
    session = Session(OneByOne(lambda row: 1, Cost(0.0)), None, ledger=ledger)
    assert [session.ask(rows(turn), caller=caller).labels.tolist() for turn in range(3)] == [[1]] * 3
    assert (ledger.state().holds, ledger.view().keys[0].met) == ({}, 0)


def test_rules_refuse_more_than_was_set_aside(make):
    ledger, _ = make()
    caller = key_of(ledger, "caller", no_quorums=2)
    state = ledger.state()
    with pytest.raises(LedgerRefused, match="rest of the share"):
        apply(state, Event("admitted", 0.0, {"rows": {}, "held": {caller: [3, None]}, "owner": "o"}))
    held = apply(state, Event("admitted", 0.0, {"rows": {}, "held": {caller: [1, None]}, "owner": "o"}))
    answered = {"lease": "", "returned": {}, "owner": "o"}
    with pytest.raises(LedgerRefused, match="at most its reservation"):
        apply(held, Event("answered", 0.0, answered | {"used": {caller: [2, 0]}}))
    settled = apply(held, Event("answered", 0.0, answered | {"used": {caller: [1, 5]}}))
    assert (settled.keys[caller].met, settled.keys[caller].spent, settled.holds) == (1, 5, {})


def test_keys_expire_change_and_rotate_and_stay_the_same_caller(make, monkeypatch):
    ledger, session = make()
    token = ledger.add_key("alice", quota=1, expires=time.time() + 1000)
    caller = ledger.find_key(token).id
    session.ask_all([Request(rows(1), caller)])
    assert isinstance(session.ask_all([Request(rows(2), caller)])[0], QuotaSpent)
    ledger.change_key(caller, quota=None)
    assert not isinstance(session.ask_all([Request(rows(2), caller)])[0], Exception)
    new = ledger.rotate_key(caller, grace=100)
    assert ledger.find_key(new).id == ledger.find_key(token).id == caller
    third = ledger.rotate_key(caller)
    assert ledger.find_key(new) is ledger.find_key(token) is None
    before = ledger.view().spent
    assert session.ask_all([Request(rows(1, 2), caller)])[0].labels.tolist() == [-1, -1]
    assert ledger.view().spent == before  # its answers stayed
    assert ledger.view().keys[0].last > 0
    later = time.time() + 2000
    monkeypatch.setattr(time, "time", lambda: later)
    assert ledger.find_key(third) is None
    assert isinstance(session.ask_all([Request(rows(5), caller)])[0], KeyClosed)  # whoever let it in before
    with pytest.raises(InvalidInput, match="no limit 'color'"):
        ledger.change_key(caller, color=1)


def test_shares_move_with_their_ledger(tmp_path, postgres_url):
    old = Ledger.create(tmp_path / "ledger.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m")
    session = session_of(old, SoftMajority(teachers=TEACHERS, epsilon_per_query=1 / 64))
    old.set_project("ward", budget=0.5)
    caller = key_of(old, "caller", project="ward", budget=0.25)
    session.ask_all([Request(rows(2000), caller)])
    session.close()
    new = move(tmp_path, postgres_url, fingerprint="m")
    assert [*new.view().projects, *new.view().keys] == [*old.view().projects, *old.view().keys]
    assert new.view().projects[0].spent > 0


def test_an_everlasting_model_shares_seats_and_never_counts_no_quorums(make):
    """A limit on no-quorums would tell what other queries of the key were answered (models/everlasting/PROOF.md, step
    24).
    """
    state = make()[0].state()
    phase = {"number": 1, "seats": 9, "noise": "", "files": {}, "seated": "", "points": ""}
    state = apply(state, Event("phase", 0.0, phase))
    assert isinstance(state.phase, Phase)
    key = {"id": "k", "name": "k", "scopes": ["ask"], "hash": "", "created": 0.0}
    for limit in ("no_quorums", "cost"):
        with pytest.raises(InvalidInput, match="per_phase"):
            apply(state, Event("key_added", 0.0, {"key": key | {limit: 3}}))
    state = apply(state, Event("key_added", 0.0, {"key": key | {"per_phase": 3}}))
    state = apply(state, Event("admitted", 0.0, {"rows": {"k": 2}, "held": {}}))
    with pytest.raises(QuotaSpent, match="3 rows in a phase and has 1 left"):
        apply(state, Event("admitted", 0.0, {"rows": {"k": 2}, "held": {}}))
    state = apply(state, Event("phase", 0.0, phase | {"number": 2}))
    assert apply(state, Event("admitted", 0.0, {"rows": {"k": 3}, "held": {}})).keys["k"].in_phase == 3


def test_what_is_under_way_when_a_phase_opens_counts_in_it(make):
    """Or a key that waits for the last seat could ask twice its rows in the phase that follows."""
    ledger, _ = make()
    first = Phase(number=1, seats=9, noise="", files={}, seated="")
    kept = ledger.keep_phase(None, first, noises=(1, 2))
    caller = key_of(ledger, "caller", per_phase=3)
    asked = [Asked(caller, [b""] * 3)]
    assert isinstance(ledger.admit(asked)[0], Admitted)
    ledger.keep_phase(kept, replace(first, number=2, taken=3), noises=(3, 4), asked=asked, outcomes=[[0, 0, 0]])
    assert isinstance(ledger.admit([Asked(caller, [b""])])[0], QuotaSpent)
    assert ledger.verify().sound


def test_what_was_asked_in_a_phase_stays_counted_when_the_ledger_moves(make):
    opened = dict(next(iter(make()[0].entries())).event.body)
    key = {"id": "k", "name": "k", "scopes": ["ask"], "hash": "", "created": 0.0, "per_phase": 3, "in_phase": 3}
    state = apply(None, Event("opened", 0.0, opened | {"keys": [key]}))
    phase = {"number": 1, "seats": 9, "noise": "", "files": {}, "seated": "", "points": ""}
    state = apply(state, Event("phase", 0.0, phase))
    with pytest.raises(QuotaSpent, match="3 rows in a phase and has 0 left"):
        apply(state, Event("admitted", 0.0, {"rows": {"k": 1}, "held": {}}))
    assert apply(state, Event("phase", 0.0, phase | {"number": 2})).keys["k"].in_phase == 0


def test_an_id_of_a_container_that_is_gone_is_taken_over_within_a_leases_time(make, monkeypatch):
    """After a restart process numbers are counted anew, and the one before cannot be looked up."""
    ledger, _ = make()
    asked = Asked("a", [b"x" * 16], id="1", body=b"b")
    ledger.admit([asked])
    again, _ = make(again=True)
    monkeypatch.setattr(budget, "_space", lambda: "host/boot/another namespace")
    assert isinstance(again.admit([asked])[0], InProgress)
    clock = time.time()
    monkeypatch.setattr(time, "time", lambda: clock + 31)
    assert isinstance(again.admit([asked])[0], Admitted)
    (late,) = ledger.keep({("a", b"x" * 16): 0}, {}, [asked])  # if it lives nevertheless, it sends nothing
    assert isinstance(late, InProgress)


# --- Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["Wаrd 3", "ＷARD 3", "ward  3", "Ward З", "Ward３", "Wárd 3", "Wа\u0301rd 3", "Ward\u00a03"],
    ids=ascii,
)
def test_a_name_that_looks_like_another_is_refused(make, name):
    ledger, _ = make()
    key_of(ledger, "Ward 3")
    with pytest.raises(InvalidInput, match="must"):
        ledger.add_key(name)
    ledger.set_project("Ward 3")
    with pytest.raises(InvalidInput, match="must"):
        ledger.set_project(name)
    assert [key.name for key in ledger.view().keys] == ["Ward 3"]


def test_a_whole_name_of_another_alphabet_is_refused_where_it_looks_like_one(make):
    ledger, _ = make()
    key_of(ledger, "Cap OX")
    with pytest.raises(InvalidInput, match="must not look like 'Cap OX'"):
        ledger.add_key("Сар ОХ")


def test_names_of_every_alphabet_and_the_same_name_twice_are_accepted(make):
    ledger, _ = make()
    names = ["Station 3", "Отделение 3", "第3病棟 B", "קרדיולוגיה", "Zürich", "Ward 3", "Ward 4", "Ward 3"]
    for name in names:
        key_of(ledger, name)
    assert [key.name for key in ledger.view().keys] == names


SUBJECT = {"issuer": "https://login.example", "subject": "alice", "scopes": ["ask"]}


def test_a_subject_that_comes_to_several_hosts_at_once_gets_one_key(make):
    ledger, _ = make()
    others = [make(again=True)[0] for _ in range(4)]
    start = threading.Barrier(len(others))

    def come(other, most):
        start.wait()
        return other.add_subject("hospital:alice", most=1, budget=most, **SUBJECT).id

    with ThreadPoolExecutor(len(others)) as pool:
        found = list(pool.map(come, others, (0.1, 0.2, 0.3, 0.4)))
    assert len(set(found)) == 1
    (key,) = ledger.view().keys
    assert (key.id, key.subject) == (found[0], "alice")
    with pytest.raises(QuotaSpent):
        ledger.add_subject("hospital:bob", most=1, **SUBJECT | {"subject": "bob"})
    again = {"id": "other", "name": "a", "scopes": ["ask"], "hash": "", "created": 0.0}
    event = Event("key_added", 0.0, {"key": again | {"issuer": key.issuer, "subject": "alice"}})
    with pytest.raises(InvalidInput, match="first of this subject"):
        apply(ledger.state(), event)
    assert ledger.find_subject(key.issuer, "alice").id == found[0]
    assert ledger.find_subject("https://other.example", "alice") is None
    assert make(again=True)[0].verify().sound


def test_the_share_of_a_subject_is_exact(make):
    ledger, session = make()
    key = ledger.add_subject("hospital:alice", most=9, no_quorums=5, **SUBJECT)
    (reply,) = session.ask_all([Request(rows(*range(30)), key.id)])
    assert met_in(reply) == 5
    assert ledger.find_subject(key.issuer, "alice").met == 5


LIMITED = st.fixed_dictionaries(
    dict.fromkeys(("quota", "per_minute", "no_quorums", "cost"), st.none() | st.integers(0, 6)),
    optional={"expires": st.none() | st.integers(1, 6)},
)


def allows(state, key, rows, at):
    """Return whether a key is open, may ask these rows, and could meet a no-quorum of the least cost."""
    state = replace(state, keys={key.id: key})
    try:
        allow(state, key.id, rows, at)
    except (QuotaSpent, RateLimited):
        return False
    return key.opens(at) and not hold_for(state, key.id, rows, {}).spent


@given(LIMITED, LIMITED, st.integers(0, 6), st.integers(1, 6), st.integers(0, 7))
def test_what_needs_no_approval_allows_nothing_more(plain_state, before, after, used, rows, at):
    had, has = (
        Key(id="k", name="k", scopes=("ask",), hash="h", created=0.0, used=used, met=used, spent=used, **limits)
        for limits in (before, after)
    )
    if not is_wider(had, has):
        assert allows(plain_state, had, rows, at) or not allows(plain_state, has, rows, at)
    assert not is_wider(had, had)
    assert is_wider(had, replace(had, project="another"))


@pytest.fixture(scope="module")
def plain_state(tmp_path_factory):
    place = tmp_path_factory.mktemp("plain") / "ledger.sqlite"
    return Ledger.create(place, Budget(epsilon=1.0, delta=0.0), fingerprint="m").state()
