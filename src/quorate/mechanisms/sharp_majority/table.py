"""The table of wrong answers: pointwise the smallest probabilities for one Renyi order and one price per query.

Level i holds U_i, the probability that the label with fewer votes is answered, when the other leads by 2i votes (an
even number of teachers) or by 2i + 1 (an odd number), as a whole number of 2**-64. One ballot moves the lead by
2: between neighbours a query stays on its level, goes to the next one, or crosses from one label's lead to the other's.
"""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from quorate.errors import InvalidInput

__all__ = ["FLOOR", "HALF", "ONE", "build_table", "table_cost"]

ONE = 2**64
HALF = 2**63
FLOOR = 2**24  # in units of 2**-64: the wrong label still comes up once in 10**12
_MARGIN, _ROUNDING = 2.0**-30, 2.0**-60  # above the error of a divergence in doubles; tests hold it against decimals
_LEAST_PRICE = 2.0**-44

Floats = NDArray[np.float64]


def _log_sum(wrong: Floats, change: Floats, order: float) -> Floats:
    """Return log sum P**order Q**(1 - order) for P = (wrong, 1 - wrong) and Q = (wrong + change, 1 - wrong - change).

    Where it is small, one is taken out of the sum term by term, so that nothing cancels but their first orders.
    """
    first, second = (1 - order) * np.log1p(change / wrong), (1 - order) * np.log1p(-change / (1 - wrong))
    with np.errstate(over="ignore", invalid="ignore"):
        small = np.log1p(np.maximum(wrong * np.expm1(first) + (1 - wrong) * np.expm1(second), 0.0))
    large = np.logaddexp(np.log(wrong) + first, np.log1p(-wrong) + second)
    return np.where(np.maximum(first, second) < 1.0, small, large)


def _divergences(wrong: Floats, following: Floats, change: Floats, order: float) -> Floats:
    """Return the larger of the two divergences between answers that are wrong with these probabilities."""
    if math.isinf(order):
        return np.maximum(np.abs(np.log1p(change / wrong)), np.abs(np.log1p(-change / (1 - wrong))))
    return np.maximum(_log_sum(wrong, change, order), _log_sum(following, -change, order)) / (order - 1)


def _steps(table: tuple[int, ...], teachers: int) -> tuple[Floats, Floats, Floats]:
    """Return all pairs of probabilities between which a ballot can move a query, and their differences, unrounded."""
    levels = list(table) if teachers % 2 == 0 else [ONE - table[0], *table]
    changes = np.array([(after - before) / ONE for before, after in itertools.pairwise(levels)])
    wrong = np.array([level / ONE for level in levels])
    return wrong[:-1], wrong[1:], changes


def table_cost(table: tuple[int, ...], *, teachers: int, order: float) -> float:
    """Return the divergence of one answer at this order, rounded up: the worst step that a ballot can make.

    >>> round(table_cost((HALF, HALF // 2), teachers=10, order=float("inf")), 4)
    0.6931
    """
    wrong, following, change = _steps(table, teachers)
    if wrong.size == 0:
        return 0.0
    worst = float(_divergences(wrong, following, change, order).max())
    return worst * (1 + _MARGIN) + _ROUNDING


def _next(wrong: float, order: float, price: float) -> float:
    """Return the smallest probability that can follow `wrong` at this price, by bisection of its logarithm."""
    if math.isinf(order):
        return max(wrong * math.exp(-price), 1 - (1 - wrong) * math.exp(price))
    low, high = math.log(FLOOR / ONE) - 1.0, math.log(wrong)
    for _ in range(64):
        middle = (low + high) / 2
        after = math.exp(middle)
        if _cost_of_one(wrong, after, order) <= price:
            high = middle
        else:
            low = middle
    return math.exp(high)


def _cost_of_one(wrong: float, after: float, order: float) -> float:
    """Do what `_divergences` does for one pair, many times as fast."""
    change, power = after - wrong, 1 - order
    largest = 0.0
    for p, difference in ((wrong, change), (after, -change)):
        first, second = power * math.log1p(difference / p), power * math.log1p(-difference / (1 - p))
        if max(first, second) < 500:
            log_sum = math.log1p(max(0.0, p * math.expm1(first) + (1 - p) * math.expm1(second)))
        else:
            log_sum = math.log(p) + first if first > second else math.log1p(-p) + second  # and next to nothing
        largest = max(largest, log_sum)
    return largest / (order - 1)


def _first(order: float, price: float) -> float:
    """Return the smallest probability u for which (u, 1 - u) and (1 - u, u) are within this price."""
    if math.isinf(order):
        return 1 / (1 + math.exp(price))
    low, high = 0.0, 0.5
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (low, middle) if middle > 0 and _cost_of_one(1 - middle, middle, order) <= price else (middle, high)
    return high


def build_table(*, teachers: int, order: float, price: float) -> tuple[int, ...]:
    """Return the levels from a tie, or a lead of one, down to `FLOOR`, each rounded up to a multiple of 2**-64.

    >>> table = build_table(teachers=1000, order=20.0, price=0.01)
    >>> table[0] == HALF, table[-1] == FLOOR, table_cost(table, teachers=1000, order=20.0) <= 0.01
    (True, True, True)
    """
    inner = (price - _ROUNDING) / (1 + 2 * _MARGIN)
    if inner <= _LEAST_PRICE:
        raise InvalidInput(f"price={price!r} is too small to tell from rounding")
    levels = [HALF if teachers % 2 == 0 else max(FLOOR, _up(_first(order, inner)))]
    while levels[-1] > FLOOR and len(levels) <= teachers // 2:
        levels.append(min(max(_up(_next(levels[-1] / ONE, order, inner)), FLOOR), levels[-1] - 1))
    return tuple(levels)


def _up(probability: float) -> int:
    return min(HALF, math.ceil(probability * ONE * (1 + 2.0**-48)))
