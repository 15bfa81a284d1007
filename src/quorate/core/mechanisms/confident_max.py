"""ConfidentMax releases a noisy maximum only if the largest count, with noise of its own, passes a threshold.

The construction is that of PATE (Papernot et al. 2018).

Claim (replace-one units, one ballot per unit): with charge="split" every query pays `query_cost` and every answer pays
`answer_cost` on top; with charge="joint" every query pays for the joint outcome, whatever it is. Proof:
PROOF_confident_max.md.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource
from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_delta, check_order, check_positive, validate_fields
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.base import Counts, QueryMechanism
from quorate.core.mechanisms.distributions import excess_of_logs, stable_up
from quorate.core.mechanisms.noisy_max import draw_winners, likely_winner_renyi, one_winner_renyi
from quorate.core.mechanisms.orders import smallest_epsilon, smallest_scale
from quorate.core.privacy import Cost, best_order, gaussian_renyi, price_of_each, to_epsilon
from quorate.core.requests import NO_QUORUM


@dataclass(frozen=True, kw_only=True)
class ConfidentMax(QueryMechanism):
    """A test `largest count + noise(test_scale) > threshold`, then NoisyMax with `winner_scale`.

    >>> confident = ConfidentMax(teachers=250, classes=10, threshold=200, test_scale=150.0, winner_scale=40.0)
    >>> confident.epsilon(delta=1e-5, queries=640, answered=282.7) <= 2.15
    True
    """

    classes: int
    threshold: int
    test_scale: float
    winner_scale: float
    charge: Literal["split", "joint"] = "split"

    def __post_init__(self) -> None:
        threshold = check_count("threshold", self.threshold, least=0)
        validate_fields(self, threshold=threshold)
        if self.charge not in ("split", "joint"):
            raise InvalidInput(f"charge must be 'split' or 'joint', got {self.charge!r}")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        teachers: int,
        classes: int,
        queries: int,
        answered: float | None = None,
        threshold: int | None = None,
        charge: Literal["split", "joint"] = "split",
    ) -> "ConfidentMax":
        """Return the ConfidentMax with the least noise for this many queries within (epsilon, delta).

        `answered` is how many of them are expected to pass the test (all by default); a budget enforces it. By default
        the threshold is 70% of the teachers. The noise scale of the test is four times that of the winner.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        teachers, queries = check_count("teachers", teachers), check_count("queries", queries)
        limit = math.ceil(0.7 * teachers) if threshold is None else check_count("threshold", threshold, least=0)
        order = best_order(epsilon=epsilon, delta=delta)
        capacity = queries * price_of_each(epsilon, delta=delta, order=order, times=queries, quanta=2)
        passed = _check_answered(answered, queries)

        def at_scale(scale: float) -> ConfidentMax:
            return cls(
                teachers=teachers,
                classes=classes,
                threshold=limit,
                test_scale=4 * scale,
                winner_scale=scale,
                charge=charge,
            )

        scale = smallest_scale(
            lambda scale: at_scale(scale).total_renyi(order, queries, passed),
            target=capacity,
            guess=math.sqrt(order * (0.64 * passed + 0.02 * queries) / capacity),
        )
        # `epsilon` may look at another order.
        while at_scale(scale).epsilon(delta=delta, queries=queries, answered=passed) > epsilon:
            scale *= 1.002
        return at_scale(scale)

    def query_cost(self, order: float) -> Cost:
        """Return the cost of every query: of the test alone, or of the joint outcome."""
        return Cost(_costs(self, check_order(order))[0])

    def answer_cost(self, order: float) -> Cost:
        """Return the additional cost of every answer: of the winner, or nothing if the joint outcome is paid for."""
        return Cost(_costs(self, check_order(order))[1])

    def epsilon(self, *, delta: float, queries: int = 1, answered: float | None = None) -> float:
        """Return the epsilon of this many queries, of which at most `answered` (by default all) passed the test."""
        queries = check_count("queries", queries)
        passed = _check_answered(answered, queries)
        _, order = smallest_epsilon(lambda order: self._likely_total(order, queries, passed), delta=delta)
        return to_epsilon(self.total_renyi(order, queries, passed), order=order, delta=delta)

    def answer_probability(self, largest: int) -> float:
        """Return the probability that a query with this largest count passes the test.

        Depends on nothing private.
        """
        passes, _ = pass_laws(self.teachers, self.classes, self.threshold, self.test_scale)
        fewest = self.teachers + 1 - passes.size
        if not fewest <= largest <= self.teachers:
            raise InvalidInput(f"largest must be a count from {fewest} to {self.teachers}, got {largest!r}")
        return float(np.exp(passes[largest - fewest]))

    def total_renyi(self, order: float, queries: int, answered: float) -> float:
        """Return what this many queries and answers cost together."""
        return self.query_cost(order).renyi * queries + self.answer_cost(order).renyi * answered

    def _likely_total(self, order: float, queries: int, answered: float) -> float:
        """Return a stand-in for the total that is cheap at any order: to choose an order by, not to charge."""
        winner = likely_winner_renyi(scale=self.winner_scale, order=order)
        per_query, per_answer = _costs(self, order, winner)
        return per_query * queries + per_answer * answered

    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw an answer to each query."""
        passed = counts.max(axis=1) + noise.gaussian(self.test_scale, len(counts)) > self.threshold
        winners = draw_winners(counts, self.winner_scale, noise)  # for every row: time says nothing about the test
        return np.where(passed, winners, NO_QUORUM)


def _check_answered(answered: float | None, queries: int) -> float:
    if answered is None:
        return float(queries)
    if not 0 <= answered <= queries:
        raise InvalidInput(f"answered must lie between 0 and queries={queries}, got {answered!r}")
    return float(answered)


@lru_cache(maxsize=4096)
def _costs(mechanism: ConfidentMax, order: float, winner: float | None = None) -> tuple[float, float]:
    """Return (cost of a query, cost of an answer), by the certified cost of a winner unless another is given."""
    if winner is None:
        winner = one_winner_renyi(classes=mechanism.classes, scale=mechanism.winner_scale, order=order)
    test = {"teachers": mechanism.teachers, "classes": mechanism.classes, "threshold": mechanism.threshold}
    if mechanism.charge == "joint":
        return outcome_renyi(**test, scale=mechanism.test_scale, winner=winner, order=order), 0.0
    return outcome_renyi(**test, scale=mechanism.test_scale, winner=0.0, order=order), winner


_ROUNDING = 1 + 2.0**-20
_LARGEST_REACH = 2**22  # integers on either side of 0


@lru_cache(maxsize=64)
def pass_laws(teachers: int, classes: int, threshold: int, scale: float) -> tuple[Floats, Floats]:
    """Return log P(pass) and log P(fail) at every value of the largest count, from the smallest to all teachers.

    Logarithms, because either may be far below what a double can hold while their ratios still count.
    """
    needed = threshold + 1 - np.arange(-(-teachers // classes), teachers + 1)  # the noise must reach this
    reach = int(np.abs(needed).max()) + math.ceil(40 * scale) + 2
    if reach > _LARGEST_REACH:
        raise InvalidInput(
            f"a threshold of {threshold} with noise of scale {scale:g} is too far from the counts to account for; "
            f"keep threshold + 40 * test_scale below {_LARGEST_REACH}"
        )
    points = np.arange(-reach, reach + 1, dtype=np.float64)
    log_law = -(points**2) / (2 * scale**2)
    above = np.logaddexp.accumulate(log_law[::-1])[::-1]
    below = np.logaddexp.accumulate(log_law)
    return above[needed + reach] - above[0], below[needed + reach - 1] - below[-1]


def _worst(passes: Floats, fails: Floats, order: float, winner_excess: float) -> float:
    """Return the largest excess over neighbouring values of the largest count, both ways (PROOF_confident_max.md, step
    2).
    """
    worst = float(np.exp(passes.max())) * winner_excess  # the largest count does not move
    pairs = [(slice(0, -1), slice(1, None)), (slice(1, None), slice(0, -1))]
    for p, q in pairs if passes.size > 1 else []:
        total = excess_of_logs(passes[p], passes[q], order) + excess_of_logs(fails[p], fails[q], order)
        if winner_excess > 0:
            with np.errstate(over="ignore"):
                total = total + np.exp(order * passes[p] + (1 - order) * passes[q]) * winner_excess
        worst = max(worst, float(total.max()))
    return worst


def outcome_renyi(*, teachers: int, classes: int, threshold: int, scale: float, winner: float, order: float) -> float:
    """Return the divergence of the test's outcome, with the winner's name, whose divergence is `winner`, if it passes.

    With `winner` = 0 it is that of the test alone.
    """
    plain = gaussian_renyi(scale=scale, order=order) + winner
    if (order - 1) * plain > 600:  # the moment would overflow
        return plain
    passes, fails = pass_laws(teachers, classes, threshold, scale)
    worst = _worst(passes, fails, order, math.expm1((order - 1) * winner))
    return min(plain, stable_up(math.log1p(worst * _ROUNDING + 1e-300) / (order - 1)))
