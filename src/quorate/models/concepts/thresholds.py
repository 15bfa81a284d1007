"""Thresholds on a line."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorate.core.hypotheses.concept import Concept, Dichotomies
from quorate.core.hypotheses.hypothesis import Hypothesis
from quorate.core.hypotheses.line import cut_points, mistakes_upward
from quorate.core.hypotheses.points import Labels, Points


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
