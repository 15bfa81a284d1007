"""Which options go together: one that was given and that nothing would read is refused, not passed over in silence."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from quorate.errors import InvalidInput

__all__ = ["FIT_OPTIONS", "PLAN_OPTIONS", "RELEASE_OPTIONS", "refuse_idle"]

_TABLES = "table out label classes public schema groups leave_out missing_texts method json"
_CONCEPT = f"{_TABLES} concept rows_per_person ask"

FIT_OPTIONS = {  # by method
    "subsample": f"{_TABLES} epsilon delta learner teachers aggregator queries no_quorums disagreement holdout jobs "
    "report",
    "everlasting": f"{_TABLES} epsilon delta query_epsilon learner concept chunk no_quorums growth most_seats refresh "
    "relabel jobs",
    "agnostic": f"{_CONCEPT} epsilon delta report",
    "universal": f"{_CONCEPT} epsilon delta report",
    "stable": f"{_CONCEPT} gamma",
    "pure": f"{_CONCEPT} epsilon report",
    "semi-private": f"{_CONCEPT} epsilon points report",
}
PLAN_OPTIONS = {
    "with --concept": "concept features alpha public records epsilon delta queries json",
    "without --concept": "records teachers classes disagreement votes aggregator no_quorums answer_rate on_no_quorum "
    "epsilon delta queries json",
}
RELEASE_OPTIONS = {
    "when a release is asked": "table ask out synthetic json",
    "with --plan": "plan table workload public columns epsilon delta alpha records report json",
    "with --online": "online table workload public columns groups epsilon delta alpha ledger ask json",
    "without --plan or --online": "table workload public columns groups epsilon delta engine out ask synthetic report "
    "json",
}


def refuse_idle(command: Callable[..., Any], given: Mapping[str, Any], used: str, when: str) -> None:
    """Refuse a value other than the default for an option that is not among those used.

    >>> def command(*, records: int = 1, growth: float = 1.0): ...
    >>> refuse_idle(command, {"records": 5, "growth": 1.0}, "records", "with --method pure")
    >>> refuse_idle(command, {"records": 5, "growth": 2.0}, "records", "with --method pure")
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: --growth does nothing with --method pure: leave it out
    """
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in used.split() and given[name] != parameter.default:
            raise InvalidInput(f"--{name.replace('_', '-')} does nothing {when}: leave it out")
