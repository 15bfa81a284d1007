"""The aggregator, the number of teachers, and the nearest changes that would make a plan feasible.

More teachers drown the noise, fewer have more records to learn from. What teachers lose by having few records is not
known beforehand, and no private record may tell. Two rates stand for it, both measured on simulated tables of 5 to 120
columns (docs/reference/teachers.md has the figures): by how much accuracy the plurality of teachers of m records falls
short of teachers with plenty, and by how much one model of m records does.

Where a published student answers first, the number is the one that it takes to detect a dissent.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from quorate.core.errors import Infeasible
from quorate.core.mechanisms.dissent import RATE, calibrate_with_quorum
from quorate.planner._aggregators import (
    draft_confident_max,
    draft_noisy_max,
    draft_noisy_shares,
    draft_sharp_majority,
    draft_soft_majority,
    most_of_confident_max,
)
from quorate.planner._thresholds import can_quorum_reach, draft_between_thresholds, draft_quorum, draft_stability
from quorate.planner.result import Change, Plan
from quorate.planner.task import Draft, Expected, Task, VoteForecast, least_agreement

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
SLOW = ("stability", "between_thresholds")  # each calibration takes a moment
_AUTO = ("quorum", "sharp_majority", "noisy_max", "confident_max", "soft_majority")  # Quorum needs a shorter distance
_PURE = ("sharp_majority", "soft_majority")  # need no delta
_BETWEEN_TWO = {"between_thresholds": "quorum", "sharp_majority": "noisy_max"}  # and what to use for more classes
_AIM = 0.95  # share answered and right, where the number of teachers is free
_NEAR = 0.005  # of what the most teachers would reach
_MOST_TEACHERS, _MOST_EPSILON = 10**7, 16.0
_FEWEST = 16
_STEPS = (1.41, 1.19, 1.09)  # from the best power of 2 towards the best number
_PLURALITY = 0.02  # accuracy lost by the plurality of teachers, times the records of each, for each coefficient
_ALONE = 0.25  # the same for one model by itself
_SPARE = 0.005  # beyond the rate asked for: what is certified later may need a little more noise
_ENOUGH = 1.02  # the search for a change stops once its bracket is this narrow


def drafts(aggregator: str, task: Task, forecast: VoteForecast, teachers: int) -> tuple[Draft, ...]:
    """Return the drafts of this aggregator, or of all that "auto" chooses from, the most worthy first."""
    drafted = [AGGREGATORS[name](task, forecast, teachers) for name in _names(aggregator, task)]
    return _ranked([draft for draft in drafted if draft is not None], task)


def _names(aggregator: str, task: Task) -> tuple[str, ...]:
    """Return the aggregators to draft, or raise an error if the target rules the named one out."""
    names: tuple[str, ...] = _AUTO if aggregator == "auto" else (aggregator,)
    if task.delta == 0:
        names = tuple(name for name in names if name in _PURE)
        if not names:
            raise Infeasible(f"delta = 0 allows {' or '.join(_PURE)}, not {aggregator}; allow a delta above 0")
    if aggregator in _BETWEEN_TWO and task.classes != 2:
        raise Infeasible(f"{aggregator} is for 2 classes, not {task.classes}; use {_BETWEEN_TWO[aggregator]}")
    return names


def _ranked(drafted: list[Draft], task: Task) -> tuple[Draft, ...]:
    if not drafted:
        raise Infeasible(f"nothing is left for a query at epsilon={task.epsilon}, delta={task.delta}; raise either")
    return tuple(sorted(drafted, key=lambda draft: -draft.expected.worth))


def best_draft(aggregator: str, task: Task, forecast: VoteForecast, teachers: int) -> Draft:
    """Return the most worthy draft."""
    return open_drafts(aggregator, task, forecast, teachers)[0]


def open_drafts(aggregator: str, task: Task, forecast: VoteForecast, teachers: int) -> tuple[Draft, ...]:
    """Return the drafts, the most worthy first. Of "auto", those that cannot be worth the most are not made."""
    names = _names(aggregator, task)
    if aggregator != "auto" or task.delta == 0:
        return drafts(aggregator, task, forecast, teachers)
    drafted = {name: AGGREGATORS[name](task, forecast, teachers) for name in ("sharp_majority", "noisy_max")}
    if drafted["sharp_majority"] is None:  # It is right more often than a soft majority at every lead.
        drafted["soft_majority"] = draft_soft_majority(task, forecast, teachers)
    best = max(draft.expected.worth for draft in drafted.values() if draft is not None)
    assert drafted["noisy_max"] is not None
    if can_quorum_reach(best, task, forecast, teachers):
        drafted["quorum"] = draft_quorum(task, forecast, teachers)
    if most_of_confident_max(task, drafted["noisy_max"].expected) > best:
        drafted["confident_max"] = draft_confident_max(task, forecast, teachers)
    return _ranked([draft for name in names if (draft := drafted.get(name)) is not None], task)


@lru_cache(maxsize=64)
def smallest_teachers(aggregator: str, task: Task, forecast: VoteForecast, *, most: int | None) -> int:
    """Return the fewest teachers that do nearly as well as `most` would, or that reach 95% where there is no limit.

    Fewer teachers learn from more records each, so that they are better teachers.
    """

    def worth(teachers: int) -> float:
        return best_draft(aggregator, task, forecast, teachers).expected.worth

    limit = most or _MOST_TEACHERS
    target = worth(limit) - _NEAR
    if most is None:
        target = min(_AIM, target)
    low, high = 0, min(limit, 64)
    while high < limit and worth(high) < target:
        low, high = high, min(limit, 2 * high)
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if worth(middle) >= target else (middle, high)
    return high


@dataclass(frozen=True)
class Purpose:
    """What the answers are for: by themselves, or with `teach` as labels that a student learns from.

    `columns` is how many each record has, None where that is not known, and `rate` the share of queries that must be
    answered with the plurality's label.
    """

    columns: int | None = None
    teach: bool = False
    rate: float = 0.0


@lru_cache(maxsize=64)
def best_teachers(aggregator: str, task: Task, forecast: VoteForecast, purpose: Purpose, *, records: int) -> int | None:
    """Return the number of teachers that loses the least accuracy to noise and to small chunks together.

    Numbers that fall short of the rate, or whose answers are nearer to guesses than to the plurality's label, are left
    out. None where all do, where the columns are not known, or where an aggregator is slow to calibrate.
    """
    if purpose.columns is None or aggregator in SLOW:
        return None
    coefficients, largest = purpose.columns * (task.classes - 1), records // LEAST_ROWS
    losses: dict[int, float] = {}

    def attempt(teachers: int) -> None:
        draft = best_draft(aggregator, task, forecast, teachers)
        if not is_enough(draft, task, purpose.rate):
            return
        noise = (
            _label_loss(draft, task, coefficients) if purpose.teach else _noise_loss(draft, task, forecast, teachers)
        )
        losses[teachers] = noise + _PLURALITY * coefficients * teachers / records

    for power in range(_FEWEST.bit_length() - 1, largest.bit_length() + 1):
        attempt(min(largest, 2**power))
    for step in _STEPS:
        around = min(losses, key=lambda teachers: losses[teachers], default=0)
        for teachers in {round(around / step), min(largest, round(around * step))} - {0, *losses}:
            attempt(teachers)
    return min(losses, key=lambda teachers: losses[teachers]) if losses else None


def is_enough(draft: Draft, task: Task, rate: float) -> bool:
    """Return whether a draft reaches the rate with answers that are nearer to the plurality's label than to guesses."""
    expected = draft.expected
    clear = expected.agreement >= least_agreement(task.classes) + _SPARE
    return clear and min(expected.right, expected.worth) >= rate + _SPARE


def _noise_loss(draft: Draft, task: Task, forecast: VoteForecast, teachers: int) -> float:
    """Return the accuracy that noise costs the answers.

    Where a query has an even vote, either label is about as often right: a wrong answer costs as much accuracy as the
    share by which the plurality leads. What is not answered counts in full.
    """
    if draft.aggregator not in ("sharp_majority", "noisy_max", "soft_majority"):
        return 1 - draft.expected.worth
    weighed = AGGREGATORS[draft.aggregator](task, forecast.by_gap, teachers)
    return 0.0 if weighed is None else forecast.mean(forecast.gap) * (1 - weighed.expected.worth)


def _label_loss(draft: Draft, task: Task, coefficients: int) -> float:
    """Return the accuracy that a student loses by having few labels, of which noise spoils some.

    Labels of which a share w is replaced by random ones are worth the share (1 - w)^2 of as many clean ones.
    """
    chance = 1 / task.classes
    clean = (draft.expected.agreement - chance) / (1 - chance)
    return _ALONE * coefficients / (task.queries * draft.expected.answered * clean**2)


def nearest_changes(
    aggregator: str, task: Task, forecast: VoteForecast, teachers: int, *, rate: float, records: int | None, free: bool
) -> Iterator[Change]:
    """Yield the changes of teachers (or records), of epsilon and of queries that each reach the rate by itself.

    `free` says that the number of teachers was not given, so that more records are more teachers. For the aggregators
    that are slow to calibrate only teachers are looked for: their noise does not depend on that number.
    """

    def expect(task: Task, teachers: int) -> Expected:
        try:
            return best_draft(aggregator, task, forecast, teachers).expected
        except Infeasible:
            return Expected(0.0, 0.0, 0.0)

    def right(task: Task, teachers: int) -> float:
        expected = expect(task, teachers)
        return min(expected.right, expected.worth)

    def reaches(task: Task, teachers: int, rate_needed: float) -> bool:
        expected = expect(task, teachers)
        enough = expected.agreement >= least_agreement(task.classes) + _SPARE
        return enough and min(expected.right, expected.worth) >= rate_needed

    target = rate + _SPARE
    stricter = target + (_NEAR if records is not None else 0.0)  # a plan by records may use a few teachers less
    needed = _smallest(lambda count: reaches(task, math.ceil(count), stricter), float(teachers), float(_MOST_TEACHERS))
    if needed is not None:
        count = math.ceil(_tidy(needed))
        yield _more_teachers(count, right(task, count), records=records, free=free)
    if aggregator in SLOW:
        return
    if free and records is not None:
        teachers = max(1, records // LEAST_ROWS)  # the plan may take as many for another epsilon or fewer queries
    needed = _smallest(
        lambda epsilon: reaches(replace(task, epsilon=epsilon), teachers, target), task.epsilon, _MOST_EPSILON
    )
    if needed is not None:
        epsilon = _tidy(needed)
        reached = right(replace(task, epsilon=epsilon), teachers)
        yield Change("epsilon", epsilon, reached, f"raise epsilon to {epsilon:g}")
    fewer = _smallest(
        lambda share: reaches(replace(task, queries=max(1, int(task.queries / share))), teachers, target),
        1.0,
        float(task.queries),
    )
    if fewer is not None:
        queries = max(1, int(task.queries / fewer))
        reached = right(replace(task, queries=queries), teachers)
        yield Change("queries", queries, reached, f"ask at most {queries:,} queries")


def _smallest(reaches: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return about the smallest value in (low, high] that reaches the rate, or None."""
    if not reaches(high):
        return None
    top = low
    while top < high:  # doubling first: large values are the expensive ones
        top = min(high, 2 * top)
        if reaches(top):
            high = top
            break
        low = top
    while high > low * _ENOUGH:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _tidy(value: float, digits: int = 3) -> float:
    """Return the value rounded up to a few digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.{digits}g}")


def _more_teachers(count: int, right: float, *, records: int | None, free: bool) -> Change:
    if records is not None and (free or count > records // LEAST_ROWS):
        needed = count * LEAST_ROWS
        sentence = f"collect {needed:,} records, for {count:,} teachers of {LEAST_ROWS} each"
        return Change("records", needed, right, sentence)
    return Change("teachers", count, right, f"use {count:,} teachers")


_MANY = 2**31  # teachers to calibrate with where their number is not yet known
_CLEAR = 0.9  # the share of teachers that agree where the ensemble is clear
_BY_CHANCE = 0.1  # the share of the dissents that traffic may use up where the student is right
_LEAST_UNITS = 2  # for each teacher


def plan_student_first(
    *,
    epsilon: float,
    delta: float,
    queries: int,
    dissents: int,
    no_quorums: int,
    teachers: int | None = None,
    units: int | None = None,
) -> Plan:
    """Plan both mechanisms and, unless given, the number of teachers, from public numbers.

    There are enough teachers if a dissent is detected when nine in ten of them agree on it, and if `queries` on which
    nine in ten agree with the student use up at most a tenth of the dissents by chance. Given `teachers` are used as
    they are.

    >>> plan = plan_student_first(epsilon=4.0, delta=1e-5, queries=10_000, dissents=5, no_quorums=2, units=100)
    >>> plan.feasible, plan.teachers > 50
    (False, True)
    """
    dissent, quorum = calibrate_with_quorum(
        epsilon=epsilon,
        delta=delta,
        teachers=_MANY if teachers is None else teachers,
        dissents=dissents,
        no_quorums=no_quorums,
    )
    if teachers is None:
        by_chance = min(1 - RATE, _BY_CHANCE * dissents / queries)
        lead = -dissent.standing_half_gap(standing=1 - by_chance)
        count = math.ceil(max(dissent.distance(), quorum.distance(), lead) / (_CLEAR - 0.5))
        dissent, quorum = replace(dissent, teachers=count), replace(quorum, teachers=count)
    else:
        count, units = teachers, None
    keywords = {"epsilon": epsilon, "delta": delta, "queries": queries, "teachers": count}
    needed = _LEAST_UNITS * count
    feasible = units is None or units >= needed
    return Plan(
        family="student_first",
        feasible=feasible,
        keywords=keywords | {"dissents": dissent.no_quorums, "no_quorums": quorum.no_quorums},
        figures=keywords | {"dissent": dissent, "quorum": quorum, "units": units},
        text=f"{count:,} teachers are asked whether they clearly disagree with the student: up to "
        f"{dissent.no_quorums:,} times, and {quorum.no_quorums:,} of those may find no quorum.",
        shortage=f"{count:,} teachers take at least {needed:,} units, and there are {units}; raise epsilon, or allow "
        f"fewer dissents than {dissents} or fewer no_quorums than {no_quorums}",
        nearest=() if feasible else (Change("records", needed, None, f"collect {needed:,} units"),),
        shown=("teachers", "queries", "epsilon", "delta"),
    )
