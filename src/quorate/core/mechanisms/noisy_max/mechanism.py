"""NoisyMax adds discrete Gaussian noise to the counts and answers with the largest.

Claim (replace-one units, one ballot per unit): one query has Renyi divergence at most `renyi(order)`, for all votes.
Only the winning label is released, so only its divergence is charged, not that of the noisy counts. Proof: PROOF.md.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import (
    check_count,
    check_delta,
    check_order,
    check_positive,
    check_rate,
)
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.core.mechanisms.noisy_counts import NoisyCounts
from quorate.core.mechanisms.noisy_max.winner import binary_winner_renyi, winner_renyi
from quorate.core.mechanisms.orders import smallest_epsilon, smallest_scale
from quorate.core.noise import NoiseSource
from quorate.core.privacy import RENYI_QUANTA, Cost, best_order, to_capacity, to_epsilon

__all__ = ["NoisyMax", "draw_winners", "likely_winner_renyi", "one_winner_renyi"]


def one_winner_renyi(*, classes: int, scale: float, order: float) -> float:
    """Return the divergence of one winner's name."""
    if check_order(order) == math.inf:
        raise InvalidInput("Gaussian noise is charged at a finite order; open the budget at one, with delta above 0")
    return binary_winner_renyi(scale, order) if classes == 2 else winner_renyi(scale, order)


def likely_winner_renyi(*, scale: float, order: float) -> float:
    """Return a cheap stand-in for the winner's cost, within a few per cent: to choose an order by, not to charge."""
    exact = scale <= 128 or (scale <= 512 and order > scale / 4)  # elsewhere the limit for much noise is near enough
    return binary_winner_renyi(scale, order) if exact else 2 / math.pi * order / scale**2


def draw_winners(counts: Counts, scale: float, noise: NoiseSource) -> NDArray[np.int64]:
    """Return the noisy winner of each row."""
    noisy = counts + noise.gaussian(scale, counts.size).reshape(counts.shape)
    winners: NDArray[np.int64] = noisy.argmax(axis=1)  # the first of those that tie; proof: step 2
    return winners


@dataclass(frozen=True, kw_only=True)
class NoisyMax(NoisyCounts):
    """Discrete Gaussian noise of this scale on every count, and the largest wins.

    >>> noisy_max = NoisyMax(teachers=250, classes=10, scale=40.0)
    >>> noisy_max.renyi(8.0) < 8.0 / 40.0**2
    True
    >>> noisy_max = NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, classes=2, queries=1000)
    >>> noisy_max.distance() <= 333
    True
    """

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, teachers: int, classes: int, queries: int) -> "NoisyMax":
        """Return the NoisyMax with the least noise that can answer this many queries within (epsilon, delta)."""
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        queries, classes = check_count("queries", queries), check_count("classes", classes, least=2)
        order = best_order(epsilon=epsilon, delta=delta)
        each = to_capacity(epsilon, delta=delta, order=order) / queries - 1 / RENYI_QUANTA  # each is rounded up
        if each <= 0:
            raise Infeasible(f"{queries} queries leave less than one quantum for each; ask fewer")
        scale = smallest_scale(
            lambda scale: one_winner_renyi(classes=classes, scale=scale, order=order),
            target=each,
            guess=math.sqrt(0.642 * order / each),
        )
        mechanism = cls(teachers=teachers, classes=classes, scale=scale)
        while mechanism.epsilon(delta=delta, queries=queries) > epsilon:  # which may look at another order
            mechanism = replace(mechanism, scale=mechanism.scale * 1.002)
        return mechanism

    def query_cost(self, order: float) -> Cost:
        """Return the cost of one winner."""
        return Cost(one_winner_renyi(classes=self.classes, scale=self.scale, order=order))

    def epsilon(self, *, delta: float, queries: int = 1) -> float:
        """Return the epsilon of this many adaptively chosen queries at `delta`."""
        queries = check_count("queries", queries)
        _, order = smallest_epsilon(
            lambda order: queries * likely_winner_renyi(scale=self.scale, order=order), delta=delta
        )
        return to_epsilon(queries * self.renyi(order), order=order, delta=delta)

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which the top label beats one rival at this rate."""
        rate = check_rate("answer_rate", answer_rate)
        if rate == 1:
            raise Infeasible("answer_rate=1 is out of reach: Gaussian noise has no bound")
        if self.scale <= 200:
            law = gaussian_pmf(self.scale, math.ceil(12 * self.scale))
            lead = np.convolve(law, law)
        else:  # the sum of two has all but the law of one, wider by the square root of 2
            lead = gaussian_pmf(self.scale * math.sqrt(2), math.ceil(20 * self.scale))
        # P(lead of the noise > t) for t = 0, 1, ...; a gap of t + 1 loses this often. The tail is summed from its far
        # end: the smallest rate below 1 leaves 2**-53, and what the table leaves out is below exp(-90).
        losses = np.cumsum(lead[: lead.size // 2])[::-1]
        return (int(np.flatnonzero(losses <= 1 - rate)[0]) + 1) // 2  # distance d holds the gaps 2d + 1 and 2d + 2

    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw an answer to each query."""
        return draw_winners(counts, self.scale, noise)
