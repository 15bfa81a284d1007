"""Choosing the number of teachers: more of them drown the noise, fewer have more records to learn from.

What teachers lose by having few records is not known beforehand, and no private record may tell. Two rates stand for
it, both measured on simulated tables of 5 to 120 columns (docs/howto/classifier.md has the figures): by how much
accuracy the plurality of teachers of m records falls short of teachers with plenty, and by how much one model of m
records does.
"""

from dataclasses import dataclass

from quorate.planner.mechanisms.choose import AGGREGATORS, LEAST_ROWS, SLOW, best_draft
from quorate.planner.mechanisms.forecast import VoteForecast
from quorate.planner.mechanisms.task import Draft, Task, least_agreement

__all__ = ["NEAR", "Purpose", "best_teachers", "is_enough", "label_loss", "smallest_teachers"]

_AIM = 0.95  # share answered and right, where the number of teachers is free
NEAR = 0.005  # of what the most teachers would reach
_MOST_TEACHERS = 10**7
_FEWEST = 16
_STEPS = (1.41, 1.19, 1.09)  # from the best power of 2 towards the best number
_PLURALITY = 0.02  # accuracy lost by the plurality of teachers, times the records of each, for each coefficient
_ALONE = 0.25  # the same for one model by itself
_SPARE = 0.005  # beyond the rate asked for: what is certified later may need a little more noise
_ANSWER_ALL = ("sharp_majority", "noisy_max", "soft_majority")


def smallest_teachers(aggregator: str, task: Task, forecast: VoteForecast, *, most: int | None) -> int:
    """Return the fewest teachers that do nearly as well as `most` would, or that reach 95% where there is no limit.

    Fewer teachers learn from more records each, so that they are better teachers.
    """

    def right(teachers: int) -> float:
        return best_draft(aggregator, task, forecast, teachers).expected.worth

    limit = most or _MOST_TEACHERS
    target = right(limit) - NEAR
    if most is None:
        target = min(_AIM, target)
    low, high = 0, min(limit, 64)
    while high < limit and right(high) < target:
        low, high = high, min(limit, 2 * high)
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if right(middle) >= target else (middle, high)
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


def best_teachers(aggregator: str, task: Task, forecast: VoteForecast, purpose: Purpose, *, records: int) -> int | None:
    """Return the number of teachers that loses the least accuracy to noise and to small chunks together.

    Numbers that fall short of the rate, or whose answers are nearer to guesses than to the plurality's label, are left
    out. None where all do, where the columns are not known, or where an aggregator is slow to calibrate.
    """
    if purpose.columns is None or aggregator in SLOW:
        return None
    coefficients, most = purpose.columns * (task.classes - 1), records // LEAST_ROWS
    losses: dict[int, float] = {}

    def attempt(teachers: int) -> None:
        draft = best_draft(aggregator, task, forecast, teachers)
        if not is_enough(draft, task, purpose.rate):
            return
        noise = label_loss(draft, task, coefficients) if purpose.teach else _noise_loss(draft, task, forecast, teachers)
        losses[teachers] = noise + _PLURALITY * coefficients * teachers / records

    for power in range(_FEWEST.bit_length() - 1, most.bit_length() + 1):
        attempt(min(most, 2**power))
    for step in _STEPS:
        around = min(losses, key=lambda teachers: losses[teachers], default=0)
        for teachers in {round(around / step), min(most, round(around * step))} - {0, *losses}:
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
    if draft.aggregator not in _ANSWER_ALL:
        return 1 - draft.expected.worth
    weighed = AGGREGATORS[draft.aggregator](task, forecast.by_gap(), teachers)
    return 0.0 if weighed is None else forecast.mean(forecast.gap) * (1 - weighed.expected.worth)


def label_loss(draft: Draft, task: Task, coefficients: int) -> float:
    """Return the accuracy that a student loses by having few labels, of which noise spoils some.

    Labels of which a share w is replaced by random ones are worth the share (1 - w)^2 of as many clean ones.
    """
    chance = 1 / task.classes
    clean = (draft.expected.agreement - chance) / (1 - chance)
    return _ALONE * coefficients / (task.queries * draft.expected.answered * clean**2)
