"""SoftMajority answers label y with probability proportional to exp(epsilon * votes_y / 2).

Claim (replace-one units, one ballot per unit): each query is epsilon-DP, and its Renyi divergence is at most
order * epsilon**2 / 8. With two classes this is the logistic function of half the lead. Proof: PROOF_soft_majority.md.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource
from quorate.core.checks import check_count, check_rate
from quorate.core.mechanisms.base import Counts, QueryMechanism
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy import Cost, exponential_renyi
from quorate.core.privacy.cost import float_up


@dataclass(frozen=True, kw_only=True)
class SoftMajority(QueryMechanism):
    """The exponential mechanism on vote counts.

    >>> SoftMajority(teachers=1000, epsilon_per_query=0.5).answer([1000, 0])
    0
    """

    epsilon_per_query: float

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float = 0.0, teachers: int, queries: int = 1) -> "SoftMajority":
        """Return the SoftMajority that can answer this many queries within (epsilon, delta)."""
        queries = check_count("queries", queries)
        choice = ExponentialChoice.calibrate(epsilon=epsilon, delta=delta, choices=queries)
        return cls(teachers=teachers, epsilon_per_query=choice.epsilon_per_choice)

    @property
    def scale(self) -> float:
        """The number of ballots by which a weight grows e-fold, rounded up so that the claim holds as stated."""
        return float_up(2 / Fraction(self.epsilon_per_query))

    def query_cost(self, order: float) -> Cost:
        """Return the cost of one query."""
        return Cost(exponential_renyi(self.epsilon_per_query, order=order))

    def epsilon(self, *, delta: float = 0.0, queries: int = 1) -> float:
        """Return the epsilon of this many adaptively chosen queries at `delta`."""
        queries = check_count("queries", queries)
        return ExponentialChoice(epsilon=self.epsilon_per_query).epsilon(delta=delta, choices=queries)

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which the top label beats one rival at this rate."""
        rate = check_rate("answer_rate", answer_rate)
        gap = max(0.0, math.log(rate / (1 - rate))) * self.scale if rate < 1 else math.inf
        return max(0, math.ceil(math.ceil(gap) / 2) - 1)

    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw an answer to each query."""
        return np.array([noise.choice(row, self.scale) for row in counts.tolist()], dtype=np.int64)
