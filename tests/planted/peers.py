"""The true epsilon of two mistakes that were published, by exact enumeration of their rebuilt code.

One is to sample a label in proportion to exp(epsilon * count). The other is to take the gap between the top two counts
for the number of ballots that it takes to change the winner (Bassily, Thakkar and Thakurta 2018, Algorithm 2; Nandi and
Bassily 2020, Algorithm 5). Both claim epsilon, and need twice as much.
"""

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from planted.exact import law_of_code
from quorate.auditing._enumeration import Outcomes
from quorate.auditing._laws import Release, Votes
from quorate.core.arrays import Floats
from quorate.core.mechanisms import NO_QUORUM, SoftMajority, StabilityTest


class TrueEpsilon(NamedTuple):
    """What is claimed at a delta, and what the worst interaction tried needs."""

    claimed: float
    needed: float

    @property
    def ratio(self) -> float:
        """How many times the claim is needed."""
        return self.needed / self.claimed


def epsilon_of_choice(kind: type[SoftMajority], *, epsilon: float, teachers: int = 200) -> TrueEpsilon:
    """Return what one choice among two labels needs at delta = 0, over all votes and their neighbours."""
    release = law_of_code(kind(teachers=teachers, epsilon_per_query=epsilon), classes=2)
    laws = [release.outcomes((zero, teachers - zero))[:2, 0] for zero in range(teachers + 1)]
    return TrueEpsilon(
        epsilon, max(float(np.abs(np.log(laws[i]) - np.log(laws[i + 1])).max()) for i in range(teachers))
    )


def epsilon_of_distance(kind: type[StabilityTest], *, epsilon: float, delta: float = 1e-6) -> TrueEpsilon:
    """Return what a run with one no-quorum needs, where one query is asked until it fails and then another once.

    One ballot moves the first query's distance and the second's in opposite directions, and the noise is the tight one.
    """
    stability = StabilityTest.calibrate(epsilon=epsilon, delta=delta, teachers=100_000, no_quorums=1)
    teachers = 4 * stability.margin + 4
    settings = {one.name: getattr(stability, one.name) for one in fields(stability)} | {"teachers": teachers}
    release = law_of_code(kind(**settings), classes=2)
    needed = 0.0
    per_gap = 2 if kind is StabilityTest else 1  # where the margin lies, in ballots of the gap
    for beyond in (0, round(3 * stability.query_scale)):
        gap, last = per_gap * (stability.margin + beyond), per_gap * stability.margin
        pair = (_votes(teachers, gap), _votes(teachers, gap - 2)), (_votes(teachers, last), _votes(teachers, last + 2))
        laws = [_run(release, one, other, queries=300) for one, other in zip(*pair, strict=True)]
        needed = max(needed, Outcomes.from_laws(*laws).two_sided_epsilon(delta))
    return TrueEpsilon(stability.epsilon(delta=delta), needed)


def _votes(teachers: int, gap: int) -> Votes:
    return teachers // 2 + (gap + 1) // 2, teachers // 2 - (gap + 1) // 2


def _run(release: Release, repeated: Votes, last: Votes, *, queries: int) -> Floats:
    """Return the probability of failing at each repeat, and of the last query's outcomes after all were answered."""
    often, once = (_passed(release, votes) for votes in (repeated, last))
    alive, chances = release.law, []
    for _ in range(queries):
        chances.append(alive @ often[1])
        alive = alive * often[0]
    return np.array([*chances, alive @ once[0], alive @ once[1]])


def _passed(release: Release, votes: Votes) -> tuple[Floats, Floats]:
    rows = release.outcomes(votes)
    return rows[:NO_QUORUM].sum(axis=0), rows[NO_QUORUM]
