"""The exact joint distribution of everything released in an adaptive interaction, on a data set and its neighbour.

An interaction is a tree of `Query`: the votes on D and on D', and the next query for each outcome. The hidden noise of
a run is summed out. The two distributions give the Renyi divergence and the hockey-stick divergence. This is the
readable engine, one tree at a time; `game` and `worst_case` have the fast one, and the tests compare the two.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quorate.auditing.releases import Release, Votes
from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NO_QUORUM

__all__ = ["Outcomes", "Query", "enumerate_outcomes", "moments"]

Counts = NDArray[np.int64]
_TINY = 1e-200  # below, a probability may be an artefact of noise cut off at 38 scales


@dataclass(frozen=True)
class Query:
    """One query of an interaction: the votes on D and on its neighbour, and the next query for each outcome.

    If `then` has nothing for an outcome, the interaction stops there.
    """

    votes: Votes
    neighbour: Votes
    then: Mapping[int, "Query"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        moves = np.array(self.votes) - np.array(self.neighbour)
        if moves.sum() != 0 or np.abs(moves).sum() > 2:
            raise InvalidInput("votes and neighbour must be vote counts with at most one ballot moved between them")

    def reverse(self) -> "Query":
        """Return the same interaction with the two data sets exchanged."""
        return Query(self.neighbour, self.votes, {outcome: query.reverse() for outcome, query in self.then.items()})


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Every history with which an interaction can end, and its probability.

    `whole` and `neighbour` are the distributions on D and on D'; `covered` is `whole` without the tail event of the
    claim.
    """

    histories: list[tuple[int, ...]]
    whole: Floats
    covered: Floats
    neighbour: Floats

    @property
    def no_quorums(self) -> Counts:
        """The number of no-quorums in each history."""
        return np.array([history.count(NO_QUORUM) for history in self.histories])

    @property
    def answers(self) -> Counts:
        """The number of answers in each history."""
        return np.array([len(history) - history.count(NO_QUORUM) for history in self.histories])

    def renyi(self, order: float, *, removed: float | None = None) -> float:
        """Return the divergence of the covered part of the distribution on D from that on D'.

        With `removed`, the part is not the one that the claim names but the best: among all parts of the distribution
        on D that lack at most this much probability, the one of the smallest divergence. It cuts the ratio to D' at a
        level.
        """
        part = self.covered if removed is None else self._cut(removed)
        total = float(moments(part, self.neighbour, order).sum())
        return math.log(total) / (order - 1) if total > 0 else -math.inf

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta for which the pair is (epsilon, delta)-close in this direction."""
        return float(np.maximum(self.whole - math.exp(epsilon) * self.neighbour, 0.0).sum())

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon for which the pair is (epsilon, delta)-close in this direction, to 12 digits.

        It is infinite if more than delta of D's probability lies on histories that are impossible on D'.
        """
        if self.delta(0.0) <= delta:
            return 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(self.whole) - np.log(self.neighbour)
        seen = self.whole > _TINY  # below, a ratio may be one of rounded zeros
        if float(self.whole[seen & np.isinf(losses)].sum()) > delta:
            return math.inf
        low, high = 0.0, float(losses[seen & np.isfinite(losses)].max())
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def _cut(self, removed: float) -> Floats:
        """Return min(whole, level * neighbour) for the level at which this much probability is cut off."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.unique(np.where(self.whole > 0, self.whole / self.neighbour, 0.0))
        finite = ratios[np.isfinite(ratios)]
        lost = np.array([np.maximum(self.whole - level * self.neighbour, 0.0).sum() for level in finite])
        fits = lost <= removed
        if not fits.any():
            return self.whole
        first = int(fits.argmax())
        level = finite[first]
        if first:  # between two ratios the loss is linear in the level
            share = (removed - lost[first]) / (lost[first - 1] - lost[first])
            level += share * (finite[first - 1] - finite[first])
        part: Floats = np.minimum(self.whole, level * self.neighbour)
        return part


def enumerate_outcomes(release: Release, query: Query, *, on_neighbour: Release | None = None) -> Outcomes:
    """Return the distribution of all that is released when this tree of queries is asked.

    On the neighbour the release is the same unless `on_neighbour` is given.
    """
    other = release if on_neighbour is None else on_neighbour
    states = (release.law, release.covered_law, other.law)
    histories = list(_walk(release, other, query, states, ()))
    masses = np.array([[state.sum() for state in states] for _, states in histories]).T
    return Outcomes([history for history, _ in histories], *masses)


def _walk(
    release: Release, other: Release, query: Query, states: tuple[Floats, ...], history: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[Floats, ...]]]:
    """Yield each history below this query with its probabilities, one for each value of the hidden noise."""
    rows = release.outcomes(query.votes), release.covered_outcomes(query.votes), other.outcomes(query.neighbour)
    redrawn = release.law, release.covered_law, other.law
    for outcome in [*range(release.classes), NO_QUORUM]:
        after = tuple(state * row[outcome] for state, row in zip(states, rows, strict=True))
        if not any(state.any() for state in after):
            continue
        so_far = (*history, outcome)
        ended = release.no_quorums is not None and so_far.count(NO_QUORUM) >= release.no_quorums
        if ended or outcome not in query.then:
            yield so_far, after
            continue
        if outcome == NO_QUORUM and release.redraws:
            after = tuple(state.sum() * law for state, law in zip(after, redrawn, strict=True))
        yield from _walk(release, other, query.then[outcome], after, so_far)


def moments(first: Floats, second: Floats, order: float, charged: Floats | float = 0.0) -> Floats:
    """Return first**order * second**(1 - order) * exp(-(order - 1) * charged), elementwise."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exponent = order * np.log(first) - (order - 1) * (np.log(second) + charged)
        return np.where(first > _TINY, np.exp(exponent), 0.0)
