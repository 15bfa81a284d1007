"""Answers with intervals from the noisy sums of groups. Nothing here reads a private record: proof: step 8."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.release.numbers._layout import SummedColumn, Weights

Z = NormalDist().inv_cdf(0.975)
TOO_FEW = "too few records for this noise"
HIDDEN = "no bounds could be found under this noise"
WIDE = "interval wider than half of the bounds"
LARGE_NOISE = "interval wider than the answer"


@dataclass(frozen=True)
class NoiseLaw:
    """How far noise goes, in its standard deviations.

    `half` is half the width of an interval of 95%, and `clear` what a number of values must exceed for a mean: noise
    alone is above it with a probability of 3 in 100,000.
    """

    half: float
    clear: float


GAUSSIAN = NoiseLaw(Z, 4.0)
LAPLACE = NoiseLaw(math.log(20) / math.sqrt(2), 6.9)  # of one draw; sums of draws lie closer: proof: step 9


@dataclass(frozen=True)
class Answers:
    """Answers with 95% intervals, NaN where there is none, and what a reader must know of each."""

    answers: Floats
    low: Floats
    high: Floats
    notes: list[str]


def count_answers(
    noisy: Integers, *, weight: int, scale: Floats, bound: float = math.inf, law: NoiseLaw = GAUSSIAN
) -> Answers:
    """Return numbers of records or people from noisy counts of this weight."""
    counts, half = noisy / weight, law.half * scale / weight
    ends = (np.clip(end, 0.0, bound) for end in (counts, counts - half, counts + half))
    return _flag_wide(*ends)


def _flag_wide(answers: Floats, low: Floats, high: Floats) -> Answers:
    wide = high - low > np.abs(answers)
    return Answers(answers, low, high, [LARGE_NOISE if flag else "" for flag in wide.tolist()])


def _no_answers(groups: int) -> Answers:
    """Return no answer for groups, of a column whose clipped sums say nothing."""
    nothing = np.full(groups, np.nan)
    return Answers(nothing, nothing, nothing, [HIDDEN] * groups)


@dataclass(frozen=True)
class NoisySums:
    """The noisy entries of groups that a column's totals and means are computed from."""

    records: Integers
    sums: Integers
    missing: Integers
    weights: Weights
    scale: Floats
    merged: Integers  # groups whose entries were added up
    law: NoiseLaw = GAUSSIAN

    def _values(self, column: SummedColumn) -> tuple[Floats, Floats]:
        """Return the noisy number of values, and its variance."""
        values: Floats = self.records / self.weights.records
        variance = (self.scale / self.weights.records) ** 2
        if column.closed:
            return values, variance
        return values - self.missing / self.weights.sums, variance + (self.scale / self.weights.sums) ** 2

    def _centred(self, column: SummedColumn) -> tuple[Floats, Floats, Floats]:
        """Return the noisy sum of centred values, its variance, and what rounding may add to its error."""
        step = column.half / self.weights.sums
        rounding = self.merged / 2  # proof: step 3
        return np.asarray((self.sums + rounding) * step), (self.scale * step) ** 2, rounding * step

    def sum_with_variance(self, column: SummedColumn) -> "Estimate":
        """Return the noisy sums of a column in its own unit."""
        values, values_variance = self._values(column)
        centred, variance, rounding = self._centred(column)
        sums = centred + column.middle * values
        return Estimate(sums, variance + column.middle**2 * values_variance, rounding)

    def totals(self, column: SummedColumn) -> Answers:
        """Return totals of a column in each group; NaN if no bounds of it were found."""
        if column.is_hidden:
            return _no_answers(len(self.sums))
        centred = Estimate(*self._centred(column))
        return total_answers(centred, Estimate(*self._values(column), np.zeros(1)), column, self.law)

    def means(self, column: SummedColumn) -> Answers:
        """Return means of a column in each group, with Fieller's intervals; NaN where a group may have no values."""
        if column.is_hidden:
            return _no_answers(len(self.sums))
        centred = Estimate(*self._centred(column))
        return ratio_answers(centred, Estimate(*self._values(column), np.zeros(1)), column, self.law)


@dataclass(frozen=True)
class Estimate:
    """Noisy numbers of groups, the variance of their noise, and what rounding may add to their errors."""

    numbers: Floats
    variance: Floats
    rounding: Floats


def total_answers(centred: Estimate, values: Estimate, column: SummedColumn, law: NoiseLaw) -> Answers:
    """Return totals from sums of values less the middle of their bounds, and the number or weight of the values."""
    totals = centred.numbers + column.middle * values.numbers
    half = law.half * np.sqrt(centred.variance + column.middle**2 * values.variance) + centred.rounding
    half = half + abs(column.middle) * values.rounding
    least, most = (0.0 if column.low >= 0 else -math.inf), (0.0 if column.high <= 0 else math.inf)
    return _flag_wide(*(np.clip(end, least, most) for end in (totals, totals - half, totals + half)))


def ratio_answers(centred: Estimate, values: Estimate, column: SummedColumn, law: NoiseLaw) -> Answers:
    """Return means as ratios of the same numbers; NaN where the number or weight of values may be 0."""
    z, numbers, sums = law.half, values.numbers, centred.numbers
    variance = (np.sqrt(centred.variance) + centred.rounding / z) ** 2
    values_variance = (np.sqrt(values.variance) + values.rounding / z) ** 2
    leading = numbers**2 - z**2 * values_variance  # the interval is where a parabola is not above 0
    is_clear = numbers > law.clear * np.sqrt(values_variance)
    safe = np.where(is_clear, leading, 1.0)
    root = np.sqrt(np.maximum((numbers * sums) ** 2 - safe * (sums**2 - z**2 * variance), 0.0))
    ends = [column.middle + (numbers * sums + sign * root) / safe for sign in (-1, 1)]
    means = column.middle + sums / np.where(is_clear, numbers, 1.0)
    answers, low, high = (np.where(is_clear, np.clip(end, column.low, column.high), np.nan) for end in (means, *ends))
    wide = high - low > column.half
    notes = [
        TOO_FEW if not clear else WIDE if flag else ""
        for clear, flag in zip(is_clear.tolist(), wide.tolist(), strict=True)
    ]
    return Answers(answers, low, high, notes)
