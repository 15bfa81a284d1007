"""The join: ballots into a mechanism, answers out of it, and the budget charged in between. Read this first.

    requests -> admitted -> counted by the ensemble -> [ reserved -> drawn -> settled ] by the mechanism -> kept

Both arrows that cross the trust line stand in `put_to_vote`: sealed ballots go into a mechanism, and what it releases
comes out. Whoever has an ensemble comes by here; who has counts of private records instead comes by `put_to_count`.
The mechanism charges before it draws; where the budget is in a ledger, what it charges is on the disk before that, and
an answer is on the disk before it leaves. A query is checked before it comes here, and is refused, if at all, because
of the budget, its id, or its caller's limits.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.ensemble import Ensemble
from quorate.ensemble.ballots import Ballots
from quorate.errors import BudgetSpent, QuorateError, RunEnded
from quorate.exchange import Replies, Request, firsts_of, replies_of, rows_of
from quorate.ledger import Ledger
from quorate.ledger.budget import LeasedBudget
from quorate.mechanisms import Answers
from quorate.mechanisms.query import QueryMechanism
from quorate.mechanisms.run import Run, ThresholdMechanism
from quorate.memory import Admitted, Asked, KeptAnswers, Memory, Query
from quorate.privacy import Budget, Cost
from quorate.process import process_identity
from quorate.rows import query_digests, take_rows

__all__ = ["Replies", "Request", "Session", "put_to_count", "put_to_vote"]

Released = TypeVar("Released")
Mechanism = QueryMechanism | ThresholdMechanism
_BLOCK = 8192  # queries counted together: a budget that ends does not leave a million ballots counted in vain


def put_to_vote(ensemble: Ensemble, X: Any, release: Callable[[NDArray[np.int64]], Released]) -> Released:
    """Count the ballots on these queries, hand them to a mechanism's `release`, and return what it releases.

    >>> from quorate.ensemble.estimators import EstimatorTeachers
    >>> from quorate.mechanisms import NoisyMax
    >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 100, classes=2))
    >>> put_to_vote(ensemble, np.zeros((2, 1)), NoisyMax(teachers=100, classes=2, scale=5.0).answers).labels
    array([1, 1])
    """
    return ensemble.count(X).put_to(release)


def put_to_count(counts: Ballots, release: Callable[[Any], Released]) -> Released:
    """Hand sealed counts of private records to a mechanism's `release`, and return what it releases.

    >>> from quorate.mechanisms import NoisySum
    >>> noisy = NoisySum(sensitivity=1, scale=0.1)
    >>> put_to_count(Ballots(np.array([7, 3])), lambda counts: noisy.release(int(counts[0])))
    7
    """
    return counts.put_to(release)


class Session:
    """An ensemble, the mechanism that counts for it, the budget that pays, and where it is all kept.

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
        self, ensemble: Ensemble, mechanism: Mechanism, budget: Budget, *, ledger: Ledger | None = None
    ) -> None:
        self.ensemble, self.mechanism, self.budget, self.ledger = ensemble, mechanism, budget, ledger
        self._memory: Memory = KeptAnswers() if ledger is None else ledger
        self._lock = threading.Lock()
        self.process = process_identity()
        self.run: Run | None = None
        if isinstance(mechanism, ThresholdMechanism):
            noise = None if ledger is None or mechanism.redraws else ledger.run()
            self.run = mechanism.open(budget) if noise is None else mechanism.resume(budget, threshold_noise=noise)
            self._release: Callable[[Any], Answers] = self.run.answers
        else:
            self._release = partial(mechanism.answers, budget=budget)

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
        (reply,) = self.ask_all([Request(X, caller)])
        if isinstance(reply, Replies):
            return reply
        raise reply

    def ask_all(self, requests: Sequence[Request]) -> list[Replies | QuorateError]:
        """Answer requests together: counted at once, kept at once. What is wrong with one is returned in its place.

        >>> from quorate.ensemble.estimators import EstimatorTeachers
        >>> from quorate.mechanisms import SoftMajority
        >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 500, classes=2))
        >>> session = Session(ensemble, SoftMajority(teachers=500, epsilon=0.5), Budget(epsilon=1.0, delta=0.0))
        >>> replies = session.ask_all([Request(np.zeros((1, 1)), id="1", body=body) for body in (b"a", b"a", b"b")])
        >>> replies[0].labels, replies[1].labels, replies[2]
        (array([1]), array([1]), IdReused('this id was used for another request: ...'))
        """
        asked = [Asked(request.caller, query_digests(request.X), request.id, request.body) for request in requests]
        firsts = firsts_of(asked)  # a request that came twice is answered once
        alone = [place for place, first in enumerate(firsts) if place == first]
        with self._lock:
            try:
                results = dict(zip(alone, self._memory.admit([asked[place] for place in alone]), strict=True))
                spent, ended = self._answer(requests, asked, results)
            finally:
                self.budget.give_back()
        return [replies_of(results[first], spent, ended) for first in firsts]

    def move(self, make: Callable[[Budget], Ledger]) -> Ledger:
        """Move into a ledger that `make` makes for the budget: from then on nothing is answered here.

        >>> Session.move.__name__
        'move'
        """
        with self._lock:
            ledger = make(self.budget)
            if self.run is not None:
                ledger.keep_run(self.run.end())
            if isinstance(self._memory, KeptAnswers) and self._memory.answers():
                ledger.keep(self._memory.answers(), {}, [])
            return ledger

    def tend(self) -> None:
        """Return what is out on lease where others wait for it: for a server with nothing to do.

        >>> Session.tend.__name__
        'tend'
        """
        if isinstance(self.budget, LeasedBudget):
            self.budget.tend()

    def close(self) -> None:
        """Return what is out on lease, and let go of the ledger.

        >>> Session.close.__name__
        'close'
        """
        with self._lock:
            self.budget.give_back(all=True)
            if self.ledger is not None:
                self.ledger.close()

    def _answer(
        self, requests: Sequence[Request], asked: Sequence[Asked], results: dict[int, Admitted | QuorateError]
    ) -> tuple[Cost, BudgetSpent | None]:
        """Put what is new to the vote and add the outcomes. A block is kept before the next is drawn."""
        known, places = dict[Query, int](), dict[Query, tuple[int, int]]()
        waiting = {place: one for place, one in results.items() if isinstance(one, Admitted) and one.outcome is None}
        for place, admitted in waiting.items():
            caller = asked[place].caller
            known.update({(caller, query): label for query, label in admitted.known.items()})
            for row, query in enumerate(asked[place].queries):
                places.setdefault((caller, query), (place, row))
        new = [query for query in places if query not in known]
        X = rows_of(requests, [places[query] for query in new])
        spent, start, fresh, ended = Cost(0.0), 0, dict[Query, int](), None
        while start < len(new) and ended is None:
            if fresh:
                self._memory.keep(fresh, known, [])
            fresh = {}
            try:
                block = take_rows(X, slice(start, start + self._affordable(len(new) - start)))
                answers = put_to_vote(self.ensemble, block, self._release)
            except (BudgetSpent, RunEnded) as error:
                ended = BudgetSpent(f"{error}. Queries answered before can be asked again")
            else:
                fresh = dict(zip(new[start:], answers.labels.tolist(), strict=False))
                spent = spent + (answers.spent or Cost(0.0))
                start += len(
                    fresh
                )  # what was refused is asked again: answers may cost less than was set aside for them
        outcomes = self._memory.keep(fresh, known, [asked[place] for place in waiting]) if waiting else []
        for place, outcome in zip(waiting, outcomes, strict=True):
            results[place] = outcome if isinstance(outcome, QuorateError) else Admitted({}, outcome)
        return spent, ended

    def _affordable(self, most: int) -> int:
        """Return how many queries may be counted, so that no ballot is counted in vain, or raise where none may."""
        most = min(most, _BLOCK)
        if isinstance(self.mechanism, ThresholdMechanism):
            if self.run is not None and self.run.no_quorums_left == 0:
                raise RunEnded(f"the run has met its {self.mechanism.no_quorums} no-quorums")
            return most
        paid = self.mechanism.query_cost(self.budget.order) + self.mechanism.answer_cost(self.budget.order)
        if payable := self.budget.obtain(paid, most=most):
            return payable
        raise BudgetSpent("the budget cannot pay for another query")
