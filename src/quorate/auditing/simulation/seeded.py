"""The laws of `quorate.core.noise`, drawn from a seeded NumPy generator, and mechanisms run on them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.mechanisms.base import Answers, QueryMechanism, Run, ThresholdMechanism, check_votes_batch

__all__ = ["SeededNoise", "simulate"]


@lru_cache(maxsize=16)
def _cumulative_weights(scale: float) -> tuple[int, NDArray[np.float64]]:
    """Return how far the discrete Gaussian law reaches, and its weights up to each point: one play draws many times."""
    radius = int(np.ceil(12 * scale)) + 1
    points = np.arange(-radius, radius + 1)
    return radius, np.cumsum(np.exp(-(points**2) / (2 * scale**2)))


class SeededNoise:
    """A stand-in for the system's noise that repeats itself from a seed. Never for a real answer."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return draws of the discrete Laplace law: the difference of two geometric ones."""
        success = -np.expm1(-1.0 / scale)
        return self.generator.geometric(success, size) - self.generator.geometric(success, size)

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return draws of the discrete Gaussian law, by inversion of its distribution function."""
        radius, weights = _cumulative_weights(scale)
        drawn = np.searchsorted(weights, self.generator.random(size) * weights[-1], side="right")
        return np.asarray(drawn - radius, dtype=np.int64)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return uniform 64-bit words."""
        return self.generator.integers(0, 2**64, size=size, dtype=np.uint64)

    def choice(self, scores: Sequence[int], scale: float) -> int:
        """Return index i with probability proportional to exp(scores[i] / scale)."""
        return int(np.argmax(np.asarray(scores) / scale + self.generator.gumbel(size=len(scores))))


def simulate(mechanism: QueryMechanism | ThresholdMechanism, votes: Any, *, seed: int) -> Answers:
    """Answer simulated votes as the mechanism would, with repeatable noise. For planning and research only."""
    noise = SeededNoise(seed)
    if isinstance(mechanism, ThresholdMechanism):
        return Run(mechanism, budget=None, noise=noise).answers(votes)
    counts = check_votes_batch(votes, teachers=mechanism.teachers, classes=mechanism.vote_columns())
    return mechanism.draw_answers(counts, None, noise)
