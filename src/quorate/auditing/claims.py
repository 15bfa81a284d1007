"""The claims of a mechanism, as bounds on sums over histories, so that a search can maximise them.

Renyi claims compare the distribution on D without the tail event that the mechanism names with the whole distribution
on D'; the (epsilon, delta) claims include everything. If a cost depends on the outcomes, so does the claim.

Each claim names the two distributions it compares (`measures`), defines what a history adds to its sum (`terms`, which
is 0 where the first of the two probabilities is), and turns the sum into the number (`measure`) that `limit` bounds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorate.auditing.enumeration import Counts, Outcomes, Query, moments
from quorate.core.arrays import Floats
from quorate.core.mechanisms import (
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

__all__ = ["Claim", "DeltaClaim", "Finding", "Mechanism", "RenyiClaim", "SlackClaim", "claims_of", "measured"]

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

    >>> [round(claim.limit, 6) for claim in claims_of(SoftMajority(teachers=3, epsilon=0.5), queries=4, orders=[2.0])]
    [0.25, 0.25]
    """
    claims: list[Claim] = []
    for order in orders:
        if isinstance(mechanism, ThresholdMechanism):
            opening, each = mechanism.opening_cost(order), mechanism.no_quorum_cost(order)
            paid = mechanism.no_quorums - int(mechanism.redraws)
            claims += [
                RenyiClaim(order=order, limit=mechanism.renyi(order)),
                RenyiClaim(order=order, limit=opening.renyi, per_no_quorum=each.renyi, no_quorums_paid=paid),
            ]
        elif isinstance(mechanism, NoisySum):
            claims.append(RenyiClaim(order=order, limit=queries * mechanism.renyi(order)))
        else:
            asked, answer = queries * mechanism.query_cost(order).renyi, mechanism.answer_cost(order).renyi
            claims += [
                RenyiClaim(order=order, limit=queries * mechanism.renyi(order)),
                RenyiClaim(order=order, limit=asked, per_answer=answer),
            ]
    if isinstance(mechanism, ThresholdMechanism):
        claims.append(SlackClaim(limit=mechanism.run_cost(mechanism.order).slack))
    for delta in deltas:
        asked_for = {"releases" if isinstance(mechanism, NoisySum) else "queries": queries}
        claims.append(DeltaClaim(epsilon=mechanism.epsilon(delta=delta, **asked_for), limit=delta))
    return claims


def measured(claim: Claim, outcomes: Outcomes) -> float:
    """Return the number that the claim bounds, for one interaction."""
    laws = {"whole": outcomes.whole, "covered": outcomes.covered, "neighbour": outcomes.neighbour}
    first, second = (laws[name] for name in claim.measures)
    return claim.measure(float(claim.terms(first, second, outcomes.no_quorums, outcomes.answers).sum()))
