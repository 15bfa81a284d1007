"""What a session may have in it: a secret ballot, or answers that are drawn from the records one by one."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.ensemble import Ensemble
from quorate.errors import BudgetSpent, RunEnded
from quorate.ledger import Ledger
from quorate.mechanisms import Answers
from quorate.mechanisms.query import QueryMechanism
from quorate.mechanisms.run import Run, ThresholdMechanism
from quorate.privacy import Budget, Cost
from quorate.session import release_votes

__all__ = ["Mechanism", "OneByOne", "Votes"]

Mechanism = QueryMechanism | ThresholdMechanism

_BLOCK = 8192  # queries drawn together: a budget that ends does not leave a million ballots counted in vain


class Votes:
    """Answers by a secret ballot: an ensemble, and the mechanism that counts for it.

    >>> from quorate.ensemble.estimators import EstimatorTeachers
    >>> from quorate.mechanisms import SoftMajority
    >>> ensemble = Ensemble(EstimatorTeachers([(None, 1)] * 500, classes=2))
    >>> votes = Votes(ensemble, SoftMajority(teachers=500, epsilon=0.5))
    >>> votes.open(Budget(epsilon=1.0, delta=0.0), None)
    >>> votes.affordable(5), votes.draw(np.zeros((2, 1))).labels
    (2, array([1, 1]))
    """

    def __init__(self, ensemble: Ensemble, mechanism: Mechanism) -> None:
        self.ensemble, self.mechanism = ensemble, mechanism
        self.run: Run | None = None
        self._budget: Budget

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Open the run of a threshold mechanism, or go on with the one whose secret noise the ledger has."""
        assert budget is not None
        self._budget, mechanism = budget, self.mechanism
        if isinstance(mechanism, ThresholdMechanism):
            state = None if ledger is None else ledger.run()
            if state is None or mechanism.redraws:
                self.run = mechanism.open(budget)
            else:
                self.run = mechanism.resume(budget, threshold_noise=state)

    def affordable(self, most: int) -> int:
        """Return how many queries may be counted, so that no ballot is counted in vain."""
        if isinstance(self.mechanism, ThresholdMechanism):
            if self.run is not None and self.run.no_quorums_left == 0:
                raise RunEnded(f"the run has met its {self.mechanism.no_quorums} no-quorums")
            return min(most, _BLOCK)
        order = self._budget.order
        return _payable(self._budget, self.mechanism.query_cost(order) + self.mechanism.answer_cost(order), most)

    def draw(self, X: Any) -> Answers:
        """Count the ballots, and release what the mechanism makes of them."""
        if self.run is not None:
            return release_votes(self.ensemble, X, self.run.answers)
        mechanism, budget = self.mechanism, self._budget
        assert isinstance(mechanism, QueryMechanism)
        return release_votes(self.ensemble, X, lambda votes: mechanism.answers(votes, budget=budget))

    def move(self, ledger: Ledger) -> None:
        """End the run here, and leave its secret noise in the ledger."""
        if self.run is not None:
            ledger.keep_run(self.run.end())


class OneByOne:
    """Answers that are drawn from the records anew for every query, each at the same cost, or at none without a budget.

    `draw` must not fail: an answer in its place would have another law, and an error would speak of the records.

    >>> from quorate.session import Session
    >>> session = Session(OneByOne(lambda row: int(row[0] > 0), Cost(0.5)), Budget(epsilon=1.0, delta=0.0))
    >>> session.ask(np.array([[1.0], [1.0], [-1.0], [2.0]])).labels
    array([ 1,  1,  0, -1])
    """

    def __init__(self, draw: Callable[[NDArray[np.float64]], int], cost: Cost) -> None:
        self.cost, self.drawn = cost, 0
        self._draw = draw
        self._budget: Budget | None = None

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Answer from this budget; there is no other state."""
        self._budget = budget

    def affordable(self, most: int) -> int:
        """Return how many answers the budget can pay for."""
        return min(most, _BLOCK) if self._budget is None else _payable(self._budget, self.cost, most)

    def draw(self, X: Any) -> Answers:
        """Charge for all, then draw them one by one."""
        if self._budget is not None:
            self._budget.spend(self.cost, times=len(X))
        self.drawn += len(X)
        labels = np.array([self._draw(row) for row in X], dtype=np.int64)
        return Answers(labels=labels, spent=self.cost.times(len(X)))

    def move(self, ledger: Ledger) -> None:
        """Leave nothing: the budget and the answers are all there is."""


def _payable(budget: Budget, cost: Cost, most: int) -> int:
    if payable := budget.acquire(cost, most=min(most, _BLOCK)):
        return payable
    raise BudgetSpent("the budget cannot pay for another query")
