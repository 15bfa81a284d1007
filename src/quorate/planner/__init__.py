"""Plans: what is achievable, before any private record is read. Nothing here sees private data.

    plan                 private prediction: which aggregator, how many teachers, what to expect
    plan_concept         classes of hypotheses: which method, and how many records each needs
    plan_student_first   a published student before the ensemble: how many teachers a dissent needs
    Plan                 what they return: feasible, nearest, methods, figures, settings(), summary(), as_dict()

Models use these plans. `plan_everlasting` and `plan_release` stand beside what they plan, above this room.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

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

if TYPE_CHECKING:
    from quorate.planner._concepts import plan_concept
    from quorate.planner._forecast import CONCENTRATION, DEFAULT_DISAGREEMENT
    from quorate.planner._students import plan_student_first
    from quorate.planner._teachers import LEAST_ROWS
    from quorate.planner.result import Candidate, Change, Method, Plan, PublishedBound
    from quorate.planner.votes import ON_NO_QUORUM, plan
else:
    __getattr__ = import_on_use(
        __name__,
        {
            "_concepts": "plan_concept",
            "_forecast": "CONCENTRATION DEFAULT_DISAGREEMENT",
            "result": "Candidate Change Method Plan PublishedBound",
            "_students": "plan_student_first",
            "_teachers": "LEAST_ROWS",
            "votes": "ON_NO_QUORUM plan",
        },
    )
