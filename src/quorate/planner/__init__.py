"""What is achievable, before any private record is read: which aggregator, how many teachers, what to expect.

Nothing here sees private data. `plan` takes numbers that a person knows beforehand, or votes on public points.
"""

from quorate.planner.choose import LEAST_ROWS
from quorate.planner.concepts import ConceptMethod, ConceptPlan, plan_concept
from quorate.planner.entry import ON_NO_QUORUM, plan
from quorate.planner.outlook import CONCENTRATION, DEFAULT_DISAGREEMENT
from quorate.planner.published import PublishedBound
from quorate.planner.result import Candidate, Change, Plan

__all__ = [
    "CONCENTRATION",
    "DEFAULT_DISAGREEMENT",
    "LEAST_ROWS",
    "ON_NO_QUORUM",
    "Candidate",
    "Change",
    "ConceptMethod",
    "ConceptPlan",
    "Plan",
    "PublishedBound",
    "plan",
    "plan_concept",
]
