"""The games on votes: one ballot moved, for every mechanism that counts ballots."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from quorate.auditing.attacks import Attack, attacks_on, best_attack
from quorate.auditing.bounds import epsilon_lower_bound
from quorate.auditing.games import DELTAS
from quorate.auditing.plays import STOPPED, PlayNoise, play
from quorate.auditing.releases import release_of
from quorate.auditing.verdict import Attempt, Effort, Verdict, game, settled
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import SoftMajority
from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism

__all__ = ["audit_votes"]

_UNASKED = re.compile(rf"(, {STOPPED})+\)")  # at the end of what was seen
_NOT_TESTED = (
    "votes on more classes than {classes}, more queries than {queries} in a game, several ballots moved at once, and "
    "epsilon at deltas other than {deltas}"
)


@game(QueryMechanism, ThresholdMechanism)
def audit_votes(
    target: QueryMechanism | ThresholdMechanism,
    effort: Effort,
    *,
    queries: int | None = None,
    deltas: Sequence[float] | None = None,
) -> Verdict:
    """Move one ballot, ask the queries that will show most of it, and return the verdict.

    The claim is that of the mechanism for this many `queries` (a threshold run claims the same for any number). It is
    attacked at each of these `deltas`, with an equal share of the error for each; the verdict is about the one that
    comes closest.
    """
    plays, confidence = effort.plays, effort.confidence
    classes = target.vote_columns() or 2
    release = release_of(target, classes=classes)
    if queries is None:
        queries = min(6, target.no_quorums + 3) if isinstance(target, ThresholdMechanism) else 1
    if deltas is None:
        deltas = (0.0,) if isinstance(target, SoftMajority) else DELTAS
    claims = _claims(target, queries, deltas)
    error = (1 - confidence) / len(claims)
    noise = PlayNoise(effort.seed)
    candidates = [
        a for a in attacks_on(release, queries=queries, epsilon=max(e for e, _ in claims)) if effort.wants(a.name)
    ]
    if not candidates:
        raise InvalidInput(f"no attack on {type(target).__name__} is called any of {effort.attacks}")
    attempts = []
    for epsilon, delta in claims:
        attack, exact = best_attack(release, candidates, delta=delta, confidence=1 - error, plays=plays)
        first, second = (
            play(target, attack.query, plays=plays, neighbour=neighbour, noise=noise) for neighbour in (False, True)
        )
        bound = epsilon_lower_bound(first, second, delta=delta, confidence=1 - error)
        event = _UNASKED.sub(")", bound.event)
        attempts.append(Attempt(_words(attack), bound.epsilon, event, claim=(epsilon, delta), exact=exact))
    not_tested = _NOT_TESTED.format(
        classes=classes, queries=queries, deltas=", ".join(f"{delta:g}" for delta in deltas)
    )
    return settled(type(target).__name__, attempts, plays=plays, confidence=confidence, not_tested=not_tested)


def _claims(
    target: QueryMechanism | ThresholdMechanism, queries: int, deltas: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the claims that say something: at a delta below a run's own slack there is none, and 0 is no epsilon."""
    least = target.run_cost(target.order).slack if isinstance(target, ThresholdMechanism) else -1.0
    claims = [(_epsilon(target, delta, queries), delta) for delta in deltas if delta > least]
    claims = [(epsilon, delta) for epsilon, delta in claims if 0 < epsilon < np.inf]
    if not claims:
        raise InvalidInput(f"{type(target).__name__} claims nothing at any delta of {', '.join(map(str, deltas))}")
    return claims


def _epsilon(target: Any, delta: float, queries: int) -> float:
    return float(target.epsilon(delta=delta, queries=queries))


def _words(attack: Attack) -> str:
    return f"{attack.name}: {attack.query.votes} or {attack.query.neighbour}"
