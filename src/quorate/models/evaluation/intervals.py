"""Intervals around what was released: they count the noise and the sampling, and hold for every size of sample.

Every interval covers with at least the confidence asked for. What may be missed is shared out between the noise and the
sampling, so that intervals are somewhat too wide, and never too narrow. PROOF.md, steps 8 and 9.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from quorate.core.arrays import Floats

_WIDEST = 1000.0  # standard deviations in whole numbers up to which the law of a sum of noises is computed
_STEPS = 4001  # places at which an area is tried


@dataclass(frozen=True)
class Interval:
    """An estimate, and the two ends of its interval."""

    estimate: float
    low: float
    high: float

    @property
    def says(self) -> bool:
        """Whether it says anything: not where there are too few units for the noise."""
        return self.low > 0 or self.high < 1


@dataclass(frozen=True)
class NoisyCount:
    """A sum of released cells, of how many, and the scale of the noise of each."""

    value: float
    cells: int
    scale: float

    def ends(self, miss: float) -> tuple[float, float]:
        """Return between which numbers the true count lies, but for a probability of `miss`."""
        bound = noise_bound(self.scale, self.cells, miss)
        return max(0.0, self.value - bound), max(0.0, self.value + bound)


@lru_cache(maxsize=256)
def noise_bound(scale: float, cells: int, miss: float) -> int:
    """Return a whole number that the sum of so many discrete Gaussian noises exceeds, in size, with at most `miss`."""
    spread = scale * math.sqrt(cells)
    if spread > _WIDEST:  # then it is a Gaussian but for far less than the number added
        return math.ceil(-float(special.ndtri(miss / 2)) * spread) + 2
    half = math.ceil(12 * scale) + 10
    one = np.exp(-np.square(np.arange(-half, half + 1.0)) / (2 * scale**2))
    law = _power(one / one.sum(), cells)
    beyond = 2 * np.cumsum(law[::-1])[: law.size // 2][::-1]  # of a size of at least 1, 2, ...: it is symmetric
    above = np.flatnonzero(beyond * (1 + 1e-9) + 1e-12 <= miss)
    return int(above[0]) if above.size else law.size // 2


def _power(law: Floats, times: int) -> Floats:
    """Return the law of a sum of so many independent draws."""
    result = law
    for digit in bin(times)[3:]:
        result = np.convolve(result, result)
        result = np.convolve(result, law) if digit == "1" else result
    return np.asarray(result)


def share_interval(part: NoisyCount, rest: NoisyCount, *, miss: float, total: int | None = None) -> Interval:
    """Return the interval of the share of `part` in both, for independent units; `total` of both, if it is public."""
    (part_low, part_high), (rest_low, rest_high) = part.ends(miss / 4), rest.ends(miss / 4)
    if total is not None:  # proof: step 8
        ends = max(part_low, total - rest_high), min(part_high, total - rest_low)
        part_low, part_high = (min(max(end, 0.0), float(total)) for end in sorted(ends))
        rest_low, rest_high = total - part_high, total - part_low
    value, both = part.value, part.value + rest.value
    if total is not None:  # two counts of the same: their mean has less noise
        value, both = (part.value + total - rest.value) / 2, float(total)
    estimate = min(1.0, max(0.0, value / both)) if both > 0 else 0.5
    low = special.betaincinv(part_low, rest_high + 1, miss / 4) if part_low > 0 else 0.0
    high = special.betaincinv(part_high + 1, rest_low, 1 - miss / 4) if rest_low > 0 else 1.0
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate))


def area_interval(positive: Floats, negative: Floats, *, scale: float, fewest: float, miss: float) -> Interval:
    """Return the interval of the area under the curve, from released counts of both classes by bins, low to high.

    `fewest` is a number that the smaller class has at least, but for a quarter of `miss`.
    """
    bins = len(positive)
    wins = (
        np.tril(np.ones((bins, bins)), -1) + np.eye(bins) / 2
    )  # of a positive in the row over a negative in the column
    over, under = wins @ negative, wins.T @ positive
    pairs, won = positive.sum() * negative.sum(), float(positive @ over)
    if positive.sum() <= 0 or negative.sum() <= 0 or fewest < 1:
        return Interval(0.5, 0.0, 1.0)
    estimate = min(1.0, max(0.0, won / pairs))
    areas = np.linspace(0, 1, _STEPS)
    farthest = scale * math.sqrt(bins * 2 * math.log(16 * bins / miss))  # proof: step 9
    lengths = np.linalg.norm(over - np.outer(areas, np.full(bins, negative.sum())), axis=1)
    lengths += np.linalg.norm(under - np.outer(areas, np.full(bins, positive.sum())), axis=1)
    allowed = scale * math.sqrt(2 * math.log(16 / miss)) * (lengths + math.sqrt(bins) * farthest)
    likely = areas[np.abs(won - areas * pairs) <= allowed]
    low, high = (float(likely.min()), float(likely.max())) if likely.size else (0.0, 1.0)
    step, limit = 1 / (_STEPS - 1), math.log(8 / miss) / fewest
    low = _farthest(lambda area: _divergence(max(0.0, low - step), area) <= limit, max(0.0, low - step), 0.0)
    high = _farthest(lambda area: _divergence(min(1.0, high + step), area) <= limit, min(1.0, high + step), 1.0)
    return Interval(estimate, min(low, estimate), max(high, estimate))


def _divergence(seen: float, area: float) -> float:
    """Return how far a share seen is from its mean, in the sense of Kullback and Leibler."""
    return float(special.rel_entr(seen, area) + special.rel_entr(1 - seen, 1 - area))


def _farthest(holds: Callable[[float], Any], near: float, far: float) -> float:
    """Return a place beyond which the rule does not hold, between one where it does and an end, by bisection."""
    if holds(far):
        return far
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (middle, far) if holds(middle) else (near, middle)
    return far
