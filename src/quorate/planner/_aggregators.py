"""Aggregators that pay for every query: noise by a cheap stand-in for the cost, certified when they are made."""

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.mechanisms import ConfidentMax, NoisyMax, NoisyShares, SharpMajority, SoftMajority
from quorate.core.mechanisms.sharp_majority import ONE, build_table
from quorate.core.privacy import RENYI_QUANTA, Budget, exponential_renyi, to_capacity
from quorate.planner.task import (
    Calibrated,
    Draft,
    Expected,
    Task,
    VoteForecast,
    binomial_capped_mean,
    binomial_tail,
    normal_nodes,
    unsure,
)

_NODES = 24  # of the first label's noise
_THRESHOLDS = tuple(step / 12 for step in range(13))  # quantiles of the largest share that are tried as the threshold
_LOWER = (0.0, 0.5, 0.8)  # of the smallest largest share: tests that nearly all pass
_RATIOS = (2.0, 4.0)  # of the test's noise to the winner's
_SHARE_AT = np.array((0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 30.0))  # order / scale
# The cost of a winner of two over order / scale**2: `binary_winner_renyi` to 0.1% for scales from 3 to 80.
_SHARE = np.array((0.6367, 0.6375, 0.6423, 0.6605, 0.6948, 0.7462, 0.8427, 0.8948, 0.9441, 0.966, 0.984, 1.0))
_BOUND = 1.0095  # the bound for a winner of many over the cost of a winner of two, which is exact
_LARGEST_EXACT = 512.0  # beyond, the same bound serves for two
_LEAST_SCALE = 0.3
_TEST_SHARE = 2 / math.pi  # of the plain cost of a test, for much noise
_SPARE_DEVIATIONS = 1.0  # by which the budget of a ConfidentMax exceeds the expected number of answers
_LONG = 1e-7  # of price over order: below, a table of SharpMajority is as good as its limit
_MANY = 10**6  # teachers, for a table that ends by itself


def _wins(forecast: VoteForecast, teachers: int, scale: Floats | float) -> Floats:
    """Return the probability that the first label wins with normal noise on every count: a row a scale, then queries.

    The noise of two counts adds up; that of more is integrated over the first label's.
    """
    lead = (forecast.top[:, np.newaxis] - forecast.rivals) * teachers
    by_scale = np.asarray(scale)[..., np.newaxis]
    if len(forecast.copies) == 1 and forecast.copies[0] == 1:
        two_labels: Floats = ndtr(lead[:, 0] / (by_scale * math.sqrt(2)))
        return two_labels
    points, weights = normal_nodes(_NODES)
    product: Floats = np.ones((*by_scale.shape[:-1], len(lead), _NODES))
    for rival, copies in enumerate(forecast.copies.tolist()):
        product *= ndtr((lead[:, rival] / by_scale)[..., np.newaxis] + points) ** copies
    return product @ weights


def _scales(task: Task, winners: Floats, tests: float = 0.0) -> Floats:
    """Return about the noise at which so many winners (and tests, as shares of order / scale**2) use the capacity."""
    capacity = task.capacity - 2 * task.queries / RENYI_QUANTA
    if capacity <= 0:
        raise Infeasible(f"{task.queries} queries leave less than one quantum for each; ask fewer")
    scale = np.sqrt(task.order * (_SHARE[0] * winners + tests) / capacity)
    for _ in range(6):
        share = np.interp(task.order / scale, _SHARE_AT, _SHARE)
        bounded = (task.classes > 2) | (scale > _LARGEST_EXACT)
        share = np.where(bounded, np.minimum(1.0, share * _BOUND), share)
        scale = np.sqrt(task.order * (share * winners + tests) / capacity)
    scales: Floats = np.maximum(scale, _LEAST_SCALE)
    return scales


@lru_cache(maxsize=256)
def _scale(task: Task) -> float:
    return float(_scales(task, np.array([float(task.queries)]))[0])


def _expect_wins(forecast: VoteForecast, teachers: int, scale: float) -> Expected:
    """Return the expectation where every query is answered, with normal noise of this scale on every count."""
    right = forecast.mean(_wins(forecast, teachers, scale))
    return Expected(1.0, right, right)


def _expect_noisy_max(mechanism: NoisyMax, forecast: VoteForecast) -> Expected:
    return _expect_wins(forecast, mechanism.teachers, mechanism.scale)


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
    scale = _scale(task)
    expected, expect = _expect_wins(forecast, teachers, scale), partial(_expect_noisy_max, forecast=forecast)
    return Draft("noisy_max", expected, None, {"scale": scale}, partial(_make_noisy_max, task, teachers, scale), expect)


def _expect_noisy_shares(mechanism: NoisyShares, forecast: VoteForecast) -> Expected:
    """Return the expectation of NoisyShares: every query is answered, the better the nearer its shares are.

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
    expect, make = partial(_expect_noisy_shares, forecast=forecast), partial(Calibrated, mechanism, task.order, 0.0)
    return Draft("noisy_shares", expect(mechanism), None, {"scale": scale}, make, expect)


def _expect_confident_max(mechanism: ConfidentMax, task: Task, forecast: VoteForecast) -> Expected:
    """Return the expectation of a ConfidentMax whose answers end with the budget."""
    tests = task.queries * mechanism.query_cost(task.order).renyi
    allowed = (task.capacity - tests) / mechanism.answer_cost(task.order).renyi
    return _expect_answers(mechanism, task, forecast, allowed=max(0.0, min(task.queries, allowed)))


def _expect_answers(mechanism: ConfidentMax, task: Task, forecast: VoteForecast, *, allowed: float) -> Expected:
    """Return the expectation of a ConfidentMax whose budget pays for `allowed` answers."""
    passes = ndtr((forecast.top * mechanism.teachers - mechanism.threshold - 0.5) / mechanism.test_scale)
    wins = _wins(forecast, mechanism.teachers, mechanism.winner_scale)
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


def most_of_confident_max(task: Task, noisy_max: Expected) -> float:
    """Return a bound on the worth of any ConfidentMax for two labels by what a NoisyMax is worth; 1 where none holds.

    The winners of a share a of the queries have a noise of variance proportional to a at least, so that at best the
    clearest share a is answered, each with probability Phi(z) for z = lead / (noise sqrt(2)). One more query adds at
    least 1/2 to the number of right answers, and its cost takes at most max z phi(z) / 2 < 0.13 from the others: the
    sum grows up to a = 1, which is a NoisyMax that pays for no test. The uncertainty of a rate adds at most 0.005 to a
    share of answers of a half.
    """
    if task.classes > 2 or task.guess or _scale(task) > _LARGEST_EXACT:
        return 1.0
    return max(noisy_max.right, 0.505) + 1e-5


def draft_confident_max(task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the draft of a ConfidentMax with the threshold that is worth most."""
    tops = np.concatenate([float(forecast.top.min()) * np.array(_LOWER), np.quantile(forecast.top, _THRESHOLDS)])
    thresholds = np.array(sorted(set((tops * teachers).astype(np.int64).tolist())))
    best: tuple[float, float, ConfidentMax] | None = None
    for ratio in _RATIOS:
        allowed, scales, worths = _confident_settings(task, forecast, teachers, thresholds, ratio)
        position = int(np.argmax(worths))
        if best is None or worths[position] > best[0]:
            mechanism = ConfidentMax(
                teachers=teachers,
                classes=task.classes,
                threshold=int(thresholds[position]),
                test_scale=ratio * float(scales[position]),
                winner_scale=float(scales[position]),
            )
            best = float(worths[position]), float(allowed[position]), mechanism
    assert best is not None
    _, answers, mechanism = best
    expected = _expect_answers(mechanism, task, forecast, allowed=answers)
    noise = {name: float(getattr(mechanism, name)) for name in ("threshold", "test_scale", "winner_scale")}
    make = partial(Calibrated, mechanism, task.order, 0.0)
    return Draft(
        "confident_max", expected, None, noise, make, partial(_expect_confident_max, task=task, forecast=forecast)
    )


def _confident_settings(
    task: Task, forecast: VoteForecast, teachers: int, thresholds: Floats, ratio: float
) -> tuple[Floats, Floats, Floats]:
    """Return for each threshold the answers that the budget pays for, the winner's noise, and what both are worth."""
    excess = forecast.top * teachers - thresholds[:, np.newaxis]
    passing, tests = forecast.means((excess > 0).astype(np.float64)), task.queries * _TEST_SHARE / (2 * ratio**2)
    for _ in range(3):  # Answers and noise each need the other.
        spare = _SPARE_DEVIATIONS * np.sqrt(task.queries * passing * (1 - passing))
        allowed = np.minimum(task.queries, np.ceil(passing * task.queries + spare + 1))
        scales = _scales(task, allowed, tests)
        passes = ndtr((excess - 0.5) / (ratio * scales[:, np.newaxis]))
        passing = forecast.means(passes)
    agreement = forecast.means(passes * _wins(forecast, teachers, scales)) / np.maximum(passing, 1e-300)
    rates, weights = unsure(passing, forecast.evidence)
    answered = [binomial_capped_mean(task.queries, cap, row) for cap, row in zip(allowed.tolist(), rates, strict=True)]
    share = np.array(answered) @ weights / task.queries
    failed = (1 - passing) / np.maximum(passing, 1e-300)
    guesses = np.minimum(share * failed, 1 - share) / task.classes if task.guess else 0.0
    return allowed, scales, np.round(share * agreement + guesses, 9)


def _expect_soft_majority(mechanism: SoftMajority, forecast: VoteForecast) -> Expected:
    per_ballot = mechanism.epsilon_per_query / 2
    lead = (forecast.top[:, np.newaxis] - forecast.rivals) * (mechanism.teachers * per_ballot)
    right = forecast.mean(1 / (1 + np.exp(-np.minimum(lead, 700.0)) @ forecast.copies))
    return Expected(1.0, right, right)


@lru_cache(maxsize=256)
def _soft_epsilon(task: Task) -> float:
    """Return the largest epsilon of a query, to one in a million, that pays all queries at the task's order."""
    low = SoftMajority.calibrate(epsilon=task.epsilon, teachers=1, queries=task.queries).epsilon_per_query
    high, price = task.epsilon, task.capacity / task.queries - 1 / RENYI_QUANTA
    while task.delta > 0 and high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if exponential_renyi(middle, order=task.order) <= price else (low, middle)
    return low


def _make_soft(task: Task, teachers: int, epsilon: float) -> Calibrated:
    mechanism = SoftMajority(teachers=teachers, epsilon_per_query=epsilon)
    for order in dict.fromkeys((task.order, math.inf)):
        budget = Budget(epsilon=task.epsilon, delta=task.delta, order=order, slack=0.0)
        if budget.affordable(mechanism.query_cost(order)) >= task.queries:
            return Calibrated(mechanism, order, 0.0)
    return _make_soft(task, teachers, epsilon * (1 - 1e-5))


def draft_soft_majority(task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the draft of a SoftMajority that answers every query."""
    epsilon = _soft_epsilon(task)
    expect = partial(_expect_soft_majority, forecast=forecast)
    noise, make = {"epsilon_per_query": epsilon}, partial(_make_soft, task, teachers, epsilon)
    return Draft(
        "soft_majority", expect(SoftMajority(teachers=teachers, epsilon_per_query=epsilon)), None, noise, make, expect
    )


@lru_cache(maxsize=256)
def _short_table(order: float, price: float) -> Floats:
    return _probabilities(build_table(teachers=_MANY, order=order, price=price))


def _probabilities(table: tuple[int, ...]) -> Floats:
    return np.array([level / ONE for level in table])


def _wrong(lead: Floats, order: float, price: float) -> Floats:
    """Return about how often a query is answered wrongly, by the lead of its label."""
    if math.isinf(order):  # proof: step 6 of core/mechanisms/PROOF_sharp_majority.md
        return np.exp(-price * lead / 2) / 2
    if price / order < _LONG:  # proof: step 5 of core/mechanisms/PROOF_sharp_majority.md
        angle: Floats = np.maximum(math.pi / 4 - lead * math.sqrt(price / (8 * order)), 0.0)
        return np.square(np.sin(angle))
    return _looked_up(lead, _short_table(order, price))


def _looked_up(lead: Floats, table: Floats) -> Floats:
    wrong: Floats = np.interp(lead / 2, np.arange(len(table)), table)
    return wrong


def _expect_sharp_majority(mechanism: SharpMajority, forecast: VoteForecast) -> Expected:
    lead = forecast.gap * mechanism.teachers
    right = 1 - forecast.mean(_looked_up(lead, _probabilities(mechanism.table)))
    return Expected(1.0, right, right)


def _make_sharp(task: Task, forecast: VoteForecast, teachers: int, order: float) -> Calibrated:
    """Return the better, on these queries, of the order that the draft took and the one that suits all leads alike."""
    target: dict[str, Any] = {
        "epsilon": task.epsilon,
        "delta": task.delta,
        "teachers": teachers,
        "queries": task.queries,
    }
    mechanisms = [SharpMajority.calibrate(**target), SharpMajority.calibrate(**target, order=order)]
    mechanism = max(mechanisms, key=lambda candidate: _expect_sharp_majority(candidate, forecast).right)
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
    make = partial(_make_sharp, task, forecast, teachers, order)
    expect = partial(_expect_sharp_majority, forecast=forecast)
    return Draft("sharp_majority", Expected(1.0, right, right), None, {"price": price}, make, expect)
