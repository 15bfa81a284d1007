"""Query release with public data: every question of a class or a workload answered, for one budget.

    QueryRelease             all answers published once; afterwards anyone may ask, at no privacy cost
    OnlineRelease            one query at a time, paid for only where public data and earlier answers are clearly wrong
    Workload, Columns        what is asked of a table, and what is known about its columns in public
    plan_release             what can be achieved, before any private record is read
    ENGINES                  the ways to turn counts into released answers

The steps are modules of their own: `cover` and `tables` make cells and queries of public things, `domain` brings
records to their cells and seals the counts, `engines` release them, and everything after that is post-processing.
PROOF.md has the whole argument.
"""

from quorate.release.engines import ENGINES
from quorate.release.online import OnlineAnswer, OnlineRelease
from quorate.release.planning import ReleasePlan, plan_release
from quorate.release.release import QueryRelease
from quorate.release.tables import Categories, Columns, Cuts, Workload

__all__ = [
    "ENGINES",
    "Categories",
    "Columns",
    "Cuts",
    "OnlineAnswer",
    "OnlineRelease",
    "QueryRelease",
    "ReleasePlan",
    "Workload",
    "plan_release",
]
