"""StabilityTest answers with the top label if its distance, with Laplace noise, passes a noisy threshold.

Claim (replace-one units, one ballot per unit): no-quorums divide a run into epochs. Each epoch, however many queries it
answers, is `epoch_epsilon`-DP outside a tail event of probability at most `slack`, and epochs compose. Bassily, Thakkar
and Thakurta (2018) print gap - 1 as the distance, which one ballot moves by 2; here it is ceil(gap / 2) - 1. Proof:
PROOF_stability.md.
"""

import bisect
import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from quorate.core._noise import NoiseSource
from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import (
    Counts,
    Decide,
    Labels,
    ThresholdMechanism,
    check_paper,
    check_teachers,
    distances,
)
from quorate.core.mechanisms.distributions import laplace_difference_tail, laplace_tail, laplace_tail_quantile
from quorate.core.privacy import RENYI_QUANTA, Cost, best_order, exceeds, pure_renyi, to_capacity
from quorate.core.privacy.cost import halve_interval
from quorate.core.requests import NO_QUORUM

_SPLITS = tuple(step / 40 for step in range(4, 30))  # shares of an epoch's epsilon given to the threshold noise
_ORDERS = (0.6, 0.8, 1.0, 1.3, 2.0, 4.0, 8.0)  # factors around the order that suits small costs
_SLACKS = (0.02, 0.05, 0.1, 0.2)  # shares of delta given to the tail


@dataclass(frozen=True, kw_only=True)
class StabilityTest(ThresholdMechanism):
    """Discrete Laplace noise on the threshold, redrawn after each no-quorum, and on each distance.

    `margin` is the threshold w; `slack` bounds, for one epoch, the probability that a distance of 0 passes it.

    >>> stability = StabilityTest.calibrate(epsilon=1.0, delta=1e-6, teachers=6000, no_quorums=20)
    >>> stability.answers([[6000, 0], [0, 6000]]).labels
    array([0, 1])
    """

    threshold_scale: float
    query_scale: float
    margin: int
    slack: float
    redraws = True

    def __post_init__(self) -> None:
        super().__post_init__()
        tail = laplace_difference_tail(self.query_scale, self.threshold_scale, self.margin)
        if exceeds(tail, self.slack):  # proof: step 1
            raise InvalidInput(f"slack={self.slack!r} is below the probability that a distance of 0 passes the margin")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        teachers: int,
        no_quorums: int,
        queries: int | None = None,
        calibration: Literal["tight", "paper"] = "tight",
    ) -> "StabilityTest":
        """Return a StabilityTest within (epsilon, delta).

        calibration="paper" uses the constants of Algorithm 2 of Bassily, Thakkar and Thakurta (2018), which need the
        number of `queries`; "tight" chooses scales and margin for the smallest distance answered 99 times in 100.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        teachers, no_quorums = check_count("teachers", teachers), check_count("no_quorums", no_quorums)
        if calibration == "paper":
            if queries is None:
                raise InvalidInput("calibration='paper' needs queries=, the number of queries that may be asked")
            test = _paper(epsilon, delta, teachers, no_quorums, check_count("queries", queries))
            check_paper(test, epsilon, delta)
        elif calibration == "tight":
            test = _tight(epsilon, delta, teachers, no_quorums)
        else:
            raise InvalidInput(f"calibration must be 'tight' or 'paper', got {calibration!r}")
        check_teachers(test)
        return test

    @property
    def epoch_epsilon(self) -> float:
        """The epsilon of one epoch: a shift of the threshold by 1, and of a distance by 1 more."""
        return (1 / self.threshold_scale + 2 / self.query_scale) * (1 + 2.0**-50)  # proof: step 2

    def opening_cost(self, order: float) -> Cost:
        """Return the cost of an epoch: a run opens the first."""
        return Cost(pure_renyi(self.epoch_epsilon, order=order), self.slack)  # proof: step 3

    def no_quorum_cost(self, order: float) -> Cost:
        """Return the cost of the epoch that a no-quorum opens."""
        return self.opening_cost(order)

    def answer_probability(self, distance: int, *, threshold_noise: int = 0) -> float:
        """Return the probability that a query at this distance is answered. Depends on nothing private."""
        return float(laplace_tail(self.query_scale, self.margin + threshold_noise + 1 - distance))

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which a query is answered at this rate, at threshold noise 0."""
        rate = check_rate("answer_rate", answer_rate)
        return max(0, self.margin + 1 - laplace_tail_quantile(self.query_scale, rate))

    def draw_threshold_noise(self, noise: NoiseSource) -> int:
        """Draw the secret noise of a run's threshold."""
        return int(noise.laplace(self.threshold_scale, 1)[0])

    def draw_decisions(self, counts: Counts, noise: NoiseSource) -> Decide:
        """Draw the noise of each query, and return the rule that gives it a label."""
        labels, distance = distances(counts)
        noisy = distance + noise.laplace(self.query_scale, len(counts))

        def decide(queries: slice, threshold_noise: int) -> Labels:
            passed = noisy[queries] > self.margin + threshold_noise
            return np.where(passed, labels[queries], NO_QUORUM)

        return decide


def _paper(epsilon: float, delta: float, teachers: int, no_quorums: int, queries: int) -> StabilityTest:
    """Return the published constants: scales lambda and 2 lambda, margin 2 lambda log(2 m / delta)."""
    scale = math.sqrt(32 * no_quorums * math.log(2 / delta)) / epsilon
    margin = math.ceil(2 * scale * math.log(2 * queries / delta))
    return StabilityTest(
        teachers=teachers,
        no_quorums=no_quorums,
        order=best_order(epsilon=epsilon, delta=delta * 0.9),
        threshold_scale=scale,
        query_scale=2 * scale,
        margin=margin,
        slack=laplace_difference_tail(2 * scale, scale, margin),
    )


def _tight(epsilon: float, delta: float, teachers: int, no_quorums: int) -> StabilityTest:
    """Return the scales and the margin with the smallest distance on a grid of splits and slacks."""
    best: StabilityTest | None = None
    for share, factor in itertools.product(_SLACKS, _ORDERS):
        order = 1 + factor * (best_order(epsilon=epsilon, delta=delta * (1 - share)) - 1)
        capacity = to_capacity(epsilon, delta=delta * (1 - share), order=order)
        if capacity <= no_quorums / RENYI_QUANTA:
            continue
        price = _epoch_epsilon(capacity / no_quorums - 1 / RENYI_QUANTA, order)  # each charge is rounded up
        tail = delta * share / no_quorums * (1 - 2.0**-30)
        for split in _SPLITS:
            threshold_scale, query_scale = 1 / (split * price), 2 / ((1 - split) * price)
            margin = _margin(query_scale, threshold_scale, tail)
            test = StabilityTest(
                teachers=teachers,
                no_quorums=no_quorums,
                order=order,
                threshold_scale=threshold_scale,
                query_scale=query_scale,
                margin=margin,
                slack=laplace_difference_tail(query_scale, threshold_scale, margin),
            )
            if best is None or test.distance() < best.distance():
                best = test
    if best is None:
        raise Infeasible(f"nothing can be spent at epsilon={epsilon}, delta={delta}; raise either")
    return best


def _epoch_epsilon(renyi: float, order: float) -> float:
    """Return the largest epsilon (rounded down) whose divergence at this order is at most `renyi`."""
    high = 2 * renyi + math.sqrt(renyi)
    while pure_renyi(high, order=order) < renyi:
        high *= 2
    low, _ = halve_interval(0.0, high, lambda epsilon: pure_renyi(epsilon, order=order) <= renyi, steps=60)
    return low * (1 - 2.0**-40)


def _margin(query_scale: float, threshold_scale: float, tail: float) -> int:
    """Return the smallest margin that a distance of 0 passes with probability at most `tail`."""

    def fits(margin: int) -> bool:
        return laplace_difference_tail(query_scale, threshold_scale, margin) <= tail

    high = 1
    while not fits(high):
        high *= 2
    return 1 + bisect.bisect_left(range(1, high), True, key=fits)
