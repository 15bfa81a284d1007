"""Answers that are drawn one by one from the records, without ballots: charged, drawn, kept."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import BudgetSpent, QuorateError
from quorate.exchange import Replies
from quorate.mechanisms import NO_QUORUM
from quorate.memory import REFUSED, Admitted, Asked, KeptAnswers, Query
from quorate.privacy import Budget, Cost
from quorate.process import check_process, process_identity
from quorate.rows import query_digests

__all__ = ["FreshAnswers"]


class FreshAnswers:
    """What a session is to ballots, for predictors that draw anew for every query.

    `draw` must not fail: an answer in its place would have another law, and an error would speak of the records. Each
    new query is charged `cost` before its answer is drawn; without a budget nothing is charged. A query that a
    caller asked before is answered as before, at no privacy cost.

    >>> fresh = FreshAnswers(lambda row: int(row[0] > 0), budget=Budget(epsilon=1.0, delta=0.0), cost=Cost(0.5))
    >>> fresh.ask(np.array([[1.0], [1.0], [-1.0], [2.0]])).labels
    array([ 1,  1,  0, -1])
    """

    def __init__(self, draw: Callable[[NDArray[np.float64]], int], *, budget: Budget | None, cost: Cost) -> None:
        self.budget, self.cost, self.drawn = budget, cost, 0
        self._draw, self._kept = draw, KeptAnswers()
        self._lock, self._process = threading.Lock(), process_identity()

    def ask(self, X: Any, *, caller: str = "") -> Replies:
        """Answer a batch of checked queries; raise `BudgetSpent` where not one could be answered.

        >>> fresh = FreshAnswers(lambda row: 1, budget=None, cost=Cost(0.0))
        >>> fresh.ask(np.zeros((2, 1))).labels, fresh.drawn
        (array([1, 1]), 1)
        """
        check_process("this predictor", self._process)
        asked = Asked(caller, query_digests(X))
        rows: dict[bytes, int] = {}
        for row, query in enumerate(asked.queries):
            rows.setdefault(query, row)
        with self._lock:
            (admitted,) = self._kept.admit([asked])
            assert isinstance(admitted, Admitted)
            known: dict[Query, int] = {(caller, query): label for query, label in admitted.known.items()}
            spent, ended = Cost(0.0), None
            for query, row in rows.items():
                if (caller, query) in known:
                    continue
                try:
                    label = self._answer(X[row])
                except BudgetSpent as error:
                    ended = BudgetSpent(f"{error}. Queries answered before can be asked again")
                    break
                spent = spent + self.cost
                self._kept.keep({(caller, query): label}, known, [])
            (outcome,) = self._kept.keep({}, known, [asked])
        assert not isinstance(outcome, QuorateError)
        labels = np.array(outcome, dtype=np.int64)
        refused = labels == REFUSED
        if ended is not None and refused.all():
            raise ended
        return Replies(labels=np.where(refused, NO_QUORUM, labels), refused=refused, spent=spent)

    def _answer(self, row: NDArray[np.float64]) -> int:
        if self.budget is not None:
            self.budget.spend(self.cost)  # charge, then draw
        self.drawn += 1
        return self._draw(row)
