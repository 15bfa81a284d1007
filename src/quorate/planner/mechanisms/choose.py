"""Choosing the aggregator."""

from collections.abc import Callable

from quorate.core.errors import Infeasible
from quorate.core.mechanisms import (
    BetweenThresholds,
    ConfidentMax,
    NoisyMax,
    NoisyShares,
    Quorum,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)
from quorate.planner.mechanisms.forecast import VoteForecast
from quorate.planner.mechanisms.maxima import (
    draft_confident_max,
    draft_noisy_max,
    draft_noisy_shares,
    draft_soft_majority,
    expect_confident_max,
    expect_noisy_max,
    expect_noisy_shares,
    expect_soft_majority,
)
from quorate.planner.mechanisms.quorum import draft_quorum, expect_quorum
from quorate.planner.mechanisms.sharp import draft_sharp_majority, expect_sharp_majority
from quorate.planner.mechanisms.task import Calibrated, Draft, Expected, Task
from quorate.planner.mechanisms.thresholds import (
    draft_between_thresholds,
    draft_stability,
    expect_between_thresholds,
    expect_stability,
)

__all__ = ["AGGREGATORS", "LEAST_ROWS", "SLOW", "best_draft", "drafts", "exact"]

LEAST_ROWS = 20  # records a teacher learns from, at least

Drafting = Callable[[Task, VoteForecast, int], Draft | None]
AGGREGATORS: dict[str, Drafting] = {
    "quorum": draft_quorum,
    "noisy_max": draft_noisy_max,
    "noisy_shares": draft_noisy_shares,
    "confident_max": draft_confident_max,
    "sharp_majority": draft_sharp_majority,
    "soft_majority": draft_soft_majority,
    "stability": draft_stability,
    "between_thresholds": draft_between_thresholds,
}
_AUTO = ("quorum", "sharp_majority", "noisy_max", "confident_max", "soft_majority")  # Quorum needs a shorter distance
_PURE = ("sharp_majority", "soft_majority")  # need no delta
_BETWEEN_TWO = {"between_thresholds": "quorum", "sharp_majority": "noisy_max"}  # and what to use for more classes
SLOW = ("stability", "between_thresholds")  # each calibration takes a moment


def drafts(aggregator: str, task: Task, forecast: VoteForecast, teachers: int) -> tuple[Draft, ...]:
    """Return the drafts of this aggregator, or of all that "auto" chooses from, the most worthy first."""
    names: tuple[str, ...] = _AUTO if aggregator == "auto" else (aggregator,)
    if task.delta == 0:
        names = tuple(name for name in names if name in _PURE)
        if not names:
            raise Infeasible(f"delta = 0 allows {' or '.join(_PURE)}, not {aggregator}; allow a delta above 0")
    if aggregator in _BETWEEN_TWO and task.classes != 2:
        raise Infeasible(f"{aggregator} is for 2 classes, not {task.classes}; use {_BETWEEN_TWO[aggregator]}")
    tried = [AGGREGATORS[name](task, forecast, teachers) for name in names]
    drafted = [draft for draft in tried if draft is not None]
    if not drafted:
        raise Infeasible(f"nothing is left for a query at epsilon={task.epsilon}, delta={task.delta}; raise either")
    return tuple(sorted(drafted, key=lambda draft: -draft.expected.worth))


def best_draft(aggregator: str, task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the most worthy draft."""
    return drafts(aggregator, task, forecast, teachers)[0]


def exact(calibrated: Calibrated, task: Task, forecast: VoteForecast) -> Expected:  # noqa: PLR0911  one for each mechanism
    """Return what a mechanism gives, by its own certified noise."""
    mechanism = calibrated.mechanism
    if isinstance(mechanism, Quorum):
        return expect_quorum(mechanism, task, forecast)
    if isinstance(mechanism, StabilityTest):
        return expect_stability(mechanism, task, forecast)
    if isinstance(mechanism, BetweenThresholds):
        return expect_between_thresholds(mechanism, task, forecast)
    if isinstance(mechanism, NoisyMax):
        return expect_noisy_max(mechanism.scale, forecast, mechanism.teachers)
    if isinstance(mechanism, NoisyShares):
        return expect_noisy_shares(mechanism, forecast)
    if isinstance(mechanism, SharpMajority):
        return expect_sharp_majority(mechanism, forecast)
    if isinstance(mechanism, SoftMajority):
        return expect_soft_majority(mechanism.epsilon_per_query, forecast, mechanism.teachers)
    assert isinstance(mechanism, ConfidentMax)
    tests = task.queries * mechanism.query_cost(calibrated.order).renyi
    allowed = (task.capacity - tests) / mechanism.answer_cost(calibrated.order).renyi
    return expect_confident_max(
        mechanism, task, forecast, allowed=max(0.0, min(task.queries, allowed)), teachers=mechanism.teachers
    )
