"""PrivateQuantile picks one cell of a public grid by its distance, in ranks, from a quantile.

Claim (replace-one units; each unit has one value, which lies in one cell): one release is epsilon-DP, and its Renyi
divergence is at most order * epsilon**2 / 8. The value of one more unit, exchangeable with those of the data, lies in
the released cell or below it with a probability of at least (rank - rank_loss) / (units + 1), over data and noise,
whatever the distribution of the values. Proof: PROOF_quantile.md.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_rate, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.distributions import stable_up
from quorate.core.mechanisms.exponential import ExponentialChoice, draw_below, draw_level
from quorate.core.privacy import Budget, Cost

_UP = 1 + 1e-9  # far above the rounding of the sums below
_REACH = 60.0  # in units of the noise, beyond what the number of cells makes likely: what lies farther is 1e-9


@dataclass(frozen=True, kw_only=True)
class PrivateQuantile:
    """The exponential mechanism on ranks: the cell that holds the value of this rank, or one near it.

    `rank` counts from 1, the smallest value, to `units`; `cells` is the size of the grid. Both are public.

    >>> nine_tenths = PrivateQuantile.calibrate(epsilon=1.0, cells=100, units=5000, share=0.9)
    >>> 85 <= nine_tenths.release([50] * 100) <= 95
    True
    """

    epsilon: float
    cells: int
    units: int
    rank: int

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.rank > self.units:
            raise InvalidInput(f"rank must be at most units={self.units}, got {self.rank}")

    @classmethod
    def calibrate(cls, *, epsilon: float, cells: int, units: int, share: float) -> "PrivateQuantile":
        """Return the PrivateQuantile of the smallest rank that covers one more unit with probability `share`."""
        share, units = check_rate("share", share), check_count("units", units)
        loss = cls(epsilon=epsilon, cells=cells, units=units, rank=1).rank_loss()
        rank = math.ceil(Fraction(share) * (units + 1) + Fraction(loss))  # proof: step 6
        if rank > units:
            raise Infeasible(
                f"{units} units do not cover a share of {share:g}: it takes rank {rank}, of which the noise takes "
                f"{loss:.1f}; give at least {math.ceil((loss + 1) / max(1 - share, 1e-12))} units, or ask for a "
                "smaller share, a larger epsilon or fewer cells"
            )
        return cls(epsilon=epsilon, cells=cells, units=units, rank=max(rank, 1))

    @property
    def choice(self) -> ExponentialChoice:
        """The exponential mechanism that picks the cell, by distances of sensitivity 1."""
        return ExponentialChoice(epsilon=self.epsilon, sensitivity=1)  # proof: step 1

    def release_cost(self, order: float) -> Cost:
        """Return the cost of one release."""
        return self.choice.choice_cost(order)

    def rank_loss(self) -> float:
        """Return an upper bound on the mean number of ranks of coverage that the noise costs."""
        rate, cells = float(self.choice.rate), float(self.cells - 1)
        farthest = min(self.units, math.ceil((math.log(self.cells) + _REACH) / rate))
        depth = np.arange(1.0, farthest + 1)
        weights = cells * np.exp(-rate * depth)
        together = float(np.max(depth * weights / (1 + math.exp(-rate) * weights)))  # proof: step 4
        distance = float(np.sum(weights / (1 + weights)))  # proof: step 5
        return stable_up(min(together, distance) * _UP + 1e-9)

    def coverage(self) -> float:
        """Return a lower bound on the probability that the value of one more unit is at most the released cell."""
        return max(0.0, (self.rank - self.rank_loss()) / (self.units + 1) * (1 - 1e-12))

    def distances(self, counts: Integers) -> Integers:
        """Return, for each cell, the least number of values that must change for it to hold the value of this rank."""
        upto = np.cumsum(counts)
        below = upto - counts
        distances: Integers = np.maximum(0, np.maximum(self.rank - upto, below + 1 - self.rank))  # proof: step 1
        return distances

    def release(self, counts: Any, *, budget: Budget | None = None) -> int:
        """Return the index of a cell, from 0; `counts` has the number of units with their value in each cell."""
        return self.draw_cell(counts, budget, system_noise)

    def draw_cell(self, counts: Any, budget: Budget | None, noise: NoiseSource) -> int:
        """Charge for a release, draw it with this noise, and return the number of the cell."""
        distances = self.distances(self._check_counts(counts))
        if budget is not None:
            budget.spend(self.release_cost(budget.order))  # charge, then draw
        levels = np.bincount(distances, minlength=self.units + 1)
        level = draw_level(levels, self.choice.rate, noise)  # proof: step 1
        return int(np.flatnonzero(distances == level)[draw_below(int(levels[level]), noise)])

    def _check_counts(self, counts: Any) -> Integers:
        """Return the counts as whole numbers. The text of a refusal says what was expected and not what they are."""
        values = np.asarray(counts)
        if values.shape != (self.cells,) or values.dtype.kind not in "iu":
            raise InvalidInput(
                f"counts must be {self.cells} whole numbers, one for each cell, got {values.dtype} of {values.shape}"
            )
        integers = values.astype(np.int64)
        if integers.min() < 0 or integers.max() > self.units or int(integers.sum()) != self.units:
            raise InvalidInput(f"counts must be at least 0 and sum to units={self.units}")
        return integers
