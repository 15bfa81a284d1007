"""Scales, margin and cap for a target: the best found on a grid, or the published ones."""

import itertools
import math
from dataclasses import dataclass

from quorate.core.errors import Infeasible
from quorate.core.mechanisms.between_thresholds.cost import LEAST_WIDTH, band_price
from quorate.core.mechanisms.distributions import gaussian_tail, gaussian_tail_quantile, laplace_tail
from quorate.core.mechanisms.rounding import TAIL_BITS, stable_up
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity

__all__ = ["Settings", "paper_settings", "tight_settings"]

_PASSES = (  # factors tried around the best settings so far: order, share of the opening, share of slack
    ((0.7, 1.0, 1.4), (0.25, 1.0, 2.5), (0.3, 1.0)),
    ((0.85, 1.0, 1.2), (0.6, 1.0, 1.5), (0.6, 1.0, 1.7)),
    ((0.93, 1.0, 1.08), (0.8, 1.0, 1.25), (1.0,)),
)


@dataclass(frozen=True)
class Settings:
    """Public parameters of a BetweenThresholds that meets a target."""

    order: float
    threshold_scale: float
    query_scale: float
    margin: int
    cap: int
    slack: float


def _narrowest(scale: float, price: float, order: float) -> int | None:
    """Return the smallest width at which a no-quorum costs at most `price`, or None where no width does."""
    low, high = LEAST_WIDTH, math.ceil(40 * scale) + LEAST_WIDTH
    if band_price(scale=scale, width=high, order=order) > price:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if band_price(scale=scale, width=middle, order=order) <= price else (middle + 1, high)
    return high


def _best_band(price: float, order: float, hint: float | None) -> tuple[float, float, int] | None:
    """Return (reach, scale, width) with the smallest reach: half the width, and the noise that 99 in 100 stay below.

    `hint` is a scale times the square root of its price that was best for a price nearby.
    """
    best: tuple[float, float, int] | None = None
    centre, factor, rounds = (4.0, 1.6, 5) if hint is None else (hint, 1.08, 2)
    centre /= math.sqrt(price)
    for _ in range(rounds):
        for step in (0, -1, 1) if hint is not None else (0, -3, -2, -1, 1, 2, 3):
            scale = centre * factor**step
            width = _narrowest(scale, price, order)
            if width is not None and (best is None or width / 2 + math.log(50) * scale < best[0]):
                best = (width / 2 + math.log(50) * scale, scale, width)
        if best is None:
            centre *= factor**4
        else:
            centre, factor = best[1], math.sqrt(factor)
    return best


def tight_settings(epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return the settings with the smallest distance for 99% answers, found on a grid refined twice."""
    centre = (best_order(epsilon=epsilon, delta=delta * 0.9), 0.1, 0.1)
    best: tuple[float, Settings, float] | None = None
    hint: float | None = None
    for factors in _PASSES:
        around = centre
        for a, b, c in itertools.product(*factors):
            point = (1 + (around[0] - 1) * a, min(0.9, around[1] * b), min(0.9, around[2] * c))
            settings = _tight(*point, epsilon=epsilon, delta=delta, no_quorums=no_quorums, hint=hint)
            if settings is not None and (best is None or settings[0] < best[0]):
                centre, best, hint = point, settings, settings[2]
    if best is None:
        raise Infeasible(f"nothing can be spent at epsilon={epsilon}, delta={delta}; raise either")
    return best[1]


def _tight(
    order: float,
    opening: float,
    slack: float,
    *,
    epsilon: float,
    delta: float,
    no_quorums: int,
    hint: float | None,
) -> tuple[float, Settings, float] | None:
    capacity = to_capacity(epsilon, delta=delta * (1 - slack), order=order)
    if capacity <= 0:
        return None
    threshold_scale = math.sqrt(order / (2 * opening * capacity))
    cap = gaussian_tail_quantile(threshold_scale, delta * slack)
    tail = gaussian_tail(threshold_scale, cap)
    capacity = to_capacity(epsilon, delta=delta - tail, order=order) - (no_quorums + 1) / RENYI_QUANTA
    price = (capacity - gaussian_renyi(scale=threshold_scale, order=order)) * (order - 1) / no_quorums * (1 - 2.0**-40)
    band = _best_band(price, order, hint) if price > 0 else None
    if band is None:
        return None
    reach, scale, width = band
    margin = cap + (width + 1) // 2  # an odd number of teachers makes the band one narrower
    return cap + reach, Settings(order, threshold_scale, scale, margin, cap, tail), scale * math.sqrt(price)


def paper_settings(epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return the constants of Naor, Nissim, Stemmer and Yan (2023).

    Noise of scale 2/e0 and 6/e0 and a gap of (12/e0)(log(10/e0) + log(1/d0) + 1) with d0 = delta / 2c, where e0 solves
    sqrt(2 c log(1/(c d0))) e0 + c e0 (exp(e0) - 1) = epsilon, at most 1: their Observation 1, corrected.
    """
    each_delta = delta / (2 * no_quorums)
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        total = math.sqrt(2 * no_quorums * math.log(1 / (no_quorums * each_delta))) * middle
        total += no_quorums * middle * math.expm1(middle)
        low, high = (middle, high) if total <= epsilon else (low, middle)
    threshold_scale, query_scale = 2 / low, 6 / low
    gap = 12 / low * (math.log(10 / low) + math.log(1 / each_delta) + 1)
    cap = max(
        0, math.ceil(threshold_scale * math.log(1 / each_delta))
    )  # P(mu > cap) is below half of exp(-cap / scale)
    tail = stable_up(float(laplace_tail(threshold_scale, cap + 1)) * (1 + 2.0**-39), bits=TAIL_BITS)
    order = best_order(epsilon=epsilon, delta=delta * 0.9)
    return Settings(order, threshold_scale, query_scale, math.ceil(gap / 2), cap, tail)
