"""SharpMajority: its table where it is short, the law it tends to where it is long."""

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.mechanisms import SharpMajority
from quorate.core.mechanisms.sharp_majority import ONE, build_table
from quorate.core.privacy import RENYI_QUANTA, to_capacity
from quorate.planner.mechanisms.forecast import VoteForecast
from quorate.planner.mechanisms.task import Calibrated, Draft, Expected, Task

__all__ = ["draft_sharp_majority", "expect_sharp_majority"]

_LONG = 1e-7  # of price over order: below, the table is as good as its limit
_MANY = 10**6  # teachers, for a table that ends by itself


@lru_cache(maxsize=256)
def _short_table(order: float, price: float) -> tuple[int, ...]:
    return build_table(teachers=_MANY, order=order, price=price)


def _wrong(lead: Floats, order: float, price: float) -> Floats:
    """Return about how often a query is answered wrongly, by the lead of its label."""
    if math.isinf(order):  # proof: step 6
        return np.exp(-price * lead / 2) / 2
    if price / order < _LONG:  # proof: step 5
        angle: Floats = np.maximum(math.pi / 4 - lead * math.sqrt(price / (8 * order)), 0.0)
        return np.square(np.sin(angle))
    return _looked_up(lead, _short_table(order, price))


def _looked_up(lead: Floats, table: tuple[int, ...]) -> Floats:
    wrong: Floats = np.interp(lead / 2, np.arange(len(table)), np.array([level / ONE for level in table]))
    return wrong


def expect_sharp_majority(mechanism: SharpMajority, forecast: VoteForecast) -> Expected:
    """Return what a SharpMajority gives: an answer to every query."""
    right = 1 - forecast.mean(_looked_up(forecast.gap * mechanism.teachers, mechanism.table))
    return Expected(1.0, right, right)


def _make(task: Task, forecast: VoteForecast, teachers: int, order: float) -> Calibrated:
    """Return the better, on these queries, of the order that the draft took and the one that suits all leads alike."""
    target: dict[str, Any] = {
        "epsilon": task.epsilon,
        "delta": task.delta,
        "teachers": teachers,
        "queries": task.queries,
    }
    both = [SharpMajority.calibrate(**target), SharpMajority.calibrate(**target, order=order)]
    mechanism = max(both, key=lambda each: expect_sharp_majority(each, forecast).right)
    return Calibrated(mechanism, mechanism.order, 0.0)


def draft_sharp_majority(task: Task, forecast: VoteForecast, teachers: int) -> Draft | None:
    """Return the draft of a SharpMajority that answers every query; None for more than two classes."""
    best: tuple[float, float, float] | None = None
    for order in dict.fromkeys((task.order, math.inf)):
        price = to_capacity(task.epsilon, delta=task.delta, order=order) / task.queries - 1 / RENYI_QUANTA
        if task.classes == 2 and price > 2.0**-43:
            right = 1 - forecast.mean(_wrong(forecast.gap * teachers, order, price))
            best = max(best or (-1.0, 0.0, 0.0), (right, order, price))
    if best is None:
        return None
    right, order, price = best
    make = partial(_make, task, forecast, teachers, order)
    return Draft("sharp_majority", Expected(1.0, right, right), None, {"price": price}, make)
