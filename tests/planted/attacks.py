"""Attacks that planted bugs share: the worst interaction, a game, and what moved against what was charged."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from scipy.special import log_ndtr

from planted.bug import Caught, replaced
from planted.exact import law_of_code
from quorate.auditing._bounds import epsilon_lower_bound
from quorate.auditing._charges import Comparison
from quorate.auditing._enumeration import Claim, DeltaClaim, Outcomes, RenyiClaim, claims_of, enumerate_outcomes
from quorate.auditing._laws import Release
from quorate.auditing._worst_case import worst_cases
from quorate.auditing.runs import compare_run
from quorate.core.mechanisms.base import ThresholdMechanism

CONFIDENCE = 1 - 1e-9

Plays = Callable[[Any, int, int], tuple[Any, Any]]


def judge(outcomes: Iterable[Outcomes], claims: Iterable[Claim], *, slack: float = 0.0) -> Caught:
    """Return whether any claim is broken by these exact laws, whatever event of probability `slack` is left out."""
    worst, evidence = 0.0, "no interaction found breaks a claim"
    for law, claim in ((law, claim) for law in outcomes for claim in claims):
        if isinstance(claim, DeltaClaim):
            seen, text = law.delta(claim.epsilon), f"delta at epsilon {claim.epsilon:.3g}"
        elif isinstance(claim, RenyiClaim) and not (claim.per_answer or claim.per_no_quorum):
            seen, text = law.renyi(claim.order, removed=slack), f"the divergence at order {claim.order:g}"
        else:
            continue
        excess = seen - claim.limit - 1e-10 - 1e-6 * abs(claim.limit)
        if excess > worst:
            worst, evidence = excess, f"{text} is {seen:.3g}, and {claim.limit:.3g} is claimed"
    return Caught("exact enumeration", evidence, found=worst > 0)


def search(
    mechanism: Any, *, classes: int, queries: int, orders: Iterable[float], release: Release | None = None
) -> Caught:
    """Return whether some interaction with the mechanism's own code breaks what the mechanism claims."""
    law = law_of_code(mechanism, classes=classes) if release is None else release
    slack = mechanism.run_cost(mechanism.order).slack if isinstance(mechanism, ThresholdMechanism) else 0.0
    deltas = [slack + more for more in (1e-3, 0.05)]
    claims = [*claims_of(mechanism, queries=queries, orders=orders, deltas=deltas)]
    if not isinstance(mechanism, ThresholdMechanism) and hasattr(mechanism, "epsilon_per_query"):
        claims.append(DeltaClaim(epsilon=queries * mechanism.epsilon_per_query, limit=0.0))
    tried = [claim for claim in claims if isinstance(claim, RenyiClaim | DeltaClaim)]
    findings = worst_cases(law, tried, queries=queries, effort=200_000, starts=6)
    trees = (enumerate_outcomes(law, finding.query) for finding in findings)
    return judge(trees, claims, slack=slack)


def play(target: Any, plays: int, seed: int, *, worlds: Plays, claim: tuple[float, float], said: str) -> Caught:
    """Play both worlds many times and return whether epsilon must be larger than the claim says."""
    bound = epsilon_lower_bound(*worlds(target, plays, seed), delta=claim[1], confidence=CONFIDENCE)
    evidence = (
        f"{said}: epsilon is at least {bound.epsilon:.3f} at delta {claim[1]:g}, and {claim[0]:.3f} is claimed "
        f"({bound.event}; {bound.plays} plays, confidence 1 - 1e-9)"
    )
    return Caught("black-box game", evidence, found=bound.epsilon > claim[0])


Twin = tuple[Any, str, Any]  # a class or a module, one of its members, and what stands in for it


def judge_charges(twin: Twin, compare: Callable[[], Comparison]) -> Caught:
    """Return whether a unit moves more than is charged, with this member replaced."""
    with replaced(*twin):
        found = compare().forbidden
    evidence = found[0] if found else "what a unit moved was charged"
    return Caught("what moved against what was charged", evidence, found=bool(found))


def compare_in_run(name: str) -> Callable[[Twin], Caught]:
    """Return the attack that plays this run of `quorate audit` on neighbours."""
    return lambda twin: judge_charges(twin, lambda: compare_run(name))


EPSILON, DELTA = 1.0, 1e-6  # claimed of what `judge_distance` judges


def judge_distance(attack: str, distance: float, subject: str) -> Caught:
    """Return whether Gaussian noise tells two neighbours at this distance better apart than (1, 1e-6) allows."""
    near, far = (float(log_ndtr(sign * distance / 2 - EPSILON / distance)) for sign in (1, -1))
    delta = math.exp(near) - math.exp(EPSILON + far)  # Balle and Wang 2018, theorem 8
    evidence = f"{subject} have a delta of {delta:.1e} at epsilon {EPSILON:g}; claimed: {DELTA:g}"
    return Caught(attack, evidence, found=delta > DELTA)
