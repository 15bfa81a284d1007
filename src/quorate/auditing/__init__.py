"""Attacks on every claim of this package, and an independent method that checks each cost.

`audit(target)` plays games against a mechanism, a fitted predictor or a release, and returns a `Verdict`: the claim,
the largest lower bound on epsilon that an attack showed, and which attack it was. `quorate.audit` is the same function.

>>> from quorate.core.mechanisms import SoftMajority
>>> soft = SoftMajority(teachers=9, epsilon=1.0)
>>> audit(soft, plays=4000).violated
False

Exact enumeration: `release_of` states what a mechanism releases, by its definition; `enumerate_outcomes` gives the
exact joint distribution of an adaptive interaction on two neighbouring data sets; `claims_of` states what the mechanism
claims about it; and `worst_cases` searches for the interaction that comes closest to breaking a claim.

>>> findings = worst_cases(release_of(soft, classes=2), claims_of(soft, queries=2, orders=[4.0]), queries=2)
>>> [finding.violated for finding in findings]
[False, False]
"""

from quorate.auditing.bounds import Bound, epsilon_lower_bound, score_lower_bound
from quorate.auditing.choices import audit_choice, audit_relabel, choice_law
from quorate.auditing.claims import Claim, DeltaClaim, Finding, Mechanism, RenyiClaim, SlackClaim, claims_of, measured
from quorate.auditing.counts import NoisyCount, audit_count
from quorate.auditing.cutoffs import audit_cutoff
from quorate.auditing.enumeration import Outcomes, Query, enumerate_outcomes
from quorate.auditing.everlasting_plays import audit_terms
from quorate.auditing.game import Game
from quorate.auditing.nearest import audit_nearest
from quorate.auditing.predictors import audit_classifier
from quorate.auditing.quantiles import audit_quantile
from quorate.auditing.release import audit_release
from quorate.auditing.releases import Release, all_votes, neighbours, release_of
from quorate.auditing.replay import Replay, entropy_tape, replay
from quorate.auditing.shares import audit_shares, share_outcomes
from quorate.auditing.sums import audit_sum, audit_vector, sum_outcomes
from quorate.auditing.verdict import Attempt, Verdict, audit, verdict_on
from quorate.auditing.votes import audit_votes
from quorate.auditing.worst_case import ascend, worst_cases

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
    "audit_nearest",
    "audit_quantile",
    "audit_relabel",
    "audit_release",
    "audit_shares",
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
    "share_outcomes",
    "sum_outcomes",
    "verdict_on",
    "worst_cases",
]
