"""Intervals on a line."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate.core.hypotheses.concept import Concept, Dichotomies
from quorate.core.hypotheses.hypothesis import Hypothesis, Tally
from quorate.core.hypotheses.line import cut_points, lead_below
from quorate.core.hypotheses.points import Labels, Points
from quorate.models.concepts.pairs import difference_counts, pair_of_rank


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
    """An interval makes as many mistakes as there are ones, less the lead of ones over zeros inside of it."""

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
