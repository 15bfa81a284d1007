"""Searches over public numbers: the smallest epsilon over Renyi orders, the least noise, the price of each charge."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.checks import check_delta
from quorate.core.errors import Infeasible, QuorateError
from quorate.core.privacy import best_order, to_epsilon

Settings = TypeVar("Settings")

_RATIO = 1.3
_LEAST_SCALE = 1e-3  # less noise than this is no noise


def rest_of_delta(delta: float, slack: float) -> float:
    """Return what is left of delta once the mechanism's slack is taken out."""
    rest = check_delta(delta, zero=False) - slack
    if rest <= 0:
        raise Infeasible(f"delta={delta} must exceed the mechanism's own slack of {slack:.3g}")
    return rest


def smallest_epsilon(renyi: Callable[[float], float], *, delta: float, slack: float = 0.0) -> tuple[float, float]:
    """Return (epsilon, order): the smallest epsilon found, and the order it was found at. An upper bound at any order.

    `slack` is taken out of delta first. The cost is evaluated at about twenty orders.
    """
    rest = rest_of_delta(delta, slack)
    seen: dict[float, float] = {}

    def epsilon(order: float) -> float:
        if order not in seen:
            seen[order] = to_epsilon(renyi(order), order=order, delta=rest)
        return seen[order]

    order = 16.0
    for factor in (_RATIO, 1 / _RATIO):  # walk downhill from the middle of the usual range
        while 1.01 < order < 10**5 and 1 + (order - 1) * factor > 1.01:
            following = 1 + (order - 1) * factor
            if epsilon(following) >= epsilon(order):
                break
            order = following
    low, high = 1 + (order - 1) / _RATIO, 1 + (order - 1) * _RATIO
    for _ in range(7):
        lower, upper = high - (high - low) * 0.618, low + (high - low) * 0.618
        if epsilon(lower) < epsilon(upper):
            high = upper
        else:
            low = lower
    best = min(seen, key=seen.__getitem__)
    return (seen[best], best) if math.isfinite(seen[best]) else (math.inf, best)


def refined_epsilon(renyi: Callable[[float], float], smallest: float, *, delta: float) -> float:
    """Return an epsilon no larger than the one given, at the best order for it, for costs that are cheap to evaluate.

    The best order for an epsilon close by gives a closer one.
    """
    for _ in range(3):
        try:
            order = best_order(epsilon=smallest, delta=delta)
        except QuorateError:  # too small or too large an epsilon for any order to matter
            break
        smallest = min(smallest, to_epsilon(renyi(order), order=order, delta=delta))
    return smallest


def largest_epsilon(low: float, high: float, fits: Callable[[float], bool]) -> float:
    """Return an epsilon that was seen to fit, within a millionth of the largest; `low` fits, or nothing does."""
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def search_grid(
    centre: tuple[float, ...],
    passes: Sequence[Sequence[Sequence[float]]],
    settle: Callable[..., Settings | None],
    measure: Callable[[list[Settings]], Sequence[float] | Floats],
) -> Settings:
    """Return the settings of the smallest measure on a grid that each pass refines around the best point so far.

    A point is an order, whose distance from 1 is multiplied by the factors of a pass, and shares, kept below 0.9.
    `settle` returns the settings at a point, or None where nothing can be spent there.
    """
    best: tuple[float, Settings] | None = None
    for factors in passes:
        feasible = []
        for first, *factors_of_shares in itertools.product(*factors):
            shares = (min(0.9, share * factor) for share, factor in zip(centre[1:], factors_of_shares, strict=True))
            point = (1 + (centre[0] - 1) * first, *shares)
            if (settings := settle(*point)) is not None:
                feasible.append((settings, point))
        if not feasible:
            raise Infeasible("nothing can be spent at this epsilon and delta; raise either")
        measures = np.asarray(measure([settings for settings, _ in feasible]))
        winner = int(measures.argmin())
        if best is None or measures[winner] < best[0]:
            best, centre = (float(measures[winner]), feasible[winner][0]), feasible[winner][1]
    assert best is not None
    return best[1]


def smallest_scale(cost: Callable[[float], float], *, target: float, guess: float) -> float:
    """Return a scale whose cost was seen to be at most `target`, within a thousandth or so of the smallest.

    Costs fall about like 1 / scale**2, so each step aims there; where that leaves the bracket, it is halved.
    """
    low, high, scale, grow = 0.0, math.inf, guess, 0.0005
    for _ in range(60):
        value = cost(scale)
        if value <= target:
            high = min(high, scale)
            if value >= target * (1 - 2e-3):
                break
        else:
            low = max(low, scale)
        if high <= low * 1.001 or high < _LEAST_SCALE:
            break
        aim = scale * math.sqrt(value / target) * (1 + 1e-4) if value < math.inf else 2 * scale
        if math.isinf(high):
            grow *= 2  # a cost that hardly falls is not waited for
            scale = min(max(aim, scale * (1 + grow)), scale * 4)
        elif low == 0:
            scale = max(min(aim, scale * 0.999), scale / 4)
        else:
            scale = aim if low < aim < high else math.sqrt(max(low, high / 4) * min(high, 4 * low))
    if math.isinf(high):
        raise Infeasible(f"no amount of noise brings the cost down to {target:.3g}; ask fewer queries or raise epsilon")
    return high
