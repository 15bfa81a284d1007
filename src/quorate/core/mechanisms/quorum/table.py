"""The table of no-quorum probabilities: pointwise the smallest for one Renyi order and one price.

Level i holds G_i, the probability of no quorum when the distance passes the threshold by 2i - 1 or 2i, as a whole
number of 2**-64. Between neighbouring data sets a query stays on its level or goes one down; PROOF.md (steps 3 and 4)
shows that this costs at most the price for a no-quorum and nothing for an answer.
"""

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.mechanisms.rounding import exceeds, least_charge, stable_levels
from quorate.core.noise import NoiseSource
from quorate.core.privacy import Cost

__all__ = ["FLOOR", "ONE", "LookedUp", "build_table", "check_table", "levels_needed", "table_price"]

ONE = 2**64
FLOOR = 2**24  # in units of 2**-64: a clear ballot still misses its quorum once in 10**12
_LOG_ONE = 64 * math.log(2)
_MARGIN, _ROUNDING = (
    2.0**-34,
    2.0**-40,
)  # above the error of a price in doubles; the tests compare with exact arithmetic
_BELOW = 1 - 2.0**-44  # A table is built this far below its price, so that another processor accepts it.
_CUTS = (0.0, 1e-9, 1e-7, 1e-5, 1e-3)  # of the price, tried until the table costs no more


def _log_survival(log_level: Floats) -> Floats:
    """Return log(1 - exp(log_level)) without cancellation."""
    with np.errstate(divide="ignore"):
        return np.where(log_level > -0.7, np.log(-np.expm1(log_level)), np.log1p(-np.exp(log_level)))


def _price(log_p: Floats, log_q: Floats, order: Floats) -> tuple[Floats, Floats]:
    """Return the price of going from level p to level q, and the exponent of the answers' term."""
    kept = order * _log_survival(log_p) - (order - 1) * _log_survival(log_q)
    with np.errstate(divide="ignore"):
        return order * log_p - (order - 1) * log_q - np.log(-np.expm1(kept)), kept


def _next_level(log_p: Floats, order: Floats, price: Floats, fall: Floats | None = None) -> Floats:
    """Return the log of the smallest level that can follow `log_p` at this price, elementwise.

    Newton's method on a convex decreasing function. `far` lies left of its root, from where every step stays left; a
    guess at the fall from `log_p`, taken from the step before, saves half of the steps.
    """
    far = log_p + np.maximum(log_p - price, -price - np.log(order)) / (order - 1)
    log_q = far if fall is None else np.maximum(far, log_p - fall)
    for _ in range(60):
        value, kept = _price(log_p, log_q, order)
        slope = (order - 1) * (np.exp(kept + log_q - _log_survival(log_q)) / -np.expm1(kept) - 1)
        step = (value - price) / slope
        log_q = np.maximum(far, log_q - step)
        if np.all(np.abs(step) <= 2.0**-26 * (log_p - log_q)):  # quadratic convergence: the next step would be 2**-52
            break
    return log_q


def _next_level_of_one(log_p: float, order: float, price: float, fall: float) -> float:
    """Do what `_next_level` does for a single table, forty times as fast: a table may have ten thousand levels."""
    far = log_p + max(log_p - price, -price - math.log(order)) / (order - 1)
    log_q = max(far, log_p - fall)
    kept_p = -math.inf if log_p == 0 else order * math.log1p(-math.exp(log_p))
    for _ in range(60):
        level = math.exp(log_q)
        kept = kept_p - (order - 1) * math.log1p(-level)
        lost = -math.expm1(kept)
        value = order * log_p - (order - 1) * log_q - math.log(lost)
        step = (value - price) / ((order - 1) * (math.exp(kept) * level / (1 - level) / lost - 1))
        log_q = max(far, log_q - step)
        if abs(step) <= 2.0**-26 * (log_p - log_q):
            break
    return log_q


def build_table(*, order: float, price: float) -> tuple[int, ...]:
    """Return the levels from `ONE` down to `FLOOR`, each rounded up to a multiple of 2**-64."""
    inner = (price - order * _ROUNDING) / (1 + 2 * _MARGIN)
    if inner <= 0:
        raise InvalidInput(f"price={price!r} is too small to tell from rounding at order {order!r}")
    for cut in _CUTS:  # a level is found to half the digits only, which shows where the price is tiny
        table = _fall(order, inner * (1 - cut))
        if table_price(table, order=order) <= price * _BELOW:
            return table
    raise InvalidInput(f"price={price!r} is too small to tell from rounding at order {order!r}")


def _fall(order: float, price: float) -> tuple[int, ...]:
    """Return the levels, each so far below the one before that the step costs this price, but for rounding."""
    levels, log_level, fall = [ONE], 0.0, math.inf
    while levels[-1] > FLOOR:
        log_next = _next_level_of_one(log_level, order, price, fall)
        level = math.ceil(math.exp(log_next + _LOG_ONE) * (1 + 2.0**-44)) + 1
        levels.append(min(max(level, FLOOR), levels[-1] - 1))
        log_next = math.log(levels[-1]) - _LOG_ONE
        log_level, fall = log_next, 1.1 * (log_level - log_next)
    return tuple(levels)


def _exact_logs(level: int) -> tuple[float, float]:
    """Return log G and log(1 - G) for a level, from the integers: neither is lost to rounding near 0 or near 1."""
    part, rest = level / ONE, (ONE - level) / ONE
    if rest == 0:
        return 0.0, -math.inf
    return (math.log1p(-rest), math.log(rest)) if rest < 0.5 else (math.log(part), math.log1p(-part))


def table_price(table: tuple[int, ...], *, order: float) -> float:
    """Return the price of this table at this order, rounded up: the worst step between two consecutive levels."""
    logs, kept = np.array([_exact_logs(level) for level in table]).T
    if len(logs) < 2:
        return 0.0
    answers = order * kept[:-1] - (order - 1) * kept[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = order * logs[:-1] - (order - 1) * logs[1:] - np.log(-np.expm1(answers))
    if not np.isfinite(steps).all():
        raise InvalidInput("table must fall strictly from 2**64 to a positive level")
    return max(0.0, float(steps.max())) * (1 + _MARGIN) + order * _ROUNDING


def check_table(table: tuple[int, ...], *, order: float, price: float) -> None:
    """Refuse a table that does not fall from certainty, or costs more than its price at this order."""
    if not table or table[0] != ONE or any(a <= b for a, b in itertools.pairwise(table)):
        raise InvalidInput("table must fall strictly from 2**64 to a positive level")
    if exceeds(table_price(table, order=order), price):
        raise InvalidInput(f"table costs more than price={price!r} at order {order!r}; build it with build_table")


def levels_needed(order: Floats, price: Floats, *, miss: float, start: Floats | None = None) -> Floats:
    """Return, elementwise, how many levels down the probability of no quorum is `miss`, interpolated to thousandths.

    With `start`, only the smallest `start + 2 * levels` matters: the search stops when no other can be smaller, and
    leaves those at infinity.
    """
    log_level, target = np.zeros(order.shape), math.log(miss)
    needed = np.full(order.shape, np.inf)
    fall: Floats | None = None
    for level in itertools.count(1):
        below = _next_level(log_level, order, price, fall)
        reached = np.isinf(needed) & (below <= target)
        needed[reached] = level - 1 + (log_level[reached] - target) / (log_level[reached] - below[reached])
        waiting = np.isinf(needed)
        if start is not None and not waiting.all():
            waiting &= start + 2 * level < (start + 2 * needed).min()
        if not waiting.any():
            return stable_levels(needed)
        fall = 1.1 * (log_level - below)
        log_level = np.maximum(below, target - 1.0)  # candidates that are done idle
    raise AssertionError


@dataclass(frozen=True, kw_only=True)
class LookedUp(ThresholdMechanism):
    """One Gaussian threshold noise per run, and one look-up in a table of probabilities per query."""

    teachers: int
    no_quorums: int
    order: float
    price: float
    margin: int
    threshold_scale: float
    table: tuple[int, ...] = field(repr=False)  # thousands of numbers

    def least_no_quorum_charge(self, order: float) -> Cost:
        """Return the least that any processor charges for one no-quorum: at the order of the table, its price."""
        cost = self.no_quorum_cost(order)
        return cost if order == self.order else least_charge(cost)

    def draw_threshold_noise(self, noise: NoiseSource) -> int:
        """Draw the secret noise of a run's threshold."""
        return int(noise.gaussian(self.threshold_scale, 1)[0])

    @cached_property
    def last_words(self) -> NDArray[np.uint64]:
        """The largest word that means a no-quorum at each level; level 0 is certain and needs all of them."""
        words = np.array([level - 1 for level in self.table], dtype=np.uint64)
        words.flags.writeable = False
        return words
