"""The price of a no-quorum between two thresholds, for discrete Laplace noise on the votes. PROOF.md has the steps.

The band of no quorum holds `width` integers; between neighbours with coupled thresholds it loses one at either end and
the votes move by -1, 0 or 1. The price only falls when the band widens (step 4) and when it moves into the tail of the
noise (step 5), so the narrowest band is scanned at its central positions alone.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.distributions import laplace_tail
from quorate.core.mechanisms.rounding import stable_up

__all__ = ["LEAST_WIDTH", "band_log_ratio", "band_price"]

LEAST_WIDTH = 7  # below, neither end of the band need lie in the tail, and step 4 does not apply
_MARGIN = 2.0**-30


def _mass(scale: float, low: NDArray[np.int64], high: NDArray[np.int64]) -> Floats:
    """Return P(low <= noise <= high) without cancellation: taken on the side of 0 where the band mostly lies."""
    flip = low + high < 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    decay = math.exp(-1 / scale)
    inside = -np.expm1(-(high - low + 1) / scale) * np.exp(-np.maximum(low, 1) / scale) / (1 + decay)
    straddling = 1 - laplace_tail(scale, 1 - low) - laplace_tail(scale, high + 1)
    return np.where(low >= 1, inside, straddling)


@lru_cache(maxsize=4096)
def band_price(*, scale: float, width: int, order: float) -> float:
    """Return the price s of a no-quorum, rounded up: the worst over all positions of a band of at least `width`."""
    width = min(
        width, max(LEAST_WIDTH, math.ceil(40 * scale))
    )  # a narrower band costs more (step 4); no tail underflows
    low = np.arange(-(width // 2) - 2, 4, dtype=np.int64)  # the other half is the mirror image, with the moves mirrored
    high = low + width - 1
    zero, one = laplace_tail(scale, 1 - low), laplace_tail(scale, high + 1)
    band = _mass(scale, low, high)
    worst = 0.0
    for move in (-1, 0, 1):
        zero_after, one_after = laplace_tail(scale, -low - move), laplace_tail(scale, high + move)
        band_after = _mass(scale, low + 1 + move, high - 1 + move)
        # 1 - sum over labels of p**a q**(1-a): each label's term is p (p/q)**(a-1), and 1 = band + zero + one
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = sum(-p * np.expm1((order - 1) * np.log(p / q)) for p, q in ((zero, zero_after), (one, one_after)))
            price = order * np.log(band) - (order - 1) * np.log(band_after) - np.log(band + lost)
        if not np.isfinite(price).all():
            raise InvalidInput(f"query_scale={scale!r} is too small for a certified price; use at least 0.02")
        worst = max(worst, float(price.max()))
    return stable_up(worst * (1 + _MARGIN) + order * 2.0**-36)


def band_log_ratio(*, scale: float, width: int) -> float:
    """Return the largest log ratio of the probabilities of no quorum between neighbours (step 6), rounded up."""
    return (2 / scale + math.log(-math.expm1(-width / scale) / -math.expm1(-(width - 2) / scale))) * (1 + 2.0**-40)
