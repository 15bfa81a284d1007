"""AboveThreshold lets a proposed count stand until the private count is clearly far from it.

Claim (replace-one records, n public; a record moves the private count by at most 1): a run of any number of
adaptively chosen proposals that stops after `no_quorums` crossings has Renyi divergence at most `renyi(order)` at every
order, and no tail event is left out. A proposal that stands is free; opening the run and each crossing are paid. What
is released after a crossing is not part of this claim and is charged on its own. Proof: PROOF_above_threshold.md.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts
from quorate.core.mechanisms.dissent import Dissent, _level_of, _reach
from quorate.core.mechanisms.distributions import gaussian_tail_quantile
from quorate.core.mechanisms.quorum import ONE, build_table, levels_needed
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity

_RUNS = 0.99  # of runs in which the threshold noise stays within what was allowed for


@dataclass(frozen=True, kw_only=True)
class AboveThreshold(Dissent):
    """A Dissent for whole numbers: distances of up to `records`, encoded as ballots by `distance_ballots`.

    An answer of 0 means that the proposal stands; `NO_QUORUM` (None for one query) means that the distance has crossed
    the threshold. `no_quorums` is the number of crossings; `teachers` is twice the number of records.

    >>> above = AboveThreshold.calibrate(epsilon=1.0, delta=1e-6, records=10_000, near=250, far=500)
    >>> above.answers(distance_ballots([0, 50, 8_000], records=10_000)).labels
    array([ 0,  0, -1])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teachers % 2:
            raise InvalidInput(f"teachers must be twice the number of records, got {self.teachers}")

    @classmethod
    def calibrate(  # type: ignore[override]
        cls,
        *,
        epsilon: float,
        delta: float,
        records: int,
        near: int,
        far: int,
        standing: float = 0.999,
        measurement: float | None = None,
    ) -> "AboveThreshold":
        """Return the mechanism whose crossings cost least, among those that distinguish `near` from `far`.

        A proposal at a distance of at most `near` stands at the rate `standing`; one at `far` or more is reported 99
        times in 100; both hold in 99 runs of 100. `measurement` is the scale of a noisy count that the same budget pays
        for after each crossing; `no_quorums` is how many of both it can pay for.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        records, near = check_count("records", records), check_count("near", near, least=0)
        if check_count("far", far) <= near or far > records:
            raise InvalidInput(f"far must be above near={near} and at most records={records}, got {far}")
        if check_rate("standing", standing) == 1:
            raise InvalidInput("standing must be below 1: a crossing must stay possible at every distance")
        best = best_precision(
            epsilon=epsilon, delta=delta, near=near, far=far, standing=standing, measurement=measurement
        )
        table = build_table(order=best.order, price=best.price)
        reach = _reach(best.threshold_scale, _RUNS)
        return cls(
            teachers=2 * records,
            no_quorums=best.crossings,
            order=best.order,
            price=best.price,
            margin=near + 2 * _level_of(table, standing) - 1 + reach - records,  # proof: step 3
            threshold_scale=best.threshold_scale,
            table=table,
        )

    @property
    def records(self) -> int:
        """How many records there are; a distance is at most this."""
        return self.teachers // 2


def distance_ballots(distances: Any, *, records: int) -> Counts:
    """Return distances as ballots for an AboveThreshold: d of 2n against the proposal, the others for it.

    One step of a distance moves one ballot, so the half-gap is d - n. Invalid distances are refused with one text.
    """
    far = np.asarray(distances)
    if far.ndim != 1 or far.dtype.kind not in "iu":
        raise InvalidInput(
            f"distances must be a vector of whole numbers, not of {far.dtype.name} and shape {far.shape}"
        )
    if far.size and (far.min() < 0 or far.max() > records):
        raise InvalidInput(f"distances must lie between 0 and records={records}")
    against = far.astype(np.int64)
    return np.stack([2 * records - against, against], axis=1)


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
    cost = price / (order - 1) + 1 / RENYI_QUANTA  # charges are rounded up
    if measurement is not None:
        cost += gaussian_renyi(scale=measurement, order=order) + 1 / RENYI_QUANTA
    remaining = capacity - gaussian_renyi(scale=scale, order=order) - 1 / RENYI_QUANTA
    crossings = math.floor(remaining / cost * (1 - 2.0**-40)) if remaining > 0 else 0
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
