"""The cost of a release, and the rules by which costs are converted and combined. Proofs in PROOF.md.

Between a Renyi divergence at one order and (epsilon, delta), the conversion is that of Canonne, Kamath and Steinke
(2020, Proposition 12), which PROOF.md (step 1) restates for sub-probability measures, so that a tail event of
probability `slack` may be left out and added to delta. The divergences of the standard mechanisms are upper bounds, as
functions of the order (step 4).

Rounding: an epsilon, a delta or a cost comes out rounded up, a capacity rounded down, each by more than the
floating-point error of the formula.

Amplification by sampling without replacement is for replace-one neighbours (Balle, Barthe and Gaboardi 2018). Its
result is an (epsilon, delta) statement. It cannot be put back into a budget that is kept at one Renyi order: a run that
is amplified has a budget of its own.

Relabelling a data set by a privately chosen hypothesis adds to the epsilon of whatever is run on it. The hypothesis is
chosen among one representative of each dichotomy of the distinct points with probability proportional to
exp(-kappa * mistakes / 2). The sum `epsilon + relabelling_epsilon(...)` keeps delta as it is, and the same term is
added to a Renyi divergence of any order (step 6).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from quorate.core.checks import check_count, check_delta, check_divergence, check_order, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput


def float_up(exact: Fraction) -> float:
    """Return the smallest double that is at least `exact`."""
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)


def float_down(exact: Fraction) -> float:
    """Return the largest double that is at most `exact`."""
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)


def text_up(value: float) -> str:
    """Return a number as a short text, rounded up, for a claim."""
    short = f"{value:g}"
    return short if float(short) >= value else repr(float(value))


@dataclass(frozen=True, slots=True)
class Cost:
    """An upper bound on the cost of one release, at the one order of the budget that pays for it.

    `renyi` is the Renyi divergence at that order (at order infinity, plain epsilon). `slack` is the probability of
    the tail event that the divergence leaves out; it is paid from the budget's share of delta.

    >>> from quorate.core.privacy import Budget
    >>> Budget(epsilon=1.0, delta=1e-6).affordable(Cost(renyi=0.01))  # how many such releases it pays for
    53
    """

    renyi: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.renyi < float("inf"):
            raise InvalidInput(f"renyi must be at least 0 and finite, got {self.renyi!r}")
        if not 0 <= self.slack < 1:
            raise InvalidInput(f"slack must be at least 0 and below 1, got {self.slack!r}")

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            float_up(Fraction(self.renyi) + Fraction(other.renyi)),
            float_up(Fraction(self.slack) + Fraction(other.slack)),
        )

    def times(self, count: int) -> "Cost":
        """Return the cost of `count` releases like this one, rounded up."""
        count = check_count("count", count, least=0)
        return Cost(float_up(Fraction(self.renyi) * count), float_up(Fraction(self.slack) * count))


_ROUNDING = 2.0**-44  # relative to the largest term; six double-precision operations err by less than 2**-49
_RECOMPUTED = 1 + 2.0**-40  # less than the rounding up of every value that is compared


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


def exceeds(value: float, bound: float) -> bool:
    """Return whether a value that was rounded up by 2**-34 or more exceeds a bound.

    The bound may be the same value from another processor, which is then not exceeded.
    """
    return value > bound * _RECOMPUTED


def to_capacity(epsilon: float, *, delta: float, order: float) -> float:
    """Return the divergence (rounded down) that may be spent at this order under (epsilon, delta).

    Negative if the order is too low for the target: nothing can be spent at it.
    """
    epsilon, order = check_positive("epsilon", epsilon), check_order(order)
    if order == math.inf:
        return epsilon
    shift, size = _shift(order, check_delta(delta, zero=False))
    # Twice the rounding, so that `to_epsilon` comes back to epsilon or below.
    return epsilon - shift - 2 * (epsilon + size) * _ROUNDING


def best_order(*, epsilon: float, delta: float, renyi: Callable[[float], float] | None = None) -> float:
    """Return the order at which a release of cost `renyi(order)` can be repeated most often.

    Without `renyi` the cost is taken to grow in proportion to the order, as it does for Gaussian noise and for a
    small epsilon of any kind.
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    if delta == 0:
        return math.inf
    return _usual_order(epsilon, delta) if renyi is None else _search_order(epsilon, delta, renyi)


@lru_cache(maxsize=256)
def _usual_order(epsilon: float, delta: float) -> float:
    return _search_order(epsilon, delta, float)


def _search_order(epsilon: float, delta: float, cost: Callable[[float], float]) -> float:
    def repeats(order: float) -> float:
        return float(to_capacity(epsilon, delta=delta, order=order) / cost(order))

    grid = [1.0 + math.pow(1.25, step / 2) / 16.0 for step in range(120)]
    middle = max(range(len(grid)), key=lambda step: repeats(grid[step]))
    low, high = grid[max(middle - 1, 0)], grid[min(middle + 1, len(grid) - 1)]
    for _ in range(40):  # golden-section search on the bracket
        lower, upper = high - (high - low) * 0.618, low + (high - low) * 0.618
        if repeats(lower) < repeats(upper):
            low = lower
        else:
            high = upper
    order = (low + high) / 2
    if repeats(order) <= 0:
        raise Infeasible(f"no Renyi order leaves anything to spend at epsilon={epsilon}, delta={delta}; raise either")
    return order


def halve_interval(low: float, high: float, holds: Callable[[float], bool], *, steps: int = 80) -> tuple[float, float]:
    """Return the ends of an interval halved so often: `holds` is true at the first and false at the second."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _log_mean(terms: list[tuple[float, float]]) -> float:
    """Return log of the sum of exp(a) * b over (a, b)."""
    top = max(exponent for exponent, weight in terms if weight > 0)
    return top + math.log(math.fsum(weight * math.exp(exponent - top) for exponent, weight in terms))


def _round_up(value: float) -> float:
    """Return a value above the exact result of a handful of double-precision operations that gave this one."""
    return value * (1 + 2.0**-40)


def pure_renyi(epsilon: float, *, order: float) -> float:
    """Return the largest divergence that any epsilon-DP release can have: that of randomised response.

    Never above `min(epsilon, order * epsilon**2 / 2)`.
    """
    epsilon, order = check_positive("epsilon", epsilon), check_order(order)
    if order == math.inf:
        return epsilon
    likely = 1.0 / (1.0 + math.exp(-epsilon))
    value = _log_mean([((order - 1) * epsilon, likely), (-(order - 1) * epsilon, 1.0 - likely)]) / (order - 1)
    return min(epsilon, _round_up(order * epsilon**2 / 2), _round_up(value) + 2.0**-50 / (order - 1))


def exponential_renyi(epsilon: float, *, order: float) -> float:
    """Return a bound for a release whose log ratios span at most epsilon (the exponential mechanism)."""
    epsilon, order = check_positive("epsilon", epsilon), check_order(order)
    return epsilon if order == math.inf else min(_round_up(order * epsilon**2 / 8), pure_renyi(epsilon, order=order))


def gaussian_renyi(*, scale: float, order: float, sensitivity: float = 1.0) -> float:
    """Return the divergence of (discrete) Gaussian noise for an (integer) change of this L2 length.

    A group of r units costs what `r * sensitivity` costs.
    """
    ratio = check_positive("sensitivity", sensitivity) / check_positive("scale", scale)
    return _round_up(check_order(order) * ratio**2 / 2)


_UP = 1 + 2.0**-48


def amplify(*, epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """Return (epsilon, delta), rounded up, of a mechanism run on a secret random share of the units."""
    epsilon, delta, rate = check_positive("epsilon", epsilon), check_delta(delta), check_rate("rate", rate)
    if epsilon < 30:
        sampled = math.log1p(rate * math.expm1(epsilon))
    else:  # the same, where the exponential would overflow
        sampled = epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon)) + epsilon * 2.0**-50
    return min(epsilon, sampled * _UP), min(delta, rate * delta * _UP)


def amplify_inverse(*, epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """Return the (epsilon, delta), rounded down, of a mechanism whose amplified run meets the target."""
    epsilon, delta, rate = check_positive("epsilon", epsilon), check_delta(delta), check_rate("rate", rate)
    if epsilon < 30:
        inner = math.log1p(math.expm1(epsilon) / rate)
    else:
        inner = epsilon + math.log(1 / rate - (1 - rate) / rate * math.exp(-epsilon)) - epsilon * 2.0**-50
    return inner / _UP, min(delta / rate, 1.0 - 2.0**-53) / _UP


def relabelling_epsilon(
    *, kappa: float, change: Literal["labelled", "unlabelled"] = "labelled", rows: int = 1
) -> float:
    """Return the term (rounded up) for a unit of `rows` labelled or unlabelled points."""
    kappa, rows = check_positive("kappa", kappa), check_count("rows", rows)
    if change == "labelled":
        log_ratio = 2 * (kappa / 2 + math.log1p(math.exp(-kappa / 2)))
    elif change == "unlabelled":
        log_ratio = math.log(4.0)
    else:
        raise InvalidInput(f"change must be 'labelled' or 'unlabelled', got {change!r}")
    return rows * log_ratio * (1 + 2.0**-48)
