"""Choosing order, threshold noise and price so that a dissent is near-certain from the smallest half-gap on."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from quorate.core.errors import Infeasible
from quorate.core.mechanisms.distributions import gaussian_tail_quantile
from quorate.core.mechanisms.quorum.table import levels_needed
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity

__all__ = ["RATE", "Settings", "best_settings", "half_gaps_needed", "settings_within"]

RATE = 0.99  # of queries, and of runs, in which what was calibrated for happens
_PASSES = (  # factors tried around the best settings so far: order, share of the opening
    ((0.7, 0.9, 1.1, 1.35, 1.7, 2.2), (0.15, 0.35, 0.6, 1.0, 1.6, 2.5)),
    ((0.8, 0.9, 1.0, 1.1, 1.22), (0.65, 0.8, 1.0, 1.25, 1.5)),
    ((0.94, 0.97, 1.0, 1.03, 1.06), (0.86, 0.93, 1.0, 1.07, 1.15)),
)


@dataclass(frozen=True)
class Settings:
    """Public parameters of a Dissent that meets a target; its margin follows from them and from the table."""

    order: float
    threshold_scale: float
    price: float


def settings_within(capacity: float, *, order: float, opening: float, dissents: int) -> Settings | None:
    """Return the settings that spend this capacity, this share of it on the opening; None where nothing is left."""
    if capacity <= 0:
        return None
    scale = math.sqrt(order / (2 * opening * capacity))
    rest = capacity - gaussian_renyi(scale=scale, order=order) - (dissents + 1) / RENYI_QUANTA  # charges are rounded up
    price = rest * (order - 1) / dissents
    return Settings(order, scale, price * (1 - 2.0**-40)) if price > 0 else None


def half_gaps_needed(candidates: list[Settings], *, standing: float = RATE) -> list[float]:
    """Return the half-gap from which each reports a dissent, where it lets the student stand at half-gap 0.

    The threshold noise is allowed for on both sides, in 99 runs of 100. Only the smallest is exact, up to rounding to
    whole levels; the search stops when no other can be smaller and leaves those at infinity.
    """
    order = np.array([settings.order for settings in candidates])
    price = np.array([settings.price for settings in candidates])
    reach = np.array([float(gaussian_tail_quantile(settings.threshold_scale, 1 - RATE)) for settings in candidates])
    start = 2 * (reach - levels_needed(order, price, miss=RATE))
    needed: list[float] = (start + 2 * levels_needed(order, price, miss=1 - standing, start=start)).tolist()
    return needed


def best_settings(*, epsilon: float, delta: float, dissents: int, standing: float = RATE) -> Settings:
    """Return the settings with the smallest such half-gap within (epsilon, delta), found on a grid refined twice."""
    centre = (best_order(epsilon=epsilon, delta=delta), 0.15)
    best: tuple[float, Settings] | None = None
    for factors in _PASSES:
        kept = []
        for factor, share in itertools.product(*factors):
            order, opening = 1 + (centre[0] - 1) * factor, min(0.9, centre[1] * share)
            capacity = to_capacity(epsilon, delta=delta, order=order)  # all of delta: there is no slack
            settings = settings_within(capacity, order=order, opening=opening, dissents=dissents)
            if settings is not None:
                kept.append(((order, opening), settings))
        if not kept:
            raise Infeasible(f"nothing can be spent at epsilon={epsilon}, delta={delta}; raise either")
        needed = half_gaps_needed([settings for _, settings in kept], standing=standing)
        winner = int(np.argmin(needed))
        if best is None or needed[winner] < best[0]:
            centre, best = kept[winner][0], (needed[winner], kept[winner][1])
    assert best is not None
    return best[1]
