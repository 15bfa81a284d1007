"""The smallest epsilon over Renyi orders, for costs that are expensive to evaluate."""

import math
from collections.abc import Callable

from quorate.core.checks import check_delta
from quorate.core.errors import Infeasible
from quorate.core.privacy import to_epsilon

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
