"""Exact laws of what real code shows: it is replayed once for every path of its draws.

A draw is a fork in a tree, with the probability of each way. So the law of what is seen follows, to the last path, for
instances that are small enough; ways that are less likely than 1e-12 are left out.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Path", "PathNoise", "excess", "law_of"]

_ONE = 2**64
_TINY = 1e-12


class Path:
    """One path through the draws; sources of noise that belong to it share its forks."""

    def __init__(self, ways: Sequence[int]) -> None:
        self.ways, self.weight = ways, 1.0
        self.forks: list[int] = []

    def fork(self, ways: Sequence[tuple[Any, float]]) -> Any:
        """Go one of these ways: each is a value and its probability."""
        place = len(self.forks)
        way = self.ways[place] if place < len(self.ways) else 0
        self.forks.append(len(ways))
        self.weight *= ways[way][1]
        return ways[way][0]

    def source(self, levels: Sequence[int]) -> "PathNoise":
        """Return noise whose words matter only by which of these levels they lie below."""
        return PathNoise(self, levels)


class PathNoise:
    """Noise of one path: words, and the discrete Gaussian."""

    def __init__(self, path: Path, levels: Sequence[int]) -> None:
        bounds = sorted({0, _ONE, *levels})
        self._path = path
        self._ways = [(low, (high - low) / _ONE) for low, high in itertools.pairwise(bounds)]
        self._ways = [way for way in self._ways if way[1] > _TINY]

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return the lowest word of a level for each draw."""
        return np.array([self._path.fork(self._ways) for _ in range(size)], dtype=np.uint64)

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return draws of the discrete Gaussian law."""
        reach = math.ceil(9 * scale)
        law = {x: math.exp(-(x**2) / (2 * scale**2)) for x in range(-reach, reach + 1)}
        total = math.fsum(law.values())
        ways = [(x, weight / total) for x, weight in law.items() if weight / total > _TINY]
        return np.array([self._path.fork(ways) for _ in range(size)], dtype=np.int64)


def law_of(play: Callable[[Path], Hashable]) -> dict[Hashable, float]:
    """Return the law of what a play shows, by playing it along every path."""
    law: dict[Hashable, float] = defaultdict(float)
    ways: list[int] = []
    while True:
        path = Path(ways)
        seen = play(path)
        law[seen] += path.weight
        ways = [*path.ways, *[0] * (len(path.forks) - len(path.ways))][: len(path.forks)]
        while ways and ways[-1] + 1 == path.forks[len(ways) - 1]:
            ways.pop()
        if not ways:
            return dict(law)
        ways[-1] += 1


def excess(one: Mapping[Any, float], other: Mapping[Any, float], epsilon: float) -> float:
    """Return the smallest delta at which neither law passes e^epsilon times the other plus delta."""

    def beyond(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
        return math.fsum(max(0.0, weight - math.exp(epsilon) * second.get(view, 0.0)) for view, weight in first.items())

    return max(beyond(one, other), beyond(other, one))
