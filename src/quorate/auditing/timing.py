"""Timing: whether two kinds of queries can be told apart by how long their answers take.

The two kinds are asked alternately, in a random order, so that whatever else the machine does falls on both alike. The
area under the curve is 0.5 where time tells nothing. A delay planted in one kind shows that the attack would see one.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_positive, check_rate

__all__ = ["Delayed", "Timing", "area_under_curve", "attack_timing"]

Ask = Callable[[Any], object]


def area_under_curve(first: Floats, second: Floats) -> float:
    """Return the probability that one of the first is below one of the second, ties counted half."""
    _, inverse, counts = np.unique(np.concatenate([first, second]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    above = ranks[first.size :].sum() - second.size * (second.size + 1) / 2
    return float(above / (first.size * second.size))


@dataclass(frozen=True, eq=False)
class Timing:
    """Seconds that answers to two kinds of queries took."""

    first: Floats
    second: Floats

    @property
    def area(self) -> float:
        """The area under the curve: from 0.5, where the times tell nothing, to 0 or 1, where they tell all."""
        return area_under_curve(self.first, self.second)

    def tells(self, *, confidence: float) -> bool:
        """Return whether the area is further from 0.5 than chance explains (Mann and Whitney 1947)."""
        ones, others = self.first.size, self.second.size
        deviation = math.sqrt((ones + others + 1) / (12 * ones * others))
        sides = NormalDist().inv_cdf(1 - (1 - check_rate("confidence", confidence)) / 2)
        return abs(self.area - 0.5) > sides * deviation


class Delayed:
    """An `ask` that takes longer over some queries: a leak, planted."""

    def __init__(self, ask: Ask, *, when: Callable[[Any], bool], seconds: float) -> None:
        self._ask, self._when, self._seconds = ask, when, check_positive("seconds", seconds)

    def __call__(self, query: Any) -> object:
        """Answer, and take longer where that is planted: busily, as a slower path through the code would."""
        answer = self._ask(query)
        end = time.perf_counter() + (self._seconds if self._when(query) else 0.0)
        while time.perf_counter() < end:
            pass
        return answer


def attack_timing(ask: Ask, first: Sequence[Any], second: Sequence[Any], *, warm: int = 20, seed: int = 0) -> Timing:
    """Ask queries of both kinds one by one, in a random order, and return how long each answer took."""
    queries = [*first, *second]
    for query in queries[: check_count("warm", warm, least=0)]:
        ask(query)
    seconds = np.empty(len(queries))
    for place in np.random.default_rng(seed).permutation(len(queries)).tolist():
        query = queries[place]  # before the clock: a list looks up its first 257 entries at another speed
        start = time.perf_counter()
        ask(query)
        seconds[place] = time.perf_counter() - start
    return Timing(seconds[: len(first)], seconds[len(first) :])
