"""NoisyVectors: several vectors, each chosen from those released before, calibrated as if they were one.

Claim (replace-one units; a unit moves each vector, given what was released before, by whole numbers whose squares add
up to at most its given `squared_sensitivity`): all releases together are (epsilon, delta)-differentially private
for the epsilon and delta of the budget, however the vectors and their shares are chosen. Proof: PROOF.md, step 6.
"""

import math
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count, check_positive
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.core.mechanisms.noisy_vector.analytic import ROUNDING_VARIANCE, largest_length
from quorate.core.mechanisms.noisy_vector.mechanism import NoisyVector, largest_whole_epsilon, rest_of_delta
from quorate.core.noise import NoiseSource
from quorate.core.privacy import Budget, Cost

__all__ = ["NoisyVectors"]

_SHARES = 2**40  # shares are counted in whole numbers
_UP = 1 + 2.0**-40


class NoisyVectors:
    """Adaptively chosen releases that use the whole of a fresh budget.

    `entries` is the largest number of entries that all releases together may have; `spent` is their total cost.

    >>> noisy = NoisyVectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=4)
    >>> first, scale = noisy.release(np.array([250, 730]), squared_sensitivity=2, fraction=0.5)
    >>> second, same = noisy.release(np.array([int(first[0]), 5]), squared_sensitivity=2, fraction=1.0)
    >>> round(scale / same, 6)
    1.0
    """

    def __init__(self, budget: Budget, *, entries: int) -> None:
        self.entries = check_count("entries", entries)
        if budget.order == math.inf or budget.epsilon > largest_whole_epsilon():
            raise InvalidInput("NoisyVectors take a budget with delta above 0 and a smaller epsilon")
        # What a thresholded release adds to a log ratio comes off epsilon: sparse_histogram/PROOF.md, step 6.
        epsilon = (budget.epsilon + math.log1p(-budget.slack) * _UP) / (_UP if budget.slack else 1.0)
        self._length = 0.0
        if epsilon > 0:
            self._length = largest_length(epsilon=epsilon, delta=rest_of_delta(budget), entries=self.entries)
        if self._length <= 0:
            raise Infeasible("this epsilon and delta allow no release of so many entries; raise epsilon")
        self.spent = Cost(budget.capacity().renyi)
        budget.spend(self.spent)  # all of it, or refused: proof: step 6
        self._budget = budget  # its slack pays for thresholded releases
        self._left = _SHARES
        self._lock = threading.Lock()

    def scale(self, *, squared_sensitivity: int, fraction: float) -> float:
        """Return the noise scale of the next release if it takes this fraction of what is left."""
        share = self._share(fraction)
        if share < 1:
            raise BudgetSpent("nothing is left for another release")
        needed = squared_sensitivity * _SHARES / (share * self._length**2) + ROUNDING_VARIANCE
        return math.sqrt(needed) * _UP

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[NDArray[np.int64], float]:
        """Return a vector of whole numbers with noise on every entry, and the noise's scale."""
        return self.draw_release(part, None, squared_sensitivity=squared_sensitivity, fraction=fraction)

    def draw_release(
        self, part: Any, noise: NoiseSource | None, *, squared_sensitivity: int, fraction: float
    ) -> tuple[NDArray[np.int64], float]:
        """Charge for a vector, draw its noise from this source, and return the noisy vector and the noise's scale."""
        scale = self._charged(int(np.size(part)), squared_sensitivity, fraction)
        noisy = NoisyVector(squared_sensitivities=(squared_sensitivity,), scales=(scale,))
        return noisy.draw_release([part], None, noise)[0], scale

    def release_rest(
        self, parts: Sequence[Any], *, squared_sensitivities: Sequence[int], shares: Sequence[float]
    ) -> tuple[list[NDArray[np.int64]], list[float]]:
        """Return several noisy vectors, which divide all that is left by these shares, and their noise scales."""
        noisy, scales = [], []
        for place, (part, square) in enumerate(zip(parts, squared_sensitivities, strict=True)):
            fraction = 1.0 if place + 1 == len(parts) else min(1.0, shares[place] / math.fsum(shares[place:]))
            drawn, scale = self.release(part, squared_sensitivity=square, fraction=fraction)
            noisy.append(drawn)
            scales.append(scale)
        return noisy, scales

    def charge_thresholded(self, *, squared_sensitivity: int, fraction: float, slack: float) -> float:
        """Charge for a release of which only entries above a threshold are published, and return its noise scale.

        The tail event takes `slack` of the budget. The number of entries is private; a unit changes at most
        `squared_sensitivity` of them.
        """
        self._budget.spend(Cost(0.0, slack))
        return self._charged(squared_sensitivity, squared_sensitivity, fraction)

    def _charged(self, size: int, squared_sensitivity: int, fraction: float) -> float:
        """Take the entries and the share of a release, before it is drawn, and return its scale: proof: step 6."""
        with self._lock:  # no two releases are paid with one share
            scale = self.scale(squared_sensitivity=squared_sensitivity, fraction=fraction)
            if size > self.entries:
                raise InvalidInput(f"{size} entries are to be released, and {self.entries} are left")
            self.entries -= size
            self._left -= self._share(fraction)
        return scale

    def __reduce__(self) -> NoReturn:
        raise TypeError("NoisyVectors cannot be copied or pickled: a copy would be spent a second time")

    def _share(self, fraction: float) -> int:
        """Return the share of the next release in whole numbers, rounded down."""
        if check_positive("fraction", fraction) > 1:
            raise InvalidInput(f"fraction must be at most 1, not {fraction:g}")
        return self._left if fraction == 1 else int(self._left * fraction)
