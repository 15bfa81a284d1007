"""What a private test of a model has found: figures made of released counts, each with an interval."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.models.evaluation.intervals import Interval, NoisyCount, area_interval, share_interval

ALL = "all"  # the group of everybody


@dataclass(frozen=True)
class Measure:
    """One figure of one group, with its interval: `name` is error, recall of a label, balanced accuracy or auc."""

    name: str
    group: str
    interval: Interval

    @property
    def said(self) -> str:
        """Its name, and the group's where it is not of all."""
        return self.name if self.group == ALL else f"{self.name}, {self.group}"


@dataclass(frozen=True)
class Bin:
    """Where the model said a probability from `low` to `high`: how often it was so, with an interval."""

    group: str
    low: float
    high: float
    seen: Interval

    @property
    def calibrated(self) -> bool:
        """Whether the interval meets what the model said."""
        return self.seen.low <= self.high and self.low <= self.seen.high


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """What a private test has found: released figures, which may be published. `check_model` makes one.

    Each interval covers the figure of the population with probability at least `confidence`, one by one. `counts` are
    the released tables that all is made of, with their noise: (group, label, wrong or right), and (group, label, bin).
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
        for one in self.measures:
            if (one.name, one.group) == (name, group):
                return one.interval
        known = ", ".join(dict.fromkeys(one.name for one in self.measures))
        raise InvalidInput(f"no figure is called {name!r} of {group!r}; there are {known}")

    def summary(self) -> str:
        """Return the figures as text, one line each; those of which nothing can be said are left out."""
        lines = [f"Tested on {self.units:,} held-out units; {self.confidence:.0%} intervals count noise and sampling."]
        lines += [f"{one.said:<40} {_written(one.interval)}" for one in self.measures if one.interval.says]
        for row in self.calibration:
            if row.group == ALL and row.seen.says:
                mark = "" if row.calibrated else "  not calibrated"
                lines.append(f"{f'said {row.low:.3f} to {row.high:.3f}':<40} {_written(row.seen)}{mark}")
        return "\n".join([*lines, f"{self.claim[0].upper()}{self.claim[1:]}."])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        known = {name: getattr(self, name) for name in ("claim", "epsilon", "delta", "unit", "units", "confidence")}
        return known | {
            "scales": list(self.scales),
            "counts": [table.tolist() for table in self.counts],
            "measures": [{"name": one.name, "group": one.group, **vars(one.interval)} for one in self.measures],
            "calibration": [
                {"group": one.group, "said_low": one.low, "said_high": one.high, **vars(one.seen)}
                for one in self.calibration
            ],
        }


def _written(interval: Interval) -> str:
    return f"{interval.estimate:6.3f}   {interval.low:.3f} .. {interval.high:.3f}"


@dataclass(frozen=True, kw_only=True)
class ReleasedCounts:
    """The released tables: (group, label, wrong or right), and (group, 0 or 1, bin) where there are probabilities.

    `miss` is what an interval may miss, `units` the public number of units, `scales` those of the noise.
    """

    groups: Sequence[str]
    classes: Sequence[str]
    labels: NDArray[np.int64]
    bins: NDArray[np.int64] | None
    scales: Sequence[float]
    units: int
    miss: float

    def measures(self) -> Iterator[Measure]:
        """Yield the figures of everybody, then those of each group."""
        for name, members in self._members():
            yield from self._of_group(name, members)

    def calibration(self, edges: Floats) -> Iterator[Bin]:
        """Yield how often it was so where the model said what lies between two edges."""
        assert self.bins is not None
        ends = [0.0, *edges.tolist(), 1.0]
        for name, members in self._members():
            for place, (rest, part) in enumerate(self.bins[members].sum(axis=0).T.tolist()):
                counts = [NoisyCount(value, len(members), self.scales[1]) for value in (part, rest)]
                yield Bin(name, ends[place], ends[place + 1], share_interval(*counts, miss=self.miss))

    def _members(self) -> list[tuple[str, list[int]]]:
        every = (ALL, list(range(len(self.groups))))
        return [every] if len(self.groups) == 1 else [every, *((name, [i]) for i, name in enumerate(self.groups))]

    def _of_group(self, name: str, members: list[int]) -> Iterator[Measure]:
        table, groups = self.labels[members].sum(axis=0), len(members)
        wrong, right = (self._count(table[:, place].sum(), groups * len(self.classes)) for place in (0, 1))
        total = self.units if groups == len(self.groups) else None
        yield Measure("error", name, share_interval(wrong, right, miss=self.miss, total=total))
        each = self.miss / len(self.classes)  # together they miss no more: balanced accuracy is their mean
        recalls = [
            [share_interval(*(self._count(row[place], groups) for place in (1, 0)), miss=part) for row in table]
            for part in (self.miss, each)
        ]
        for label, recall in zip(self.classes, recalls[0], strict=True):
            yield Measure(f"recall of {label}", name, recall)
        means = [float(np.mean([getattr(one, end) for one in recalls[1]])) for end in ("estimate", "low", "high")]
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
