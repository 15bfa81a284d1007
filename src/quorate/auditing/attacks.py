"""Which queries to ask in a game on votes: those that should show most, by the exact law of the release.

An attack is a tree of queries with one ballot moved. Candidates are single queries at every lead, the same query asked
again and again, pairs of leads of which one falls where the other rises, and, where teachers are few, the worst trees
that enumeration finds. The law of each is summed out exactly; the game itself is then played on the real code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from quorate.auditing.bounds import expected_lower_bound
from quorate.auditing.claims import DeltaClaim
from quorate.auditing.enumeration import Outcomes, Query, enumerate_outcomes
from quorate.auditing.game import Game
from quorate.auditing.releases import Release, Votes
from quorate.auditing.worst_case import ascend
from quorate.core.mechanisms import NO_QUORUM

__all__ = ["Attack", "attacks_on", "best_attack", "exact_epsilon", "turned"]

_LEADS = 48  # leads that are looked at
_KEPT = 4  # candidates that longer ones are built from
_FEW = 400_000  # numbers in the table of a game that enumeration looks through
_PATIENCE = ((2, 1), (4, 1), (8, 0), (8, 8), (40, 0), (40, 40))  # queries in a row, one way and then the other
_DEEPEST = 4  # queries of the worst trees

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


def exact_epsilon(outcomes: Outcomes, delta: float) -> float:
    """Return the smallest epsilon for which the pair is (epsilon, delta)-close in both directions."""
    return max(outcomes.epsilon(delta), turned(outcomes).epsilon(delta))


def turned(outcomes: Outcomes) -> Outcomes:
    """Return the same pair of laws with the two data sets exchanged; what the claim leaves out is not."""
    return Outcomes(outcomes.histories, outcomes.neighbour, outcomes.neighbour, outcomes.whole)


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
        exact = exact_epsilon(outcomes, delta)
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

    def shown(queries: list[Pair]) -> float:
        outcomes = enumerate_outcomes(release, _chain(queries))
        return max(outcomes.delta(epsilon / 2), turned(outcomes).delta(epsilon / 2))

    def keep(lists: list[list[Pair]], most: int) -> list[list[Pair]]:
        return sorted(lists, key=shown, reverse=True)[:most]

    kept = keep([[pair] for pair in pairs], _KEPT)
    both = [*pairs, *(pair[::-1] for pair in pairs)]
    for depth in range(2, queries + 1):
        following = [both if depth == 2 else {*chain, *(pair[::-1] for pair in chain)} for chain in kept]
        kept = keep([[*chain, pair] for chain, pairs in zip(kept, following, strict=True) for pair in pairs], _KEPT)
        for chain in kept:
            name = "one query, asked" if len(set(chain)) == 1 else "rising and falling queries, asked"
            yield Attack(f"{name} {depth} times", _chain(chain))


def _patient(release: Release, pairs: list[Pair], epsilon: float) -> Iterator[Attack]:
    """Give long rows of queries that end with the first no-quorum: answers tell of the threshold, what ends them more.

    While they are answered the ballot moves one way, and then the other: so threshold and query both count.
    """
    if release.no_quorums is None:
        return
    some = pairs[:: max(1, len(pairs) // 24)]
    for long, after in _PATIENCE:
        lists = [[pair] * long + [pair[::-1]] * after for pair in some]
        rows = [_until_missed(one) for each in lists for one in (each, [pair[::-1] for pair in each])]
        rows.sort(key=lambda row: -enumerate_outcomes(release, row).delta(epsilon / 2))
        for row in rows[:_KEPT]:
            yield Attack(f"up to {long + after} queries until one finds no quorum", row)


def _until_missed(queries: Sequence[Pair]) -> Query:
    """Return a tree that asks these while they are answered as most ballots say: it has as many ends as queries."""
    *before, last = queries
    node = Query(*last)
    for votes, neighbour in reversed(before):
        node = Query(votes, neighbour, {votes.index(max(votes)): node})
    return node


def _chain(queries: Sequence[Pair]) -> Query:
    """Return a tree that asks these, whatever is answered, until the run ends. Its nodes are shared."""
    *before, last = queries
    node = Query(*last)
    for pair in reversed(before):
        node = Query(*pair, dict.fromkeys([*range(len(pair[0])), NO_QUORUM], node))
    return node
