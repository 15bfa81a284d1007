"""What is asked of every aggregator, and what each is expected to give."""

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
    """The target, without the ensemble. With `guess`, a query without a quorum gets a label at random."""

    epsilon: float
    delta: float
    queries: int
    classes: int
    no_quorums: int | None = None
    guess: bool = False

    @cached_property
    def order(self) -> float:
        """The Renyi order at which a query that costs the same every time is paid."""
        return best_order(epsilon=self.epsilon, delta=self.delta)

    @cached_property
    def capacity(self) -> float:
        """What may be spent at that order."""
        return to_capacity(self.epsilon, delta=self.delta, order=self.order)


@dataclass(frozen=True)
class Expected:
    """Expected shares: of all queries asked, how many are answered; of those, how many with the plurality's label.

    `worth` is the share answered and right when the forecast itself is as uncertain as its evidence: to choose by.
    `lasts` is the probability that no query is refused because the run or the budget has ended. All are rounded to nine
    decimals: plans are compared by them, and the last bits depend on the processor.
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
        """Return what a random label for every query without a quorum makes of it, where the task allows one.

        They are the share `no_quorum` of all queries, and `likely` is that share under the uncertainty of `worth`.
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
    """One aggregator, not certified yet: its expectation, how to make it, and the expectation once made."""

    aggregator: str
    expected: Expected
    no_quorums: int | None
    noise: Mapping[str, float]
    make: Callable[[], Calibrated]
    expect: Callable[[Any], Expected]

    def certify(self) -> tuple[Calibrated, Expected]:
        """Return the calibrated mechanism, and its expectation by its own certified noise."""
        calibrated = self.make()
        return calibrated, self.expect(calibrated.mechanism)


def unsure(rate: Floats, evidence: int | None) -> tuple[Floats, Floats]:
    """Return, for each rate, values that it may really have, and weights: log-normal, on the rarer outcome's side.

    After so many public points it lies around the estimate of Jeffreys: what was never seen among a few hundred points
    may still happen once in a thousand. Without evidence it is a guess, good to a factor of one and a half.
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
    """Return the expected share answered by a run that stops after so many no-quorums, for each rate of them.

    By Wald's equation the queries asked are the no-quorums met over their rate.
    """
    met = binomial_capped_mean(queries, no_quorums, missed)
    with np.errstate(divide="ignore", invalid="ignore"):
        queried = np.where(missed > 0, met / missed, queries)
    return (np.minimum(queried, queries) - met) / queries


def lasts(queries: int, no_quorums: int, missed: Floats) -> Floats:
    """Return the probability that a run reaches its last query before it has met so many no-quorums, for each rate."""
    return 1 - binomial_tail(queries - 1, no_quorums, missed)


def least_agreement(classes: int) -> float:
    """Return the agreement below which answers are nearer to guesses than to the plurality's label."""
    return (1 + 1 / classes) / 2
