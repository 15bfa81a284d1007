"""Seeded noise, and many plays of a real mechanism at once: its own code draws, on that noise.

Nothing here protects anybody: the noise is drawn in floating point from a generator that anyone can replay, and import
contracts keep serving code from it.

A mechanism that charges by the query answers a batch of plays as a batch of queries. A threshold run holds one secret
noise, so a batch is one run; here its two draws (`draw_threshold_noise`, `draw_decisions`) are called for all plays,
each with its own noise, and only the bookkeeping of a run is written again. The tests hold this against real runs, draw
for draw.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.auditing._enumeration import Query
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NO_QUORUM
from quorate.core.mechanisms.base import Answers, QueryMechanism, Run, ThresholdMechanism

_WIDEST_TABLE = 1e5  # the scale up to which a law is tabulated, at 20 megabytes


@lru_cache(maxsize=16)
def _cumulative_weights(scale: float) -> tuple[int, NDArray[np.float64]]:
    """Return how far the discrete Gaussian law reaches, and its weights up to each point: one play draws many times."""
    radius = int(np.ceil(12 * scale)) + 1
    points = np.arange(-radius, radius + 1)
    return radius, np.cumsum(np.exp(-(points**2) / (2 * scale**2)))


class SeededNoise:
    """A stand-in for the system's noise that repeats itself from a seed. Never for a real answer."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return draws of the discrete Laplace law: the difference of two geometric ones."""
        success = -np.expm1(-1.0 / scale)
        return self.generator.geometric(success, size) - self.generator.geometric(success, size)

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return draws of the discrete Gaussian law, by inversion of its distribution function.

        Where the law is too wide for a table, it is that of a rounded normal number but for far less than a seed shows.
        """
        if scale > _WIDEST_TABLE:
            return np.rint(self.generator.normal(0.0, scale, size)).astype(np.int64)
        radius, weights = _cumulative_weights(scale)
        ranks = np.searchsorted(weights, self.generator.random(size) * weights[-1], side="right")
        return np.asarray(ranks - radius, dtype=np.int64)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return uniform 64-bit words."""
        return self.generator.integers(0, 2**64, size=size, dtype=np.uint64)

    def choice(self, scores: Sequence[int], scale: float) -> int:
        """Return index i with probability proportional to exp(scores[i] / scale)."""
        return int(np.argmax(np.asarray(scores) / scale + self.generator.gumbel(size=len(scores))))


def simulate(mechanism: QueryMechanism | ThresholdMechanism, votes: Any, *, seed: int) -> Answers:
    """Answer simulated votes as the mechanism would, with repeatable noise. For planning and research only."""
    noise = SeededNoise(seed)
    if isinstance(mechanism, ThresholdMechanism):
        return Run(mechanism, budget=None, noise=noise).answers(votes)
    counts = mechanism.check_votes(votes)
    return mechanism.draw_answers(counts, None, noise)


STOPPED = -2  # where an asker did not ask, or a run had ended
_BLOCK = 65_536


class PlayNoise(SeededNoise):
    """Seeded noise for code that draws one value at a time, a million times: draws are made in blocks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._blocks: dict[tuple[str, float], tuple[NDArray[np.generic], int]] = {}
        self._uniforms: list[float] = []
        self._weighed: tuple[Sequence[int], float, list[float]] = ((), 0.0, [])  # the scores asked about last

    def laplace(self, scale: float, size: int) -> Integers:
        """Return draws of the discrete Laplace law."""
        return self._few("laplace", scale, size) if size < 64 else super().laplace(scale, size)

    def gaussian(self, scale: float, size: int) -> Integers:
        """Return draws of the discrete Gaussian law."""
        return self._few("gaussian", scale, size) if size < 64 else super().gaussian(scale, size)

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return uniform 64-bit words."""
        return self._few("words", 0.0, size) if size < 64 else super().words(size)

    def choice(self, scores: Sequence[int], scale: float) -> int:
        """Return index i with probability proportional to exp(scores[i] / scale), by inversion."""
        last_scores, last_scale, sums = self._weighed
        if scores != last_scores or scale != last_scale:
            values = np.asarray(scores) / scale
            sums = np.cumsum(np.exp(values - values.max())).tolist()
            self._weighed = scores, scale, sums
        if not self._uniforms:
            self._uniforms = self.generator.random(_BLOCK).tolist()
        return min(bisect_right(sums, self._uniforms.pop() * sums[-1]), len(sums) - 1)

    def _few(self, law: str, scale: float, size: int) -> NDArray[Any]:
        block, start = self._blocks.get((law, scale), (np.empty(0), 0))
        if start + size > block.size:
            draw = {"laplace": super().laplace, "gaussian": super().gaussian}
            block, start = (super().words(_BLOCK) if law == "words" else draw[law](scale, _BLOCK)), 0
        self._blocks[law, scale] = block, start + size
        return block[start : start + size]


def play(
    mechanism: QueryMechanism | ThresholdMechanism, query: Query, *, plays: int, neighbour: bool, noise: SeededNoise
) -> Integers:
    """Return what the asker of this tree of queries sees: one row a play, one column a query.

    With `neighbour` the votes are those of the neighbouring data set. A query that is reached on several ways may be
    one object in `then`; all plays that stand there are answered together.
    """
    if isinstance(mechanism, ThresholdMechanism):
        return _Runs(mechanism, plays, noise).play(query, neighbour)
    if isinstance(mechanism, QueryMechanism):
        return _Plays(mechanism, plays, noise).play(query, neighbour)
    raise InvalidInput(f"play takes a mechanism on votes, not {type(mechanism).__name__}")


class _Plays:
    """All plays of a mechanism that answers each query afresh."""

    def __init__(self, mechanism: QueryMechanism | ThresholdMechanism, plays: int, noise: SeededNoise) -> None:
        self._mechanism, self._plays, self._noise = mechanism, plays, noise

    def play(self, query: Query, neighbour: bool) -> Integers:
        columns = []
        here: list[tuple[Query, Integers]] = [(query, np.arange(self._plays))]
        while here:
            column = np.full(self._plays, STOPPED, dtype=np.int64)
            following: dict[int, tuple[Query, list[Integers]]] = {}
            for node, who in here:
                column[who] = labels = self._answer(node.neighbour if neighbour else node.votes, who)
                for outcome, then in node.then.items():
                    going = who[(labels == outcome) & self._open(who)]
                    if going.size:
                        following.setdefault(id(then), (then, []))[1].append(going)
            columns.append(column)
            here = [(then, np.concatenate(groups)) for then, groups in following.values()]
        unasked = [np.full(self._plays, STOPPED, dtype=np.int64)] * (_depth(query, {}) - len(columns))
        return np.stack([*columns, *unasked], axis=1)

    def _answer(self, votes: tuple[int, ...], who: Integers) -> Integers:
        return self._mechanism.draw_answers(_repeat(votes, who.size), None, self._noise).labels  # type: ignore[union-attr]

    def _open(self, who: Integers) -> NDArray[np.bool_]:
        return np.ones(who.size, dtype=np.bool_)


class _Runs(_Plays):
    """All plays of a threshold mechanism: one run each."""

    _mechanism: ThresholdMechanism

    def __init__(self, mechanism: ThresholdMechanism, plays: int, noise: SeededNoise) -> None:
        super().__init__(mechanism, plays, noise)
        self._thresholds = self._draw(plays)
        self._left = np.full(plays, mechanism.no_quorums)

    def _draw(self, size: int) -> Integers:
        draw, noise = self._mechanism.draw_threshold_noise, self._noise
        return np.fromiter((draw(noise) for _ in range(size)), dtype=np.int64, count=size)

    def _answer(self, votes: tuple[int, ...], who: Integers) -> Integers:
        decide = self._mechanism.draw_decisions(_repeat(votes, who.size), self._noise)
        # `decide` takes the threshold noise of one run; arithmetic on it works as well with one value for each row
        labels = decide(slice(0, who.size), self._thresholds[who])  # type: ignore[arg-type]
        missed = who[labels == NO_QUORUM]
        self._left[missed] -= 1
        if self._mechanism.redraws:
            again = missed[self._left[missed] > 0]
            self._thresholds[again] = self._draw(again.size)
        return labels

    def _open(self, who: Integers) -> NDArray[np.bool_]:
        return self._left[who] > 0


def _depth(query: Query, depths: dict[int, int]) -> int:
    """Return the most queries that are asked in a row; a query that is reached on several ways is looked at once."""
    if id(query) not in depths:
        depths[id(query)] = 1 + max((_depth(then, depths) for then in query.then.values()), default=0)
    return depths[id(query)]


def _repeat(votes: tuple[int, ...], times: int) -> Integers:
    return np.broadcast_to(np.array(votes, dtype=np.int64), (times, len(votes))).copy()
