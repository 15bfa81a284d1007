"""The laws of discrete Gaussian and discrete Laplace noise as arrays, for accounting only: nothing here is drawn.

Sums of n positive doubles err by at most n * 2**-53 relatively; `ROUND_UP` is above that for every size used here.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.privacy import Cost, exceeds

ROUND_UP = 1 + 2.0**-26
_LEAST = 1e-290  # a smaller tail would be lost in what is added to be safe


def gaussian_pmf(scale: float, radius: int) -> Floats:
    """Return P(x) for x = -radius .. radius, normalised over all integers."""
    reach = max(radius, math.ceil(40 * scale) + 2)  # past 38 scales a double underflows
    weights = _gaussian_weights(scale, reach)
    weights /= _gaussian_total(scale, reach)
    return weights[reach - radius : reach + radius + 1]


def _gaussian_weights(scale: float, reach: int) -> Floats:
    points = np.arange(-reach, reach + 1, dtype=np.float64)
    return np.exp(-(points**2) / (2 * scale**2))


@lru_cache(maxsize=256)
def _gaussian_total(scale: float, reach: int) -> float:
    """Return the sum of the weights: of one side twice and of 0, which is the same to the last bit, since fsum is."""
    weights = _gaussian_weights(scale, reach)
    return math.fsum([1.0, *(2 * weights[reach + 1 :]).tolist()]) if reach < 10**6 else float(weights.sum())


def gaussian_tail(scale: float, threshold: int) -> float:
    """Return P(X > threshold) for threshold >= 0, rounded up to 24 significant bits."""
    return min(1.0, stable_up(_tail(scale, threshold), bits=TAIL_BITS))


def is_gaussian_tail_above(scale: float, threshold: int, slack: float) -> bool:
    """Return whether P(X > threshold) is above a slack, which may have been computed on another processor."""
    return exceeds(_tail(scale, threshold), slack)


def _tail(scale: float, threshold: int) -> float:
    """Return P(X > threshold), rounded up by more than the error of the sum."""
    radius = math.ceil(40 * scale) + 2
    if threshold >= radius:
        return math.exp(-(threshold**2) / (2 * scale**2)) + 1e-300  # sub-Gaussian (PROOF_quorum.md, step 1)
    tail = gaussian_pmf(scale, radius)[radius + 1 + threshold :]
    return min(1.0, float(tail[::-1].sum()) * ROUND_UP + 1e-300)


def gaussian_tail_quantile(scale: float, probability: float) -> int:
    """Return the smallest threshold >= 0 with P(X > threshold) <= probability, by the rounded-up tail."""
    if probability < _LEAST:
        raise Infeasible(f"a tail of probability {probability:g} is too small to be computed; raise delta")
    radius = math.ceil(40 * scale) + 2
    tails = np.cumsum(gaussian_pmf(scale, radius)[radius + 1 :][::-1])[::-1] * ROUND_UP + 1e-300
    threshold = int(np.searchsorted(-tails, -probability))
    while threshold and gaussian_tail(scale, threshold - 1) <= probability:  # The two sums round differently.
        threshold -= 1
    while gaussian_tail(scale, threshold) > probability:
        threshold += 1
    return threshold


def laplace_tail(scale: float, threshold: int | NDArray[np.int64]) -> Floats:
    """Return P(X >= threshold), elementwise, for any integer threshold."""
    steps = np.asarray(threshold, dtype=np.float64)
    decay = math.exp(-1.0 / scale)
    upper = np.exp(-np.maximum(steps, 1) / scale) / (1 + decay)
    lower = 1 - np.exp(-np.maximum(1 - steps, 1) / scale) / (1 + decay)
    return np.where(steps >= 1, upper, lower)


def laplace_tail_quantile(scale: float, probability: float) -> int:
    """Return the largest threshold with P(X >= threshold) at least `probability`."""
    if not 0 < probability < 1:
        raise Infeasible(f"a rate of {probability} is out of reach: Laplace noise has no bound")
    low, high = -1, 1
    while not _is_passed(scale, low, probability):
        low *= 2
    while _is_passed(scale, high, probability):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _is_passed(scale, middle, probability) else (low, middle)
    return low


def _is_passed(scale: float, threshold: int, probability: float) -> bool:
    """Return whether P(X >= threshold) is at least `probability`.

    The smaller of the two tails is compared: 1 minus a small tail would round to 1.
    """
    norm = 1 + math.exp(-1.0 / scale)
    if threshold >= 1:
        return math.exp(-threshold / scale) / norm >= probability
    return math.exp(-(1 - threshold) / scale) / norm <= 1 - probability


def _geometric_part(first: float, second: float, threshold: int) -> float:
    """Return the sum over y = 1 .. threshold of f**(threshold + 1 - y) s**y, from its larger end: nothing overflows."""
    rate = 1 / first - 1 / second  # each step from y to y + 1 multiplies by exp(rate)
    largest = threshold if rate > 0 else 1
    top = math.exp(-(threshold + 1 - largest) / first - largest / second)
    return top * math.expm1(-threshold * abs(rate)) / math.expm1(-abs(rate)) if threshold else 0.0


def laplace_difference_tail(first: float, second: float, threshold: int) -> float:
    """Return P(X - Y > threshold), rounded up, for independent X, Y of these scales and threshold >= 0.

    With f = exp(-1/first), s = exp(-1/second) the sum over the law of Y has a closed form; where the two scales are so
    close that it cancels, `first` is raised a little, which only raises the tail.
    """
    if abs(first - second) < 1e-3 * second:
        first = second * (1 + 2e-3)
    f, s = math.exp(-1 / first), math.exp(-1 / second)
    joint = -math.expm1(-1 / first - 1 / second)  # 1 - f s
    centre = -math.expm1(-1 / second) / (1 + s)
    # Y >= -threshold: X must reach threshold + 1 + y >= 1, where its tail is f**(threshold + 1 + y) / (1 + f)
    plus = math.exp(-(threshold + 1) / first) / joint
    near = centre / (1 + f) * (plus + _geometric_part(first, second, threshold))
    # Y = -(threshold + 1 + j): X must reach -j, where its tail is 1 - f**(j + 1) / (1 + f)
    beyond = centre * math.exp(-(threshold + 1) / second) * (1 / -math.expm1(-1 / second) - f / (1 + f) / joint)
    return min(1.0, (near + beyond) * (1 + 2.0**-20) + 1e-300)


def excess(p: Floats, q: Floats, order: float) -> Floats:
    """Return q * phi(p / q) with phi(r) = r**order - 1 - order * (r - 1): what an outcome adds to the moment beyond 1.

    Never negative, and free of the cancellation that the plain sum of p**order * q**(1 - order) suffers.
    """
    with np.errstate(divide="ignore"):
        return excess_of_logs(np.log(p), np.log(q), order)


def excess_of_logs(log_p: Floats, log_q: Floats, order: float) -> Floats:
    """Return the same from logarithms, also where the probabilities themselves would underflow. Infinite, never nan."""
    with np.errstate(invalid="ignore", over="ignore"):
        log_ratio = log_p - log_q
        p, q = np.exp(log_p), np.exp(log_q)
        near = q * (np.expm1(order * log_ratio) - order * np.expm1(log_ratio))
        large = np.exp(order * log_ratio + log_q) + (order - 1) * q - order * p
        value = np.maximum(np.where(np.abs(order * log_ratio) < 1, near, large), 0.0)
    value = np.where(np.isneginf(log_p), (order - 1) * q, np.where(np.isnan(value), np.inf, value))
    return np.where(np.isneginf(log_q) & ~np.isneginf(log_p), np.inf, value)


TAIL_BITS = 24
_COST_BITS = 20
_LEVEL_DECIMALS = 3


def stable_up(value: float, *, bits: int = _COST_BITS) -> float:
    """Return a cost or a probability, at least 0, rounded up to this many significant bits."""
    if value == 0 or math.isinf(value):
        return value
    fraction, exponent = math.frexp(value)
    return math.ldexp(math.ceil(math.ldexp(fraction, bits)), exponent - bits)


def least_charge(cost: Cost) -> Cost:
    """Return the least that another processor charges for a cost that is rounded by `stable_up`: one step less."""
    return Cost(cost.renyi * (1 - 2.0 ** (2 - _COST_BITS)), cost.slack)


def stable_levels(levels: Floats) -> Floats:
    """Return numbers of levels rounded to thousandths; settings that differ by less are equally good."""
    return np.asarray(np.round(levels, _LEVEL_DECIMALS))
