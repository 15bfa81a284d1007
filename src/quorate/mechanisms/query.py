"""A mechanism that pays for every query, whatever the answer, and perhaps once more for an answer."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.mechanisms.answers import NO_QUORUM, Answers
from quorate.mechanisms.votes import Counts, check_votes, check_votes_batch
from quorate.noise import NoiseSource, system_noise
from quorate.privacy import Budget, Cost

__all__ = ["QueryMechanism"]


class QueryMechanism(ABC):
    """What NoisyMax, ConfidentMax and SoftMajority share: charge, draw, answer."""

    teachers: int

    def _columns(self) -> int | None:
        """Return how many classes the votes must have, or None where any number will do."""
        return None

    @abstractmethod
    def query_cost(self, order: float) -> Cost:
        """Return what each query costs."""

    def answer_cost(self, order: float) -> Cost:
        """Return what each answer costs on top of its query."""
        return Cost(0.0)

    @abstractmethod
    def _labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw the answers."""

    def renyi(self, order: float) -> float:
        """Return the cost of one query at this order, whatever its outcome: an upper bound."""
        return (self.query_cost(order) + self.answer_cost(order)).renyi

    def answer(self, votes: Any, *, budget: Budget | None = None) -> int | None:
        """Answer one query: a class index, or None for no quorum."""
        counts = check_votes(votes, teachers=self.teachers, classes=self._columns())
        label = int(self._answers(counts, budget, system_noise).labels[0])
        return None if label == NO_QUORUM else label

    def answers(self, votes: Any, *, budget: Budget | None = None) -> Answers:
        """Answer a batch of queries, one row each, charged to `budget` if there is one.

        Queries at the end of the batch that the budget cannot pay for are refused.
        """
        counts = check_votes_batch(votes, teachers=self.teachers, classes=self._columns())
        return self._answers(counts, budget, system_noise)

    def _answers(self, counts: Counts, budget: Budget | None, noise: NoiseSource) -> Answers:
        if budget is None:
            return Answers(labels=self._labels(counts, noise), spent=None)
        per_query, per_answer = self.query_cost(budget.order), self.answer_cost(budget.order)
        asked = min(len(counts), max(1, budget.acquire(per_query, per_answer, most=len(counts))))
        reservation = budget.reserve(per_query, per_answer, times=asked)  # charge, then draw
        labels = self._labels(counts[:asked], noise)
        answered = int((labels != NO_QUORUM).sum())
        reservation.settle(asked, answered)
        spent = per_query.times(asked) + per_answer.times(answered)
        return Answers(labels=labels, spent=spent, refused=len(counts) - asked)
