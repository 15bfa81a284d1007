"""Quorum, StabilityTest and BetweenThresholds: mechanisms that pay for no-quorums alone.

Quorum's settings are close to the best without a search, and the shape of its table is known in closed form: it falls
like 1 / cosh(step * level / 2)**2, which solves the recursion when its steps are small, `step` being the fall of the
logarithm where no-quorums are rare. `_LEAD` corrects for the first levels, where steps are large. It is within 1% of
the true table in distance and is used to search; what is planned is built and certified. Quorum needs a smaller
distance than the two others, which stand here for comparison.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.mechanisms import BetweenThresholds, Quorum, StabilityTest
from quorate.core.mechanisms.distributions import gaussian_tail, gaussian_tail_quantile, laplace_tail
from quorate.core.mechanisms.quorum import ONE, Settings, build_table
from quorate.core.privacy import RENYI_QUANTA, best_order, gaussian_renyi, to_capacity
from quorate.planner.task import (
    Calibrated,
    Draft,
    Expected,
    Task,
    VoteForecast,
    answered_before_stop,
    binomial_capped_mean,
    lasts,
    normal_nodes,
    unsure,
)

_KNOTS = np.log([1, 2, 5, 20, 100, 1000, 10_000])  # of no-quorums; what `best_settings` finds there, at any target:
_ORDER = np.array((1.6, 1.65, 1.66, 1.49, 1.22, 1.06, 1.02))  # (order - 1) over that of the best order for small costs
_OPENING = np.array((0.48, 0.37, 0.30, 0.18, 0.11, 0.055, 0.026))  # share of the capacity spent on the threshold noise
_SLACK = np.array((0.43, 0.41, 0.36, 0.25, 0.13, 0.04, 0.022))  # share of delta set aside for its tail
_LEAD_AT = np.array((-9.21, -6.91, -4.61, -3.51, -2.30, -1.20, 0.0, 1.10, 1.61))  # logarithm of the price
_LEAD = np.array((1.74, 1.36, 0.99, 0.81, 0.62, 0.455, 0.29, 0.168, 0.125))  # levels gained first, over the order
_NODES, _SEARCH_NODES = 15, 7  # of the threshold noise
_SPARE_QUANTA = 4  # beyond one for each charge
_BOUND_STEP, _BOUND_SPARE = 4, 1e-3  # of numbers of no-quorums, and of a worth, for a bound on a Quorum's worth

_ANY_TEACHERS = 10**9  # calibrations do not depend on the number, except to refuse a small one
_LAPLACE_NODES = 41  # quantiles of a Laplace threshold noise
_FACTORS = (1 / 32, 1 / 8, 1 / 3, 1.0, 2.0)  # around Quorum's number of no-quorums
_LONGEST = 2**14  # steps of time; longer runs are looked at in coarser ones
_DAMPING = 22.0  # what wraps around the transform is smaller by exp(-_DAMPING)

Threshold = StabilityTest | BetweenThresholds
NoQuorum = Callable[[NDArray[np.int64]], Floats]  # from threshold noises, a column, to queries' probabilities


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
        step = (fall - math.log(lost) - price) / (1 - rest / lost)
        fall -= step
        if abs(step) <= 1e-13 * fall:
            break
    return fall / (order - 1), order * float(np.interp(math.log(price), _LEAD_AT, _LEAD))


def _likely_no_quorum(settings: Settings, distances: NDArray[np.int64], threshold_noise: NDArray[np.int64]) -> Floats:
    step, lead = _shape(settings.order, settings.price)
    level = np.maximum(0, (distances + (threshold_noise - settings.margin + 1)) >> 1)
    decay = np.exp(-np.minimum((level + lead) * step, 600.0))
    return np.where(level == 0, 1.0, 4 * decay / np.square(1 + decay))  # 1 / cosh**2


def _missed_rates(no_quorum: NoQuorum, scale: float, forecast: VoteForecast, nodes: int) -> tuple[Floats, Floats]:
    """Return the rate of no-quorums at each node of a Gaussian threshold noise, and the weights of the nodes."""
    points, weights = normal_nodes(nodes)
    noises = np.rint(points * scale).astype(np.int64)
    return forecast.means(no_quorum(noises[:, np.newaxis])), weights


def _expect_run(
    no_quorum: NoQuorum,
    scale: float,
    forecast: VoteForecast,
    task: Task,
    *,
    count: int,
    nodes: int = _NODES,
    agreement: float = 1.0,
) -> Expected:
    """Return the expectation of a run with one Gaussian threshold noise that stops after `count` no-quorums."""
    missed, weights = _missed_rates(no_quorum, scale, forecast, nodes)
    rates, chances = unsure(missed, forecast.evidence)

    def means(share: Callable[[int, int, Floats], Floats]) -> tuple[float, float]:
        """Return the mean over the threshold noise, and the mean over the uncertainty of the rates as well."""
        unsure_means = share(task.queries, count, rates.ravel()).reshape(rates.shape) @ chances
        return float(weights @ share(task.queries, count, missed)), float(weights @ unsure_means)

    answered, worth = means(answered_before_stop)
    met, likely = means(binomial_capped_mean)
    expected = Expected(min(1.0, answered), agreement, worth * agreement, means(lasts)[0])
    return expected.guessed(task, no_quorum=met / task.queries, likely=likely / task.queries)


def _search_rates(
    task: Task, forecast: VoteForecast, distances: NDArray[np.int64], count: int
) -> tuple[Floats, Floats] | None:
    """Return likely rates of no-quorums of a Quorum, and their weights; None where there is nothing to spend."""
    try:
        settings = likely_settings(task.epsilon, task.delta, count)
    except Infeasible:
        return None
    miss = partial(_likely_no_quorum, settings, distances)
    return _missed_rates(miss, settings.threshold_scale, forecast, _SEARCH_NODES)


def _search_worth(missed: Floats, weights: Floats, task: Task, forecast: VoteForecast, count: int) -> float:
    """Return what a run with these rates of no-quorums is worth if it stops after `count` of them."""
    rates, chances = unsure(missed, forecast.evidence)
    flat = rates.ravel()
    met = binomial_capped_mean(task.queries, count, flat)
    with np.errstate(divide="ignore", invalid="ignore"):
        queried = np.minimum(np.where(flat > 0, met / flat, task.queries), task.queries)
    worth = queried - met + (met / task.classes if task.guess else 0.0)
    return float(weights @ (worth.reshape(rates.shape) @ chances)) / task.queries


def can_quorum_reach(worth: float, task: Task, forecast: VoteForecast, teachers: int) -> bool:
    """Return whether some Quorum may be worth as much; it is not if this is False.

    Each further no-quorum leaves less for every one of them and takes a clearer vote. So between two numbers of
    no-quorums, no run misses less than with the first or lasts longer than with the second.
    """
    distances, first = forecast.distances(teachers), task.no_quorums or 1
    while first <= task.queries:
        searched = _search_rates(task, forecast, distances, first)
        if searched is None:
            return False
        missed = float(searched[1] @ searched[0]) * (1 - 1 / task.classes if task.guess else 1.0)
        if 1 - missed + _BOUND_SPARE < worth:
            return False
        last = task.no_quorums or min(task.queries, _BOUND_STEP * first)
        if _search_worth(*searched, task, forecast, last) + _BOUND_SPARE > worth:
            return True
        first = last if last > first else task.queries + 1
    return False


def best_no_quorums(task: Task, forecast: VoteForecast, teachers: int) -> int:
    """Return how many no-quorums to allow: enough not to stop early, few enough not to need a clearer vote."""
    if task.no_quorums is not None:
        return task.no_quorums
    distances = forecast.distances(teachers)
    seen: dict[int, float] = {}

    def look(counts: Iterable[int]) -> int:
        for count in counts:
            if count not in seen and 1 <= count <= task.queries:
                searched = _search_rates(task, forecast, distances, count)
                seen[count] = -1.0 if searched is None else round(_search_worth(*searched, task, forecast, count), 9)
        return max(seen, key=lambda count: (seen[count], -count))

    best = look({1, *(round(1.6**step) for step in range(2, 1 + math.ceil(math.log(task.queries, 1.6)))), task.queries})
    best = look(round(best * factor) for factor in (0.7, 0.83, 1.2, 1.4))
    return look(round(best * factor) for factor in (0.92, 1.09))


def _make_quorum(task: Task, teachers: int, count: int) -> Calibrated:
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
    """Return the expectation of this very Quorum."""
    levels, distances = np.array(quorum.table, dtype=np.float64) / ONE, forecast.distances(quorum.teachers)

    def no_quorum(threshold_noise: NDArray[np.int64]) -> Floats:
        beyond = (distances + (threshold_noise - quorum.margin + 1)) >> 1
        missed: Floats = levels[np.clip(beyond, 0, len(levels) - 1)]
        return missed

    return _expect_run(no_quorum, quorum.threshold_scale, forecast, task, count=quorum.no_quorums)


def draft_quorum(task: Task, forecast: VoteForecast, teachers: int) -> Draft | None:
    """Return the draft of a Quorum, or None where the target leaves nothing to spend."""
    count = best_no_quorums(task, forecast, teachers)
    try:
        settings = likely_settings(task.epsilon, task.delta, count)
    except Infeasible:
        return None
    miss = partial(_likely_no_quorum, settings, forecast.distances(teachers))
    expected = _expect_run(miss, settings.threshold_scale, forecast, task, count=count, nodes=_SEARCH_NODES)
    noise = {name: float(getattr(settings, name)) for name in ("threshold_scale", "margin", "price", "order")}
    expect = partial(expect_quorum, task=task, forecast=forecast)
    return Draft("quorum", expected, count, noise, partial(_make_quorum, task, teachers, count), expect)


@lru_cache(maxsize=64)
def _calibrated(kind: type[Threshold], epsilon: float, delta: float, count: int) -> Threshold:
    return kind.calibrate(epsilon=epsilon, delta=delta, teachers=_ANY_TEACHERS, no_quorums=count)


class Shares(NamedTuple):
    """Expected shares of all queries: answered, and without a quorum; and the probability that the run lasts."""

    answered: float
    no_quorum: float
    lasts: float


def shares_with_redraws(queries: int, no_quorums: int, missed: Floats, weights: Floats) -> Shares:
    """Return the expected shares where an epoch's rate of no-quorums is missed[i] with probability weights[i].

    An epoch ends with its first no-quorum. With the transform f of the law of its length, f**c is that of the time
    of no-quorum number c, and f + f**2 + ... + f**c counts the no-quorums.
    """
    coarse = math.ceil(queries / _LONGEST)
    steps = math.ceil(queries / coarse)
    staying = np.power(1 - np.clip(missed, 0.0, 1.0), coarse)[:, np.newaxis]  # no no-quorum in one step of time
    times = np.arange(1, steps + 1)
    law = weights @ (np.power(staying, times - 1) * (1 - staying))
    size = 2 ** math.ceil(math.log2(2 * steps + 2))
    damp = np.exp(-_DAMPING / size * np.arange(size))
    padded = np.zeros(size)
    padded[1 : steps + 1] = law
    transform = np.fft.rfft(padded * damp)
    last = np.power(transform, no_quorums)
    with np.errstate(divide="ignore", invalid="ignore"):
        counted = np.where(np.abs(1 - transform) < 1e-12, no_quorums, transform * (1 - last) / (1 - transform))
    ended = np.cumsum(np.fft.irfft(last, size)[: steps + 1] / damp[: steps + 1])
    met = float((np.fft.irfft(counted, size)[: steps + 1] / damp[: steps + 1]).sum())
    queried = steps - float(ended[:steps].sum())
    answered = float(np.clip(queried * coarse - met, 0.0, queries)) / queries
    return Shares(answered, met / queries, float(np.clip(1 - ended[steps - 1], 0.0, 1.0)))


def _expect_stability(mechanism: StabilityTest, task: Task, forecast: VoteForecast) -> Expected:
    middles = (np.arange(_LAPLACE_NODES) + 0.5) / _LAPLACE_NODES
    tails = np.log(2 * np.minimum(middles, 1 - middles))
    noises = np.round(np.where(middles < 0.5, tails, -tails) * mechanism.threshold_scale).astype(np.int64)
    distances = forecast.distances(mechanism.teachers)
    passes = laplace_tail(mechanism.query_scale, mechanism.margin + noises[:, np.newaxis] + 1 - distances)
    weights = np.full(_LAPLACE_NODES, 1 / _LAPLACE_NODES)
    shares = shares_with_redraws(task.queries, mechanism.no_quorums, 1 - passes @ forecast.weights, weights)
    expected = Expected(shares.answered, 1.0, shares.answered, shares.lasts)
    return expected.guessed(task, no_quorum=shares.no_quorum, likely=shares.no_quorum)


def _expect_between_thresholds(mechanism: BetweenThresholds, task: Task, forecast: VoteForecast) -> Expected:
    votes = np.round(forecast.top * mechanism.teachers).astype(np.int64)

    def passes(noise: NDArray[np.int64] | int, top: bool) -> Floats:
        favourable = votes if top else mechanism.teachers - votes
        needed = mechanism.teachers // 2 + mechanism.margin - noise + 1
        return laplace_tail(mechanism.query_scale, needed - favourable)

    right, wrong = forecast.mean(passes(0, True)), forecast.mean(passes(0, False))
    return _expect_run(
        lambda noise: np.clip(1 - passes(noise, True) - passes(noise, False), 0.0, 1.0),
        mechanism.threshold_scale,
        forecast,
        task,
        count=mechanism.no_quorums,
        agreement=right / max(right + wrong, 1e-300),
    )


def _round_count(count: float) -> int:
    """Return the count rounded up on a ladder of steps of 30%: few different calibrations, each remembered."""
    return math.ceil(1.3 ** math.ceil(math.log(max(1.0, count), 1.3) - 1e-9))


def _best(
    name: str, kind: type[Threshold], expect: Callable[[Any], Expected], *, counts: list[int], task: Task, teachers: int
) -> Draft | None:
    best: tuple[Expected, Threshold] | None = None
    for count in counts:
        try:
            mechanism = replace(_calibrated(kind, task.epsilon, task.delta, count), teachers=teachers)
        except Infeasible:
            continue
        expected = expect(mechanism)
        if best is None or expected.worth > best[0].worth:
            best = expected, mechanism
    if best is None:
        return None
    mechanism = best[1]
    noise = {name: float(getattr(mechanism, name)) for name in ("threshold_scale", "query_scale", "margin", "order")}
    make = partial(Calibrated, mechanism, mechanism.order, mechanism.run_cost(mechanism.order).slack)
    return Draft(name, best[0], mechanism.no_quorums, noise, make, expect)


def draft_stability(task: Task, forecast: VoteForecast, teachers: int) -> Draft | None:
    """Return the draft of a StabilityTest, or None where there is nothing to spend."""
    count = best_no_quorums(task, forecast, teachers)
    counts = [count]
    if task.no_quorums is None:
        counts = sorted({min(task.queries, _round_count(count * factor)) for factor in _FACTORS})
    expect = partial(_expect_stability, task=task, forecast=forecast)
    return _best("stability", StabilityTest, expect, counts=counts, task=task, teachers=teachers)


def draft_between_thresholds(task: Task, forecast: VoteForecast, teachers: int) -> Draft | None:
    """Return the draft of a BetweenThresholds with the no-quorums of a Quorum; None for more than two classes."""
    if task.classes != 2:
        return None
    expect = partial(_expect_between_thresholds, task=task, forecast=forecast)
    count = best_no_quorums(task, forecast, teachers)
    counts = [count if task.no_quorums is not None else min(task.queries, _round_count(count))]
    return _best("between_thresholds", BetweenThresholds, expect, counts=counts, task=task, teachers=teachers)
