"""Attacks on every claim that is made here, and the second method by which each cost is checked.

The package is itself a call: `quorate.audit(target)` plays games against a mechanism or a fitted predictor and returns
a `Verdict`: the claim, the largest epsilon that an attack showed to be needed, and which attack it was.

>>> import quorate.audit
>>> from quorate.mechanisms import SoftMajority
>>> soft = SoftMajority(teachers=9, epsilon=1.0)
>>> quorate.audit(soft, plays=4000).violated
False

Exact enumeration: `release_of` writes down what a mechanism releases, from its definition; `enumerate_outcomes` gives
the exact joint law of an adaptive interaction on two neighbouring data sets; `claims_of` states what the mechanism
claims about it; and `worst_cases` searches for the interaction that comes closest to breaking a claim.

>>> findings = worst_cases(release_of(soft, classes=2), claims_of(soft, queries=2, orders=[4.0]), queries=2)
>>> [finding.violated for finding in findings]
[False, False]
"""

import sys
from types import ModuleType
from typing import Any

from quorate.audit.bounds import Bound, epsilon_lower_bound, score_lower_bound
from quorate.audit.choices import audit_choice, audit_relabel, choice_law
from quorate.audit.claims import Claim, DeltaClaim, Finding, Mechanism, RenyiClaim, SlackClaim, claims_of, measured
from quorate.audit.counts import NoisyCount, audit_count
from quorate.audit.cutoffs import audit_cutoff
from quorate.audit.enumeration import Outcomes, Query, enumerate_outcomes
from quorate.audit.everlasting_plays import audit_terms
from quorate.audit.game import Game
from quorate.audit.predictors import audit_classifier
from quorate.audit.release import audit_release
from quorate.audit.releases import Release, all_votes, neighbours, release_of
from quorate.audit.replay import Replay, entropy_tape, replay
from quorate.audit.sums import audit_sum, audit_vector, sum_outcomes
from quorate.audit.verdict import Attempt, Verdict, audit
from quorate.audit.votes import audit_votes
from quorate.audit.worst_case import ascend, worst_cases
from quorate.checks import check_count

__all__ = [
    "Attempt",
    "Bound",
    "Claim",
    "DeltaClaim",
    "Finding",
    "Game",
    "Mechanism",
    "NoisyCount",
    "Outcomes",
    "Query",
    "Release",
    "RenyiClaim",
    "Replay",
    "SlackClaim",
    "Verdict",
    "all_votes",
    "ascend",
    "audit",
    "audit_choice",
    "audit_classifier",
    "audit_count",
    "audit_cutoff",
    "audit_relabel",
    "audit_release",
    "audit_sum",
    "audit_terms",
    "audit_vector",
    "audit_votes",
    "choice_law",
    "claims_of",
    "entropy_tape",
    "enumerate_outcomes",
    "epsilon_lower_bound",
    "measured",
    "neighbours",
    "release_of",
    "replay",
    "score_lower_bound",
    "sum_outcomes",
    "worst_cases",
]


class _Callable(ModuleType):
    """A package that can be called like the function `audit`."""

    def __call__(self, target: object, *, plays: int = 1_000_000, **options: Any) -> Verdict:
        return audit(target, plays=check_count("plays", plays, least=10), **options)


sys.modules[__name__].__class__ = _Callable
