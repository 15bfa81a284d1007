"""NoisyShares adds discrete Gaussian noise to the counts and releases the share of votes for each class.

Claim (replace-one units, one ballot per unit): one query has Renyi divergence at most order / (2 scale**2) for two
classes, for which one count suffices, and order / scale**2 for more, at every order, with no tail event left out.
Labels at any threshold, rankings and probabilities are post-processing, and cost nothing more. Proof:
PROOF_noisy_shares.md.
"""

import bisect
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_finite_order
from quorate.core.mechanisms.base import Counts
from quorate.core.mechanisms.noisy_max import NoisyCounts
from quorate.core.mechanisms.noisy_sum import NoisySum
from quorate.core.privacy import Cost, gaussian_renyi

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
        classes, queries = check_count("classes", classes, least=2), check_count("queries", queries)
        noisy_sum = NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=1, releases=queries)
        scale = noisy_sum.scale if classes == 2 else noisy_sum.scale * math.sqrt(2) * _UP  # proof: step 2
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
        order = check_finite_order("Gaussian noise", order)
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
            clipped: NDArray[np.int64] = np.clip(noisy, -self.teachers, 2 * self.teachers)  # proof: step 3
            return clipped + self.teachers
        noisy = counts + noise.gaussian(self.scale, counts.size).reshape(counts.shape)  # proof: step 1
        return numbers_of(nearest_points(noisy, self.teachers, self.steps), self.steps)  # proof: step 3


_NUMBERS = 2**63  # that an answer may have
_MOST_STEPS = 2**20  # beyond, the table of binomials takes more room than the precision is worth


@lru_cache(maxsize=64)
def steps_for(teachers: int, classes: int) -> int:
    """Return into how many steps a share is cut: one a teacher, or as many as can be numbered."""
    finer = range(2, min(teachers, _MOST_STEPS) + 1)
    return 1 + bisect.bisect_right(finer, _NUMBERS, key=lambda steps: math.comb(steps + classes - 1, classes - 1))


@lru_cache(maxsize=8)
def _binomials(steps: int, classes: int) -> Integers:
    """Return C(j + d, j + 1), one row for each class j but the last and one column for each d from 0 to `steps`."""
    table = np.empty((classes - 1, steps + 1), dtype=np.int64)
    table[0] = np.arange(steps + 1)
    for row in range(1, classes - 1):  # C(j + d, j + 1) is the sum of C(j - 1 + c, j) for c up to d
        np.cumsum(table[row - 1], out=table[row])
    return table


def numbers_of(points: Integers, steps: int) -> Integers:
    """Return the number of each point, one row a point."""
    running = np.cumsum(points[:, :-1], axis=1)
    table = _binomials(steps, points.shape[1])
    numbers: Integers = np.take_along_axis(table, running.T, axis=1).sum(axis=0)
    return numbers


def points_of(numbers: Integers, steps: int, classes: int) -> Integers:
    """Return the points of these numbers, one row each: what `numbers_of` numbered."""
    table, rest = _binomials(steps, classes), numbers.copy()
    running = np.full((len(numbers), classes + 1), steps, dtype=np.int64)
    running[:, 0] = 0
    for row in range(classes - 2, -1, -1):  # the largest binomial that fits, from the last row up
        running[:, row + 1] = np.searchsorted(table[row], rest, side="right") - 1
        rest -= table[row, running[:, row + 1]]
    return np.diff(running, axis=1)


def nearest_points(counts: Integers, teachers: int, steps: int) -> Integers:
    """Return a point near each row of noisy counts: the row is moved onto the simplex, and rounded so as to sum up.

    Moved by the shortest way (all counts lowered alike, and none below 0); each share is rounded down, and what is
    missing goes to those that lost most.
    """
    falling = -np.sort(-counts, axis=1)
    ranks = np.arange(1, counts.shape[1] + 1)
    levels = (np.cumsum(falling, axis=1) - teachers) / ranks
    positive = (falling > levels).sum(axis=1)  # the largest counts stay above 0
    moved = np.maximum(counts - levels[np.arange(len(counts)), positive - 1, np.newaxis], 0.0) * (steps / teachers)
    points = np.floor(moved).astype(np.int64)
    missing = steps - points.sum(axis=1)
    order = np.argsort(points - moved, axis=1, kind="stable")  # who lost most first
    first = ranks <= missing[:, np.newaxis]
    np.put_along_axis(points, order, np.take_along_axis(points, order, axis=1) + first, axis=1)
    return points
