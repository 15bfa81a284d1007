"""Thresholds and intervals on a line."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.hypotheses.concept import (
    Concept,
    Dichotomies,
    Hypothesis,
    Labels,
    Points,
    Tally,
    cut_points,
    lead_below,
    mistakes_upward,
)


@dataclass(frozen=True)
class Threshold(Hypothesis):
    """A threshold: label 1 at and above the cut and 0 below; reversed unless `upward`."""

    cut: float
    upward: bool = True
    features: int = field(default=1, init=False, repr=False)

    def _predict(self, points: Points) -> Any:
        return (points[:, 0] >= self.cut) == self.upward


@dataclass(frozen=True)
class Thresholds(Concept):
    """All thresholds on a line with label 1 above and, with `both_directions`, those with label 1 below.

    By default a learner uses both directions, since the records decide; a release uses one, and its queries ask what
    lies above a cut.

    >>> Thresholds(both_directions=True).fit_erm([1.0, 2.0, 3.0], [1, 0, 0])
    Threshold(cut=1.5, upward=False)
    >>> Thresholds().for_learning()
    Thresholds(both_directions=True)
    """

    both_directions: bool | None = None
    features: int = field(default=1, init=False, repr=False)

    def for_learning(self) -> "Thresholds":
        """Return thresholds in both directions, unless `both_directions` was set."""
        return Thresholds(both_directions=True) if self.both_directions is None else self

    @property
    def vc_dimension(self) -> int:
        """1, or 2 in both directions."""
        return 2 if self.both_directions else 1

    @property
    def dual_vc_dimension(self) -> int:
        """1: two thresholds cut a line into three cells, and a dimension of 2 would need four."""
        return 1

    def _growth(self, points: int) -> int:
        return max(1, 2 * points) if self.both_directions else points + 1

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _Cuts(points[:, 0], both_directions=bool(self.both_directions))


class _Cuts(Dichotomies):
    """Upward thresholds below, between and above the points; then downward ones between them.

    A downward threshold outside of the points labels them like an upward one on the other side.
    """

    features = 1

    def __init__(self, values: Any, *, both_directions: bool) -> None:
        self._inner = cut_points(values)
        ends = [-math.inf] if values.size == 0 else [-math.inf, math.inf]
        self._cuts = np.sort(np.concatenate([self._inner, ends]))
        self._downward = self._inner.size if both_directions else 0

    def __len__(self) -> int:
        return self._cuts.size + self._downward

    def _candidate(self, index: int) -> Hypothesis:
        if index < self._cuts.size:
            return Threshold(float(self._cuts[index]))
        return Threshold(float(self._inner[index - self._cuts.size]), upward=False)

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        upward = mistakes_upward(self._cuts, points[:, 0], labels)
        return np.concatenate([upward, len(labels) - upward[1:-1]]) if self._downward else upward


_BLOCK = 64  # entries whose pairs are counted one by one
_AT_ONCE = 2**14  # entries whose blocks are counted together: what a cache has room for


def difference_counts(values: Integers, *, lowest: int, highest: int) -> Integers:
    """Return for t from `lowest` to `highest` the number of pairs i < j with values[j] - values[i] == t.

    All differences must lie in that range.
    """
    counts = _within_blocks(values, lowest, highest)
    size = _BLOCK
    while size < values.size:
        for start in range(0, values.size - size, 2 * size):
            earlier, later = values[start : start + size], values[start + size : start + 2 * size]
            offset = int(later.min()) - int(earlier.max())
            pairs = correlate(np.bincount(earlier - earlier.min()), np.bincount(later - later.min()))
            counts[offset - lowest : offset - lowest + pairs.size] += pairs
        size *= 2
    return counts


def _within_blocks(values: Integers, lowest: int, highest: int) -> Integers:
    counts = np.zeros(highest - lowest + 1, dtype=np.int64)
    complete = values.size // _BLOCK * _BLOCK
    for start in range(0, complete, _AT_ONCE):
        blocks = values[start : min(start + _AT_ONCE, complete)].reshape(-1, _BLOCK)
        for distance in range(1, _BLOCK):
            _count(counts, blocks[:, distance:] - blocks[:, :-distance], lowest)
    rest = values[complete:]
    early, late = np.triu_indices(rest.size, 1)
    _count(counts, rest[late] - rest[early], lowest)
    return counts


def _count(counts: Integers, differences: Integers, lowest: int) -> None:
    """Add these differences to the counts; the work depends on their own range alone."""
    if differences.size:
        smallest = int(differences.min())
        times = np.bincount((differences - smallest).ravel())
        counts[smallest - lowest : smallest - lowest + times.size] += times


def correlate(earlier: Integers, later: Integers) -> Integers:
    """Return the exact sums of left[i] * right[j] over j - i == t, for t from 1 - left.size upwards.

    Convolution by a Fourier transform of size 2**k errs by less than 16 k 2**-53 times both lengths (Percival 2003 has
    the like for radix 2); where that could reach a quarter, the longer factor is cut in two. Should a sum still come
    out far from a whole number, the sums are computed directly.
    """
    size = earlier.size + later.size - 1
    if min(earlier.size, later.size) <= 8:
        return np.convolve(earlier[::-1], later)
    lengths = [math.sqrt(float(np.dot(part.astype(np.float64), part))) for part in (earlier, later)]
    padded = 1 << (size - 1).bit_length()
    if 16 * padded.bit_length() * 2.0**-53 * lengths[0] * lengths[1] > 0.25:
        if lengths[0] < lengths[1]:
            return correlate(later[::-1], earlier[::-1])
        half = int(earlier.max()).bit_length() // 2
        assert half > 0, "entries of 0 and 1 are too short to be cut, and too few to come here"
        return (correlate(earlier >> half, later) << half) + correlate(earlier & ((1 << half) - 1), later)
    product = np.fft.rfft(earlier[::-1], padded) * np.fft.rfft(later, padded)
    sums = np.fft.irfft(product, padded)[:size]
    rounded = np.rint(sums)
    return rounded.astype(np.int64) if np.abs(sums - rounded).max() < 0.25 else np.convolve(earlier[::-1], later)


def pair_of_rank(values: Integers, difference: int, rank: int) -> tuple[int, int]:
    """Return the pair i < j of this rank, from 0, among those with values[j] - values[i] == difference."""
    size = values.size
    order = np.argsort(values, kind="stable")
    level = values - int(values.min())
    keys = (level * size + np.arange(size))[order]  # by value, then by position
    wanted = (level - difference) * size
    first = np.searchsorted(keys, wanted)
    upto = np.cumsum(np.searchsorted(keys, wanted + np.arange(size)) - first)
    late = int(np.searchsorted(upto, rank, side="right"))
    preceding = int(upto[late - 1]) if late else 0
    return int(order[first[late] + rank - preceding]), late


@dataclass(frozen=True)
class Interval(Hypothesis):
    """An interval: label 1 from `lower`, included, to `upper`, excluded."""

    lower: float
    upper: float
    features: int = field(default=1, init=False, repr=False)

    def _predict(self, points: Points) -> Any:
        return (points[:, 0] >= self.lower) & (points[:, 0] < self.upper)


@dataclass(frozen=True)
class Intervals(Concept):
    """All intervals of a line, including unbounded and empty ones.

    >>> Intervals().fit_erm([1.0, 2.0, 3.0, 4.0], [0, 1, 1, 0])
    Interval(lower=1.5, upper=3.5)
    """

    features: int = field(default=1, init=False, repr=False)

    @property
    def vc_dimension(self) -> int:
        """2: no interval contains the outer two of three points without the middle one."""
        return 2

    @property
    def dual_vc_dimension(self) -> int:
        """2: three intervals make at most seven cells, and a dimension of 3 would need eight."""
        return 2

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _Ranges(points[:, 0])


class _Ranges(Dichotomies):
    """The empty interval, then all pairs of cuts, one cut below, above and between each two points."""

    features = 1

    def __init__(self, values: Any) -> None:
        ends = [-math.inf] if values.size == 0 else [-math.inf, math.inf]
        self._cuts = np.sort(np.concatenate([cut_points(values), ends]))

    def __len__(self) -> int:
        return 1 + math.comb(self._cuts.size, 2)

    def _candidate(self, index: int) -> Hypothesis:
        if index == 0:
            return Interval(math.inf, math.inf)
        starts = np.cumsum(np.arange(self._cuts.size - 1, 0, -1))  # of the pairs that begin at a later cut
        lower = int(np.searchsorted(starts, index - 1, side="right"))
        upper = self._cuts.size - (int(starts[lower]) - (index - 1))
        return self.between(lower, upper)

    def between(self, lower: int, upper: int) -> Interval:
        return Interval(float(self._cuts[lower]), float(self._cuts[upper]))

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        lead = lead_below(self._cuts, points[:, 0], labels)
        lower, upper = np.triu_indices(lead.size, 1)
        return np.count_nonzero(labels == 1) - np.concatenate([[0], lead[upper] - lead[lower]])

    def _tally(self, points: Points, labels: Labels) -> Tally:
        return _RangeTally(self, lead_below(self._cuts, points[:, 0], labels), labels)


class _RangeTally(Tally):
    """Mistakes of intervals: the number of ones, minus the lead of ones over zeros inside the interval."""

    def __init__(self, ranges: _Ranges, lead: Any, labels: Labels) -> None:
        self._ranges, self._lead = ranges, lead
        self._ones = int(np.count_nonzero(labels == 1))
        zeros = len(labels) - self._ones
        self.counts = difference_counts(lead, lowest=-zeros, highest=self._ones)[::-1].copy()
        self.counts[self._ones] += 1  # the empty interval

    def _pick(self, mistakes: int, rank: int) -> Hypothesis:
        if mistakes == self._ones:
            if rank == 0:
                return self._ranges[0]
            rank -= 1
        return self._ranges.between(*pair_of_rank(self._lead, self._ones - mistakes, rank))
