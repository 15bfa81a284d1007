"""Choosing order, threshold noise and price so that the distance needed for an answer is smallest."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from quorate.core.errors import Infeasible
from quorate.core.mechanisms.distributions import gaussian_tail, gaussian_tail_quantile
from quorate.core.mechanisms.quorum.table import levels_needed
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity

__all__ = ["Settings", "best_settings"]

_MISS = 0.01  # the distance is measured where 99 in 100 queries are answered at threshold noise 0
_PASSES = (  # factors tried around the best settings so far: order, share of the opening, share of slack
    ((0.6, 0.8, 1.0, 1.25, 1.6, 2.0), (0.2, 0.45, 1.0, 2.0, 3.5), (0.2, 1.0, 3.0)),
    ((0.86, 0.93, 1.0, 1.08, 1.16), (0.7, 0.85, 1.0, 1.2, 1.4), (0.5, 0.75, 1.0, 1.5)),
    ((0.96, 0.98, 1.0, 1.02, 1.04), (0.9, 0.95, 1.0, 1.05, 1.1), (0.8, 0.9, 1.0, 1.1, 1.25)),
)


@dataclass(frozen=True)
class Settings:
    """Public parameters of a Quorum that meets a target."""

    order: float
    threshold_scale: float
    margin: int
    slack: float
    price: float


def _settings(
    order: float, opening: float, slack: float, *, epsilon: float, delta: float, no_quorums: int
) -> Settings | None:
    """Return the settings that spend the whole target, or None where this order has nothing to spend."""
    capacity = to_capacity(epsilon, delta=delta * (1 - slack), order=order)
    if capacity <= 0:
        return None
    scale = math.sqrt(order / (2 * opening * capacity))
    margin = gaussian_tail_quantile(scale, delta * slack)
    tail = gaussian_tail(scale, margin)
    capacity = to_capacity(epsilon, delta=delta - tail, order=order)  # what the tail did not use goes back
    capacity -= (no_quorums + 1) / RENYI_QUANTA  # each charge is rounded up
    price = (capacity - gaussian_renyi(scale=scale, order=order)) * (order - 1) / no_quorums
    return Settings(order, scale, margin, tail, price * (1 - 2.0**-40)) if price > 0 else None


def best_settings(*, epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return the settings with the smallest distance for 99% answers, found on a grid refined twice."""
    centre = (best_order(epsilon=epsilon, delta=delta * 0.9), 0.1, 0.1)
    best: tuple[float, Settings] | None = None
    for factors in _PASSES:
        points = [
            (1 + (centre[0] - 1) * a, min(0.9, centre[1] * b), min(0.9, centre[2] * c))
            for a, b, c in itertools.product(*factors)
        ]
        candidates = [_settings(*point, epsilon=epsilon, delta=delta, no_quorums=no_quorums) for point in points]
        kept = [(point, settings) for point, settings in zip(points, candidates, strict=True) if settings is not None]
        if not kept:
            raise Infeasible(f"nothing can be spent at epsilon={epsilon}, delta={delta}; raise either")
        margins = np.array([float(settings.margin) for _, settings in kept])
        levels = levels_needed(
            np.array([settings.order for _, settings in kept]),
            np.array([settings.price for _, settings in kept]),
            miss=_MISS,
            start=margins,
        )
        distance = margins + 2 * levels - 1
        winner = int(distance.argmin())
        if best is None or distance[winner] < best[0]:
            centre, best = kept[winner][0], (float(distance[winner]), kept[winner][1])
    assert best is not None
    return best[1]
