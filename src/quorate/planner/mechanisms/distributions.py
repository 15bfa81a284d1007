"""Normal and Beta laws as plain numbers: expectations are integrated, never drawn."""

import math
from functools import lru_cache

import numpy as np

from quorate.core.arrays import Floats

__all__ = ["beta_quantiles", "binomial_capped_mean", "binomial_tail", "normal_below", "normal_nodes"]

_REACH, _STEP = 9.0, 1 / 256
_GRID = np.arange(-_REACH, _REACH + _STEP / 2, _STEP)
_BELOW = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in _GRID])
_NEARLY_NEVER = 1e-4  # expected count below which it hardly ever exceeds 1
_NEARLY_NORMAL = 30.0  # variance from which a binomial count is taken as normal


def normal_below(value: Floats | float) -> Floats:
    """Return P(Z <= value) for a standard normal Z, to six digits."""
    below: Floats = np.interp(value, _GRID, _BELOW, left=0.0, right=1.0)
    return below


@lru_cache(maxsize=16)
def normal_nodes(count: int) -> tuple[Floats, Floats]:
    """Return points and weights whose weighted mean is the mean over a standard normal (Gauss and Hermite's rule)."""
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return points, weights / weights.sum()


def beta_quantiles(levels: Floats, *, mean: float, concentration: float) -> Floats:
    """Return the quantiles of a Beta law at these levels.

    The density is integrated in t = x**a, where it has no pole at 0. The concentration is a + b; b is at least 1 here.
    """
    if mean == 0:
        return np.zeros(levels.shape)
    first, second = mean * concentration, (1 - mean) * concentration
    t = np.linspace(0.0, 1.0, 40_001)
    x = t ** (1 / first)
    middles = ((t[1:] + t[:-1]) / 2) ** (1 / first)
    mass = np.concatenate([[0.0], np.cumsum((1 - middles) ** (second - 1))])
    quantiles: Floats = np.interp(levels, mass / mass[-1], x)
    return quantiles


_MOST_TERMS = 200_000  # of a sum (beyond, the normal law has to do), and of the sums done at once


def binomial_capped_mean(trials: int, cap: float, probability: Floats) -> Floats:
    """Return the mean of min(X, cap) for binomial X, elementwise in the probability."""
    mean, variance = trials * probability, trials * probability * (1 - probability)
    spread = np.sqrt(np.maximum(variance, 1e-30))
    z = (cap - mean) / spread
    density = np.exp(-np.minimum(z**2, 1400.0) / 2) / math.sqrt(2 * math.pi)
    result = np.clip(mean - spread * (density - z * normal_below(-z)), 0.0, np.minimum(mean, cap))
    close = (variance < _NEARLY_NORMAL) & (np.abs(cap - mean) < 12 * spread + 30) & (min(trials, cap) < _MOST_TERMS)
    indices, at_once = np.flatnonzero(close), max(1, _MOST_TERMS // max(1, math.ceil(min(trials, cap))))
    for start in range(0, len(indices), at_once):
        block = indices[start : start + at_once]
        result[block] = _exact_capped_means(trials, cap, probability[block])
    return result


def binomial_tail(trials: int, least: int, probability: Floats) -> Floats:
    """Return P(X >= least) for binomial X and least >= 1, elementwise in the probability."""
    mean = binomial_capped_mean  # E[min(X, c)] - E[min(X, c - 1)] = P(X >= c)
    return np.clip(mean(trials, least, probability) - mean(trials, least - 1, probability), 0.0, 1.0)


def _exact_capped_means(trials: int, cap: float, probability: Floats) -> Floats:
    top = min(cap, trials)
    result = np.minimum(trials * probability, cap)
    summed = (probability < 1) & (trials * probability >= _NEARLY_NEVER)  # below, the sum would cancel
    below = np.arange(min(trials, math.ceil(cap) - 1) + 1)
    choices = np.concatenate([[0.0], np.cumsum(np.log((trials - below[1:] + 1) / below[1:]))])
    chance = probability[summed, np.newaxis]
    log_law = choices + below * np.log(chance) + (trials - below) * np.log1p(-chance)
    result[summed] = top - np.exp(log_law) @ (top - below)
    return result
