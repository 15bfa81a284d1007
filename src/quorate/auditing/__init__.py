"""Attacks on every claim of this package, and an independent method that checks each cost.

`audit(target)` plays games against a mechanism or a fitted predictor, and returns a `Verdict`: the claim,
the largest lower bound on epsilon that an attack showed, and which attack it was. `quorate.audit` is the same function.

>>> from quorate.core.mechanisms import SoftMajority
>>> soft = SoftMajority(teachers=9, epsilon_per_query=1.0)
>>> audit(soft, plays=4000).violated
False

Exact enumeration: `release_of` states what a mechanism releases, by its definition; `enumerate_outcomes` gives the
exact joint distribution of an adaptive interaction on two neighbouring data sets; `claims_of` states what the mechanism
claims about it; and `worst_cases` searches for the interaction that comes closest to breaking a claim.

>>> findings = worst_cases(release_of(soft, classes=2), claims_of(soft, queries=2, orders=[4.0]), queries=2)
>>> [finding.violated for finding in findings]
[False, False]
"""

from quorate.auditing import _choices, _predictors, _sums, _votes  # noqa: F401  they register their games
from quorate.auditing._bounds import epsilon_lower_bound
from quorate.auditing._canaries import audit_release_once
from quorate.auditing._charges import Comparison, Played, compare_charges
from quorate.auditing._enumeration import Query, claims_of, enumerate_outcomes
from quorate.auditing._laws import Release, release_of
from quorate.auditing._tracing import trace
from quorate.auditing._verdict import Verdict, audit, verdict_on
from quorate.auditing._worst_case import worst_cases
from quorate.auditing.replay import Replay, entropy_tape, replay

__all__ = [
    "Comparison",
    "Played",
    "Query",
    "Release",
    "Replay",
    "Verdict",
    "audit",
    "audit_release_once",
    "claims_of",
    "compare_charges",
    "entropy_tape",
    "enumerate_outcomes",
    "epsilon_lower_bound",
    "release_of",
    "replay",
    "trace",
    "verdict_on",
    "worst_cases",
]
