"""The exact trade-off of Gaussian noise, carried over to the discrete Gaussian. PROOF.md, steps 2 to 4.

Rounding: a delta comes out rounded up, a length that is allowed comes out rounded down.
"""

import math
from collections.abc import Callable

__all__ = [
    "ROUNDING_VARIANCE",
    "discrete_delta",
    "discrete_loss",
    "gaussian_delta",
    "largest_length",
    "smallest_excess",
]

ROUNDING_VARIANCE = 1.5625  # of each scale, given up for the step from continuous to discrete noise (step 2)
_DISTANCE = 2.0001 * math.exp(-2 * math.pi**2 * ROUNDING_VARIANCE)  # step 2: eta, about 8e-14
_MARGIN = 1e-10  # relative, above the rounding of the formula below where its arguments are below 100 (step 4)


def _below(place: float) -> float:
    """Return the probability that a standard Gaussian is below this place."""
    return math.erfc(-place / math.sqrt(2)) / 2


def gaussian_delta(epsilon: float, length: float) -> float:
    """Return the delta of Gaussian noise for a change of this length in units of the noise (Balle and Wang 2018)."""
    if length <= 0:
        return 0.0
    first, second = -epsilon / length + length / 2, -epsilon / length - length / 2
    if max(abs(first), abs(second)) > 100:  # too far out for the margin below: the tail alone is a bound
        return 1.0 if first > 0 else max(_below(max(first, -37.0)), 1e-300)
    if epsilon > 700 or second < -37:  # no float holds exp, or holds the tail to a few digits only: leave it out
        return min(1.0, _below(first) * (1 + _MARGIN) + 1e-300)
    largest = _below(first)
    return min(1.0, largest - math.exp(epsilon) * _below(second) + _MARGIN * largest + 1e-300)


def discrete_loss(entries: int) -> float:
    """Return what the step from continuous to discrete noise adds to a log ratio where at most `entries` change."""
    return 4 * _DISTANCE * entries


def discrete_delta(epsilon: float, length: float, *, entries: int) -> float:
    """Return the delta of discrete Gaussian noise where at most `entries` entries change.

    `length` is the change in units of the noise less the rounding variance: step 3.
    """
    loss = discrete_loss(entries)
    if loss >= epsilon:
        return 1.0
    return min(1.0, gaussian_delta(epsilon - loss, length) * math.exp(loss))  # proof: step 3


def largest_length(*, epsilon: float, delta: float, entries: int) -> float:
    """Return the longest change that (epsilon, delta) allows, 0.0 where it allows none. It was seen to hold."""
    low, high = 0.0, 2.0
    while discrete_delta(epsilon, high, entries=entries) <= delta and high < 2.0**20:
        low, high = high, 2 * high
    return _halved(low, high, lambda length: discrete_delta(epsilon, length, entries=entries) <= delta)[0]


def smallest_excess(length: float, *, delta: float, entries: int) -> float:
    """Return the epsilon that a change of this length takes at `delta`, rounded up."""
    low, high = 0.0, 1.0
    while discrete_delta(high, length, entries=entries) > delta:
        low, high = high, 2 * high
        if high > 2.0**20:
            return math.inf
    return _halved(low, high, lambda epsilon: discrete_delta(epsilon, length, entries=entries) > delta)[1]


def _halved(low: float, high: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return two numbers next to each other, of which it holds at the first alone, as it does of the two given."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
