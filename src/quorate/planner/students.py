"""Plans for a published student that answers first: how many teachers it takes to detect a dissent."""

import math
from dataclasses import dataclass, replace
from typing import Any

from quorate.core.mechanisms import Dissent, Quorum
from quorate.core.mechanisms.dissent import RATE, calibrate_with_quorum
from quorate.planner.result import Change, plan_card

__all__ = ["StudentFirstPlan", "plan_student_first"]

_MANY = 2**31  # teachers to calibrate with where their number is not yet known
_CLEAR = 0.9  # the share of teachers that agree where the ensemble is clear
_BY_CHANCE = 0.1  # the share of the dissents that traffic may use up where the student is right
_LEAST_UNITS = 2  # for each teacher


@dataclass(frozen=True, kw_only=True)
class StudentFirstPlan:
    """Both mechanisms and their number of teachers. `units` is the number of units, None if unknown."""

    epsilon: float
    delta: float
    queries: int
    teachers: int
    dissent: Dissent
    quorum: Quorum
    units: int | None = None

    @property
    def feasible(self) -> bool:
        """Whether each teacher has enough units."""
        return not self.nearest

    @property
    def nearest(self) -> tuple[Change, ...]:
        """How many units are needed, if there are fewer."""
        needed = _LEAST_UNITS * self.teachers
        if self.units is None or self.units >= needed:
            return ()
        return (Change("records", needed, None, f"collect {needed:,} units"),)

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments, apart from the student, of a `StudentFirstClassifier` that follows the plan."""
        named = {name: getattr(self, name) for name in ("epsilon", "delta", "queries", "teachers")}
        return named | {"dissents": self.dissent.no_quorums, "no_quorums": self.quorum.no_quorums}

    def summary(self) -> str:
        """Return the plan in a few sentences."""
        text = (
            f"{self.teachers:,} teachers are asked whether they clearly disagree with the student: up to "
            f"{self.dissent.no_quorums:,} times, and {self.quorum.no_quorums:,} of those may find no quorum."
        )
        if self.feasible:
            return text
        return (
            f"this target takes {self.teachers} teachers, and so at least {_LEAST_UNITS * self.teachers} units; there "
            f"are {self.units}. Raise epsilon, or allow fewer dissents than {self.dissent.no_quorums} or fewer "
            f"no_quorums than {self.quorum.no_quorums}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold."""
        return self.settings() | {"feasible": self.feasible}

    def _repr_html_(self) -> str:
        return plan_card(self, "teachers", "queries", "epsilon", "delta")


def plan_student_first(
    *,
    epsilon: float,
    delta: float,
    queries: int,
    dissents: int,
    no_quorums: int,
    teachers: int | None = None,
    units: int | None = None,
) -> StudentFirstPlan:
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
    return StudentFirstPlan(
        epsilon=epsilon, delta=delta, queries=queries, teachers=count, dissent=dissent, quorum=quorum, units=units
    )
