"""The second method: every cost that a mechanism claims, checked without the code that computed it.

`release_of` writes down what a mechanism releases, from its definition; `enumerate_outcomes` gives the exact joint law
of an adaptive interaction on two neighbouring data sets; `claims_of` states what the mechanism claims about it; and
`worst_cases` searches for the interaction that comes closest to breaking a claim.

>>> from quorate.mechanisms import SoftMajority
>>> soft = SoftMajority(teachers=9, epsilon=1.0)
>>> findings = worst_cases(release_of(soft, classes=2), claims_of(soft, queries=2, orders=[4.0]), queries=2)
>>> [finding.violated for finding in findings]
[False, False]
"""

from quorate.audit.claims import Claim, DeltaClaim, Finding, Mechanism, RenyiClaim, SlackClaim, claims_of, measured
from quorate.audit.enumeration import Outcomes, Query, enumerate_outcomes
from quorate.audit.game import Game
from quorate.audit.releases import Release, all_votes, neighbours, release_of
from quorate.audit.sums import sum_outcomes
from quorate.audit.worst_case import ascend, worst_cases

__all__ = [
    "Claim",
    "DeltaClaim",
    "Finding",
    "Game",
    "Mechanism",
    "Outcomes",
    "Query",
    "Release",
    "RenyiClaim",
    "SlackClaim",
    "all_votes",
    "ascend",
    "claims_of",
    "enumerate_outcomes",
    "measured",
    "neighbours",
    "release_of",
    "sum_outcomes",
    "worst_cases",
]
