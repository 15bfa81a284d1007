"""Query release with public data: answers to every query of a class or a workload, for one budget.

    QueryRelease             all answers, published once; afterwards anyone may query, at no privacy cost
    GrowingRelease           a table that grows by updates, released after each, for one budget over all of them
    OnlineRelease            one query at a time, paid for only if public data and earlier answers are clearly wrong
    GroupRelease             counts, totals, means and quantiles by group, published once
    Workload, Columns        the queries of a table, and public declarations of its columns

Each step is a module: `cover` and `workloads` make cells and queries from public information, and put records into
their cells; `domain` seals the counts, `engines` release them, and everything after that is post-processing. PROOF.md
has the whole proof.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = [
    "Columns",
    "GroupRelease",
    "GrowingRelease",
    "OnlineRelease",
    "QueryRelease",
    "Workload",
    "learn_from",
    "simulate_utility",
]

if TYPE_CHECKING:
    from quorate.release._growing import GrowingRelease
    from quorate.release._online import OnlineRelease
    from quorate.release._release import QueryRelease
    from quorate.release.numbers import GroupRelease
    from quorate.release.utility import learn_from, simulate_utility
    from quorate.release.workloads import Columns, Workload
else:
    __getattr__ = import_on_use(__name__, __file__)
