"""Query release with public data: answers to every query of a class or a workload, for one budget.

    QueryRelease             all answers, published once; afterwards anyone may query, at no privacy cost
    GrowingRelease           a table that grows by updates, released after each, for one budget over all of them
    OnlineRelease            one query at a time, paid for only if public data and earlier answers are clearly wrong
    Workload, Columns        the queries of a table, and what is publicly known about its columns
    ENGINES                  the ways to turn counts into released answers

Each step is a module: `cover` and `workloads` make cells and queries from public information, and put records into
their cells; `domain` seals the counts, `engines` release them, and everything after that is post-processing. PROOF.md
has the whole proof.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.release.engines import ENGINES
    from quorate.release.growing import GrowingRelease
    from quorate.release.online import OnlineAnswer, OnlineRelease
    from quorate.release.release import QueryRelease
    from quorate.release.utility import Utility, learn_from, simulate_utility
    from quorate.release.workloads import Columns, Workload

__all__ = [
    "ENGINES",
    "Columns",
    "GrowingRelease",
    "OnlineAnswer",
    "OnlineRelease",
    "QueryRelease",
    "Utility",
    "Workload",
    "learn_from",
    "simulate_utility",
]

_HOMES = {
    "ENGINES": "engines",
    "Columns": "workloads",
    "GrowingRelease": "growing",
    "OnlineAnswer": "online",
    "OnlineRelease": "online",
    "QueryRelease": "release",
    "Utility": "utility",
    "Workload": "workloads",
    "learn_from": "utility",
    "simulate_utility": "utility",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: a workload needs no engines, and a release no ledger of a run."""
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOMES:
        raise AttributeError(f"module 'quorate.release' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"quorate.release.{_HOMES[name]}"), name)
    return value
