"""The join: ballots into a mechanism, answers out of it, and the budget charged in between. Read this first.

    query -> recalled? -> counted by the ensemble -> [ charged -> drawn -> settled ] by the mechanism -> kept -> answer

Both arrows that cross the trust line stand in `put_to_vote`: sealed ballots go into a mechanism, and what it releases
comes out. Whoever has an ensemble comes by here. The mechanism charges before it draws. A query is checked before it
comes here, and is refused, if at all, because of the budget alone.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.ensemble import Ensemble
from quorate.ensemble.estimators import take_rows
from quorate.errors import BudgetSpent, InvalidInput, RunEnded
from quorate.mechanisms import NO_QUORUM, Answers
from quorate.mechanisms.query import QueryMechanism
from quorate.mechanisms.run import ThresholdMechanism
from quorate.memory import KeptAnswers, Memory, query_digests
from quorate.privacy import Budget, Cost
from quorate.process import process_identity

__all__ = ["Replies", "Session", "put_to_vote"]

Released = TypeVar("Released")

_BLOCK = 8192  # queries counted together: a budget that ends does not leave a million ballots counted in vain


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """What a batch was answered: class numbers, `NO_QUORUM` where there was none; `refused` marks what was not asked.

    >>> Replies(labels=np.array([1, NO_QUORUM]), refused=np.array([False, True]), spent=Cost(0.0)).refused
    array([False,  True])
    """

    labels: NDArray[np.int64]
    refused: NDArray[np.bool_]
    spent: Cost


def put_to_vote(ensemble: Ensemble, X: Any, release: Callable[[NDArray[np.int64]], Released]) -> Released:
    """Count the ballots on these queries, hand them to a mechanism's `release`, and return what it releases.

    >>> from quorate.ensemble.estimators import EstimatorTeachers
    >>> from quorate.mechanisms import NoisyMax
    >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 100, classes=2))
    >>> put_to_vote(ensemble, np.zeros((2, 1)), NoisyMax(teachers=100, classes=2, scale=5.0).answers).labels
    array([1, 1])
    """
    ballots = ensemble.count(X)
    return ballots.put_to(release)


class Session:
    """An ensemble, the mechanism that counts for it, and the budget that pays.

    >>> from quorate.ensemble.estimators import EstimatorTeachers
    >>> from quorate.mechanisms import NoisyMax
    >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 100, classes=2))
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> session = Session(ensemble, NoisyMax(teachers=100, classes=2, scale=10.0), budget)
    >>> replies = session.ask(np.zeros((3, 1)))
    >>> replies.labels, replies.spent == session.mechanism.query_cost(budget.order)  # asked once, answered three times
    (array([1, 1, 1]), True)
    """

    def __init__(
        self,
        ensemble: Ensemble,
        mechanism: QueryMechanism | ThresholdMechanism,
        budget: Budget,
        *,
        memory: Memory | None = None,
        threshold_noise: int | None = None,
    ) -> None:
        self.ensemble, self.mechanism, self.budget = ensemble, mechanism, budget
        self._memory = KeptAnswers() if memory is None else memory
        self._lock = threading.Lock()
        self.process = process_identity()
        self.run = None
        if isinstance(mechanism, ThresholdMechanism):
            opened = threshold_noise is not None and not mechanism.redraws
            self.run = (
                mechanism.resume(budget, threshold_noise=int(threshold_noise or 0))
                if opened
                else mechanism.open(budget)
            )

    def ask(self, X: Any, *, caller: str = "") -> Replies:
        """Answer a batch of checked queries. What this caller was answered before, it is answered again, for nothing.

        Raises `BudgetSpent` where not one query could be answered; a batch that meets the end is answered in part.

        >>> from quorate.ensemble.estimators import EstimatorTeachers
        >>> from quorate.mechanisms import SoftMajority
        >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 500, classes=2))
        >>> session = Session(ensemble, SoftMajority(teachers=500, epsilon=0.5), Budget(epsilon=1.0, delta=0.0))
        >>> session.ask(np.arange(3.0)[:, None]).refused
        array([False, False,  True])
        """
        if not isinstance(caller, str):
            raise InvalidInput(f"caller must be a text that names who asks, not {caller!r}")
        digests = query_digests(X)
        with self._lock:
            known = self._memory.recall(caller, digests)
            places = {digest: place for place, digest in enumerate(digests) if digest not in known}
            spent, ended = self._ask_new(X, places, known, caller)
        labels = np.array([known.get(digest, NO_QUORUM) for digest in digests], dtype=np.int64)
        refused = np.array([digest not in known for digest in digests], dtype=np.bool_)
        if ended is not None and refused.all():
            try:
                raise ended
            finally:
                del ended  # an error that knows its own frame would keep the ensemble alive
        return Replies(labels=labels, refused=refused, spent=spent)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Answer nothing while this lasts: what is under way is finished first.

        >>> from quorate.ensemble.estimators import EstimatorTeachers
        >>> from quorate.mechanisms import SoftMajority
        >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 500, classes=2))
        >>> session = Session(ensemble, SoftMajority(teachers=500, epsilon=0.5), Budget(epsilon=1.0, delta=0.0))
        >>> with session.paused():
        ...     session.budget.remaining().renyi
        1.0
        """
        with self._lock:
            yield

    def hand_over(self, memory: Memory) -> None:
        """Have another memory remember all the answers given so far.

        >>> from quorate.ensemble.estimators import EstimatorTeachers
        >>> from quorate.mechanisms import SoftMajority
        >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 500, classes=2))
        >>> session = Session(ensemble, SoftMajority(teachers=500, epsilon=0.5), Budget(epsilon=1.0, delta=0.0))
        >>> session.ask(np.zeros((1, 1))).labels
        array([1])
        >>> other = Session(ensemble, session.mechanism, session.budget)
        >>> session.hand_over(other._memory)
        >>> other.ask(np.zeros((1, 1))).spent.renyi
        0.0
        """
        if isinstance(self._memory, KeptAnswers):
            for caller, answers in self._memory.by_caller().items():
                memory.remember(caller, answers)

    def _ask_new(
        self, X: Any, places: dict[bytes, int], known: dict[bytes, int], caller: str
    ) -> tuple[Cost, BudgetSpent | None]:
        """Put new queries to the vote, block by block, and add their answers to `known`."""
        spent, new, rows = Cost(0.0), list(places), list(places.values())
        start = 0
        while start < len(new):
            try:
                with self._memory.alone():
                    answers = self._release(take_rows(X, rows[start : start + min(_BLOCK, self._affordable())]))
            except (BudgetSpent, RunEnded) as error:
                return spent, BudgetSpent(f"{error}. Queries answered before can be asked again")
            fresh = dict(zip(new[start:], answers.labels.tolist(), strict=False))
            self._memory.remember(caller, fresh)
            known.update(fresh)
            spent = spent + (answers.spent or Cost(0.0))
            start += len(fresh)  # what was refused is asked again: an answer may cost less than was set aside for it
        return spent, None

    def _affordable(self) -> int:
        """Return how many queries may be counted, so that no ballot is counted in vain, or raise where none may."""
        if isinstance(self.mechanism, ThresholdMechanism):
            if self.run is not None and self.run.no_quorums_left == 0:
                raise RunEnded(f"the run has met its {self.mechanism.no_quorums} no-quorums")
            return _BLOCK
        order = self.budget.order
        paid = self.mechanism.query_cost(order) + self.mechanism.answer_cost(order)
        if self.budget.affordable(paid) == 0:
            raise BudgetSpent("the budget cannot pay for another query")
        return self.budget.affordable(paid)

    def _release(self, X: Any) -> Answers:
        if self.run is not None:
            return put_to_vote(self.ensemble, X, self.run.answers)
        assert isinstance(self.mechanism, QueryMechanism)
        return put_to_vote(self.ensemble, X, partial(self.mechanism.answers, budget=self.budget))
