"""NoisyMax adds discrete Gaussian noise to the counts and answers with the largest.

Claim (replace-one units, one ballot a unit): one query has Renyi divergence at most `renyi(order)`, for all votes. Only
the winner's name leaves, so only its divergence is charged, not that of the noisy counts. Proof: PROOF.md.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.checks import check_count, check_delta, check_order, check_positive, check_rate, keep
from quorate.errors import Infeasible, InvalidInput
from quorate.mechanisms.laws import gaussian_pmf
from quorate.mechanisms.noisy_max.winner import binary_winner_renyi, winner_renyi
from quorate.mechanisms.orders import smallest_epsilon
from quorate.mechanisms.query import QueryMechanism
from quorate.mechanisms.votes import Counts
from quorate.noise import NoiseSource
from quorate.privacy import RENYI_QUANTA, Cost, best_order, to_capacity, to_epsilon

__all__ = ["NoisyMax", "best_winner_order", "draw_winners", "one_winner_renyi"]


def one_winner_renyi(*, classes: int, scale: float, order: float) -> float:
    """Return the divergence of one winner's name.

    >>> one_winner_renyi(classes=2, scale=40.0, order=8.0) < 0.64 * 8.0 / 40.0**2
    True
    """
    if check_order(order) == math.inf:
        raise InvalidInput("Gaussian noise is charged at a finite order; open the budget with delta above 0")
    return binary_winner_renyi(scale, order) if classes == 2 else winner_renyi(scale, order)


def best_winner_order(*, scale: float, delta: float, queries: float, other: float = 0.0) -> float:
    """Return the order at which many winners, and other costs of `other * order`, make the smallest epsilon.

    Uses the limit of the winner's cost for much noise, which is within a few per cent wherever epsilon is moderate.

    >>> round(best_winner_order(scale=162.0, delta=1e-6, queries=1000))
    22
    """
    slope = 2 / math.pi * queries / scale**2 + other
    return smallest_epsilon(lambda order: slope * order, delta=delta)[1]


def draw_winners(counts: Counts, scale: float, noise: NoiseSource) -> NDArray[np.int64]:
    """Return the noisy winner of each row.

    >>> from quorate.noise import system_noise
    >>> draw_winners(np.array([[0, 1000]]), 1.0, system_noise)
    array([1])
    """
    noisy = counts + noise.gaussian(scale, counts.size).reshape(counts.shape)
    winners: NDArray[np.int64] = noisy.argmax(axis=1)  # the first of those that tie; proof: step 2
    return winners


@dataclass(frozen=True, kw_only=True)
class NoisyMax(QueryMechanism):
    """Discrete Gaussian noise of this scale on every count, and the largest wins.

    >>> noisy_max = NoisyMax(teachers=250, classes=10, scale=40.0)
    >>> noisy_max.renyi(8.0) < 8.0 / 40.0**2
    True
    >>> noisy_max = NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, classes=2, queries=1000)
    >>> noisy_max.distance() <= 333
    True
    """

    teachers: int
    classes: int
    scale: float

    def __post_init__(self) -> None:
        keep(
            self,
            teachers=check_count("teachers", self.teachers),
            classes=check_count("classes", self.classes, least=2),
            scale=check_positive("scale", self.scale),
        )

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, teachers: int, classes: int, queries: int) -> "NoisyMax":
        """Return the NoisyMax with the least noise that may answer this many queries within (epsilon, delta).

        >>> NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=500, classes=2, queries=100).scale < 52
        True
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        queries, classes = check_count("queries", queries), check_count("classes", classes, least=2)
        order = best_order(epsilon=epsilon, delta=delta)
        each = to_capacity(epsilon, delta=delta, order=order) / queries - 1 / RENYI_QUANTA  # each is rounded up
        if each <= 0:
            raise Infeasible(f"{queries} queries leave less than one quantum for each; ask fewer")
        scale = math.sqrt(0.642 * order / each)
        for _ in range(60):  # the cost times the squared scale hardly moves, so this settles in a few steps
            cost = one_winner_renyi(classes=classes, scale=scale, order=order)
            if each * (1 - 2e-3) <= cost <= each:
                break
            scale *= math.sqrt(cost / each) * (1 + 1e-4)
        return cls(teachers=teachers, classes=classes, scale=scale)

    def query_cost(self, order: float) -> Cost:
        """Return the cost of one winner.

        >>> NoisyMax(teachers=250, classes=10, scale=40.0).query_cost(8.0).slack
        0.0
        """
        return Cost(one_winner_renyi(classes=self.classes, scale=self.scale, order=order))

    def epsilon(self, *, delta: float, queries: int = 1) -> float:
        """Return the epsilon of this many adaptively chosen queries at `delta`.

        >>> round(NoisyMax(teachers=250, classes=2, scale=161.8).epsilon(delta=1e-6, queries=1000), 2)
        1.0
        """
        queries = check_count("queries", queries)
        order = best_winner_order(scale=self.scale, delta=delta, queries=queries)
        return to_epsilon(queries * self.renyi(order), order=order, delta=delta)

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which the top label beats one rival at this rate.

        >>> NoisyMax(teachers=250, classes=2, scale=10.0).distance()
        16
        """
        rate = check_rate("answer_rate", answer_rate)
        if self.scale <= 200:
            law = gaussian_pmf(self.scale, math.ceil(12 * self.scale))
            lead = np.convolve(law, law)
        else:  # the sum of two has all but the law of one, wider by the square root of 2
            lead = gaussian_pmf(self.scale * math.sqrt(2), math.ceil(20 * self.scale))
        wins = np.cumsum(lead)[lead.size // 2 :]  # P(lead of the noise <= t): a gap of t + 1 still wins
        gap = int(np.searchsorted(wins, rate)) + 1
        return max(0, (gap + 1) // 2 - 1)

    def _columns(self) -> int:
        return self.classes

    def _labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        return draw_winners(counts, self.scale, noise)
