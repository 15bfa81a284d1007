"""NoisyShares adds discrete Gaussian noise to the counts and releases the share of votes for each class.

Claim (replace-one units, one ballot per unit): one query has Renyi divergence at most order / (2 scale**2) for two
classes, for which one count suffices, and order / scale**2 for more, at every order, with no tail event left out.
Labels at any threshold, rankings and probabilities are post-processing, and cost nothing more. Proof: PROOF.md.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count, check_order
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.base import Counts
from quorate.core.mechanisms.noisy_counts import NoisyCounts
from quorate.core.mechanisms.noisy_shares.grid import nearest_points, numbers_of, points_of, steps_for
from quorate.core.mechanisms.noisy_sum import NoisySum
from quorate.core.noise import NoiseSource
from quorate.core.privacy import Cost, gaussian_renyi

__all__ = ["NoisyShares"]

_UP = 1 + 2.0**-40


@dataclass(frozen=True, kw_only=True)
class NoisyShares(NoisyCounts):
    """Discrete Gaussian noise of this scale on the counts, released as shares on a public grid.

    An answer is one whole number: for two classes, the noisy count of class 1, clipped to -teachers and 2 * teachers,
    plus the number of teachers; for more, the number of a point of the grid. `shares` decodes it.

    >>> noisy = NoisyShares.calibrate(epsilon=4.0, delta=1e-6, teachers=1500, classes=2, queries=1000)
    >>> answers = noisy.answers([[1200, 300], [300, 1200]])
    >>> bool(np.abs(noisy.shares(answers.labels)[:, 1] - [0.2, 0.8]).max() < 10 * noisy.scale / 1500)
    True
    """

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, teachers: int, classes: int, queries: int) -> "NoisyShares":
        """Return the NoisyShares with the least noise that can answer this many queries within (epsilon, delta)."""
        classes = check_count("classes", classes, least=2)
        one = NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=1, releases=queries)
        scale = one.scale if classes == 2 else one.scale * math.sqrt(2) * _UP  # proof: step 2
        return cls(teachers=teachers, classes=classes, scale=scale)

    @property
    def steps(self) -> int:
        """The number of steps of a share: one per teacher, or fewer if there are many classes."""
        return self.teachers if self.classes == 2 else steps_for(self.teachers, self.classes)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise of one share."""
        return self.scale / self.teachers

    def query_cost(self, order: float) -> Cost:
        """Return the cost of the shares of one query."""
        if check_order(order) == math.inf:
            raise InvalidInput(
                "Gaussian noise is charged at a finite order; open the budget at one, with delta above 0"
            )
        counts = 1 if self.classes == 2 else 2  # that one ballot moves by 1 each
        return Cost(counts * gaussian_renyi(scale=self.scale, order=order))  # proof: step 2

    def epsilon(self, *, delta: float, queries: int = 1) -> float:
        """Return the epsilon of this many adaptively chosen queries at `delta`."""
        counts = 1 if self.classes == 2 else 2
        return NoisySum(sensitivity=1, scale=self.scale).epsilon(delta=delta, releases=counts * queries)

    def shares(self, answers: Any) -> NDArray[np.float64]:
        """Return the released share of each class, one row per answer, each at least 0 and together 1."""
        if self.classes == 2:
            second = np.clip(self.excess(answers), 0.0, 1.0)
            return np.stack([1.0 - second, second], axis=1)
        return points_of(np.asarray(answers, dtype=np.int64), self.steps, self.classes) / self.steps

    def excess(self, answers: Any) -> NDArray[np.float64]:
        """Return the noisy share of class 1 of two as it was released; noise may make it less than 0 or more than 1."""
        return (np.asarray(answers, dtype=np.int64) - self.teachers) / self.teachers

    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw the answers."""
        if self.classes == 2:
            noisy = counts[:, 1] + noise.gaussian(self.scale, len(counts))  # proof: step 1
            kept: NDArray[np.int64] = np.clip(noisy, -self.teachers, 2 * self.teachers)  # proof: step 3
            return kept + self.teachers
        noisy = counts + noise.gaussian(self.scale, counts.size).reshape(counts.shape)  # proof: step 1
        return numbers_of(nearest_points(noisy, self.teachers, self.steps), self.steps)  # proof: step 3
