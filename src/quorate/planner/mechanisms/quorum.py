"""Quorum: settings close to the best without a search, the table's shape in closed form, and the choice of no-quorums.

The table falls like 1 / cosh(step * level / 2)**2: that solves the recursion when its steps are small, `step` being the
fall of the logarithm where no-quorums are rare. `_LEAD` corrects for the first levels, where steps are large. It is
within 1% of the true table in distance and is used to search; what is planned is built and certified.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.mechanisms import Quorum
from quorate.core.mechanisms.distributions import gaussian_tail, gaussian_tail_quantile
from quorate.core.mechanisms.quorum import ONE, Settings, build_table
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity
from quorate.planner.mechanisms.distributions import binomial_capped_mean, normal_nodes
from quorate.planner.mechanisms.forecast import VoteForecast
from quorate.planner.mechanisms.task import Calibrated, Draft, Expected, Task, answered_before_stop, lasts, unsure

__all__ = ["best_no_quorums", "certified_settings", "draft_quorum", "expect_quorum", "likely_settings", "run_expected"]

_KNOTS = np.log([1, 2, 5, 20, 100, 1000, 10_000])  # of no-quorums; what `best_settings` finds there, at any target:
_ORDER = (1.6, 1.65, 1.66, 1.49, 1.22, 1.06, 1.02)  # (order - 1) over that of the best order for small costs
_OPENING = (0.48, 0.37, 0.30, 0.18, 0.11, 0.055, 0.026)  # share of the capacity spent on the threshold noise
_SLACK = (0.43, 0.41, 0.36, 0.25, 0.13, 0.04, 0.022)  # share of delta set aside for its tail
_LEAD_AT = (-9.21, -6.91, -4.61, -3.51, -2.30, -1.20, 0.0, 1.10, 1.61)  # logarithm of the price
_LEAD = (1.74, 1.36, 0.99, 0.81, 0.62, 0.455, 0.29, 0.168, 0.125)  # levels gained at the start, over the order
_NODES, _SEARCH_NODES = 15, 7  # of the threshold noise
_SPARE_QUANTA = 4  # beyond one for each charge

NoQuorum = Callable[[int], Floats]  # from the threshold noise to each query's probability of no quorum


@lru_cache(maxsize=256)
def _plain_order(epsilon: float, delta: float) -> float:
    return best_order(epsilon=epsilon, delta=delta * 0.9)


def _point(epsilon: float, delta: float, no_quorums: int) -> tuple[float, float, float]:
    """Return the order, the scale of the threshold noise and the share of slack, read off the knots."""
    at = math.log(no_quorums)
    order = 1 + (_plain_order(epsilon, delta) - 1) * float(np.interp(at, _KNOTS, _ORDER))
    opening, share = float(np.interp(at, _KNOTS, _OPENING)), float(np.interp(at, _KNOTS, _SLACK))
    capacity = to_capacity(epsilon, delta=delta * (1 - share), order=order)
    if capacity <= 0:
        raise Infeasible(f"nothing can be spent at epsilon={epsilon}, delta={delta}; raise either")
    return order, math.sqrt(order / (2 * opening * capacity)), share


def _priced(
    epsilon: float, delta: float, no_quorums: int, *, order: float, scale: float, margin: int, tail: float
) -> Settings:
    """Return the settings whose price spends the whole target, each charge rounded up."""
    capacity = to_capacity(epsilon, delta=delta - tail, order=order) - (no_quorums + _SPARE_QUANTA) / RENYI_QUANTA
    price = (capacity - gaussian_renyi(scale=scale, order=order)) * (order - 1) / no_quorums * (1 - 2.0**-36)
    if price <= order * 2.0**-30:
        raise Infeasible(f"{no_quorums} no-quorums leave too little for each at epsilon={epsilon}, delta={delta}")
    return Settings(order, scale, margin, tail, price)


@lru_cache(maxsize=4096)
def likely_settings(epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return about the best settings, with the tail of the threshold noise taken as normal: to search by."""
    order, scale, share = _point(epsilon, delta, no_quorums)
    margin = math.ceil(-NormalDist().inv_cdf(delta * share) * scale - 0.5)
    return _priced(epsilon, delta, no_quorums, order=order, scale=scale, margin=margin, tail=delta * share)


@lru_cache(maxsize=64)
def certified_settings(epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return the same settings with the exact tail. Their distance is within a ballot or two of the best."""
    order, scale, share = _point(epsilon, delta, no_quorums)
    margin = gaussian_tail_quantile(scale, delta * share)
    tail = gaussian_tail(scale, margin)
    return _priced(epsilon, delta, no_quorums, order=order, scale=scale, margin=margin, tail=tail)


@lru_cache(maxsize=4096)
def _shape(order: float, price: float) -> tuple[float, float]:
    """Return the step of the table's logarithm where no-quorums are rare, and the levels gained at the start."""
    fall = math.sqrt(2 * price) + price
    for _ in range(50):
        rest = math.exp(-fall / (order - 1))
        lost = order - (order - 1) * rest
        fall -= (fall - math.log(lost) - price) / (1 - rest / lost)
    return fall / (order - 1), order * float(np.interp(math.log(price), _LEAD_AT, _LEAD))


def _likely_no_quorum(settings: Settings, distances: NDArray[np.int64], threshold_noise: int) -> Floats:
    step, lead = _shape(settings.order, settings.price)
    level = np.maximum(0, (distances + (threshold_noise - settings.margin + 1)) >> 1)
    half = np.minimum((level + lead) * (step / 2), 300.0)
    return np.where(level == 0, 1.0, np.cosh(half) ** -2.0)


def run_expected(
    no_quorum: NoQuorum,
    scale: float,
    forecast: VoteForecast,
    task: Task,
    *,
    count: int,
    nodes: int,
    agreement: float = 1.0,
) -> Expected:
    """Return what a run with one Gaussian threshold noise of this scale gives, if it stops after `count` no-quorums."""
    points, weights = normal_nodes(nodes)
    missed = np.array([forecast.mean(no_quorum(round(point * scale))) for point in points])
    rates, chances = unsure(missed, forecast.evidence)

    def mean(share: Callable[[int, int, Floats], Floats]) -> tuple[float, float]:
        """Return the mean over the threshold noise, and the mean over the uncertainty of the rates as well."""
        unsure_means = share(task.queries, count, rates.ravel()).reshape(rates.shape) @ chances
        return float(weights @ share(task.queries, count, missed)), float(weights @ unsure_means)

    answered, worth = mean(answered_before_stop)
    met, likely = mean(binomial_capped_mean)
    expected = Expected(min(1.0, answered), agreement, worth * agreement, mean(lasts)[0])
    return expected.guessed(task, no_quorum=met / task.queries, likely=likely / task.queries)


def _likely(task: Task, forecast: VoteForecast, distances: NDArray[np.int64], count: int) -> Expected | None:
    try:
        settings = likely_settings(task.epsilon, task.delta, count)
    except Infeasible:
        return None
    miss = partial(_likely_no_quorum, settings, distances)
    return run_expected(miss, settings.threshold_scale, forecast, task, count=count, nodes=_SEARCH_NODES)


def best_no_quorums(task: Task, forecast: VoteForecast, teachers: int) -> int:
    """Return how many no-quorums to allow: enough not to stop early, few enough not to need a clearer vote."""
    if task.no_quorums is not None:
        return task.no_quorums
    distances = forecast.distances(teachers)
    seen: dict[int, float] = {}

    def look(counts: Iterable[int]) -> int:
        for count in counts:
            if count not in seen and 1 <= count <= task.queries:
                expected = _likely(task, forecast, distances, count)
                seen[count] = -1.0 if expected is None else expected.worth
        return max(seen, key=lambda count: (seen[count], -count))

    best = look({1, *(round(1.6**step) for step in range(2, 1 + math.ceil(math.log(task.queries, 1.6)))), task.queries})
    best = look(round(best * factor) for factor in (0.7, 0.83, 1.2, 1.4))
    return look(round(best * factor) for factor in (0.92, 1.09))


def _make(task: Task, teachers: int, count: int) -> Calibrated:
    settings = certified_settings(task.epsilon, task.delta, count)
    quorum = Quorum(
        teachers=teachers,
        no_quorums=count,
        order=settings.order,
        price=settings.price,
        margin=settings.margin,
        threshold_scale=settings.threshold_scale,
        slack=settings.slack,
        table=build_table(order=settings.order, price=settings.price),
    )
    return Calibrated(quorum, quorum.order, quorum.slack)


def expect_quorum(quorum: Quorum, task: Task, forecast: VoteForecast) -> Expected:
    """Return what this very Quorum gives."""
    levels, distances = np.array(quorum.table, dtype=np.float64) / ONE, forecast.distances(quorum.teachers)

    def no_quorum(threshold_noise: int) -> Floats:
        beyond = (distances + (threshold_noise - quorum.margin + 1)) >> 1
        missed: Floats = levels[np.clip(beyond, 0, len(levels) - 1)]
        return missed

    return run_expected(no_quorum, quorum.threshold_scale, forecast, task, count=quorum.no_quorums, nodes=_NODES)


def draft_quorum(task: Task, forecast: VoteForecast, teachers: int) -> Draft | None:
    """Return the draft of a Quorum, or None where the target leaves nothing to spend."""
    count = best_no_quorums(task, forecast, teachers)
    expected = _likely(task, forecast, forecast.distances(teachers), count)
    if expected is None:
        return None
    settings = likely_settings(task.epsilon, task.delta, count)
    noise = {
        "threshold_scale": settings.threshold_scale,
        "margin": float(settings.margin),
        "price": settings.price,
        "order": settings.order,
    }
    return Draft("quorum", expected, count, noise, partial(_make, task, teachers, count))
