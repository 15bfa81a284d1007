"""Divergence of the test alone, and of the joint outcome {no quorum, winner}, by exact enumeration of the test."""

import math
from functools import lru_cache

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.moments import excess_of_logs
from quorate.core.mechanisms.rounding import stable_up
from quorate.core.privacy import gaussian_renyi

__all__ = ["joint_renyi", "pass_laws", "test_renyi"]

_ROUNDING = 1 + 2.0**-20
_LARGEST_REACH = 2**22  # integers on either side of 0


@lru_cache(maxsize=64)
def pass_laws(teachers: int, classes: int, threshold: int, scale: float) -> tuple[Floats, Floats]:
    """Return log P(pass) and log P(fail) at every value of the largest count, from the smallest to all teachers.

    Logarithms, because either may be far below what a double can hold while their ratios still count.
    """
    needed = threshold + 1 - np.arange(-(-teachers // classes), teachers + 1)  # the noise must reach this
    reach = int(np.abs(needed).max()) + math.ceil(40 * scale) + 2
    if reach > _LARGEST_REACH:
        raise InvalidInput(
            f"a threshold of {threshold} with noise of scale {scale:g} is too far from the counts to account for; "
            f"keep threshold + 40 * test_scale below {_LARGEST_REACH}"
        )
    points = np.arange(-reach, reach + 1, dtype=np.float64)
    log_law = -(points**2) / (2 * scale**2)
    above = np.logaddexp.accumulate(log_law[::-1])[::-1]
    below = np.logaddexp.accumulate(log_law)
    return above[needed + reach] - above[0], below[needed + reach - 1] - below[-1]


def _worst(passes: Floats, fails: Floats, order: float, winner_excess: float) -> float:
    """Return the largest excess over neighbouring values of the largest count, both ways (PROOF.md, step 2)."""
    worst = float(np.exp(passes.max())) * winner_excess  # the largest count does not move
    pairs = [(slice(0, -1), slice(1, None)), (slice(1, None), slice(0, -1))]
    for p, q in pairs if passes.size > 1 else []:
        total = excess_of_logs(passes[p], passes[q], order) + excess_of_logs(fails[p], fails[q], order)
        if winner_excess > 0:
            with np.errstate(over="ignore"):
                total = total + np.exp(order * passes[p] + (1 - order) * passes[q]) * winner_excess
        worst = max(worst, float(total.max()))
    return worst


def test_renyi(*, teachers: int, classes: int, threshold: int, scale: float, order: float) -> float:
    """Return the divergence of the outcome of the test."""
    plain = gaussian_renyi(scale=scale, order=order)
    if (order - 1) * plain > 600:
        return plain
    passes, fails = pass_laws(teachers, classes, threshold, scale)
    worst = _worst(passes, fails, order, 0.0)
    return min(plain, stable_up(math.log1p(worst * _ROUNDING + 1e-300) / (order - 1)))


def joint_renyi(*, teachers: int, classes: int, threshold: int, scale: float, winner: float, order: float) -> float:
    """Return the divergence of the joint outcome, given the divergence `winner` of the winner's name."""
    plain = gaussian_renyi(scale=scale, order=order) + winner
    if (order - 1) * plain > 600:  # the moment would overflow
        return plain
    passes, fails = pass_laws(teachers, classes, threshold, scale)
    worst = _worst(passes, fails, order, math.expm1((order - 1) * winner))
    return min(plain, stable_up(math.log1p(worst * _ROUNDING + 1e-300) / (order - 1)))
