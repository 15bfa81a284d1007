"""Results of a private test of a model: figures computed from released counts, each with an interval."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput

_WIDEST = 1000.0  # standard deviations in whole numbers up to which the law of a sum of noises is computed
_STEPS = 4001  # grid points at which an area is tried


@dataclass(frozen=True)
class Interval:
    """An estimate, and the two ends of its interval."""

    estimate: float
    low: float
    high: float

    @property
    def says(self) -> bool:
        """Whether the interval is informative; it is not where the noise outweighs the units."""
        return self.low > 0 or self.high < 1


@dataclass(frozen=True)
class NoisyCount:
    """A sum of released cells, their number, and the scale of the noise of each."""

    value: float
    cells: int
    scale: float

    def ends(self, miss: float) -> tuple[float, float]:
        """Return bounds that contain the true count with probability at least 1 - `miss`."""
        bound = noise_bound(self.scale, self.cells, miss)
        return max(0.0, self.value - bound), max(0.0, self.value + bound)


@lru_cache(maxsize=256)
def noise_bound(scale: float, cells: int, miss: float) -> int:
    """Return a bound that the absolute sum of this many discrete Gaussians exceeds with probability at most `miss`."""
    spread = scale * math.sqrt(cells)
    if spread > _WIDEST:  # the sum differs from a Gaussian by far less than the margin added here
        return math.ceil(-float(special.ndtri(miss / 2)) * spread) + 2
    half = math.ceil(12 * scale) + 10
    weights = np.exp(-np.square(np.arange(-half, half + 1.0)) / (2 * scale**2))
    law = _power(weights / weights.sum(), cells)
    beyond = 2 * np.cumsum(law[::-1])[: law.size // 2][::-1]  # tail mass beyond 1, 2, ... on both sides, by symmetry
    above = np.flatnonzero(beyond * (1 + 1e-9) + 1e-12 <= miss)
    return int(above[0]) if above.size else law.size // 2


def _power(law: Floats, times: int) -> Floats:
    result = law
    for digit in bin(times)[3:]:
        result = np.convolve(result, result)
        result = np.convolve(result, law) if digit == "1" else result
    return np.asarray(result)


def share_interval(part: NoisyCount, rest: NoisyCount, *, miss: float, total: int | None = None) -> Interval:
    """Return the interval of the share of `part` in both counts, for independent units; `total` is their public sum."""
    (part_low, part_high), (rest_low, rest_high) = part.ends(miss / 4), rest.ends(miss / 4)
    if total is not None:  # proof: step 4
        ends = max(part_low, total - rest_high), min(part_high, total - rest_low)
        part_low, part_high = (min(max(end, 0.0), float(total)) for end in sorted(ends))
        rest_low, rest_high = total - part_high, total - part_low
    value, total_count = part.value, part.value + rest.value
    if total is not None:  # two noisy counts of one quantity; their mean has less noise
        value, total_count = (part.value + total - rest.value) / 2, float(total)
    estimate = min(1.0, max(0.0, value / total_count)) if total_count > 0 else 0.5
    low = special.betaincinv(part_low, rest_high + 1, miss / 4) if part_low > 0 else 0.0
    high = special.betaincinv(part_high + 1, rest_low, 1 - miss / 4) if rest_low > 0 else 1.0
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate))


def area_interval(positive: Floats, negative: Floats, *, scale: float, fewest: float, miss: float) -> Interval:
    """Return the interval of the area under the curve, from released counts of both classes by bins, low to high.

    `fewest` bounds the size of the smaller class from below, except with probability a quarter of `miss`.
    """
    bins = len(positive)
    # The wins of a positive in the bin of the row over a negative in the bin of the column.
    wins = np.tril(np.ones((bins, bins)), -1) + np.eye(bins) / 2
    over, under = wins @ negative, wins.T @ positive
    pairs, won = positive.sum() * negative.sum(), float(positive @ over)
    if positive.sum() <= 0 or negative.sum() <= 0 or fewest < 1:
        return Interval(0.5, 0.0, 1.0)
    estimate = min(1.0, max(0.0, won / pairs))
    areas = np.linspace(0, 1, _STEPS)
    farthest = scale * math.sqrt(bins * 2 * math.log(16 * bins / miss))  # proof: step 5
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
    return float(special.rel_entr(seen, area) + special.rel_entr(1 - seen, 1 - area))


def _farthest(holds: Callable[[float], Any], inside: float, end: float) -> float:
    """Bisect for the point where a rule stops holding, between a point where it holds and an end."""
    if holds(end):
        return end
    for _ in range(60):
        middle = (inside + end) / 2
        inside, end = (middle, end) if holds(middle) else (inside, middle)
    return end


ALL = "all"  # the group of all units


@dataclass(frozen=True)
class Measure:
    """One figure of one group, with its interval: `name` is error, recall of a label, balanced accuracy or auc."""

    name: str
    group: str
    interval: Interval

    @property
    def title(self) -> str:
        """The figure's name, with the group's name unless the group is "all"."""
        return self.name if self.group == ALL else f"{self.name}, {self.group}"


@dataclass(frozen=True)
class Bin:
    """Calibration in a bin: the observed rate where the model predicts `low` to `high`, with its interval."""

    group: str
    low: float
    high: float
    seen: Interval

    @property
    def calibrated(self) -> bool:
        """Whether the interval overlaps the predicted probabilities."""
        return self.seen.low <= self.high and self.low <= self.seen.high


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """The result of `check_model`: released figures, which may be published.

    Each single interval covers the figure of the population with probability at least `confidence`. `counts` are the
    noisy tables that all figures are computed from: (group, label, wrong or right), and (group, label, bin).
    """

    claim: str
    epsilon: float
    delta: float
    unit: str
    units: int
    confidence: float
    scales: tuple[float, ...]
    measures: tuple[Measure, ...]
    calibration: tuple[Bin, ...]
    counts: tuple[NDArray[np.int64], ...] = field(repr=False, compare=False)

    def measure(self, name: str, group: str = ALL) -> Interval:
        """Return the interval of one figure, by its name and the name of the group."""
        for measure in self.measures:
            if (measure.name, measure.group) == (name, group):
                return measure.interval
        names = ", ".join(dict.fromkeys(measure.name for measure in self.measures))
        raise InvalidInput(f"name and group must be one of {names}, got {name!r} of {group!r}")

    def summary(self) -> str:
        """Return the figures as text, one line each, without the uninformative ones."""
        lines = [f"Tested on {self.units:,} held-out units; {self.confidence:.0%} intervals count noise and sampling."]
        lines += [
            f"{measure.title:<40} {_write_interval(measure.interval)}"
            for measure in self.measures
            if measure.interval.says
        ]
        for row in self.calibration:
            if row.group == ALL and row.seen.says:
                mark = "" if row.calibrated else "  not calibrated"
                lines.append(f"{f'said {row.low:.3f} to {row.high:.3f}':<40} {_write_interval(row.seen)}{mark}")
        return "\n".join([*lines, f"{self.claim[0].upper()}{self.claim[1:]}."])

    def as_dict(self) -> dict[str, Any]:
        """Return all results as JSON-serializable values."""
        facts = {name: getattr(self, name) for name in ("claim", "epsilon", "delta", "unit", "units", "confidence")}
        return facts | {
            "scales": list(self.scales),
            "counts": [table.tolist() for table in self.counts],
            "measures": [
                {"name": measure.name, "group": measure.group, **vars(measure.interval)} for measure in self.measures
            ],
            "calibration": [
                {"group": row.group, "said_low": row.low, "said_high": row.high, **vars(row.seen)}
                for row in self.calibration
            ],
        }


def _write_interval(interval: Interval) -> str:
    return f"{interval.estimate:6.3f}   {interval.low:.3f} .. {interval.high:.3f}"


@dataclass(frozen=True, kw_only=True)
class ReleasedCounts:
    """The released tables: (group, label, wrong or right), and (group, 0 or 1, bin) where there are probabilities.

    `miss` is the miss probability of an interval, `units` the public number of units, `scales` the noise scales.
    """

    groups: Sequence[str]
    classes: Sequence[str]
    labels: NDArray[np.int64]
    bins: NDArray[np.int64] | None
    scales: Sequence[float]
    units: int
    miss: float

    def measures(self) -> Iterator[Measure]:
        """Yield the figures over all units, then those of each group."""
        for name, members in self._members():
            yield from self._of_group(name, members)

    def calibration(self, edges: Floats) -> Iterator[Bin]:
        """Yield the calibration of each bin, if the model predicts probabilities."""
        if self.bins is None:
            return
        ends = [0.0, *edges.tolist(), 1.0]
        for name, members in self._members():
            for index, (rest, part) in enumerate(self.bins[members].sum(axis=0).T.tolist()):
                counts = [NoisyCount(value, len(members), self.scales[1]) for value in (part, rest)]
                yield Bin(name, ends[index], ends[index + 1], share_interval(*counts, miss=self.miss))

    def _members(self) -> list[tuple[str, list[int]]]:
        every = (ALL, list(range(len(self.groups))))
        return [every] if len(self.groups) == 1 else [every, *((name, [i]) for i, name in enumerate(self.groups))]

    def _of_group(self, name: str, members: list[int]) -> Iterator[Measure]:
        table, groups = self.labels[members].sum(axis=0), len(members)
        wrong, right = (self._count(table[:, index].sum(), groups * len(self.classes)) for index in (0, 1))
        total = self.units if groups == len(self.groups) else None
        yield Measure("error", name, share_interval(wrong, right, miss=self.miss, total=total))
        label_miss = self.miss / len(self.classes)  # a union bound: balanced accuracy is the mean of the recalls
        recalls = [
            [share_interval(*(self._count(row[index], groups) for index in (1, 0)), miss=part) for row in table]
            for part in (self.miss, label_miss)
        ]
        for label, recall in zip(self.classes, recalls[0], strict=True):
            yield Measure(f"recall of {label}", name, recall)
        means = [float(np.mean([getattr(recall, end) for recall in recalls[1]])) for end in ("estimate", "low", "high")]
        yield Measure("balanced accuracy", name, Interval(*means))
        if self.bins is not None and len(self.classes) == 2:
            yield Measure("auc", name, self._area(table, self.bins[members].sum(axis=0), groups))

    def _area(self, table: NDArray[np.int64], bins: NDArray[np.int64], groups: int) -> Interval:
        sizes = [self._count(row.sum(), 2 * groups).ends(self.miss / 8)[0] for row in table]
        scale = self.scales[1] * float(np.sqrt(groups))
        negative, positive = bins.astype(np.float64)
        return area_interval(positive, negative, scale=scale, fewest=min(sizes), miss=self.miss)

    def _count(self, value: Any, cells: int) -> NoisyCount:
        return NoisyCount(float(value), cells, self.scales[0])
