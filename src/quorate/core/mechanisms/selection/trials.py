"""What is known of one private trial: how far apart its laws are, and how likely one event can be under both. PROOF.md.

Rounding: divergences and slacks are rounded up.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_delta, check_positive, set_validated
from quorate.core.mechanisms.noisy_vector.analytic import discrete_loss, largest_length, smallest_excess
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.privacy import gaussian_renyi, pure_renyi

__all__ = ["MOST_ENTRIES", "ApproximateTrial", "GaussianTrial", "Trial"]

MOST_ENTRIES = 2**20  # that a Gaussian trial may release; proof: step 4
_UP = 1 + 1e-9  # far above the rounding of the few operations before it


def _below(places: Floats) -> Floats:
    """Return the probabilities that a standard Gaussian is below these places."""
    return _below_bytes(places.tobytes())


@lru_cache(maxsize=4)
def _below_bytes(places: bytes) -> Floats:
    probabilities = np.array([math.erfc(-place / math.sqrt(2)) / 2 for place in np.frombuffer(places).tolist()])
    probabilities.setflags(write=False)
    return probabilities


class Trial(Protocol):
    """A trial that is (epsilon, delta)-DP, and by what noise.

    `slack` is the probability of the tail event that `renyi` and `events` leave out, in one trial.
    """

    @property
    def epsilon(self) -> float:
        """The epsilon of one trial by itself."""

    @property
    def delta(self) -> float:
        """The delta of one trial by itself."""

    @property
    def slack(self) -> float:
        """The probability of a trial's tail event."""

    @classmethod
    def one_of(cls, trials: float, *, epsilon: float, delta: float) -> "Trial":
        """Return the trial of this epsilon of which so many, in the mean, may take place within `delta`."""

    def renyi(self, order: float) -> float:
        """Return the divergence of one trial at this order: an upper bound."""

    def events(self, places: Floats) -> tuple[Floats, Floats]:
        """Return bounds on the probabilities of an event under two neighbours: above for one, below for the other.

        Both fall along `places`, which run from -inf to inf. An event is as likely as the pair of some place says, or
        it tells the neighbours less well apart.
        """

    def composed(self, trials: int, *, delta: float) -> float:
        """Return the epsilon of so many trials, all of which are released, at `delta`."""


@dataclass(frozen=True)
class _Private:
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        set_validated(self, epsilon=check_positive("epsilon", self.epsilon), delta=check_delta(self.delta))


class GaussianTrial(_Private):
    """A trial with discrete Gaussian noise, which `NoisyVector` or `NoisyVectors` calibrates for (epsilon, delta)."""

    slack = 0.0

    @classmethod
    def one_of(cls, trials: float, *, epsilon: float, delta: float) -> "GaussianTrial":
        """Return the trial of this epsilon and delta: Gaussian noise leaves no tail event out."""
        return cls(epsilon, delta)

    @cached_property
    def length(self) -> float:
        """By how much a unit moves what is released, in units of the noise: an upper bound."""
        return largest_length(epsilon=self.epsilon, delta=self.delta, entries=1) * _UP

    def renyi(self, order: float) -> float:
        """Return the divergence of one trial at this order: an upper bound."""
        return math.inf if order == math.inf else gaussian_renyi(scale=1 / self.length, order=order) * _UP

    def events(self, places: Floats) -> tuple[Floats, Floats]:
        """Return what a Gaussian allows, with a margin for the step to whole numbers: proof: step 4."""
        margin = math.exp(discrete_loss(MOST_ENTRIES))
        return np.minimum(1.0, _below(-places) * margin), _below(-(places + self.length)) / margin

    def composed(self, trials: int, *, delta: float) -> float:
        """Return the epsilon of so many trials, all of which are released, at `delta`: proof: step 6."""
        together = self.length * math.sqrt(check_count("trials", trials)) * _UP
        return smallest_excess(together, delta=delta, entries=trials * MOST_ENTRIES)


class ApproximateTrial(_Private):
    """A trial of which nothing is known but that it is (epsilon, delta)-DP."""

    @property
    def slack(self) -> float:
        """The probability of a trial's tail event: its delta."""
        return self.delta

    @classmethod
    def one_of(cls, trials: float, *, epsilon: float, delta: float) -> "ApproximateTrial":
        """Return the trial of this epsilon, and of the share of delta that the number of trials leaves to each."""
        return cls(epsilon, delta / (trials * _UP**2))

    def renyi(self, order: float) -> float:
        """Return the divergence of one trial, its tail event left out, at this order: an upper bound."""
        return pure_renyi(self.epsilon, order=order)

    def events(self, places: Floats) -> tuple[Floats, Floats]:
        """Return what epsilon allows: proof: step 5."""
        likely, rest = _below(-places), _below(places)
        factor = math.exp(min(self.epsilon, 700.0)) * _UP
        return likely, np.maximum(likely / factor, 1 - factor * rest)

    def composed(self, trials: int, *, delta: float) -> float:
        """Return the epsilon of so many trials, all of which are released, at `delta`: proof: step 6."""
        slack, plain = self.slack * check_count("trials", trials) * _UP, self.epsilon * trials * _UP
        if slack > check_delta(delta):
            return math.inf
        if slack >= delta * (1 - 1e-6):  # what is left for a conversion is of no use
            return plain
        return min(plain, smallest_epsilon(lambda order: self.renyi(order) * trials * _UP, delta=delta, slack=slack)[0])
