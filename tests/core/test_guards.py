"""Entrances that stood open: threads in a cutoff, runs resumed unpaid, terms assigned, refunds forged.

Nothing here draws noise that a test depends on, but for the threads in `test_four_threads_...`: a sound cutoff never
lets in more than its most, whatever is drawn.
"""

import math
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import Quorum, StabilityTest
from quorate.core.mechanisms.cutoff import CutoffRun, NoisyCutoff
from quorate.core.mechanisms.dissent import Dissent
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.budget import Reservation
from quorate.models.everlasting._arrivals import Phase


@pytest.fixture(scope="module")
def quorum():
    return Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)


def budget_for(quorum, **changed):
    return Budget(**({"epsilon": 2.0, "delta": 1e-5, "order": quorum.order, "slack": quorum.slack} | changed))


def in_threads(count, work):
    before = sys.getswitchinterval()
    found = []
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: found.append(work())) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return found


# ---------------------------------------------------------------- the cutoff


def test_four_threads_never_meet_more_no_quorums_than_a_phase_can_have():
    """Found in an attack: four threads had 1,197 no-quorums of 320."""
    for _ in range(20):
        run = NoisyCutoff(epsilon=1.0, allowed=300, spread=20).open()
        let_in = in_threads(4, lambda run=run: sum(run.admit([True]) for _ in range(400)))
        assert sum(let_in) == run.met <= 320
        assert run.closed


def test_an_interrupted_cutoff_is_closed():
    class Fails:
        def words(self, size):
            raise KeyboardInterrupt

    run = CutoffRun(NoisyCutoff(epsilon=1.0, allowed=20, spread=10), noise=Fails(), limit=20)
    with pytest.raises(KeyboardInterrupt):
        run.admit([False])
    assert run.closed
    assert run.admit([False]) == 0


@pytest.mark.parametrize("arrivals", [[[True, False]], True, (one for one in [True])])
def test_arrivals_are_a_vector(arrivals):
    with pytest.raises(InvalidInput, match="vector of outcomes"):
        NoisyCutoff(epsilon=1.0, allowed=20, spread=10).open().admit(arrivals)


@pytest.mark.parametrize("kept", [{"limit": True}, {"limit": 20.5}, {"met": 0.5}, {"met": math.nan}, {"met": True}])
def test_a_cutoff_is_resumed_with_whole_numbers(kept):
    with pytest.raises(InvalidInput):
        NoisyCutoff(epsilon=1.0, allowed=20, spread=10).resume(**({"limit": 20, "met": 0, "closed": False} | kept))


def test_a_phase_counts_what_it_draws_before_another_thread_draws():
    """A run that ends in one thread would show in another whose arrivals the cutoff counts first."""
    events, together = [], threading.Barrier(2)

    def answers(votes):
        events.append("drawn")
        with suppress(threading.BrokenBarrierError):
            together.wait(1.0)  # two that draw at once meet here
        return SimpleNamespace(labels=np.zeros(len(votes), dtype=np.int64))

    def admit(no_quorum):
        events.append("counted")
        return len(no_quorum)

    run, cutoff = SimpleNamespace(no_quorums_left=9, answers=answers), SimpleNamespace(closed=False, admit=admit)
    phase = Phase(Ensemble(EstimatorTeachers([(None, 1)] * 10, classes=2)), run, cutoff)
    in_threads(2, lambda: phase.ask(np.zeros((1, 1))))
    assert events == ["drawn", "counted"] * 2


# ---------------------------------------------------------------- runs that are resumed


@pytest.mark.parametrize("changed", [{}, {"slack": 0.0}, {"slack": 9e-6}])
def test_a_fresh_budget_resumes_no_run(quorum, changed):
    """Found in an attack: 50,000 answers on a budget with slack 0, which no opening could have been paid from."""
    with pytest.raises(InvalidInput, match="must have paid for the opening"):
        quorum.resume(budget_for(quorum, **changed), threshold_noise=0)


def test_a_run_is_resumed_with_what_it_has_cost_and_not_a_quantum_less(quorum):
    opening, each = quorum.opening_cost(quorum.order), quorum.no_quorum_cost(quorum.order)
    budget = budget_for(quorum)
    run = quorum.open(budget)
    noise = run.threshold_noise
    assert quorum.resume(budget, threshold_noise=noise).spent == opening
    for met in (1, 2, 3):
        with pytest.raises(InvalidInput, match="must have paid"):
            quorum.resume(budget, threshold_noise=noise, met=met)
        budget.spend(each)
        resumed = quorum.resume(budget, threshold_noise=noise, met=met)
        assert resumed.no_quorums_left == 5 - met
        assert resumed.spent == opening + each.times(met)
    almost = budget_for(quorum)
    almost.spend(Cost(opening.renyi - 2**-30, opening.slack))
    with pytest.raises(InvalidInput, match="must have paid"):
        quorum.resume(almost, threshold_noise=noise)
    without = budget_for(quorum)
    without.spend(Cost(opening.renyi))
    with pytest.raises(InvalidInput, match="must have paid"):
        quorum.resume(without, threshold_noise=noise)


def test_a_run_whose_account_went_to_a_ledger_is_resumed_there_and_nowhere_else(quorum, tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    budget = budget_for(quorum)
    noise = quorum.open(budget).end()
    (tmp_path / "a").mkdir()
    ledger = Ledger.create(tmp_path / "a" / "a.sqlite", budget, fingerprint="m")
    assert quorum.resume(ledger.budget(), threshold_noise=noise).answer([400, 0]) == 0
    with pytest.raises(InvalidInput, match="must have paid"):
        quorum.resume(budget, threshold_noise=noise)  # nothing is left in it, and nothing counts for it
    (tmp_path / "b").mkdir()
    fresh = Ledger.create(tmp_path / "b" / "b.sqlite", budget_for(quorum), fingerprint="n", folder=tmp_path / "b")
    with pytest.raises(InvalidInput, match="must have paid"):
        quorum.resume(fresh.budget(), threshold_noise=noise)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"met": 6}, "met must be from 0 to the 5 no-quorums of the run, got 6"),
        ({"met": -1}, "met must be a whole number"),
        ({"met": True}, "met must be a whole number"),
        ({"threshold_noise": True}, "threshold_noise must be a whole number"),
        ({"threshold_noise": 3.7}, "threshold_noise must be a whole number"),
        ({"budget": None}, "budget must be the Budget that paid for the run, got NoneType"),
    ],
)
def test_what_a_run_is_resumed_with_is_checked(quorum, given, text):
    budget = budget_for(quorum)
    quorum.open(budget)
    given = {"budget": budget, "threshold_noise": 0, "met": 0} | given
    with pytest.raises(InvalidInput, match=text):
        quorum.resume(given.pop("budget"), **given)


def test_every_threshold_mechanism_asks_who_paid():
    dissent = Dissent.calibrate(epsilon=2.0, delta=1e-5, teachers=400, dissents=5)
    with pytest.raises(InvalidInput, match="must have paid"):
        dissent.resume(Budget(epsilon=2.0, delta=1e-5, order=dissent.order, slack=0.0), threshold_noise=0)
    test = StabilityTest.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)
    with pytest.raises(InvalidInput, match="redraws"):
        test.resume(Budget(epsilon=2.0, delta=1e-5), threshold_noise=0)


# ---------------------------------------------------------------- terms that stay what they are


@pytest.mark.parametrize("name", ["order", "epsilon", "delta", "slack"])
def test_the_terms_of_a_budget_cannot_be_assigned(name, tmp_path, monkeypatch):
    """Found in an attack: with a lower order a budget of 1 paid for a true 4.3."""
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path / "state"))
    ledger = Ledger.create(tmp_path / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
    for budget in (Budget(epsilon=1.0, delta=1e-6), ledger.budget(lease=4)):
        before = getattr(budget, name)
        with pytest.raises(AttributeError):
            setattr(budget, name, 1.5)
        with pytest.raises(AttributeError):
            delattr(budget, name)
        assert getattr(budget, name) == before
        with pytest.raises(AttributeError):
            budget.anything = 1
        assert not hasattr(budget, "name")  # of a lease: who takes another's name takes what is out for it


@pytest.mark.parametrize("most", [-1, True, 1.5, math.nan])
def test_how_often_is_a_whole_number(most):
    budget = Budget(epsilon=1.0, delta=0.0)
    with pytest.raises(InvalidInput):
        budget.acquire(Cost(renyi=0.1), limit=most)
    with pytest.raises(InvalidInput):
        budget.spend(Cost(renyi=0.1), times=most)
    with pytest.raises(InvalidInput):
        budget.covers((Cost(renyi=0.1), most))
    with pytest.raises(InvalidInput):
        Cost(renyi=0.1).times(most)
    assert budget.spent() == Cost(0.0)


@pytest.mark.parametrize("renyi", [-0.5, math.nan, -math.inf])
def test_only_a_cost_is_charged(renyi):
    """A thing that looks like a cost and is negative would be a refund."""
    budget = Budget(epsilon=1.0, delta=0.0)
    budget.spend(Cost(renyi=0.5))
    for charge in (budget.spend, budget.reserve, budget.affordable):
        with pytest.raises(InvalidInput, match="must be a Cost"):
            charge(SimpleNamespace(renyi=renyi, slack=0.0))
    assert budget.spent().renyi == 0.5


def test_counts_of_any_size_are_whole_numbers():
    budget = Budget(epsilon=1.0, delta=0.0)
    with pytest.raises(BudgetSpent):
        budget.spend(Cost(renyi=2**-40), times=2**63)
    with pytest.raises(BudgetSpent):
        budget.spend(Cost(renyi=2**-40), times=np.uint64(2**64 - 1))
    budget.spend(Cost(renyi=2**-40), times=np.int32(2**31 - 1))
    budget.spend(Cost(renyi=2**-40), times=np.int32(2**31 - 1))
    assert budget.spent().renyi == (2**32 - 2) / 2**40


# ---------------------------------------------------------------- reservations


def test_a_reservation_that_nobody_made_returns_nothing():
    budget = Budget(epsilon=1.0, delta=0.0)
    budget.spend(Cost(renyi=1.0))
    with pytest.raises(InvalidInput, match="an unsettled one"):
        Reservation(budget).settle(0)
    bare = object.__new__(Reservation)
    bare._budget = budget
    with pytest.raises(InvalidInput, match="an unsettled one"):
        bare.settle(0)
    assert budget.remaining().renyi == 0


def test_a_reservation_returns_what_was_reserved_once_and_to_its_own_budget():
    budget, other = Budget(epsilon=1.0, delta=0.0), Budget(epsilon=1.0, delta=0.0)
    one, two = budget.reserve(Cost(renyi=0.25), times=2), budget.reserve(Cost(renyi=0.125), times=4)
    other.spend(Cost(renyi=1.0))
    two._budget = other
    with pytest.raises(InvalidInput, match="an unsettled one"):
        two.settle(0)
    two._budget = budget
    for wrong in ((3,), (-1,), (True,), (0.5,), (0, 0), ()):
        with pytest.raises(InvalidInput):
            one.settle(*wrong)
    one.settle(1)
    assert budget.remaining().renyi == 0.25
    with pytest.raises(InvalidInput, match="an unsettled one"):
        one.settle(0)
    two.settle(np.int64(3))
    assert budget.remaining().renyi == 0.375
    assert other.remaining().renyi == 0


def test_threads_settle_a_reservation_once():
    for _ in range(200):
        budget = Budget(epsilon=1.0, delta=0.0)
        budget.spend(Cost(renyi=0.5))
        reservation = budget.reserve(Cost(renyi=0.25), times=2)

        def settle(reservation=reservation):
            try:
                reservation.settle(0)
            except InvalidInput:
                return 0
            return 1

        assert sum(in_threads(4, settle)) == 1
        assert budget.remaining().renyi == 0.5


def test_reservations_that_are_never_settled_stay_charged_and_are_not_kept():
    budget = Budget(epsilon=1.0, delta=0.0)
    for _ in range(100):
        budget.reserve(Cost(renyi=2**-10))
    assert len(budget._reserved) == 0
    assert budget.spent().renyi == 100 / 1024


def test_tables_cannot_be_written(quorum):
    cutoff = NoisyCutoff(epsilon=1.0, allowed=20, spread=10)
    dissent = Dissent.calibrate(epsilon=2.0, delta=1e-5, teachers=400, dissents=5)
    for made in (cutoff, quorum, dissent):
        with pytest.raises(ValueError, match="read-only"):
            made.last_words[0] = 0
        assert made is cutoff or isinstance(made.table, tuple)
