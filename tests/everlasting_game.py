"""The game of everlasting prediction on instances that are small enough to go through every outcome of the noise.

The real phase, run and cutoff are replayed once for every path of their draws: a draw is a fork in a tree, with the
exact probability of each way. So the laws of what an adversary sees follow, in both worlds, to the last path.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable

import numpy as np

from quorate.ensemble import Ballots

ONE = 2**64
_TINY = 1e-12  # ways less likely than this are left out of a tree


class Tree:
    """One path through the draws; `sources` that belong to it share its forks."""

    def __init__(self, path: list[int]) -> None:
        self.path, self.forks, self.weight = path, [], 1.0

    def fork(self, ways: list[tuple[int, float]]) -> int:
        place = len(self.forks)
        way = self.path[place] if place < len(self.path) else 0
        self.forks.append(len(ways))
        self.weight *= ways[way][1]
        return ways[way][0]

    def source(self, levels: list[int]) -> "Source":
        """Return noise whose words matter only by which of these levels they lie below."""
        return Source(self, levels)


class Source:
    def __init__(self, tree: Tree, levels: list[int]) -> None:
        bounds = sorted({0, ONE, *levels})
        self._tree = tree
        self._words = [(low, (high - low) / ONE) for low, high in itertools.pairwise(bounds)]
        self._words = [way for way in self._words if way[1] > _TINY]

    def words(self, size: int) -> np.ndarray:
        return np.array([self._tree.fork(self._words) for _ in range(size)], dtype=np.uint64)

    def gaussian(self, scale: float, size: int) -> np.ndarray:
        reach = math.ceil(9 * scale)
        law = {x: math.exp(-(x**2) / (2 * scale**2)) for x in range(-reach, reach + 1)}
        total = math.fsum(law.values())
        ways = [(x, weight / total) for x, weight in law.items() if weight / total > _TINY]
        return np.array([self._tree.fork(ways) for _ in range(size)], dtype=np.int64)


def law_of(play: Callable[[Tree], Hashable]) -> dict[Hashable, float]:
    """Return the law of what a play shows, by playing it along every path."""
    law: dict[Hashable, float] = defaultdict(float)
    path: list[int] = []
    while True:
        tree = Tree(path)
        law[play(tree)] += tree.weight
        path = [*tree.path, *[0] * (len(tree.forks) - len(tree.path))][: len(tree.forks)]
        while path and path[-1] + 1 == tree.forks[len(path) - 1]:
            path.pop()
        if not path:
            return dict(law)
        path[-1] += 1


def excess(one: dict[Hashable, float], other: dict[Hashable, float], epsilon: float) -> float:
    """Return the smallest delta at which neither law passes e^epsilon times the other plus delta."""

    def beyond(p: dict[Hashable, float], q: dict[Hashable, float]) -> float:
        return math.fsum(max(0.0, weight - math.exp(epsilon) * q.get(view, 0.0)) for view, weight in p.items())

    return max(beyond(one, other), beyond(other, one))


class Votes:
    """An ensemble whose ballots are written in the query: its first number is the votes for class 1."""

    def __init__(self, teachers: int, moved: int = 0) -> None:
        self.teachers, self.moved = teachers, moved

    def count(self, X: np.ndarray) -> Ballots:
        ones = np.clip(X[:, 0].astype(np.int64) + self.moved, 0, self.teachers)
        return Ballots(np.stack([self.teachers - ones, ones], axis=1))
