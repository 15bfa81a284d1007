"""StabilityTest and BetweenThresholds. Quorum needs a smaller distance than either; they stand here for comparison."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.mechanisms import BetweenThresholds, StabilityTest
from quorate.core.mechanisms.distributions import laplace_tail
from quorate.planner.mechanisms.forecast import VoteForecast
from quorate.planner.mechanisms.quorum import best_no_quorums, run_expected
from quorate.planner.mechanisms.task import Calibrated, Draft, Expected, Task

__all__ = [
    "Shares",
    "draft_between_thresholds",
    "draft_stability",
    "expect_between_thresholds",
    "expect_stability",
    "shares_with_redraws",
]

_ANY_TEACHERS = 10**9  # calibrations do not depend on the number, except to refuse a small one
_NODES = 41  # quantiles of a Laplace threshold noise
_GAUSSIAN_NODES = 15
_FACTORS = (1 / 32, 1 / 8, 1 / 3, 1.0, 2.0)  # around Quorum's number of no-quorums
_LONGEST = 2**14  # steps of time; longer runs are looked at in coarser ones
_DAMPING = 22.0  # what wraps around the transform is smaller by exp(-_DAMPING)

Threshold = StabilityTest | BetweenThresholds


@lru_cache(maxsize=64)
def _calibrated(kind: type[Threshold], epsilon: float, delta: float, count: int) -> Threshold:
    return kind.calibrate(epsilon=epsilon, delta=delta, teachers=_ANY_TEACHERS, no_quorums=count)


class Shares(NamedTuple):
    """Expected shares of all queries: answered, and without a quorum; and the probability that the run lasts."""

    answered: float
    no_quorum: float
    lasts: float


def shares_with_redraws(queries: int, no_quorums: int, missed: Floats, weights: Floats) -> Shares:
    """Return what is expected where an epoch's rate of no-quorums is missed[i] with probability weights[i].

    An epoch ends with its first no-quorum. With the transform f of the law of its length, f**c is that of the time
    of no-quorum number c, and f + f**2 + ... + f**c counts the no-quorums.
    """
    coarse = math.ceil(queries / _LONGEST)
    steps = math.ceil(queries / coarse)
    kept = np.power(1 - np.clip(missed, 0.0, 1.0), coarse)[:, np.newaxis]  # no no-quorum in one step of time
    times = np.arange(1, steps + 1)
    law = weights @ (np.power(kept, times - 1) * (1 - kept))
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
    asked = steps - float(ended[:steps].sum())
    answered = float(np.clip(asked * coarse - met, 0.0, queries)) / queries
    return Shares(answered, met / queries, float(np.clip(1 - ended[steps - 1], 0.0, 1.0)))


def expect_stability(mechanism: StabilityTest, task: Task, forecast: VoteForecast) -> Expected:
    """Return what this StabilityTest gives."""
    middles = (np.arange(_NODES) + 0.5) / _NODES
    tails = np.log(2 * np.minimum(middles, 1 - middles))
    noises = np.round(np.where(middles < 0.5, tails, -tails) * mechanism.threshold_scale).astype(np.int64)
    distances = forecast.distances(mechanism.teachers)
    passes = laplace_tail(mechanism.query_scale, mechanism.margin + noises[:, np.newaxis] + 1 - distances)
    weights = np.full(_NODES, 1 / _NODES)
    shares = shares_with_redraws(task.queries, mechanism.no_quorums, 1 - passes @ forecast.weights, weights)
    expected = Expected(shares.answered, 1.0, shares.answered, shares.lasts)
    return expected.guessed(task, no_quorum=shares.no_quorum, likely=shares.no_quorum)


def expect_between_thresholds(mechanism: BetweenThresholds, task: Task, forecast: VoteForecast) -> Expected:
    """Return what this BetweenThresholds gives."""
    votes = np.round(forecast.top * mechanism.teachers).astype(np.int64)

    def passes(noise: int, top: bool) -> Floats:
        favourable = votes if top else mechanism.teachers - votes
        needed = mechanism.teachers // 2 + mechanism.margin - noise + 1
        return laplace_tail(mechanism.query_scale, needed - favourable)

    right, wrong = forecast.mean(passes(0, True)), forecast.mean(passes(0, False))
    return run_expected(
        lambda noise: np.clip(1 - passes(noise, True) - passes(noise, False), 0.0, 1.0),
        mechanism.threshold_scale,
        forecast,
        task,
        count=mechanism.no_quorums,
        nodes=_GAUSSIAN_NODES,
        agreement=right / max(right + wrong, 1e-300),
    )


def _rounded(count: float) -> int:
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
    noise = {
        "threshold_scale": mechanism.threshold_scale,
        "query_scale": mechanism.query_scale,
        "margin": float(mechanism.margin),
        "order": mechanism.order,
    }
    return Draft(
        name,
        best[0],
        mechanism.no_quorums,
        noise,
        lambda: Calibrated(mechanism, mechanism.order, mechanism.run_cost(mechanism.order).slack),
    )


def draft_stability(task: Task, forecast: VoteForecast, teachers: int) -> Draft | None:
    """Return the draft of a StabilityTest, or None where there is nothing to spend."""
    count = best_no_quorums(task, forecast, teachers)
    counts = [count]
    if task.no_quorums is None:
        counts = sorted({min(task.queries, _rounded(count * factor)) for factor in _FACTORS})
    expect = partial(expect_stability, task=task, forecast=forecast)
    return _best("stability", StabilityTest, expect, counts=counts, task=task, teachers=teachers)


def draft_between_thresholds(task: Task, forecast: VoteForecast, teachers: int) -> Draft | None:
    """Return the draft of a BetweenThresholds with the no-quorums of a Quorum; None for more than two classes."""
    if task.classes != 2:
        return None
    expect = partial(expect_between_thresholds, task=task, forecast=forecast)
    count = best_no_quorums(task, forecast, teachers)
    counts = [count if task.no_quorums is not None else min(task.queries, _rounded(count))]
    return _best("between_thresholds", BetweenThresholds, expect, counts=counts, task=task, teachers=teachers)
