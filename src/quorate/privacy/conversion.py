"""Between a Renyi divergence at one order and (epsilon, delta).

The conversion is that of Canonne, Kamath and Steinke (2020, Proposition 12), which PROOF.md (step 1) restates for
sub-probability measures, so that a tail event of probability `slack` may be left out and added to delta.

Rounding: an epsilon or a delta comes out rounded up, a capacity rounded down, each by more than the floating-point
error of the formula.
"""

import math
from collections.abc import Callable

from quorate.checks import check_delta, check_divergence, check_order, check_positive
from quorate.errors import Infeasible

__all__ = ["best_order", "to_capacity", "to_delta", "to_epsilon"]

_ROUNDING = 2.0**-44  # relative to the largest term; six double-precision operations err by less than 2**-49


def _shift(order: float, delta: float) -> tuple[float, float]:
    """Return epsilon minus divergence, and the magnitude that bounds its rounding error."""
    first = math.log1p(-1.0 / order)
    second = (math.log(order) + math.log(delta)) / (order - 1.0)
    return first - second, 1.0 + abs(first) + abs(second)


def to_epsilon(renyi: float, *, order: float, delta: float) -> float:
    """Return the smallest epsilon (rounded up) that a divergence at this order implies at `delta`."""
    order, renyi = check_order(order), check_divergence(renyi)
    if order == math.inf:
        return renyi
    shift, size = _shift(order, check_delta(delta, zero=False))
    return max(0.0, renyi + shift + (renyi + size) * _ROUNDING)


def to_delta(renyi: float, *, order: float, epsilon: float) -> float:
    """Return the delta (rounded up) that a divergence at this order implies at `epsilon`."""
    order, renyi = check_order(order), check_divergence(renyi)
    if order == math.inf:
        return 0.0 if renyi <= epsilon else 1.0
    log_delta = (order - 1.0) * (renyi - epsilon + math.log1p(-1.0 / order)) - math.log(order)
    log_delta += (1.0 + abs(log_delta)) * order * _ROUNDING
    return max(math.exp(log_delta), math.ulp(0.0)) if log_delta < 0 else 1.0


def to_capacity(epsilon: float, *, delta: float, order: float) -> float:
    """Return the divergence (rounded down) that may be spent at this order under (epsilon, delta).

    Negative where the order is too low for the target: nothing can be spent there.
    """
    epsilon, order = check_positive("epsilon", epsilon), check_order(order)
    if order == math.inf:
        return epsilon
    shift, size = _shift(order, check_delta(delta, zero=False))
    return (
        epsilon - shift - 2 * (epsilon + size) * _ROUNDING
    )  # twice, so that `to_epsilon` comes back to epsilon or below


def best_order(*, epsilon: float, delta: float, renyi: Callable[[float], float] | None = None) -> float:
    """Return the order at which a release of cost `renyi(order)` can be repeated most often.

    Without `renyi` the cost is taken to grow in proportion to the order, as it does for Gaussian noise and for a
    small epsilon of any kind.
    """
    if check_delta(delta) == 0:
        return math.inf
    cost: Callable[[float], float] = renyi if renyi is not None else float

    def repeats(order: float) -> float:
        return float(to_capacity(epsilon, delta=delta, order=order) / cost(order))

    grid = [1.0 + math.pow(1.25, step / 2) / 16.0 for step in range(120)]
    middle = max(range(len(grid)), key=lambda step: repeats(grid[step]))
    low, high = grid[max(middle - 1, 0)], grid[min(middle + 1, len(grid) - 1)]
    for _ in range(40):  # golden-section search on the bracket
        left, right = high - (high - low) * 0.618, low + (high - low) * 0.618
        if repeats(left) < repeats(right):
            low = left
        else:
            high = right
    order = (low + high) / 2
    if repeats(order) <= 0:
        raise Infeasible(f"no Renyi order leaves anything to spend at epsilon={epsilon}, delta={delta}; raise either")
    return order
