"""Decision stumps: one feature, one cut."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core.checks import check_count, set_validated
from quorate.core.hypotheses.concept import Concept, Dichotomies
from quorate.core.hypotheses.hypothesis import Constant, Hypothesis
from quorate.core.hypotheses.line import mistakes_upward
from quorate.core.hypotheses.points import Labels, Mask, Points
from quorate.models.concepts.splits import DistinctSplits


@dataclass(frozen=True, kw_only=True)
class Stump(Hypothesis):
    """A stump: label 1 if one feature is at or above the cut and 0 below; reversed unless `upward`."""

    features: int
    feature: int
    cut: float
    upward: bool = True

    def _predict(self, points: Points) -> Any:
        return (points[:, self.feature] >= self.cut) == self.upward


@dataclass(frozen=True)
class Stumps(Concept):
    """All stumps over this many features, in both directions, and the two constants.

    With `binary` every feature is 0 or 1, which leaves far fewer stumps: growth and VC dimension are smaller. A row
    with any other value is left out.

    >>> Stumps(features=2).fit_erm([[5.0, 1.0], [5.0, 2.0], [5.0, 3.0]], [1, 0, 0])
    Stump(features=2, feature=1, cut=1.5, upward=False)
    """

    features: int
    binary: bool = False

    def __post_init__(self) -> None:
        set_validated(self, features=check_count("features", self.features), binary=bool(self.binary))

    @property
    def vc_dimension(self) -> int:
        """The largest d whose middle binomial coefficient is at most twice the number of features (Gey 2018).

        One feature cuts out at most two subsets of each size of a point set, one from above and one from below, and a
        shattered set has binomial(d, d // 2) subsets of its middle size. For binary features an upper bound: at most
        the logarithm of the number of stumps.
        """
        dimension = 1
        while math.comb(dimension + 1, (dimension + 1) // 2) <= 2 * self.features:
            dimension += 1
        return min(dimension, (2 * self.features + 2).bit_length() - 1) if self.binary else dimension

    @property
    def dual_vc_dimension(self) -> int:
        """The number of features: cuts on different axes cross, and with two on one axis some cell is empty."""
        return self.features

    def _growth(self, points: int) -> int:
        splits = self.features * (1 if self.binary else max(0, points - 1))
        return 1 if points == 0 else 2 + 2 * splits

    def _usable(self, points: Points) -> Mask:
        return ((points == 0) | (points == 1)).all(axis=1) if self.binary else super()._usable(points)

    def _dichotomies(self, points: Points) -> Dichotomies:
        return _Splits(points)


class _Splits(Dichotomies):
    """The constants, then each way in which a feature splits the points, upward and downward in turn.

    Two features that split the points alike count once, as the first of them.
    """

    def __init__(self, points: Points) -> None:
        self.features = points.shape[1]
        self._constants = min(2, len(points) + 1)
        self._splits = DistinctSplits(np.array(points.T, order="C"))  # a copy: the caller may write to the points later
        self._cuts, self._places = self._splits.new()
        self._starts = np.cumsum([0, *(cuts.size for cuts in self._cuts)])

    def __len__(self) -> int:
        return self._constants + 2 * int(self._starts[-1])

    def _candidate(self, index: int) -> Hypothesis:
        if index < self._constants:
            return Constant(features=self.features, label=index)
        split, downward = divmod(index - self._constants, 2)
        feature = int(np.searchsorted(self._starts, split, side="right")) - 1
        cut = float(self._cuts[feature][split - self._starts[feature]])
        return Stump(features=self.features, feature=feature, cut=cut, upward=not downward)

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        rows = len(labels)
        mistakes = np.empty(len(self), dtype=np.int32 if rows < 2**31 else np.int64)
        mistakes[: self._constants] = [np.count_nonzero(labels == 1), np.count_nonzero(labels == 0)][: self._constants]
        upward, downward = mistakes[self._constants :: 2], mistakes[self._constants + 1 :: 2]
        columns = np.ascontiguousarray(points.T)
        same = np.array_equal(columns, self._splits.columns)  # then their order is known
        for feature, cuts in enumerate(self._cuts):
            part = slice(self._starts[feature], self._starts[feature + 1])
            if same:
                lead = np.cumsum(2 * labels[self._splits.orders[feature]] - 1)
                upward[part] = lead[self._places[feature]] + np.count_nonzero(labels == 0)
            else:
                upward[part] = mistakes_upward(cuts, columns[feature], labels)
        np.subtract(rows, upward, out=downward)
        return mistakes
