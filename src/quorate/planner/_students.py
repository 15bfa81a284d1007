"""Plans for a published student that answers first: how many teachers it takes to detect a dissent."""

import math
from dataclasses import replace

from quorate.core.mechanisms.dissent import RATE, calibrate_with_quorum
from quorate.planner.result import Change, Plan

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
