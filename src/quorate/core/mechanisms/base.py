"""The two kinds of mechanisms that answer queries from votes.

Vote counts are the only private value that a mechanism sees. They are checked for shape and never repeated in an error.
Between neighbouring data sets, at most one ballot moves from one class to another.

A query mechanism pays for each query. A threshold mechanism answers in a run: one secret threshold noise, a count of
no-quorums, and a stop. Quorum, BetweenThresholds and StabilityTest differ in how a query is compared with the threshold
and in whether the threshold noise is redrawn after a no-quorum; everything else about a run is here.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.checks import check_count, check_process, process_identity, validate_fields
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput, RunEnded
from quorate.core.mechanisms.orders import rest_of_delta, smallest_epsilon
from quorate.core.privacy import Budget, Cost, to_epsilon
from quorate.core.requests import NO_QUORUM


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers to a batch of queries.

    `labels` holds a class index for each query put to the vote (for `NoisyShares`, the number that encodes the shares),
    or `NO_QUORUM`; `answered` is the mask of the others. `refused` counts the queries at the end of the batch that were
    not put to the vote because the run or the budget had ended. `spent` is the cost of the batch, at the order of the
    budget or of the run that paid; None if no budget paid.
    """

    labels: NDArray[np.int64]
    spent: Cost | None
    refused: int = 0

    @property
    def answered(self) -> NDArray[np.bool_]:
        """The mask of the queries that reached a quorum."""
        return np.not_equal(self.labels, NO_QUORUM)


Counts = NDArray[np.int64]


def check_votes_batch(votes: Any, *, teachers: int, classes: int | None = None) -> Counts:
    """Return a batch of counts, one row per query and one column per class, as 64-bit integers.

    The three kinds of invalid values share one message, so that the message reveals nothing about them.
    """
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] < 2:
        raise InvalidInput(
            "votes must be a matrix, one row a query and one column for each of at least 2 classes, "
            f"got shape {counts.shape}"
        )
    if classes is not None and counts.shape[1] != classes:
        raise InvalidInput(f"votes must have one column for each of the {classes} classes, got {counts.shape[1]}")
    if counts.size == 0:
        return np.empty(counts.shape, dtype=np.int64)
    if counts.dtype.kind not in "iu":
        raise InvalidInput(f"votes must be whole numbers of an integer type, got {counts.dtype}")
    wrong = InvalidInput(f"votes must be counts of at least 0 that sum to teachers={teachers} for every query")
    if counts.min() < 0 or counts.max() > teachers:
        raise wrong
    counts = counts.astype(np.int64, copy=False)
    totals = counts[:, 0] + counts[:, 1] if counts.shape[1] == 2 else counts.sum(axis=1)
    if (totals != teachers).any():
        raise wrong
    return counts


def distances(counts: Counts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each query's top label and the number of ballots that can change without changing it.

    The distance is max(0, ceil(gap / 2) - 1): one ballot moves the gap by 2. It has sensitivity 1, and wherever it is
    at least 1 every neighbour has the same top label.
    """
    if counts.shape[1] == 2:
        lead = counts[:, 1] - counts[:, 0]
        labels = (lead > 0).astype(np.int64)
        gaps = np.abs(lead)
    else:
        labels = counts.argmax(axis=1)
        top_two = np.partition(counts, -2, axis=1)[:, -2:]
        gaps = top_two[:, 1] - top_two[:, 0]
    gaps -= 1
    gaps >>= 1  # which rounds down: ceil(gap / 2) - 1
    return labels, np.maximum(gaps, 0, out=gaps)


@dataclass(frozen=True, kw_only=True)
class VoteMechanism(ABC):
    """Base of mechanisms that release labels from votes."""

    teachers: int

    __post_init__ = validate_fields  # type: ignore[misc]  # mypy knows a method by its `def` alone

    def vote_columns(self) -> int | None:
        """Return how many classes the votes must have, or None where any number will do."""
        classes: int | None = getattr(self, "classes", None)
        return classes

    def check_vote(self, votes: Any) -> Counts:
        """Return one query's counts as a batch of one row."""
        counts = np.asarray(votes)
        if counts.ndim != 1:
            raise InvalidInput(f"votes of one query must be a vector of counts, one per class, got {counts.shape}")
        return self.check_votes(counts[np.newaxis, :])

    def check_votes(self, votes: Any) -> Counts:
        """Return a batch of counts, one row per query, as 64-bit integers."""
        return check_votes_batch(votes, teachers=self.teachers, classes=self.vote_columns())


class QueryMechanism(VoteMechanism):
    """Base of mechanisms that pay for each query: charge, draw, answer."""

    @abstractmethod
    def query_cost(self, order: float) -> Cost:
        """Return what each query costs."""

    def answer_cost(self, order: float) -> Cost:
        """Return what each answer costs on top of its query."""
        return Cost(0.0)

    @abstractmethod
    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw the answers."""

    def renyi(self, order: float) -> float:
        """Return the cost of one query at this order, whatever its outcome: an upper bound."""
        return (self.query_cost(order) + self.answer_cost(order)).renyi

    def answer(self, votes: Any, *, budget: Budget | None = None) -> int | None:
        """Answer one query: a class index, or None for no quorum."""
        label = int(self.draw_answers(self.check_vote(votes), budget, system_noise).labels[0])
        return None if label == NO_QUORUM else label

    def answers(self, votes: Any, *, budget: Budget | None = None) -> Answers:
        """Answer a batch of queries, one row each, charged to `budget` if there is one.

        Queries at the end of the batch that the budget cannot pay for are refused.
        """
        return self.draw_answers(self.check_votes(votes), budget, system_noise)

    def draw_answers(self, counts: Counts, budget: Budget | None, noise: NoiseSource) -> Answers:
        """Charge for these queries, draw their answers with this noise, and return them."""
        if budget is None:
            return Answers(labels=self.draw_labels(counts, noise), spent=None)
        per_query, per_answer = self.query_cost(budget.order), self.answer_cost(budget.order)
        count = min(len(counts), max(1, budget.acquire(per_query, per_answer, limit=len(counts))))
        reservation = budget.reserve(per_query, per_answer, times=count)  # charge, then draw
        labels = self.draw_labels(counts[:count], noise)
        answered = int((labels != NO_QUORUM).sum())
        reservation.settle(count, answered)
        spent = per_query.times(count) + per_answer.times(answered)
        return Answers(labels=labels, spent=spent, refused=len(counts) - count)


Labels = NDArray[np.int64]
Decide = Callable[[slice, int], Labels]
_FARTHEST = 2**62  # of any threshold noise
_EPOCH = 4096  # queries looked at together while a redrawn threshold may still change


@dataclass(frozen=True, kw_only=True)
class ThresholdMechanism(VoteMechanism):
    """Base of mechanisms that pay for opening a run and for each no-quorum; answers are free.

    `open` starts a run; `answer` and `answers` use the first run of this object, which their first call opens.
    """

    no_quorums: int
    order: float  # the order the mechanism was calibrated for
    redraws: ClassVar[bool] = False  # whether the threshold noise is redrawn after each no-quorum

    @abstractmethod
    def opening_cost(self, order: float) -> Cost:
        """Return the cost of opening a run, whatever the queries are."""

    @abstractmethod
    def no_quorum_cost(self, order: float) -> Cost:
        """Return the cost of one no-quorum."""

    def least_no_quorum_charge(self, order: float) -> Cost:
        """Return the least that any processor charges for one no-quorum: a run is resumed if it was charged."""
        return self.no_quorum_cost(order)

    @abstractmethod
    def draw_threshold_noise(self, noise: NoiseSource) -> int:
        """Draw the secret threshold noise."""

    @abstractmethod
    def draw_decisions(self, counts: Counts, noise: NoiseSource) -> Decide:
        """Draw the noise of each query and return the rule from (slice of queries, threshold noise) to labels."""

    def renyi(self, order: float) -> float:
        """Return an upper bound on the cost of a whole run at this order, all no-quorums used."""
        return self.run_cost(order).renyi

    def run_cost(self, order: float) -> Cost:
        """Return the cost at this order of a whole run, all no-quorums used, with its slack."""
        paid = self.no_quorums - int(self.redraws)  # a redrawn threshold is paid for when it is drawn
        return self.opening_cost(order) + self.no_quorum_cost(order).times(paid)

    def epsilon(self, *, delta: float, queries: int | None = None) -> float:
        """Return the epsilon of a whole run at `delta`, however many queries it answers."""
        if queries is not None:
            check_count("queries", queries)
        slack = self.run_cost(self.order).slack
        at_own_order = to_epsilon(self.renyi(self.order), order=self.order, delta=rest_of_delta(delta, slack))
        return min(at_own_order, smallest_epsilon(self.renyi, delta=delta, slack=slack)[0])

    def open(self, budget: Budget | None = None) -> "Run":
        """Start a new run, charged to `budget` if there is one."""
        return Run(self, budget=budget, noise=system_noise)

    def resume(self, budget: Budget, *, threshold_noise: int, met: int = 0) -> "Run":
        """Resume a run that was opened and paid for earlier, with its own secret noise and the budget that paid.

        This is for a durable ledger, which kept both, and the number of no-quorums `met` if the budget does not tell
        it. The budget is refused unless it was charged for the opening and for the no-quorums met: a fresh budget has
        paid nothing. A run that redraws its threshold cannot be resumed: open another.
        """
        if self.redraws:
            raise InvalidInput(f"a run of {type(self).__name__} redraws its threshold and cannot be resumed")
        if not isinstance(budget, Budget):
            raise InvalidInput(f"budget must be the Budget that paid for the run, got {type(budget).__name__}")
        threshold_noise = check_count("threshold_noise", threshold_noise, least=-_FARTHEST)
        return Run(self, budget=budget, noise=system_noise, threshold_noise=threshold_noise, met=met)

    def answer(self, votes: Any) -> int | None:
        """Answer one query: a class index, or None for no quorum."""
        return self._first_run().answer(votes)

    def answers(self, votes: Any) -> Answers:
        """Answer a batch of queries, one row each, as if asked one after the other."""
        return self._first_run().answers(votes)

    def _first_run(self) -> "Run":
        run = self.__dict__.get("_run")
        if run is None:
            run = self.__dict__.setdefault("_run", self.open())  # one dictionary operation: two threads share one run
        return run  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the run: a copy of this mechanism opens and pays for a separate run."""
        return {name: value for name, value in self.__dict__.items() if name != "_run"}


def check_paper(mechanism: ThresholdMechanism, epsilon: float, delta: float) -> None:
    """Refuse published constants that miss the target: they assume a moderate epsilon and enough queries."""
    slack = mechanism.no_quorums * mechanism.no_quorum_cost(mechanism.order).slack
    if slack >= delta or mechanism.epsilon(delta=delta) > epsilon:
        raise Infeasible(
            f"the paper's constants do not keep epsilon={epsilon}, delta={delta} for {mechanism.no_quorums} no-quorums "
            "(they assume an epsilon below log(1/delta) and no fewer queries than no-quorums); use calibration='tight'"
        )


def check_teachers(mechanism: Any) -> None:
    """Refuse so few teachers that even a unanimous ballot would mostly find no quorum."""
    if mechanism.answer_probability((mechanism.teachers + 1) // 2 - 1) < 0.5:
        raise Infeasible(
            f"with teachers={mechanism.teachers} even a unanimous ballot would mostly find no quorum; it takes at "
            f"least {2 * mechanism.distance() + 1} teachers for this target, or a larger epsilon, or fewer no_quorums "
            f"than {mechanism.no_quorums}"
        )


class Run:
    """One run of a threshold mechanism.

    It holds secret noise: it cannot be copied, printed or pickled, or used after a fork. A run that is interrupted
    while it draws has ended.
    """

    __slots__ = (
        "_budget",
        "_cost",
        "_left",
        "_lock",
        "_mechanism",
        "_noise",
        "_paid",
        "_process",
        "_threshold",
    )

    def __init__(
        self,
        mechanism: ThresholdMechanism,
        *,
        budget: Budget | None,
        noise: NoiseSource,
        threshold_noise: int | None = None,
        met: int = 0,
    ) -> None:
        order = mechanism.order if budget is None else budget.order
        opening, self._cost = mechanism.opening_cost(order), mechanism.no_quorum_cost(order)
        if check_count("met", met, least=0) > mechanism.no_quorums:
            raise InvalidInput(f"met must be from 0 to the {mechanism.no_quorums} no-quorums of the run, got {met}")
        if budget is not None and threshold_noise is None:
            budget.spend(opening)
        elif budget is not None and not budget.covers((opening, 1), (mechanism.least_no_quorum_charge(order), met)):
            raise InvalidInput(
                "budget must have paid for the opening of the run and its no-quorums; resume it with the budget that "
                "paid, or open another run"
            )
        self._mechanism, self._budget, self._noise = mechanism, budget, noise
        self._paid = opening + self._cost.times(met)
        self._left = mechanism.no_quorums - met
        self._threshold = mechanism.draw_threshold_noise(noise) if threshold_noise is None else int(threshold_noise)
        self._lock = threading.Lock()
        self._process = process_identity()

    @property
    def no_quorums_left(self) -> int:
        """The number of no-quorums after which the run ends."""
        return self._left

    @property
    def threshold_noise(self) -> int:
        """The secret noise of the run, only for the owner's ledger: it reveals the threshold."""
        return self._threshold

    @property
    def spent(self) -> Cost:
        """The cost of the run so far: its opening and its no-quorums."""
        return self._paid

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return how many of `limit` queries the run surely reaches, and their largest cost.

        The cost is largest if none finds a quorum. Nothing is drawn and nothing is charged.
        """
        free = int(self._mechanism.redraws)
        payable = max(0, self._left - free)
        if self._budget is not None:
            payable = min(payable, self._budget.affordable(self._cost))
        reached = min(limit, payable + free, self._left)
        return reached, self._cost.times(min(reached, payable))

    def answer(self, votes: Any) -> int | None:
        """Answer one query: a class index, or None for no quorum."""
        label = int(self._answers(self._mechanism.check_vote(votes)).labels[0])
        return None if label == NO_QUORUM else label

    def answers(self, votes: Any) -> Answers:
        """Answer a batch of queries, one row each, as if asked one after the other.

        Queries after the last no-quorum the run or its budget allows are refused, not answered.
        """
        return self._answers(self._mechanism.check_votes(votes))

    def _answers(self, counts: Counts) -> Answers:
        check_process("this run", self._process)
        if len(counts) == 0:
            return Answers(labels=np.empty(0, dtype=np.int64), spent=Cost(0.0))
        with self._lock:
            if self._left == 0:
                raise RunEnded(
                    f"the run has met its {self._mechanism.no_quorums} no-quorums; open another, or calibrate for more"
                )
            # A redrawn threshold is paid for when it is drawn, so the last no-quorum of such a run is free.
            free = int(self._mechanism.redraws)
            payable = self._left - free
            reservation = None
            if self._budget is not None:
                payable = self._budget.acquire(self._cost, limit=min(payable, len(counts)))
                if payable + free == 0:
                    raise BudgetSpent(
                        "the budget cannot pay for another no-quorum, which any answer may turn out to be"
                    )
                reservation = self._budget.reserve(self._cost, times=min(payable, len(counts)))  # charge, then draw
            # Whatever is interrupted while drawing ends the run, and stays paid for.
            allowed, charged = self._left, self._paid
            self._left, self._paid = 0, charged + self._cost.times(min(payable, len(counts)))
            labels, met = self._collect(counts, payable + free)
            paid = min(met, payable)
            self._left = 0 if met > payable else allowed - met
            spent = self._cost.times(paid)
            self._paid = charged + spent
            if reservation is not None:
                reservation.settle(paid)  # last: a ledger that cannot take the rest back does not end the run
        return Answers(labels=labels, spent=spent, refused=len(counts) - len(labels))

    def _collect(self, counts: Counts, longest: int) -> tuple[Labels, int]:
        """Return labels up to and including the no-quorum number `longest`, and how many were met."""
        decide = self._mechanism.draw_decisions(counts, self._noise)
        redraws = self._mechanism.redraws
        parts: list[Labels] = [np.empty(0, dtype=np.int64)]
        position, met = 0, 0
        while position < len(counts) and met < longest:
            stop = min(len(counts), position + _EPOCH) if redraws else len(counts)
            labels = decide(slice(position, stop), self._threshold)
            missed = np.flatnonzero(labels == NO_QUORUM)
            limit = 1 if redraws else longest - met
            if missed.size >= limit:
                labels = labels[: missed[limit - 1] + 1]
            parts.append(labels)
            position += labels.size
            met += min(int(missed.size), limit)
            if redraws and missed.size and met < longest:
                self._threshold = self._mechanism.draw_threshold_noise(self._noise)  # the next epoch's
        return np.concatenate(parts), met

    def end(self) -> int:
        """End the run and return its secret noise, for a ledger that resumes it."""
        check_process("this run", self._process)
        with self._lock:
            self._left = 0
            return self._threshold

    def __repr__(self) -> str:
        return f"<run of {type(self._mechanism).__name__}, {self._left} no-quorums left>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run cannot be copied or pickled: its secret noise would be used twice")
