"""Threshold runs, each with one mistake. Most published variants of sparse vector are wrong.

Lyu, Su and Li (2017) list six variants; the ones here are those that a quorum of teachers can meet. One threshold noise
for the whole run, which looks like a mistake and is none, is the sound twin of the redrawn one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.attacks import play, search
from planted.bug import Caught, PlantedBug, maker_bug
from quorate.auditing._plays import SeededNoise
from quorate.core.mechanisms import NO_QUORUM, Quorum, StabilityTest
from quorate.core.mechanisms.base import Counts, Decide, Labels, distances
from quorate.core.mechanisms.distributions import gaussian_tail, laplace_difference_tail
from quorate.core.mechanisms.quorum import build_table
from quorate.core.privacy import Cost


def small_stability(kind: type[StabilityTest] = StabilityTest, *, no_quorums: int = 1) -> StabilityTest:
    """Return a stability test so small that all it can say is enumerated."""
    slack = laplace_difference_tail(0.6, 0.5, 3) * (1 + 1e-6)
    scales = {"threshold_scale": 0.5, "query_scale": 0.6}
    return kind(teachers=15, no_quorums=no_quorums, order=16.0, margin=3, slack=slack, **scales)


def small_quorum(kind: type[Quorum] = Quorum, *, no_quorums: int = 1) -> Quorum:
    """Return a quorum so small that all it can say is enumerated."""
    slack, table = gaussian_tail(1.0, 7) * (1 + 1e-6), build_table(order=4.0, price=0.7)
    size = {"teachers": 25, "no_quorums": no_quorums, "margin": 7}
    return kind(order=4.0, price=0.7, threshold_scale=1.0, slack=slack, table=table, **size)


def _votes_at(counts: Counts, distance: NDArray[np.int64], labels: Labels) -> Counts:
    """Return votes that have this distance and these top labels, however many ballots that takes."""
    votes = np.zeros_like(counts)
    votes[np.arange(len(counts)), labels] = 2 * (distance + 1)
    return votes


def _gaps(counts: Counts) -> NDArray[np.int64]:
    top_two = np.partition(counts, -2, axis=1)[:, -2:]
    gaps: NDArray[np.int64] = top_two[:, 1] - top_two[:, 0]
    return gaps


@dataclass(frozen=True, kw_only=True)
class GapForDistance(StabilityTest):
    """The distance is gap - 1, as printed by Bassily, Thakkar and Thakurta (2018); one ballot moves it by 2."""

    def draw_decisions(self, counts: Counts, noise: Any) -> Decide:
        wrong = np.maximum(0, _gaps(counts) - 1)  # the mistake
        return super().draw_decisions(_votes_at(counts, wrong, distances(counts)[0]), noise)


@dataclass(frozen=True, kw_only=True)
class RawGap(StabilityTest):
    """The distance is the gap, as printed by Nandi and Bassily (2020): positive where one ballot changes the label."""

    def draw_decisions(self, counts: Counts, noise: Any) -> Decide:
        return super().draw_decisions(_votes_at(counts, _gaps(counts), distances(counts)[0]), noise)  # the mistake


@dataclass(frozen=True, kw_only=True)
class NoThresholdNoise(StabilityTest):
    """The threshold is not noisy: each answer is compared with the same number."""

    def draw_threshold_noise(self, noise: Any) -> int:
        return 0  # the mistake


@dataclass(frozen=True, kw_only=True)
class RedrawnEachQuery(Quorum):
    """The threshold noise is drawn again for every query, and answers are still free."""

    def draw_decisions(self, counts: Counts, noise: Any) -> Decide:
        decide = super().draw_decisions(counts, noise)
        drawn: Any = noise.gaussian(self.threshold_scale, len(counts))
        return lambda queries, threshold_noise: decide(queries, drawn[queries])  # the mistake


@dataclass(frozen=True, kw_only=True)
class NotScaledWithCutoff(StabilityTest):
    """Goes on after a no-quorum, up to `no_quorums` of them, with the noise and price of a run that stops."""

    def run_cost(self, order: float) -> Cost:
        """The mistake: the divergence of the first epoch alone. The tail events of all of them are in it."""
        return Cost(self.opening_cost(order).renyi, super().run_cost(order).slack)


@dataclass(frozen=True, kw_only=True)
class NoCutoff(Quorum):
    """Never stops: the no-quorums after the first are not counted."""

    def run_cost(self, order: float) -> Cost:
        """The mistake: the price of a run that stops at its first no-quorum."""
        return self.opening_cost(order) + self.no_quorum_cost(order)


@dataclass(frozen=True, kw_only=True)
class NoisyDistanceReleased(StabilityTest):
    """Says, with each label, the noisy distance that passed the threshold: the passing is free, the number is not."""

    def draw_decisions(self, counts: Counts, noise: Any) -> Decide:
        labels, distance = distances(counts)
        noisy = distance + noise.laplace(self.query_scale, len(counts))

        def decide(queries: slice, threshold_noise: int) -> Labels:
            shown = labels[queries] + counts.shape[1] * np.maximum(noisy[queries], 0)  # the mistake
            return np.where(noisy[queries] > self.margin + threshold_noise, shown, NO_QUORUM)

        return decide


def play_clear_queries(mechanism: StabilityTest, plays: int, seed: int) -> tuple[Any, Any]:
    """Play runs of twelve clear queries on votes and on their neighbour, and add up all that is answered."""
    worlds = []
    for world, votes in enumerate([(mechanism.teachers, 0), (mechanism.teachers - 1, 1)]):
        noise = SeededNoise(2 * seed + world)
        counts, everything = np.tile(np.array(votes), (plays, 1)), slice(0, plays)
        thresholds: Any = noise.laplace(mechanism.threshold_scale, plays)
        seen, going = np.zeros(plays, dtype=np.int64), np.ones(plays, dtype=np.bool_)
        for _ in range(12):
            outcomes = mechanism.draw_decisions(counts, noise)(everything, thresholds)
            going &= outcomes != NO_QUORUM
            seen += np.where(going, outcomes + 1, 0)
        worlds.append(seen)
    return worlds[0], worlds[1]


def _attack_numbers(mechanism: StabilityTest, plays: int, seed: int) -> Caught:
    delta = mechanism.slack + 1e-3
    claim = mechanism.epsilon(delta=delta), delta
    return play(mechanism, plays, seed, worlds=play_clear_queries, claim=claim, said="12 clear queries in one run")


def _clear(kind: type[StabilityTest]) -> StabilityTest:
    """Return a run whose clear queries are always answered."""
    scales = {"threshold_scale": 0.5, "query_scale": 1.0}
    return kind(teachers=61, no_quorums=1, order=4.0, margin=12, slack=1e-4, **scales)


def _bug(
    name: str, broken: Any, sound: Any, make: Any, *, queries: int, orders: Sequence[float] = (16.0, 4.0), **size: int
) -> PlantedBug:
    return maker_bug(
        name, "enumeration", make, broken, sound, partial(search, classes=2, queries=queries, orders=orders), **size
    )


THRESHOLDS = (
    _bug("gap_for_distance", GapForDistance, StabilityTest, small_stability, queries=5),
    _bug("raw_gap", RawGap, StabilityTest, small_stability, queries=5),
    _bug("no_threshold_noise", NoThresholdNoise, StabilityTest, small_stability, queries=6),
    _bug("threshold_redrawn_each_query", RedrawnEachQuery, Quorum, small_quorum, queries=4, orders=[4.0]),
    _bug("noise_not_scaled_with_cutoff", NotScaledWithCutoff, StabilityTest, small_stability, queries=5, no_quorums=3),
    PlantedBug(
        "no_cutoff",
        "enumeration",
        lambda: small_quorum(NoCutoff, no_quorums=1000),
        small_quorum,
        lambda target: search(target, classes=2, queries=5, orders=[8.0]),
    ),
    maker_bug("noisy_value_released", "game", _clear, NoisyDistanceReleased, StabilityTest, _attack_numbers),
)
