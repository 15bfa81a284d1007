"""Choosing the noise by the precision that is asked for; the budget then says how many crossings can be paid for."""

import math
from dataclasses import dataclass

import numpy as np

from quorate.core.errors import Infeasible
from quorate.core.mechanisms.distributions import gaussian_tail_quantile
from quorate.core.mechanisms.quorum.table import ONE, build_table, levels_needed
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity

__all__ = ["RATE", "Precision", "best_precision"]

RATE = 0.99  # of runs and of distances beyond `far`, in which what was calibrated for happens
_OPENINGS = (0.5, 0.4, 0.3, 0.2)  # of the room between near and far, for the threshold noise
_MANY = 10  # crossings: with so many, the cheapest opening is best, since a good start pays for it and nothing else
_LEVELS = 4000  # of the table between near and far: finer tables cost time and save nothing worth it
_SEARCHED = 250  # levels up to which the price is searched; beyond, it falls about with the square of their number
_GRID, _REFINEMENTS = 12, 3  # prices looked at together, and how often the grid is made finer


@dataclass(frozen=True)
class Precision:
    """Public parameters of an AboveThreshold: how fine its noise is, and how many crossings the budget pays for."""

    order: float
    threshold_scale: float
    price: float
    crossings: int


def best_precision(
    *, epsilon: float, delta: float, near: int, far: int, standing: float, measurement: float | None = None
) -> Precision:
    """Return the coarsest noise that tells distances up to `near` from those of `far` on, and what it leaves to pay.

    A crossing is charged the price of the table, and that of a noisy count of scale `measurement` where one follows.
    """
    order = best_order(epsilon=epsilon, delta=delta)
    capacity = to_capacity(epsilon, delta=delta, order=order)
    best: Precision | None = None
    for share in _OPENINGS:
        precision = _precision(capacity, order, share, near=near, far=far, standing=standing, measurement=measurement)
        if precision is not None and (best is None or precision.crossings > best.crossings):
            best = precision
        if best is not None and best.crossings >= _MANY:
            return best
    if best is None:
        raise Infeasible(
            f"epsilon={epsilon:g} and delta={delta:g} cannot tell a distance of {near} records from one of {far} even "
            "once; ask for less precision, raise epsilon, or bring more records"
        )
    return best


def _precision(
    capacity: float, order: float, share: float, *, near: int, far: int, standing: float, measurement: float | None
) -> Precision | None:
    """Return the noise with this share of the room for the threshold, or None where it pays for no crossing."""
    scale = _threshold_scale((far - near) * share / 2)
    if scale == 0:
        return None
    levels = min((far - near - 2 * gaussian_tail_quantile(scale, 1 - RATE)) // 2 - 1, _LEVELS)
    if levels < 2:
        return None
    price = _price(order, levels, standing)
    each = price / (order - 1) + 1 / RENYI_QUANTA  # charges are rounded up
    if measurement is not None:
        each += gaussian_renyi(scale=measurement, order=order) + 1 / RENYI_QUANTA
    left = capacity - gaussian_renyi(scale=scale, order=order) - 1 / RENYI_QUANTA
    crossings = math.floor(left / each * (1 - 2.0**-40)) if left > 0 else 0
    return Precision(order, scale, price, min(crossings, 2**31)) if crossings else None


def _threshold_scale(room: float) -> float:
    """Return about the largest scale whose noise stays within `room`, to one side, in 99 runs of 100."""
    scale = room / 2.3263
    while scale > 0.3 and gaussian_tail_quantile(scale, 1 - RATE) > room:
        scale *= 0.98
    return scale if scale > 0.3 else 0.0


def _price(order: float, levels: int, standing: float) -> float:
    """Return roughly the smallest price at which this many levels lead from near-certain to almost never."""
    looked = min(levels, _SEARCHED)
    low = order * (order - 1) * 0.5 * (2.0 / looked) ** 2  # a fall of a factor of at least e takes more than this
    high = low * 2.0**16
    for _ in range(_REFINEMENTS):
        prices = np.array([low * (high / low) ** (step / (_GRID - 1)) for step in range(_GRID)])
        orders = np.full(_GRID, order)
        fall = levels_needed(orders, prices, miss=1 - standing) - levels_needed(orders, prices, miss=RATE)
        enough = int(np.argmax(fall <= looked - 1)) if (fall <= looked - 1).any() else _GRID - 1
        low, high = float(prices[max(0, enough - 1)]), float(prices[enough])
    price = high * (looked / levels) ** 2
    while levels > looked and (fall_of_one := _fall(order, price, standing)) > levels:
        price *= 1.01 * (fall_of_one / levels) ** 2
    return price


def _fall(order: float, price: float, standing: float) -> int:
    """Return over how many levels the table of this price falls from near-certain to almost never."""
    table = build_table(order=order, price=price)
    certain = sum(level >= RATE * ONE for level in table)
    return 1 + sum(level > (1 - standing) * ONE for level in table) - certain
