"""What would have to change: the smallest change of one number that reaches the rate asked for, found by search."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from quorate.core.errors import Infeasible
from quorate.planner.mechanisms.choose import LEAST_ROWS, SLOW, best_draft
from quorate.planner.mechanisms.forecast import VoteForecast
from quorate.planner.mechanisms.task import Expected, Task, least_agreement
from quorate.planner.mechanisms.teachers import NEAR
from quorate.planner.result import Change

__all__ = ["nearest_changes"]

_SPARE = 0.005  # beyond the rate asked for: what is certified later may need a little more noise
_MOST_TEACHERS, _MOST_EPSILON = 10**7, 16.0
_ENOUGH = 1.02  # the search stops once its bracket is this narrow


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


def nearest_changes(
    aggregator: str, task: Task, forecast: VoteForecast, teachers: int, *, rate: float, records: int | None, free: bool
) -> Iterator[Change]:
    """Yield the changes of teachers (or records), of epsilon and of queries that each reach the rate by itself.

    `free` says that the number of teachers was not given, so that more records are more teachers. For the aggregators
    that are slow to calibrate only teachers are looked for: their noise does not depend on that number.
    """

    def expected(task: Task, teachers: int) -> Expected:
        try:
            return best_draft(aggregator, task, forecast, teachers).expected
        except Infeasible:
            return Expected(0.0, 0.0, 0.0)

    def right(task: Task, teachers: int) -> float:
        outcome = expected(task, teachers)
        return min(outcome.right, outcome.worth)

    def reaches(task: Task, teachers: int, least: float) -> bool:
        enough = expected(task, teachers).agreement >= least_agreement(task.classes) + _SPARE
        return enough and right(task, teachers) >= least

    target = rate + _SPARE
    more = target + (NEAR if records is not None else 0.0)  # a plan by records may use a few teachers less
    needed = _smallest(lambda count: reaches(task, math.ceil(count), more), float(teachers), float(_MOST_TEACHERS))
    if needed is not None:
        yield _more_teachers(math.ceil(_tidy(needed)), lambda count: right(task, count), records=records, free=free)
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


def _more_teachers(count: int, right: Callable[[int], float], *, records: int | None, free: bool) -> Change:
    if records is not None and (free or count > records // LEAST_ROWS):
        needed = count * LEAST_ROWS
        sentence = f"collect {needed:,} records, for {count:,} teachers of {LEAST_ROWS} each"
        return Change("records", needed, right(count), sentence)
    return Change("teachers", count, right(count), f"use {count:,} teachers")
