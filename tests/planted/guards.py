"""Guards around budgets, runs and records, each with one of them taken away.

None of these takes malice: a second thread, a restart, a line that sets an attribute, a user's class that fails on a
row. Every attack is deterministic: where threads must meet, they wait for each other.
"""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.bug import AnnouncingLock, Caught, kind_bug, maker_bug, replaced, run_together, twin_bug
from quorate.auditing._plays import SeededNoise
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.mechanisms import Quorum
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.cutoff import CutoffRun, NoisyCutoff
from quorate.core.privacy import Budget, Cost, gaussian_renyi, to_epsilon
from quorate.core.privacy.budget import Quanta, Reservation, to_quanta
from quorate.models.concepts import Concept, Dichotomies, Hypothesis
from quorate.models.predictors import _pure as pure
from quorate.models.predictors import _stable as stable
from quorate.models.predictors._pure import PureStable
from quorate.models.predictors.concept_classifier import UnitRows, fill_unit_rows

_CUTOFF = NoisyCutoff(epsilon=1.0, allowed=20, spread=10)
_FAILS = 13.0  # the record on which a user's class fails


class CountsLater(CutoffRun):
    """Reads the count, draws, and raises the count when it is done: threads that draw together see the same count."""

    __slots__ = ()

    def admit(self, no_quorum: Any) -> int:
        outcomes = np.array(no_quorum, dtype=np.bool_)
        return 0 if self._closed or not outcomes.size else self._admit_alone(outcomes)

    def _admit_alone(self, outcomes: NDArray[np.bool_]) -> int:
        before = self._met + np.cumsum(outcomes) - outcomes
        words = self._noise.words(outcomes.size)  # the mistake: another may come in here
        last = self._cutoff.last_words
        closing = np.flatnonzero(words <= last[np.clip(self._limit - before, 0, last.size - 1)])
        let_in = int(closing[0]) if closing.size else outcomes.size
        self._met += int(np.count_nonzero(outcomes[:let_in]))
        self._closed = closing.size > 0
        return let_in


class _Meeting:
    """Noise that closes nothing before it must, and lets threads wait for each other unless a lock keeps them apart."""

    def __init__(self, threads: int, lock: AnnouncingLock) -> None:
        self._threads, self._lock = threads, lock
        self._arrived: list[None] = []

    def words(self, size: int) -> NDArray[np.uint64]:
        self._arrived.append(None)
        self._lock.wait_until_contended_or(lambda: len(self._arrived) >= self._threads)
        return np.full(size, 2**64 - 1, dtype=np.uint64)


def admit_at_once(kind: type[CutoffRun]) -> Caught:
    """Let four threads in that meet while they draw, each with nothing but no-quorums, and count those let in."""
    lock: Any = AnnouncingLock()
    noise: Any = _Meeting(4, lock)
    run = kind(_CUTOFF, noise=noise, limit=_CUTOFF.allowed)
    run._lock = lock
    let_in = run_together(4, lambda: run.admit([True] * (_CUTOFF.most + 1)))
    evidence = f"four threads were let in with {sum(let_in)} no-quorums, and {_CUTOFF.most} is the most"
    return Caught("threads that meet", evidence, found=sum(let_in) > _CUTOFF.most)


class _UnpaidRun(Run):
    """A run that takes a budget for the one that has paid for it."""

    __slots__ = ()

    def __init__(self, mechanism: Quorum, *, budget: Budget, **known: Any) -> None:
        super().__init__(mechanism, budget=None, **known)
        self._budget = budget  # the mistake: whether it has paid is not checked


class ResumesUnpaid(Quorum):
    """Resumes a run on any budget, as if that budget had paid for the opening."""

    def resume(self, budget: Budget, *, threshold_noise: int, met: int = 0) -> Run:
        return _UnpaidRun(self, budget=budget, noise=SeededNoise(0), threshold_noise=threshold_noise, met=met)


def resume_on_a_fresh_budget(target: Quorum) -> Caught:
    """Resume a run on budgets that paid nothing, or too little, and see whether it answers."""
    answered, votes = 0, [[target.teachers, 0]] * 1000
    for slack, paid in ((0.0, Cost(0.0)), (target.slack, Cost(0.0)), (target.slack, Cost(renyi=0.25))):
        budget = Budget(epsilon=2.0, delta=1e-5, order=target.order, slack=slack)
        budget.spend(paid)
        try:
            run = target.resume(budget, threshold_noise=0, met=1)
        except InvalidInput:
            continue
        answered += run.answers(votes).labels.size
    return Caught("resume", f"{answered} answers of a run whose opening nobody paid for", found=answered > 0)


def _quorum(kind: type[Quorum]) -> Quorum:
    return kind.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)


class OrderCanBeSet(Budget):
    """Takes another order when it is open: what is charged at one order is held against the capacity of another."""

    __slots__ = ()

    @property
    def order(self) -> float:
        return self._order

    @order.setter
    def order(self, order: float) -> None:
        self._order = order  # the mistake


def lower_the_order(budget: Budget) -> Caught:
    """Assign a lower order, at which costs are small, spend what is left, and convert what was spent for what it is."""
    for name, value in (("order", 1.5), ("epsilon", 10.0), ("delta", 0.1), ("slack", 0.0)):
        try:
            setattr(budget, name, value)
        except AttributeError:
            continue
    scale, releases = 20.0, 0
    while budget.affordable(Cost(gaussian_renyi(scale=scale, order=budget.order))):
        budget.spend(Cost(gaussian_renyi(scale=scale, order=budget.order)))
        releases += 1
    orders = [1 + 1.1**step / 10 for step in range(120)]
    true = min(
        to_epsilon(releases * gaussian_renyi(scale=scale, order=order), order=order, delta=1e-6) for order in orders
    )
    return Caught(
        "assignment", f"{releases} releases that cost {true:.3g} were paid by a budget of 1", found=true > 1.0
    )


class TakesAnyRefund(Budget):
    """Trusts what a reservation says of itself, even if it is forged or settled twice."""

    __slots__ = ()

    def settle_reservation(self, reservation: Reservation, counts: Any) -> None:
        each, times = getattr(reservation, "claimed", None) or self._reserved[reservation]  # the mistake
        with self._locked_account():
            self._charge(each, [count - times for count in counts])


class _Forged(Reservation):
    """A reservation that no budget made."""

    def __init__(self, budget: Budget, claimed: tuple[list[Quanta], int]) -> None:
        super().__init__(budget)
        self.claimed = claimed


def forge_refunds(kind: type[Budget]) -> Caught:
    """Spend everything, and try to have it back: by forged reservations, by settled ones, by those of other budgets."""
    spent, whole = 0.0, Cost(renyi=1.0)
    budget, other = kind(epsilon=1.0, delta=0.0), kind(epsilon=1.0, delta=0.0)
    genuine, moved = budget.reserve(whole), other.reserve(whole)
    genuine.settle(1)
    moved._budget = budget
    for refund in (_Forged(budget, ([to_quanta(whole)], 1)), genuine, moved):
        try:
            refund.settle(0)
            budget.spend(whole)
        except (BudgetSpent, InvalidInput, KeyError):
            continue
        spent += whole.renyi
    return Caught("forgery", f"{spent:g} more was spent of a budget that was spent", found=spent > 0)


class _One(Hypothesis):
    """A user's hypothesis: all points are 1, and it fails on one of them."""

    features = 1

    def _predict(self, points: NDArray[np.float64]) -> Any:
        _fail_on(points)
        return np.ones(len(points), dtype=np.int64)


class _Alone(Dichotomies):
    """One candidate, which counts its mistakes by itself and fails where it should not."""

    features = 1

    def __len__(self) -> int:
        return 1

    def _candidate(self, index: int) -> Hypothesis:
        return _One()

    def _mistakes(self, points: NDArray[np.float64], labels: NDArray[np.int64]) -> Any:
        _fail_on(points)
        return np.array([np.count_nonzero(labels != 1)])


class _FailsWhenAsked(Concept):
    """A user's class that fails when the record is among those that are counted."""

    features, vc_dimension = 1, 0

    def _dichotomies(self, points: NDArray[np.float64]) -> Dichotomies:
        return _Alone()


class _FailsAtOnce(_FailsWhenAsked):
    """A user's class that fails when the record is among those that define the candidates."""

    def _dichotomies(self, points: NDArray[np.float64]) -> Dichotomies:
        _fail_on(points)
        return super()._dichotomies(points)


def _fail_on(points: NDArray[np.float64]) -> None:
    if (points == _FAILS).any():
        raise ValueError("a class of one's own may fail on a record")


class AnswersOutsideTheFlip(PureStable):
    """Answers 0 where the class fails and never flips that label: such an answer is more certain than allowed."""

    def draw(self, records: UnitRows, row: NDArray[np.float64]) -> int:
        units = stable.secret_subset(records.units, self.choice.subset)
        try:
            candidates = self.choice.concept.dichotomies(records.points[records.places(units)])
            label = self.choice.mechanism.choose(candidates.tally(records.points, records.labels)).predict(
                row[np.newaxis]
            )
        except ValueError:
            return 0  # the mistake
        return int(vars(pure)["flip"](int(label[0]), self.turned))


def fail_on_one_record(kind: type[PureStable]) -> Caught:
    """Enumerate the answer on two neighbours, of which one has a record on which the class fails.

    Every subset is taken in turn; there is one candidate, and a label that is turned has both outcomes.
    """
    worst, epsilon = 0.0, 1.0
    for concept in (_FailsWhenAsked(), _FailsAtOnce()):
        scheme = kind.calibrate(concept, units=4, epsilon=epsilon, subset=2)
        one, other = (_law(scheme, np.array([[first], [1.0], [2.0], [3.0]])) for first in (_FAILS, 0.0))
        worst = max(worst, _loss(one, other), _loss(1 - one, 1 - other))
    return Caught("enumeration", f"an answer of epsilon {epsilon:g} has the loss {worst:.4f}", found=worst > epsilon)


def _loss(one: Fraction, other: Fraction) -> float:
    if one == other:
        return 0.0
    return abs(math.log(one / other)) if one and other else math.inf


def _law(scheme: PureStable, points: NDArray[np.float64]) -> Fraction:
    """Return the probability of the answer 0."""
    records = fill_unit_rows(points, np.array([0, 0, 1, 1]))
    subsets = list(itertools.combinations(range(records.units), scheme.choice.subset))
    total = Fraction(0)
    for subset in subsets:
        turned: list[Fraction] = []

        def flip(label: int, probability: Fraction, turned: list[Fraction] = turned) -> int:
            turned.append(probability)
            return label

        with (
            replaced(stable, "secret_subset", lambda *_, subset=subset: np.array(subset)),
            replaced(pure, "flip", flip),
        ):
            label = scheme.draw(records, np.array([0.5]))
        rest = turned[0] if turned else Fraction(0)
        total += rest if label else 1 - rest
    return total / len(subsets)


GUARDS = (
    kind_bug("cutoff_without_lock", "state", CountsLater, CutoffRun, admit_at_once),
    maker_bug("resume_skips_opening", "state", _quorum, ResumesUnpaid, Quorum, resume_on_a_fresh_budget),
    twin_bug("order_assigned_after_opening", "state", OrderCanBeSet, Budget, lower_the_order, epsilon=1.0, delta=1e-6),
    kind_bug("reservation_forged", "state", TakesAnyRefund, Budget, forge_refunds),
    kind_bug("failed_class_without_flip", "enumeration", AnswersOutsideTheFlip, PureStable, fail_on_one_record),
)
