"""The table of wrong answers: pointwise the smallest probabilities for one Renyi order and one price per query.

Level i holds U_i, the probability that the label with fewer votes is answered, when the other leads by 2i votes (an
even number of teachers) or by 2i + 1 (an odd number), as a whole number of 2**-64. One ballot moves the lead by
2: between neighbours a query stays on its level, goes to the next one, or crosses from one label's lead to the other's.
"""

import itertools
import math

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput

__all__ = ["FLOOR", "HALF", "ONE", "build_table", "table_cost"]

ONE = 2**64
HALF = 2**63
FLOOR = 2**24  # in units of 2**-64: the wrong label still comes up once in 10**12
_MARGIN, _ROUNDING = 2.0**-30, 2.0**-60  # above the error of a divergence in doubles; tests hold it against decimals
_BELOW = 1 - 2.0**-44  # A table is built this far below its price, so that another processor accepts it.
_LEAST_PRICE = 2.0**-44
_MOST_PRICE = 27.0  # at which a single ballot leads from one end of the table to the other


class _Coins:
    """The probabilities of a wrong and of a right answer, level by level, each from the integers, rounded once."""

    def __init__(self, levels: list[int]) -> None:
        self.wrong = np.array([level / ONE for level in levels])
        self.right = np.array([(ONE - level) / ONE for level in levels])


def _log_ratio(before: Floats, after: Floats, change: Floats) -> Floats:
    """Return log(after / before), where `change` is their difference, unrounded: without cancellation either way."""
    near = np.abs(change) <= before / 2
    ratio: Floats = np.where(near, np.log1p(np.where(near, change, 0.0) / before), np.log(after) - np.log(before))
    return ratio


def _log_sums(coins: _Coins, changes: Floats, order: float) -> Floats:
    """Return log sum P**order Q**(1 - order) for each coin P and the next one Q, and with their roles exchanged.

    Where it is small, one is taken out of the sum term by term, so that nothing cancels but their first orders.
    """
    first = slice(None, -1), slice(1, None)
    sums = []
    for (p, q), change in ((first, changes), (first[::-1], -changes)):
        wrong, right = coins.wrong[p], coins.right[p]
        one = (1 - order) * _log_ratio(wrong, coins.wrong[q], change)
        two = (1 - order) * _log_ratio(right, coins.right[q], -change)
        with np.errstate(over="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(wrong * np.expm1(one) + right * np.expm1(two), 0.0))
        large = np.logaddexp(np.log(wrong) + one, np.log(right) + two)
        sums.append(np.where(np.maximum(one, two) < 1.0, small, large))
    worst: Floats = np.maximum(*sums)
    return worst


def table_cost(table: tuple[int, ...], *, teachers: int, order: float) -> float:
    """Return the divergence of one answer at this order, rounded up: the worst step that a ballot can make."""
    levels = list(table) if teachers % 2 == 0 else [ONE - table[0], *table]
    if len(levels) < 2:
        return 0.0
    coins = _Coins(levels)
    changes = np.array([(after - before) / ONE for before, after in itertools.pairwise(levels)])
    if math.isinf(order):
        wrong = _log_ratio(coins.wrong[:-1], coins.wrong[1:], changes)
        right = _log_ratio(coins.right[:-1], coins.right[1:], -changes)
        worst = float(np.maximum(np.abs(wrong), np.abs(right)).max())
    else:
        worst = float(_log_sums(coins, changes, order).max()) / (order - 1)
    return worst * (1 + _MARGIN) + _ROUNDING


def _next(wrong: float, order: float, price: float, step: float) -> float:
    """Return about the smallest probability that can follow `wrong` at this price, and never a smaller one.

    The cost of a fall of the logarithm grows about with its square, so that each guess at it leads to a better one;
    `step` is the fall before. Where a guess leaves the bracket, the bracket is halved.
    """
    if math.isinf(order):
        return max(wrong * math.exp(-price), 1 - (1 - wrong) * math.exp(price))
    low, high, fall = 0.0, math.log(wrong * ONE / FLOOR) + 1.0, step
    for _ in range(200):
        if not low < fall < high:
            fall = (low + high) / 2
        after = wrong * math.exp(-fall)
        cost = _cost_of_one((wrong, 1 - wrong), (after, 1 - after), order)
        if cost <= price:
            low = fall
        else:
            high = fall
        if high - low <= 2.0**-44 * high or price * (1 - 2.0**-40) <= cost <= price:
            break
        fall *= math.sqrt(price / cost) * (1 - 2.0**-46) if 0 < cost < math.inf else 2.0
    return wrong * math.exp(-low)


def _log_quotient(after: float, before: float) -> float:
    change = after - before
    return math.log1p(change / before) if abs(change) <= before / 2 else math.log(after) - math.log(before)


def _cost_of_one(p: tuple[float, float], q: tuple[float, float], order: float) -> float:
    """Do about what `table_cost` does for two coins (wrong, right), many times as fast: to build by, not to charge."""
    largest, power = 0.0, 1 - order
    for (wrong, right), (wrong_after, right_after) in ((p, q), (q, p)):
        one, two = power * _log_quotient(wrong_after, wrong), power * _log_quotient(right_after, right)
        if max(one, two) < 500:
            log_sum = math.log1p(max(0.0, wrong * math.expm1(one) + right * math.expm1(two)))
        else:
            log_sum = math.log(wrong) + one if one > two else math.log(right) + two  # and next to nothing
        largest = max(largest, log_sum)
    return largest / (order - 1)


def _first(order: float, price: float) -> float:
    """Return the smallest probability u for which (u, 1 - u) and (1 - u, u) are within this price."""
    if math.isinf(order):
        return 1 / (1 + math.exp(price))
    low, high = 0.0, 0.5
    for _ in range(200):
        u = (low + high) / 2
        if not low < u < high:
            break
        low, high = (low, u) if _cost_of_one((u, 1 - u), (1 - u, u), order) <= price else (u, high)
    return high


def _levels(teachers: int, order: float, price: float) -> tuple[int, ...]:
    levels = [HALF if teachers % 2 == 0 else max(FLOOR, _up(_first(order, price)))]
    step = 1.0
    while levels[-1] > FLOOR and len(levels) <= teachers // 2:
        wrong = levels[-1] / ONE
        levels.append(min(max(_up(_next(wrong, order, price, step)), FLOOR), levels[-1] - 1))
        step = math.log(wrong * ONE / levels[-1])
    return tuple(levels)


def build_table(*, teachers: int, order: float, price: float) -> tuple[int, ...]:
    """Return the levels from a tie, or a lead of one, down to `FLOOR`, each rounded up to a multiple of 2**-64."""
    if price <= _LEAST_PRICE:
        raise InvalidInput(f"price={price!r} is too small to tell from rounding")
    spare = 4 * _MARGIN
    while True:  # what is built by a quick cost is held against the certified one
        table = _levels(teachers, order, (min(price, _MOST_PRICE) - _ROUNDING) * (1 - spare))
        if table_cost(table, teachers=teachers, order=order) <= price * _BELOW:
            return table
        spare *= 4


def _up(probability: float) -> int:
    return min(HALF, math.ceil(probability * ONE * (1 + 2.0**-48)))
