"""Plans: what is achievable, before any private record is read. Nothing here sees private data.

    plan                 private prediction: which aggregator, how many teachers, what to expect
    plan_concept         classes of hypotheses: which method, and how many records each needs
    plan_student_first   a published student before the ensemble: how many teachers a dissent needs
    plan_everlasting     an endless stream: the chunk size, and the number of no-quorums
    plan_release         query release: which engine, and how many private and public records
    Plan                 what they return: feasible, nearest, methods, figures, settings(), summary(), as_dict()

The predictors use the first three; the last two use what they plan.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from quorate.planner.concepts import plan_concept
from quorate.planner.forecast import CONCENTRATION, DEFAULT_DISAGREEMENT
from quorate.planner.result import Candidate, Change, Method, Plan, PublishedBound
from quorate.planner.students import plan_student_first
from quorate.planner.teachers import LEAST_ROWS
from quorate.planner.votes import ON_NO_QUORUM, plan

__all__ = [
    "CONCENTRATION",
    "DEFAULT_DISAGREEMENT",
    "LEAST_ROWS",
    "ON_NO_QUORUM",
    "Candidate",
    "Change",
    "Method",
    "Plan",
    "PublishedBound",
    "plan",
    "plan_concept",
    "plan_student_first",
]

_ABOVE = {  # found when first asked for: these stand above the predictors
    "ReleasePlan": "quorate.release.plan",
    "plan_everlasting": "quorate.models.everlasting.plan",
    "plan_release": "quorate.release.plan",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _ABOVE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_ABOVE[name]), name)
