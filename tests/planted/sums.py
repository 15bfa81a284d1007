"""Noisy sums, each with one mistake."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planted.attacks import judge, play
from planted.bug import Caught, PlantedBug, twin_bug
from quorate.auditing._enumeration import claims_of
from quorate.auditing._plays import PlayNoise, SeededNoise
from quorate.auditing._sums import NoisyCount, sum_outcomes
from quorate.core.mechanisms import NoisySum
from quorate.core.privacy import Budget


@dataclass(frozen=True)
class ClippedSum:
    """The sum of values clipped to -bound .. bound, released by a NoisySum.

    Replacing one value moves the sum by 2 * bound at most, and the sensitivity must say so.
    """

    noisy: NoisySum
    bound: int

    def release(self, values: Iterable[float], noise: Any) -> int | float:
        numbers = np.nan_to_num(np.asarray(list(values), dtype=np.float64), nan=0.0)
        total = int(np.rint(np.clip(numbers, -self.bound, self.bound)).sum())
        return self.noisy.draw_releases([total], None, noise)[0]


class SumOfAnything(ClippedSum):
    """Clips, and forgets that a value that is no number passes through: the whole sum is then none, and says so."""

    def release(self, values: Iterable[float], noise: Any) -> int | float:
        numbers = np.asarray(list(values), dtype=np.float64)  # the mistake: what is no number stays
        total = float(np.rint(np.clip(numbers, -self.bound, self.bound)).sum())
        return total + self.noisy.draw_releases([0], None, noise)[0]


@dataclass(frozen=True)
class StatedCount(NoisyCount):
    """A count in which one record weighs `weight`, with the noise for one that weighs `stated`."""

    weight: int
    stated: int

    def draw_counts(self, count: int, *, plays: int, noise: PlayNoise) -> np.ndarray:
        return self.weight * count + noise.laplace(self.stated / self.epsilon, plays)


class NoiseReused(NoisySum):
    """Draws one noise for all sums that are released together: their differences are exact."""

    def draw_releases(self, totals: Iterable[int], budget: Budget | None, noise: Any) -> list[int]:
        sums = list(totals)
        drawn = [noisy - total for noisy, total in zip(super().draw_releases(sums, budget, noise), sums, strict=True)]
        return [total + drawn[0] for total in sums]  # the mistake


def enumerate_sum(target: ClippedSum) -> Caught:
    """Enumerate the release of a sum in which one value goes from one end of the clipping range to the other."""
    outcomes = sum_outcomes(target.noisy, changes=[2 * target.bound])
    claims = claims_of(target.noisy, queries=1, orders=[2.0, 8.0, 32.0], deltas=[1e-6, 1e-3])
    return judge([outcomes], claims)


def _worlds(target: ClippedSum, plays: int, seed: int) -> tuple[Any, Any]:
    ends = [int(np.clip(end, -target.bound, target.bound)) for end in (-math.inf, math.inf)]
    first, second = (
        np.array(target.noisy.draw_releases([end] * plays, None, SeededNoise(2 * seed + world)))
        for world, end in enumerate(ends)
    )
    return first, second


def play_sum(target: ClippedSum, plays: int, seed: int) -> Caught:
    """Play the release of one value at either end of the clipping range."""
    delta = 1e-2  # smaller ones are about events too rare for these plays
    claim = _exact_epsilon(target.noisy, delta), delta
    return play(target, plays, seed, worlds=_worlds, claim=claim, said="one value from end to end")


def _exact_epsilon(noisy: NoisySum, delta: float) -> float:
    """Return what a sum of the stated sensitivity needs at this delta: less than `NoisySum.epsilon`, which adds up."""
    outcomes = sum_outcomes(noisy, changes=[noisy.sensitivity])
    low, high = 0.0, noisy.epsilon(delta=delta)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if outcomes.delta(middle) > delta else (low, middle)
    return high


def _differences(target: NoisySum, plays: int, seed: int) -> tuple[Any, Any]:
    plays = min(plays, 20_000)  # each is a call of its own, and these are enough
    differing = []
    for world, moved in enumerate((0, target.sensitivity)):
        noise = SeededNoise(2 * seed + world)
        released = np.array([target.draw_releases([moved, 0], None, noise) for _ in range(plays)])
        differing.append(released[:, 0] - released[:, 1])
    return differing[0], differing[1]


def play_reuse(target: NoisySum, plays: int, seed: int) -> Caught:
    """Play the release of two sums, of which one unit moves the first, and look at their difference."""
    delta = 1e-3
    claim = target.epsilon(delta=delta, releases=2), delta
    return play(target, plays, seed, worlds=_differences, claim=claim, said="the difference of two sums")


def play_count(target: StatedCount, plays: int, seed: int) -> Caught:
    """Play a count of no record and of one."""

    def worlds(target: StatedCount, plays: int, seed: int) -> tuple[Any, Any]:
        noise = PlayNoise(seed)
        return target.draw_counts(0, plays=plays, noise=noise), target.draw_counts(1, plays=plays, noise=noise)

    return play(target, plays, seed, worlds=worlds, claim=(target.epsilon, 0.0), said="a count of 0 or of 1")


def attack_nan(target: ClippedSum) -> Caught:
    """Replay one tape of noise on two data sets, of which one has a value that is no number."""
    released = [target.release([1.0, last], SeededNoise(0)) for last in (2.0, math.nan)]
    kinds = {"a number" if math.isfinite(value) else "no number" for value in released}
    evidence = f"the neighbours release {' and '.join(sorted(kinds))}"
    return Caught("replay on neighbours", evidence, found=len(kinds) > 1)


def _understated(bound: int, sensitivity: int) -> ClippedSum:
    return ClippedSum(NoisySum(sensitivity=sensitivity, scale=1.5 * sensitivity), bound=bound)


SUMS = (
    # Sensitivity off by a factor of 2: values of either sign, and only their size counted.
    PlantedBug("sensitivity_half", "game", lambda: _understated(10, 10), lambda: _understated(10, 20), play_sum),
    # Sensitivity off by a factor of 1.2.
    PlantedBug("sensitivity_off_by_1.2", "game", lambda: _understated(30, 50), lambda: _understated(30, 60), play_sum),
    # Sensitivity off by a factor of 1.05.
    PlantedBug(
        "sensitivity_off_by_1.05",
        "enumeration",
        lambda: _understated(21, 40),
        lambda: _understated(21, 42),
        enumerate_sum,
    ),
    # The finest that plays alone tell apart here.
    PlantedBug(
        "count_off_by_1.05",
        "game",
        lambda: StatedCount(epsilon=1.0, weight=21, stated=20),
        lambda: StatedCount(epsilon=1.0, weight=21, stated=21),
        play_count,
    ),
    twin_bug("noise_reused", "game", NoiseReused, NoisySum, play_reuse, sensitivity=1, scale=4.0),
    PlantedBug(
        "nan_passes",
        "replay",
        lambda: SumOfAnything(NoisySum(sensitivity=20, scale=40.0), bound=10),
        lambda: ClippedSum(NoisySum(sensitivity=20, scale=40.0), bound=10),
        attack_nan,
    ),
)
