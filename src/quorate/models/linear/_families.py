"""Generalised linear models with canonical links: means, slopes, and what clipping does to a residual on average.

Everything here is a formula about public numbers. `t` is the largest residual that clipping leaves as it is.
"""

from abc import ABC, abstractmethod
from copy import copy
from typing import Protocol, Self

import numpy as np
from scipy.special import exp2, expit, logit, ndtr, ndtri

from quorate.core.arrays import Floats

_MOST_DEVIATIONS = 4.0  # of a residual that count in how far targets are from their means
MEAN_DISTANCE = float(np.sqrt(2 / np.pi))  # of a standard normal number from 0
USUAL_MISS = MEAN_DISTANCE / _MOST_DEVIATIONS  # of normal residuals with the right spread, on average
_LARGEST_SIGNAL = 3.0  # of least squares, in variances of the targets
_COUNTS_SKEW = 1.3  # of sizes of residuals: clipped at those of a normal law, large means came out a fifth too low
_FARTHEST = 30.0  # a linear predictor beyond this is taken as this: exp stays finite


class Family(Protocol):
    """One family: how a linear predictor becomes a mean, and how residuals behave.

    `parts` are parts of the sample that may stay unclipped. Where the law of residuals is known, clipping many of them
    does no harm, for its effect is known too.
    """

    parts: tuple[float, ...]

    @property
    def signal(self) -> float:
        """The largest variance of linear predictors to expect before anything is measured."""

    def mean(self, eta: Floats) -> Floats:
        """Return the means."""

    def link(self, mean: float) -> float:
        """Return the linear predictor that has this mean."""

    def slope(self, eta: Floats) -> Floats:
        """Return the derivative of the mean, which is the variance up to a constant."""

    def clipped(self, eta: Floats, at: Floats, t: Floats) -> tuple[Floats, Floats]:
        """Return the mean of the residual from `at`, clipped to t, where `eta` is true, and its slope in eta."""

    def square(self, at: Floats, t: Floats) -> Floats:
        """Return about the mean square of the residual from `at`, clipped to t, where `at` is true."""

    def typical(self, at: Floats, even: Floats) -> Floats:
        """Return the sizes of residuals at these even levels in [0, 1], to choose a clipping threshold from."""

    def miss(self, targets: Floats, at: Floats) -> Floats:
        """Return how far each target is from its mean, in [0, 1]: less is better."""

    def with_spread(self, factor: float) -> "Family":
        """Return the family whose residuals have a spread that is larger by this factor."""


class Bernoulli:
    """Logistic regression: y is 0 or 1."""

    signal = 2.0
    parts: tuple[float, ...] = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)

    def mean(self, eta: Floats) -> Floats:
        """Return the probabilities of 1."""
        return np.asarray(expit(eta))

    def link(self, mean: float) -> float:
        """Return the log odds."""
        return float(logit(min(max(mean, 1e-3), 1 - 1e-3)))

    def slope(self, eta: Floats) -> Floats:
        """Return p (1 - p)."""
        p = self.mean(eta)
        return p * (1 - p)

    def clipped(self, eta: Floats, at: Floats, t: Floats) -> tuple[Floats, Floats]:
        """Return the mean clipped residual and its slope: exact, for the residual has two values."""
        p, old = self.mean(eta), self.mean(at)
        up, down = np.minimum(1 - old, t), np.minimum(old, t)
        return p * (up + down) - down, p * (1 - p) * (up + down)

    def square(self, at: Floats, t: Floats) -> Floats:
        """Return the mean square of the clipped residual: exact."""
        p = self.mean(at)
        return np.asarray(p * np.minimum(1 - p, t) ** 2 + (1 - p) * np.minimum(p, t) ** 2)

    def typical(self, at: Floats, even: Floats) -> Floats:
        """Return |y - p|, with y = 1 at the levels below p."""
        p = self.mean(at)
        return np.asarray(np.where(even < p, 1 - p, p))

    def miss(self, targets: Floats, at: Floats) -> Floats:
        """Return the squared residual, as Brier's score has it."""
        return np.asarray((targets - self.mean(at)) ** 2)

    def with_spread(self, factor: float) -> "Bernoulli":
        """Return the family itself: the law of its residuals is known."""
        return self


class Softmax(Bernoulli):
    """Several classes, of which each row has one: a column of linear predictors for each."""

    def mean(self, eta: Floats) -> Floats:
        """Return the probabilities of the classes, row by row. Proof: step 2."""
        largest = eta[:, 0]
        for column in eta.T[1:]:
            largest = np.maximum(largest, column)
        powers = exp2((eta - largest[:, None]) * np.log2(np.e))
        return np.asarray(powers / np.asarray(sum(powers.T))[:, None])

    def link(self, mean: float) -> float:
        """Return the logarithm of a share."""
        return float(np.log(min(max(mean, 1e-3), 1.0)))


class _Normal(ABC):
    """Residuals that are about normal around the mean, with the standard deviation that `_spread` says.

    `spread` is that deviation, as a multiple of what it would be by the mean alone.
    """

    parts = (0.97, 0.99, 1.0)
    spread: float

    def mean(self, eta: Floats) -> Floats:
        """Return the linear predictor itself."""
        return eta

    def slope(self, eta: Floats) -> Floats:
        """Return ones."""
        return np.ones_like(eta)

    @abstractmethod
    def _spread(self, at: Floats) -> Floats:
        """Return the standard deviation of a residual."""

    def clipped(self, eta: Floats, at: Floats, t: Floats) -> tuple[Floats, Floats]:
        """Return the mean clipped residual and its slope."""
        spread, shift = self._spread(at), self.mean(eta) - self.mean(at)
        high, low = (t - shift) / spread, (-t - shift) / spread
        inside = ndtr(high) - ndtr(low)
        density = (np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)) / np.sqrt(2 * np.pi)
        value = t * ndtr(-high) - t * ndtr(low) + shift * inside + spread * density
        return value, self.slope(eta) * inside

    def square(self, at: Floats, t: Floats) -> Floats:
        """Return about the mean square of the clipped residual."""
        return np.asarray(np.minimum(self._spread(at), t) ** 2)

    def typical(self, at: Floats, even: Floats) -> Floats:
        """Return the sizes of normal residuals."""
        return np.asarray(np.abs(ndtri(np.clip(even, 1e-9, 1 - 1e-9))) * self._spread(at))

    def miss(self, targets: Floats, at: Floats) -> Floats:
        """Return the residual in deviations, of which there are at most four."""
        return np.asarray(
            np.minimum(np.abs(targets - self.mean(at)) / self._spread(at), _MOST_DEVIATIONS) / _MOST_DEVIATIONS
        )

    def with_spread(self, factor: float) -> Self:
        """Return the family whose residuals have a spread that is larger by this factor."""
        changed = copy(self)
        changed.spread = self.spread * factor
        return changed


class Gaussian(_Normal):
    """Least squares, with residuals of this standard deviation."""

    def __init__(self, spread: float = 1.0) -> None:
        self.spread = spread

    @property
    def signal(self) -> float:
        """The largest variance of linear predictors to expect: columns that share much may cancel each other."""
        return _LARGEST_SIGNAL * self.spread**2

    def link(self, mean: float) -> float:
        """Return the mean itself."""
        return mean

    def _spread(self, at: Floats) -> Floats:
        return np.full_like(at, self.spread)


class Poisson(_Normal):
    """Counts with a logarithmic link, in units of `unit` (the largest count, divided by which counts come in)."""

    signal = 10.0

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit
        self.spread = 1.0

    def mean(self, eta: Floats) -> Floats:
        """Return the mean count, in units; a mean above the largest count is that."""
        powers = exp2(np.clip(eta, -_FARTHEST, _FARTHEST) * np.log2(np.e))  # value by value: proof, step 2
        return np.asarray(np.minimum(powers / self.unit, 1.0))

    def link(self, mean: float) -> float:
        """Return the logarithm of a mean."""
        return float(np.log(max(mean, 1e-4) * self.unit))

    def slope(self, eta: Floats) -> Floats:
        """Return the mean, which is its own derivative."""
        return self.mean(eta)

    def typical(self, at: Floats, even: Floats) -> Floats:
        """Return the sizes of residuals, which lie farther out than normal ones: counts have a long upper tail."""
        return _COUNTS_SKEW * super().typical(at, even)

    def _spread(self, at: Floats) -> Floats:
        return np.asarray(self.spread * np.sqrt(np.maximum(self.mean(at), 1e-6) / self.unit))
