"""NoisyMax, ConfidentMax, SoftMajority: noise by a cheap stand-in for the cost, certified when made; NoisyShares."""

import math
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.mechanisms import ConfidentMax, NoisyMax, NoisyShares, SoftMajority
from quorate.core.privacy import RENYI_QUANTA, Budget
from quorate.planner.mechanisms.distributions import binomial_capped_mean, binomial_tail, normal_below, normal_nodes
from quorate.planner.mechanisms.forecast import VoteForecast
from quorate.planner.mechanisms.task import Calibrated, Draft, Expected, Task, unsure

__all__ = [
    "draft_confident_max",
    "draft_noisy_max",
    "draft_noisy_shares",
    "draft_soft_majority",
    "expect_confident_max",
    "expect_noisy_max",
    "expect_noisy_shares",
    "expect_soft_majority",
]

_NODES = 24  # of the first label's noise
_THRESHOLDS = tuple(step / 12 for step in range(13))  # quantiles of the largest share that are tried as the threshold
_LOWER = (0.0, 0.5, 0.8)  # of the smallest largest share: tests that nearly all pass
_RATIOS = (2.0, 4.0)  # of the test's noise to the winner's
_SHARE_AT = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 30.0)  # order / scale
_SHARE = (0.6367, 0.6375, 0.6423, 0.6605, 0.6948, 0.7462, 0.8427, 0.8948, 0.9441, 0.966, 0.984, 1.0)  # the cost of
# a winner of two over order / scale**2: `binary_winner_renyi` to 0.1% for scales from 3 to 80
_BOUND = 1.0095  # the bound for a winner of many over the cost of a winner of two, which is exact
_LARGEST_EXACT = 512.0  # beyond, the same bound serves for two
_LEAST_SCALE = 0.3
_TEST_SHARE = 2 / math.pi  # of the plain cost of a test, for much noise
_SPARE_DEVIATIONS = 1.0  # by which the budget of a ConfidentMax exceeds the expected number of answers


def _wins(forecast: VoteForecast, teachers: int, scale: float) -> Floats:
    """Return, for each query, the probability that the first label wins with normal noise on every count."""
    points, weights = normal_nodes(_NODES)
    lead = (forecast.top[:, np.newaxis] - forecast.rivals) * (teachers / scale)
    product = np.ones((len(lead), _NODES))
    for rival, copies in enumerate(forecast.copies.tolist()):
        product *= normal_below(lead[:, rival, np.newaxis] + points) ** copies
    return product @ weights


def _scale(task: Task, winners: float, tests: float = 0.0) -> float:
    """Return about the noise at which this many winners (and tests, as shares of order / scale**2) use the capacity."""
    capacity = task.capacity - 2 * task.queries / RENYI_QUANTA
    if capacity <= 0:
        raise Infeasible(f"{task.queries} queries leave less than one quantum for each; ask fewer")
    scale = math.sqrt(task.order * (_SHARE[0] * winners + tests) / capacity)
    for _ in range(6):
        share = float(np.interp(task.order / scale, _SHARE_AT, _SHARE))
        if task.classes > 2 or scale > _LARGEST_EXACT:
            share = min(1.0, share * _BOUND)
        scale = math.sqrt(task.order * (share * winners + tests) / capacity)
    return max(scale, _LEAST_SCALE)


def expect_noisy_max(scale: float, forecast: VoteForecast, teachers: int) -> Expected:
    """Return what a NoisyMax of this scale gives: an answer to every query."""
    right = forecast.mean(_wins(forecast, teachers, scale))
    return Expected(1.0, right, right)


def _make_noisy_max(task: Task, teachers: int, scale: float) -> Calibrated:
    mechanism = NoisyMax(teachers=teachers, classes=task.classes, scale=scale)
    for _ in range(20):
        cost = mechanism.query_cost(task.order)
        budget = Budget(epsilon=task.epsilon, delta=task.delta, order=task.order, slack=0.0)
        if budget.affordable(cost) >= task.queries:
            return Calibrated(mechanism, task.order, 0.0)
        mechanism = replace(
            mechanism, scale=mechanism.scale * max(1.002, math.sqrt(cost.renyi * task.queries / task.capacity) * 1.0005)
        )
    raise Infeasible(f"no noise was found for {task.queries} queries at epsilon={task.epsilon}; ask fewer")


def draft_noisy_max(task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the draft of a NoisyMax that answers every query."""
    scale = _scale(task, task.queries)
    expected = expect_noisy_max(scale, forecast, teachers)
    return Draft("noisy_max", expected, None, {"scale": scale}, partial(_make_noisy_max, task, teachers, scale))


def expect_noisy_shares(mechanism: NoisyShares, forecast: VoteForecast) -> Expected:
    """Return what NoisyShares give: an answer to every query, worth more the nearer its shares are to the teachers'.

    With two classes one count has noise, which moves the lead by twice as much: as much as noise on both that is larger
    by the square root of 2.
    """
    scale = mechanism.scale * (math.sqrt(2) if mechanism.classes == 2 else 1.0)
    right = forecast.mean(_wins(forecast, mechanism.teachers, scale))
    return Expected(1.0, right, max(0.0, 1.0 - mechanism.deviation))


@lru_cache(maxsize=256)
def _share_scale(epsilon: float, delta: float, classes: int, queries: int) -> float:
    return NoisyShares.calibrate(epsilon=epsilon, delta=delta, teachers=1, classes=classes, queries=queries).scale


def draft_noisy_shares(task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the draft of NoisyShares that answer every query."""
    scale = _share_scale(task.epsilon, task.delta, task.classes, task.queries)
    mechanism = NoisyShares(teachers=teachers, classes=task.classes, scale=scale)
    expected = expect_noisy_shares(mechanism, forecast)
    return Draft("noisy_shares", expected, None, {"scale": scale}, lambda: Calibrated(mechanism, task.order, 0.0))


def expect_confident_max(
    mechanism: ConfidentMax, task: Task, forecast: VoteForecast, *, allowed: float, teachers: int
) -> Expected:
    """Return what a ConfidentMax gives if its budget pays for `allowed` answers."""
    passes = normal_below((forecast.top * teachers - mechanism.threshold - 0.5) / mechanism.test_scale)
    wins = _wins(forecast, teachers, mechanism.winner_scale)
    rate = np.array([forecast.mean(passes)])
    agreement = forecast.mean(passes * wins) / max(float(rate[0]), 1e-300)
    answered = float(binomial_capped_mean(task.queries, allowed, rate)[0]) / task.queries
    rates, weights = unsure(rate, forecast.evidence)
    worth = float(binomial_capped_mean(task.queries, allowed, rates[0]) @ weights) / task.queries
    reached = 1 - float(binomial_tail(task.queries, math.floor(allowed) + 1, rate)[0])
    expected = Expected(min(1.0, answered), agreement, worth * agreement, reached)
    failed = (1 - float(rate[0])) / max(float(rate[0]), 1e-300)  # tests that fail, for each that passes
    no_quorum = min(answered * failed, 1 - answered)
    return expected.guessed(task, no_quorum=no_quorum, likely=min(worth * failed, 1 - worth))


def _allowed(rate: float, queries: int) -> float:
    return min(queries, math.ceil(rate * queries + _SPARE_DEVIATIONS * math.sqrt(queries * rate * (1 - rate)) + 1))


def _confident_settings(
    task: Task, forecast: VoteForecast, teachers: int, threshold: int, ratio: float
) -> tuple[ConfidentMax, float]:
    """Return the mechanism, not certified, and the answers its budget pays for: each depends on the other."""
    passing, allowed, scale = forecast.mean((forecast.top * teachers > threshold).astype(np.float64)), 0.0, 1.0
    for _ in range(3):
        allowed = _allowed(passing, task.queries)
        scale = _scale(task, allowed, task.queries * _TEST_SHARE / (2 * ratio**2))
        passing = forecast.mean(normal_below((forecast.top * teachers - threshold - 0.5) / (ratio * scale)))
    mechanism = ConfidentMax(
        teachers=teachers, classes=task.classes, threshold=threshold, test_scale=ratio * scale, winner_scale=scale
    )
    return mechanism, allowed


def draft_confident_max(task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the draft of a ConfidentMax with the threshold that is worth most."""
    tops = np.concatenate([float(forecast.top.min()) * np.array(_LOWER), np.quantile(forecast.top, _THRESHOLDS)])
    thresholds = sorted(set((tops * teachers).astype(np.int64).tolist()))
    best: tuple[Expected, ConfidentMax, float] | None = None
    for ratio in _RATIOS:
        for threshold in thresholds:
            mechanism, allowed = _confident_settings(task, forecast, teachers, threshold, ratio)
            expected = expect_confident_max(mechanism, task, forecast, allowed=allowed, teachers=teachers)
            if best is None or expected.worth > best[0].worth:
                best = expected, mechanism, allowed
    assert best is not None
    noise = {
        "threshold": float(best[1].threshold),
        "test_scale": best[1].test_scale,
        "winner_scale": best[1].winner_scale,
    }
    return Draft("confident_max", best[0], None, noise, lambda: Calibrated(best[1], task.order, 0.0))


@lru_cache(maxsize=256)
def _soft(epsilon: float, delta: float, queries: int) -> float:
    return SoftMajority.calibrate(epsilon=epsilon, delta=delta, teachers=1, queries=queries).epsilon_per_query


def expect_soft_majority(epsilon_per_query: float, forecast: VoteForecast, teachers: int) -> Expected:
    """Return what a SoftMajority gives: an answer to every query."""
    lead = (forecast.top[:, np.newaxis] - forecast.rivals) * (teachers * epsilon_per_query / 2)
    right = forecast.mean(1 / (1 + np.exp(-np.minimum(lead, 700.0)) @ forecast.copies))
    return Expected(1.0, right, right)


def _make_soft(task: Task, teachers: int, each: float) -> Calibrated:
    mechanism = SoftMajority(teachers=teachers, epsilon=each)
    orders = [math.inf]
    if task.delta > 0:
        orders = [task.order, task.order * 0.97, task.order * 1.03, math.inf]
    for order in orders:
        budget = Budget(epsilon=task.epsilon, delta=task.delta, order=order, slack=0.0)
        if budget.affordable(mechanism.query_cost(order)) >= task.queries:
            return Calibrated(mechanism, order, 0.0)
    return _make_soft(task, teachers, each * (1 - 1e-5))


def draft_soft_majority(task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the draft of a SoftMajority that answers every query."""
    each = _soft(task.epsilon, task.delta, task.queries)
    expected = expect_soft_majority(each, forecast, teachers)
    return Draft(
        "soft_majority", expected, None, {"epsilon_per_query": each}, partial(_make_soft, task, teachers, each)
    )
