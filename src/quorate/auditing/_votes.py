"""The games on votes: one ballot moved, for every mechanism that counts ballots.

An attack is a tree of queries with one ballot moved. Candidates are single queries at every lead, the same query asked
again and again, pairs of leads of which one falls where the other rises, and, where teachers are few, the worst trees
that enumeration finds. The law of each is summed out exactly; the game itself is then played on the real code.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.auditing._bounds import epsilon_lower_bound, expected_lower_bound
from quorate.auditing._enumeration import DeltaClaim, Query, enumerate_outcomes
from quorate.auditing._laws import Release, Votes, release_of
from quorate.auditing._plays import STOPPED, PlayNoise, play
from quorate.auditing._verdict import DELTAS, Attempt, Effort, Verdict, game
from quorate.auditing._worst_case import Game, ascend
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NO_QUORUM, SoftMajority
from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism

_LEADS = 48  # leads that are looked at
_KEPT = 4  # candidates that longer ones are built from
_FEW = 400_000  # numbers in the table of a game that enumeration looks through
_PATIENCE = ((2, 1), (4, 1), (8, 0), (8, 8), (40, 0), (40, 40))  # queries in a row, one way and then the other
_DEEPEST = 4  # queries of the worst trees
_UNASKED = re.compile(rf"(, {STOPPED})+\)")  # at the end of what was seen
_NOT_TESTED = (
    "votes on more classes than {classes}, more queries than {queries} in a game, several ballots moved at once, and "
    "epsilon at deltas other than {deltas}"
)

Pair = tuple[Votes, Votes]


@dataclass(frozen=True)
class Attack:
    """What is asked, in words and as a tree, and what enumeration says about it.

    `expected` is about the lower bound that the plays will show; `exact` is the epsilon that this tree needs at delta.
    """

    name: str
    query: Query
    expected: float = 0.0
    exact: float = 0.0


def attacks_on(release: Release, *, queries: int, epsilon: float) -> Iterator[Attack]:
    """Give candidates of up to this many queries; `epsilon` is the claim, near which the worst trees are looked for."""
    pairs = _pairs(release)
    for pair in pairs:
        yield Attack("one query", Query(*pair))
    if queries > 1:
        yield from _repeated(release, pairs, queries, epsilon)
        yield from _patient(release, pairs, epsilon)
    size = release.law.size * len(pairs) * 3
    if size * release.teachers ** (release.classes - 2) <= _FEW:
        game = Game(release, DeltaClaim.measures)
        for depth in range(1, min(queries, _DEEPEST) + 1):
            for share in (0.5, 0.8):
                tree = ascend(game, DeltaClaim(epsilon=share * epsilon, limit=1.0), queries=depth, starts=6)
                yield Attack(f"worst tree of {depth} quer{'y' if depth == 1 else 'ies'}", tree.query)


def best_attack(
    release: Release, candidates: Sequence[Attack], *, delta: float, confidence: float, plays: int
) -> tuple[Attack, float]:
    """Return the candidate that will show most, and the largest exact epsilon at delta of any of them."""
    best, worst = Attack("none", candidates[0].query, expected=-1.0), 0.0
    for attack in candidates:
        outcomes = enumerate_outcomes(release, attack.query)
        exact = outcomes.two_sided_epsilon(delta)
        expected = expected_lower_bound(
            outcomes.whole, outcomes.neighbour, delta=delta, confidence=confidence, plays=plays
        )
        worst = max(worst, exact)
        if expected > best.expected:
            best = Attack(attack.name, attack.query, expected, exact)
    return best, worst


def _pairs(release: Release) -> list[Pair]:
    """Return neighbours at every lead (or many), all but two classes being empty: a ballot moves from 0 to 1."""
    teachers, rest = release.teachers, (0,) * (release.classes - 2)
    leads = sorted({round(lead) for lead in np.linspace(1, teachers, min(teachers, _LEADS))})
    return [((lead, teachers - lead, *rest), (lead - 1, teachers - lead + 1, *rest)) for lead in leads]


def _repeated(release: Release, pairs: list[Pair], queries: int, epsilon: float) -> Iterator[Attack]:
    """Give the best pairs asked over and over, and followed by pairs of which the ballot moves the other way."""

    def show_delta(queries: list[Pair]) -> float:
        outcomes = enumerate_outcomes(release, _chain(queries))
        return max(outcomes.delta(epsilon / 2), outcomes.swap().delta(epsilon / 2))

    def best_chains(chains: list[list[Pair]]) -> list[list[Pair]]:
        return sorted(chains, key=show_delta, reverse=True)[:_KEPT]

    chains = best_chains([[pair] for pair in pairs])
    both_ways = [*pairs, *(pair[::-1] for pair in pairs)]
    for depth in range(2, queries + 1):
        following = [both_ways if depth == 2 else {*chain, *(pair[::-1] for pair in chain)} for chain in chains]
        chains = best_chains([[*chain, pair] for chain, nexts in zip(chains, following, strict=True) for pair in nexts])
        for chain in chains:
            name = "one query, asked" if len(set(chain)) == 1 else "rising and falling queries, asked"
            yield Attack(f"{name} {depth} times", _chain(chain))


def _patient(release: Release, pairs: list[Pair], epsilon: float) -> Iterator[Attack]:
    """Give long rows of queries that end with the first no-quorum: answers tell of the threshold, what ends them more.

    While they are answered the ballot moves one way, and then the other: so threshold and query both count.
    """
    if release.no_quorums is None:
        return
    some = pairs[:: max(1, len(pairs) // 24)]
    for forth, back in _PATIENCE:
        chains = [[pair] * forth + [pair[::-1]] * back for pair in some]
        chains += [[pair[::-1] for pair in chain] for chain in chains]
        rows = [_until_missed(chain) for chain in chains]
        rows.sort(key=lambda row: -enumerate_outcomes(release, row).delta(epsilon / 2))
        for row in rows[:_KEPT]:
            yield Attack(f"up to {forth + back} queries until one finds no quorum", row)


def _until_missed(queries: Sequence[Pair]) -> Query:
    """Return a tree that asks these while they are answered as most ballots say: it has as many ends as queries."""
    *earlier, last = queries
    node = Query(*last)
    for votes, neighbour in reversed(earlier):
        node = Query(votes, neighbour, {votes.index(max(votes)): node})
    return node


def _chain(queries: Sequence[Pair]) -> Query:
    """Return a tree that asks these, whatever is answered, until the run ends. Its nodes are shared."""
    *earlier, last = queries
    node = Query(*last)
    for pair in reversed(earlier):
        node = Query(*pair, dict.fromkeys([*range(len(pair[0])), NO_QUORUM], node))
    return node


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
    queries = _default_queries(target) if queries is None else queries
    if deltas is None:
        deltas = (0.0,) if isinstance(target, SoftMajority) else DELTAS
    claims = _claims(target, queries, deltas)
    error = (1 - confidence) / len(claims)
    noise = PlayNoise(effort.seed)
    candidates = list(attacks_on(release, queries=queries, epsilon=max(claims)[0]))
    candidates = [attack for attack in candidates if effort.wants(attack.name)]
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
    listed = ", ".join(f"{delta:g}" for delta in deltas)
    not_tested = _NOT_TESTED.format(classes=classes, queries=queries, deltas=listed)
    return effort.judge(type(target).__name__, attempts, not_tested=not_tested)


def _default_queries(target: QueryMechanism | ThresholdMechanism) -> int:
    return min(6, target.no_quorums + 3) if isinstance(target, ThresholdMechanism) else 1


def _claims(
    target: QueryMechanism | ThresholdMechanism, queries: int, deltas: Sequence[float]
) -> list[tuple[float, float]]:
    """Return the claims that say something: at a delta below a run's own slack there is none, and 0 is no epsilon."""
    slack = target.run_cost(target.order).slack if isinstance(target, ThresholdMechanism) else -1.0
    claims = [(_epsilon(target, delta, queries), delta) for delta in deltas if delta > slack]
    claims = [(epsilon, delta) for epsilon, delta in claims if 0 < epsilon < np.inf]
    if not claims:
        raise InvalidInput(f"{type(target).__name__} claims nothing at any delta of {', '.join(map(str, deltas))}")
    return claims


def _epsilon(target: Any, delta: float, queries: int) -> float:
    return float(target.epsilon(delta=delta, queries=queries))


def _words(attack: Attack) -> str:
    return f"{attack.name}: {attack.query.votes} or {attack.query.neighbour}"
