"""The exact joint distribution of everything released in an adaptive interaction, and the claims about it.

An interaction is a tree of `Query`: the votes on D and on D', and the next query for each outcome. The hidden noise of
a run is summed out. The two distributions give the Renyi divergence and the hockey-stick divergence. This is the
readable engine, one tree at a time; `worst_case` has the fast one, and the tests compare the two.

A claim bounds a sum over histories, so that a search can maximise it. Each claim names the two distributions that it
compares (`measures`), defines what a history adds to its sum (`terms`, which is 0 where the first of the two
probabilities is), and turns the sum into the number (`measure`) that `limit` bounds. Renyi claims compare the
distribution on D without the tail event that the mechanism names with the whole distribution on D'; the (epsilon,
delta) claims include everything. If a cost depends on the outcomes, so does the claim.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.auditing._laws import Release, Votes
from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import (
    NO_QUORUM,
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    NoisyMax,
    NoisyShares,
    NoisySum,
    Quorum,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)
from quorate.core.mechanisms.base import ThresholdMechanism

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

    @classmethod
    def from_laws(cls, first: Any, second: Any) -> "Outcomes":
        """Return two laws over the same outcomes, numbered from 0, as those of a data set and its neighbour."""
        laws = [np.asarray(law, dtype=np.float64) for law in (first, second)]
        return cls([(outcome,) for outcome in range(laws[0].size)], laws[0], laws[0], laws[1])

    def swap(self) -> "Outcomes":
        """Return the pair with the two data sets exchanged; what the claim leaves out is not."""
        return Outcomes(self.histories, self.neighbour, self.neighbour, self.whole)

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

    def two_sided_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon for which the pair is (epsilon, delta)-close in both directions."""
        return max(self.epsilon(delta), self.swap().epsilon(delta))

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
        continued = tuple(state * row[outcome] for state, row in zip(states, rows, strict=True))
        if not any(state.any() for state in continued):
            continue
        so_far = (*history, outcome)
        ended = release.no_quorums is not None and so_far.count(NO_QUORUM) >= release.no_quorums
        if ended or outcome not in query.then:
            yield so_far, continued
            continue
        if outcome == NO_QUORUM and release.redraws:
            continued = tuple(state.sum() * law for state, law in zip(continued, redrawn, strict=True))
        yield from _walk(release, other, query.then[outcome], continued, so_far)


def moments(first: Floats, second: Floats, order: float, charged: Floats | float = 0.0) -> Floats:
    """Return first**order * second**(1 - order) * exp(-(order - 1) * charged), elementwise."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exponent = order * np.log(first) - (order - 1) * (np.log(second) + charged)
        return np.where(first > _TINY, np.exp(exponent), 0.0)


Measure = Literal["whole", "covered", "neighbour"]
Mechanism = (
    Quorum
    | StabilityTest
    | BetweenThresholds
    | Dissent
    | NoisyMax
    | NoisyShares
    | ConfidentMax
    | SharpMajority
    | SoftMajority
    | NoisySum
)


@dataclass(frozen=True, kw_only=True)
class RenyiClaim:
    """E_Q[(P/Q)**order exp(-(order - 1) charged)] <= exp((order - 1) limit), P without the tail event.

    If no outcome is charged, this says that the divergence is at most `limit`.
    """

    order: float
    limit: float
    per_no_quorum: float = 0.0
    no_quorums_paid: int | None = None  # those after are free; None: all are paid
    per_answer: float = 0.0
    measures: ClassVar[tuple[Measure, Measure]] = ("covered", "neighbour")

    def terms(self, first: Floats, second: Floats, no_quorums: Counts | int, answers: Counts | int) -> Floats:
        """Return the moment of each history, less what it was charged."""
        paid = no_quorums if self.no_quorums_paid is None else np.minimum(no_quorums, self.no_quorums_paid)
        charged = np.asarray(self.per_no_quorum * paid + self.per_answer * answers, dtype=np.float64)
        return moments(first, second, self.order, charged + self._shift)

    def measure(self, total: float) -> float:
        """Return the divergence."""
        return self._shift + math.log(total) / (self.order - 1) if total > 0 else -math.inf

    @property
    def _shift(self) -> float:
        """What is taken off every exponent, so that large costs at high orders do not overflow."""
        return max(0.0, self.limit - 300 / (self.order - 1))


@dataclass(frozen=True, kw_only=True)
class DeltaClaim:
    """(epsilon, limit)-DP, tail event included."""

    epsilon: float
    limit: float
    measures: ClassVar[tuple[Measure, Measure]] = ("whole", "neighbour")

    def terms(self, first: Floats, second: Floats, no_quorums: Counts | int, answers: Counts | int) -> Floats:
        """Return how far each history's probability exceeds e**epsilon times the neighbour's."""
        return np.maximum(first - math.exp(self.epsilon) * second, 0.0)

    def measure(self, total: float) -> float:
        """Return delta."""
        return total


@dataclass(frozen=True, kw_only=True)
class SlackClaim:
    """The tail event that a Renyi claim leaves out has at most this probability."""

    limit: float
    measures: ClassVar[tuple[Measure, Measure]] = ("whole", "covered")

    def terms(self, first: Floats, second: Floats, no_quorums: Counts | int, answers: Counts | int) -> Floats:
        """Return what the tail event takes from each history."""
        return first - second

    def measure(self, total: float) -> float:
        """Return the probability of the tail event."""
        return total


Claim = RenyiClaim | DeltaClaim | SlackClaim


@dataclass(frozen=True)
class Finding:
    """The worst interaction found for a claim, and the measured value of the number that the claim bounds."""

    claim: Claim
    measured: float
    query: Query

    @property
    def violated(self) -> bool:
        """Whether the claim is broken, by more than rounding can explain."""
        return self.measured > self.claim.limit + 1e-10 + 1e-9 * abs(self.claim.limit)

    @property
    def share(self) -> float:
        """The measured number as a share of the limit: 1 if the claim is tight, above 1 if it is false."""
        return float(np.divide(self.measured, self.claim.limit))


def claims_of(
    mechanism: Mechanism, *, queries: int, orders: Iterable[float], deltas: Iterable[float] = ()
) -> list[Claim]:
    """Return the claims of a mechanism about this many queries (or releases), at these orders and deltas.

    For each order: the cost of the whole interaction, and the cost as it is charged outcome by outcome.

    >>> soft = SoftMajority(teachers=3, epsilon_per_query=0.5)
    >>> [round(claim.limit, 6) for claim in claims_of(soft, queries=4, orders=[2.0])]
    [0.25, 0.25]
    """
    claims: list[Claim] = []
    for order in orders:
        if isinstance(mechanism, ThresholdMechanism):
            opening, no_quorum = mechanism.opening_cost(order), mechanism.no_quorum_cost(order)
            paid = mechanism.no_quorums - int(mechanism.redraws)
            claims += [
                RenyiClaim(order=order, limit=mechanism.renyi(order)),
                RenyiClaim(order=order, limit=opening.renyi, per_no_quorum=no_quorum.renyi, no_quorums_paid=paid),
            ]
        elif isinstance(mechanism, NoisySum):
            claims.append(RenyiClaim(order=order, limit=queries * mechanism.renyi(order)))
        else:
            query, answer = queries * mechanism.query_cost(order).renyi, mechanism.answer_cost(order).renyi
            claims += [
                RenyiClaim(order=order, limit=queries * mechanism.renyi(order)),
                RenyiClaim(order=order, limit=query, per_answer=answer),
            ]
    if isinstance(mechanism, ThresholdMechanism):
        claims.append(SlackClaim(limit=mechanism.run_cost(mechanism.order).slack))
    for delta in deltas:
        releases = {"releases" if isinstance(mechanism, NoisySum) else "queries": queries}
        claims.append(DeltaClaim(epsilon=mechanism.epsilon(delta=delta, **releases), limit=delta))
    return claims


def measure_claim(claim: Claim, outcomes: Outcomes) -> float:
    """Return the number that the claim bounds, for one interaction."""
    laws = {"whole": outcomes.whole, "covered": outcomes.covered, "neighbour": outcomes.neighbour}
    first, second = (laws[name] for name in claim.measures)
    return claim.measure(float(claim.terms(first, second, outcomes.no_quorums, outcomes.answers).sum()))
