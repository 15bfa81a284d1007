"""The noise of sums: Gaussian, or Laplace where that gives the narrower intervals. Public numbers alone decide."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quorate.core.arrays import Integers
from quorate.core.mechanisms import LaplaceSums, NoisyVectors, SparseSums
from quorate.core.privacy import Budget
from quorate.release.numbers._layout import Layout

SLACK_SHARE = 0.2  # of delta, for undeclared groups of a single unit
SumsOfKeys = Callable[[Sequence[str]], Any]  # exact sums, as one vector of whole numbers, when these keys are published


def head_weight(layout: Layout) -> int:
    """Return what a unit adds at most to the entry by which undeclared groups are chosen."""
    return layout.weights.people or layout.weights.records


class GaussianNoise:
    """Releases sums with Gaussian noise, for a fraction of what vectors have left: proof: steps 4 and 5.

    Parameters
    ----------
    vectors
        The budget.
    slack
        The probability with which any undeclared group of a single unit is published, at most.
    fraction
        The share of what the vectors have left.
    """

    def __init__(self, vectors: NoisyVectors, *, slack: float, fraction: float) -> None:
        self._vectors, self._slack, self._fraction = vectors, slack, fraction

    def release(self, layout: Layout, vector: Integers) -> tuple[Integers, float]:
        """Return the noisy entries of all declared groups, and the scale of the noise."""
        square = layout.squared_sensitivity
        return self._vectors.release(vector, squared_sensitivity=square, fraction=self._fraction)

    def release_keys(
        self, layout: Layout, heads: Mapping[str, int], sums: SumsOfKeys
    ) -> tuple[dict[str, int], Integers, float, int]:
        """Return noisy heads and sums of the groups that pass, the scale of the noise, and the threshold."""
        noisy, rest, mechanism = SparseSums.release_within(
            self._vectors,
            heads,
            sums,
            head=head_weight(layout),
            keys_per_unit=layout.groups_per_unit,
            squared_sensitivity=layout.squared_sensitivity,
            slack=self._slack,
            fraction=self._fraction,
        )
        return noisy, rest, mechanism.scale, mechanism.threshold


class LaplaceNoise:
    """Releases sums with Laplace noise, for all of a budget: proof: step 9."""

    def __init__(self, budget: Budget, *, slack: float) -> None:
        self._budget, self._slack = budget, slack

    def mechanism(self, layout: Layout) -> LaplaceSums:
        """Return the mechanism that the budget pays for."""
        return LaplaceSums.for_budget(
            self._budget,
            sensitivity=layout.sensitivity,
            head=head_weight(layout),
            keys_per_unit=layout.groups_per_unit,
            slack=self._slack,
        )

    def above(self, layout: Layout) -> int:
        """Return what the noise of an undeclared group of one unit must exceed, 0 where groups are declared."""
        mechanism = self.mechanism(layout)
        return max(mechanism.threshold - mechanism.head, 0)

    def scale(self, layout: Layout) -> float:
        """Return the standard deviation of the noise."""
        return self.mechanism(layout).scale * math.sqrt(2)

    def release(self, layout: Layout, vector: Integers) -> tuple[Integers, float]:
        """Return the noisy entries of all declared groups, and the standard deviation of the noise."""
        scale = self.scale(layout)
        return self.mechanism(layout).release(vector, budget=self._budget), scale

    def release_keys(
        self, layout: Layout, heads: Mapping[str, int], sums: SumsOfKeys
    ) -> tuple[dict[str, int], Integers, float, int]:
        """Return noisy heads and sums of the groups that pass, the deviation of the noise, and the threshold."""
        mechanism = self.mechanism(layout)
        noisy, rest = mechanism.release_keys(heads, sums, budget=self._budget)
        return noisy, rest, mechanism.scale * math.sqrt(2), mechanism.threshold
