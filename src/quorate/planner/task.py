"""The target that every aggregator is planned for, and the expected shares of answers of each aggregator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism
from quorate.core.privacy import best_order, to_capacity
from quorate.planner._forecast import binomial_capped_mean, binomial_tail, normal_nodes

_DECIMALS = 9
_SPREAD_OF_A_GUESS = 0.4  # standard deviation of the logarithm of a rate that rests on a guessed disagreement


@dataclass(frozen=True)
class Task:
    """The target of a plan, without the ensemble. With `guess`, a query without a quorum gets a random label."""

    epsilon: float
    delta: float
    queries: int
    classes: int
    no_quorums: int | None = None
    guess: bool = False

    @cached_property
    def order(self) -> float:
        """The Renyi order at which queries of one constant cost are charged."""
        return best_order(epsilon=self.epsilon, delta=self.delta)

    @cached_property
    def capacity(self) -> float:
        """The capacity of the budget at that order."""
        return to_capacity(self.epsilon, delta=self.delta, order=self.order)


@dataclass(frozen=True)
class Expected:
    """The expected share of queries that are answered, and the share of answers with the plurality's label.

    `worth` is the expected share of correct answers, given the uncertainty of the forecast; aggregators are compared
    by it. `lasts` is the probability that no query is refused because the run or the budget has ended. All values are
    rounded to nine decimals, since plans are compared by them and the last bits depend on the processor.
    """

    answered: float
    agreement: float
    worth: float
    lasts: float = 1.0

    def __post_init__(self) -> None:
        for name in ("answered", "agreement", "worth", "lasts"):
            object.__setattr__(self, name, round(getattr(self, name), _DECIMALS))

    @property
    def right(self) -> float:
        """The share of all queries answered with the plurality's label."""
        return round(self.answered * self.agreement, _DECIMALS)

    def guessed(self, task: Task, *, no_quorum: float, likely: float) -> "Expected":
        """Return the expectation after each query without a quorum gets a random label, if the task allows guesses.

        Parameters
        ----------
        task
            The target.
        no_quorum
            The share of queries without a quorum.
        likely
            The same share, given the uncertainty of `worth`.
        """
        if not task.guess:
            return self
        answered = min(1.0, self.answered + no_quorum)
        agreement = (self.right + no_quorum / task.classes) / max(answered, 1e-300)
        return Expected(answered, min(1.0, agreement), self.worth + likely / task.classes, self.lasts)


@dataclass(frozen=True)
class Calibrated:
    """A calibrated mechanism, and the order and slack of the budget that pays for it."""

    mechanism: QueryMechanism | ThresholdMechanism
    order: float
    slack: float


@dataclass(frozen=True)
class Draft:
    """One aggregator before certification: its expectation, and functions that calibrate it and forecast it again."""

    aggregator: str
    expected: Expected
    no_quorums: int | None
    noise: Mapping[str, float]
    make: Callable[[], Calibrated]
    expect: Callable[[Any], Expected]

    def certify(self) -> tuple[Calibrated, Expected]:
        """Return the calibrated mechanism, and the expectation under its certified noise."""
        calibrated = self.make()
        return calibrated, self.expect(calibrated.mechanism)


def unsure(rate: Floats, evidence: int | None) -> tuple[Floats, Floats]:
    """Return possible true values of each rate, with weights, by a log-normal law for the rarer outcome.

    With `evidence` public points the law is centred on Jeffreys' estimate: an outcome that never occurred among a few
    hundred points may still have a rate of one in a thousand. Without evidence the rate is a guess within a factor of
    one and a half.
    """
    points, weights = normal_nodes(5)
    rare = np.minimum(rate, 1 - rate)
    if evidence is None:
        spread = np.full((rare.size, 1), _SPREAD_OF_A_GUESS)
    else:
        rare = (rare * evidence + 0.5) / (evidence + 1)
        spread = np.sqrt(np.log1p((1 - rare) / rare / (evidence + 2)))[:, np.newaxis]
    values = np.minimum(rare[:, np.newaxis] * np.exp(spread * points - spread**2 / 2), 1.0)
    return np.where(rate[:, np.newaxis] > 0.5, 1 - values, values), weights


def answered_before_stop(queries: int, no_quorums: int, missed: Floats) -> Floats:
    """Return, for each rate of no-quorums, the expected share of queries that a run of `no_quorums` answers.

    By Wald's equation the expected number of queries is that of the no-quorums divided by their rate.
    """
    met = binomial_capped_mean(queries, no_quorums, missed)
    with np.errstate(divide="ignore", invalid="ignore"):
        queried = np.where(missed > 0, met / missed, queries)
    return (np.minimum(queried, queries) - met) / queries


def lasts(queries: int, no_quorums: int, missed: Floats) -> Floats:
    """Return, for each rate of no-quorums, the probability that a run reaches its last query before it ends."""
    return 1 - binomial_tail(queries - 1, no_quorums, missed)


def least_agreement(classes: int) -> float:
    """Return the least agreement at which answers are closer to the plurality's label than to guesses."""
    return (1 + 1 / classes) / 2
