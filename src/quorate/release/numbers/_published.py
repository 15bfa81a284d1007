"""What a release of numbers by group publishes: noisy sums, and public facts about them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import State
from quorate.release.numbers._contributions import GroupSums
from quorate.release.numbers._estimates import GAUSSIAN, LAPLACE, Answers, NoiseLaw, NoisySums, count_answers
from quorate.release.numbers._keys import GroupIndex, Parents, merge_keys
from quorate.release.numbers._layout import CutColumn, Layout, SummedColumn, Weights
from quorate.release.numbers._noise import GaussianNoise, LaplaceNoise
from quorate.release.numbers._quantiles import Probes, empty_probes, quantile_answers
from quorate.release.numbers._weighting import Weighting

NOT_RELEASED = "not released for unpublished groups"


@dataclass(frozen=True)
class Statistics:
    """What is answered for each group: totals and means of columns, and (column, level) of quantiles."""

    totals: tuple[str, ...]
    means: tuple[str, ...]
    quantiles: tuple[tuple[str, float], ...]


def quantile_name(name: str, level: float) -> str:
    """Return the name of a quantile.

    >>> quantile_name("stay", 0.5), quantile_name("stay", 0.9)
    ('median stay', 'quantile 0.9 stay')
    """
    return f"median {name}" if level == 0.5 else f"quantile {level!r} {name}"


@dataclass(frozen=True)
class NoisyGroups:
    """Noisy entries of groups that share their weights: people, records, sums and missing values."""

    entries: Integers
    weights: Weights
    merged: Integers
    entry_scale: float
    law: NoiseLaw = GAUSSIAN

    @property
    def scale(self) -> Floats:
        """The standard deviation of the noise of each group's entries."""
        return np.asarray(self.entry_scale * np.sqrt(self.merged))

    def _column(self, index: int) -> Integers:
        return self.entries[:, index + (self.weights.people > 0)]

    def people(self) -> Answers:
        """Return the number of people in each group."""
        return count_answers(self.entries[:, 0], weight=self.weights.people, scale=self.scale, law=self.law)

    def records(self, bound: float) -> Answers:
        """Return the number of records in each group."""
        weight = self.weights.records
        return count_answers(self._column(0), weight=weight, scale=self.scale, bound=bound, law=self.law)

    def sums(self, position: int, count: int) -> NoisySums:
        """Return the entries of the summed column at this position among `count`."""
        records, sums = self._column(0), self._column(1 + position)
        missing = self._column(1 + count + position)
        return NoisySums(records, sums, missing, self.weights, self.scale, self.merged, self.law)


@dataclass(frozen=True)
class Published:
    """Noisy sums of the groups with these keys, and of all others together if groups were chosen by a threshold."""

    layout: Layout
    sums: tuple[SummedColumn, ...]
    cuts: tuple[CutColumn, ...]
    keys: tuple[str, ...]
    entries: Integers
    other: Integers
    scale: float
    threshold: int | None
    probes: Probes = field(default_factory=empty_probes)
    parents: Parents = field(default_factory=dict)
    weighting: Weighting | None = None
    merged: Integers | None = None  # how many groups were added up in each; None before that

    def merge(self, by: Sequence[str], coarser: Sequence[str]) -> "Published":
        """Return the sums of coarser groups: by some of the columns, longer parts of dates, or higher levels."""
        keys, positions = merge_keys(self.keys, by, coarser, self.parents)
        entries = np.zeros((len(keys), self.entries.shape[1]), dtype=np.int64)
        np.add.at(entries, positions, self.entries)
        merged = np.bincount(positions, minlength=len(keys))
        return replace(self, keys=tuple(keys), entries=entries, merged=merged, probes=empty_probes())

    @property
    def _groups(self) -> NoisyGroups:
        merged = np.ones(len(self.keys), dtype=np.int64) if self.merged is None else self.merged
        return NoisyGroups(self.entries, self.layout.weights, merged, self.scale, self._law)

    @property
    def _law(self) -> NoiseLaw:
        return LAPLACE if self.layout.is_laplace else GAUSSIAN

    @property
    def least_units(self) -> float | None:
        """The noisy number of records, or people, above which an undeclared group is published."""
        weights = self.layout.weights
        return None if self.threshold is None else self.threshold / (weights.people or weights.records)

    def answers(self, statistics: Statistics, bound: float) -> dict[str, Answers]:
        """Return the answers of each measure, for the groups and then for the others, if there are some.

        Parameters
        ----------
        statistics
            What is answered.
        bound
            The public number of records, infinity if it is private.
        """
        parts = [self._answers(self._groups, statistics, bound)]
        parts[0] |= self._quantiles(statistics)
        if self.other.size:
            one = np.ones(1, dtype=np.int64)
            row = NoisyGroups(self.other[None, :], self.layout.other_weights, one, self.scale, self._law)
            parts.append(self._answers(row, statistics, bound))
            nothing = np.full(1, np.nan)
            for name, level in statistics.quantiles:
                parts[1][quantile_name(name, level)] = Answers(nothing, nothing, nothing, [NOT_RELEASED])
        return {name: _join([part[name] for part in parts]) for name in parts[0]}

    def _answers(self, groups: NoisyGroups, statistics: Statistics, bound: float) -> dict[str, Answers]:
        names = [column.name for column in self.sums]
        answers = {"records": groups.records(bound)}
        if self.layout.has_people and self.merged is None:  # a person may be in several groups
            answers["people"] = groups.people()
        if self.weighting is not None:
            sums = {name: (groups.sums(place, len(names)), self.sums[place]) for place, name in enumerate(names)}
            return answers | self.weighting.answers(statistics.totals, statistics.means, sums)
        for name in statistics.totals:
            index = names.index(name)
            answers[f"total {name}"] = groups.sums(index, len(names)).totals(self.sums[index])
        for name in statistics.means:
            index = names.index(name)
            answers[f"mean {name}"] = groups.sums(index, len(names)).means(self.sums[index])
        return answers

    @property
    def sizes(self) -> Floats:
        """The noisy number of records of each group."""
        return self._groups.records(math.inf).answers

    def targets(self, statistics: Statistics) -> list[tuple[CutColumn, float]]:
        """Return the column and the level of each quantile."""
        columns = {column.name: column for column in self.cuts}
        return [(columns[name], level) for name, level in statistics.quantiles]

    def put(self, state: State) -> None:
        """Keep the release in a state."""
        state.values = {
            **state.values,
            "layout": to_plain(self.layout),
            "sums": to_plain(self.sums),
            "cuts": to_plain(self.cuts),
            "scale": repr(self.scale),
            "threshold": self.threshold,
            "probes": [repr(scale) for scale in self.probes.scales],
            "weighting": to_plain(self.weighting),
            "parents": {name: dict(above) for name, above in self.parents.items()},
        }
        state.put_document("groups", list(self.keys))
        state.put_arrays("sums", True, entries=self.entries, other=self.other, probe_answers=self.probes.answers)
        state.put_arrays("points", True, points=self.probes.points)

    @classmethod
    def of(cls, state: State) -> "Published":
        """Return the release of a state."""
        values = state.values
        arrays = {name: array.astype(np.int64) for name, array in state.arrays("sums").items()}
        points = state.arrays("points")["points"].astype(np.float64)
        scales = tuple(map(float, values["probes"]))
        return cls(
            cast("Layout", from_plain(values["layout"], Layout)),
            tuple(from_plain(values["sums"], SummedColumn)),
            tuple(from_plain(values["cuts"], CutColumn)),
            tuple(str(key) for key in state.document("groups")),
            arrays["entries"],
            arrays["other"],
            float(values["scale"]),
            values["threshold"],
            Probes(points, arrays["probe_answers"], scales),
            values.get("parents", {}),  # absent from folders of earlier versions
            from_plain(values.get("weighting"), Weighting, SummedColumn),
        )

    def fits(self, statistics: Statistics) -> bool:
        """Return whether the sums have the sizes that groups and statistics need."""
        groups = len(self.keys) * bool(statistics.quantiles)
        shape = empty_probes(len(statistics.quantiles), groups).points.shape
        is_whole = self.probes.points.shape == self.probes.answers.shape == shape
        return is_whole and self.entries.shape == (len(self.keys), self.layout.entries)

    def _quantiles(self, statistics: Statistics) -> dict[str, Answers]:
        answers = {}
        for index, (column, level) in enumerate(self.targets(statistics)):
            own = self.probes.of_target(index)
            answers[quantile_name(column.name, level)] = quantile_answers(own, column, level, self.sizes)
        return answers


def _join(parts: Sequence[Answers]) -> Answers:
    return Answers(
        np.concatenate([part.answers for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
        [note for part in parts for note in part.notes],
    )


def release_sums(exact: GroupSums, index: GroupIndex, layout: Layout, noise: GaussianNoise | LaplaceNoise) -> Published:
    """Release the sums of all groups: proof: steps 4, 5 and 9.

    Parameters
    ----------
    exact
        The exact sums, by the numbers of `index`.
    index
        The groups.
    layout
        The public weights, and how far a unit moves the sums.
    noise
        The noise, and the budget that pays for it.
    """
    if index.is_declared:
        weighted = exact.weigh(exact.values, layout.weights)
        noisy, scale = noise.release(layout, weighted.ravel())
        no_row = np.zeros(0, dtype=np.int64)
        return Published(
            layout, exact.sums, (), tuple(index.keys), noisy.reshape(weighted.shape), no_row, scale, threshold=None
        )
    keys, weights, other_weights = index.keys, layout.weights, layout.other_weights
    weighted = exact.weigh(exact.values, weights)
    rows = {key: row for row, key in enumerate(keys)}
    width = weighted.shape[1] - 1

    def sums_of(published: Sequence[str]) -> Integers:
        chosen = np.array([rows[key] for key in published], dtype=np.int64)
        rest = exact.values.sum(axis=0) - exact.values[chosen].sum(axis=0)
        row = exact.weigh(rest[None, :], other_weights)
        return np.concatenate([weighted[chosen, 1:].ravel(), row.ravel()])

    exact_heads = dict(zip(keys, weighted[:, 0].tolist(), strict=True))
    heads, noisy, scale, threshold = noise.release_keys(layout, exact_heads, sums_of)
    rest = noisy[: len(heads) * width].reshape(len(heads), width)
    entries = np.column_stack([np.array(list(heads.values()), dtype=np.int64), rest])
    other = noisy[len(heads) * width :]
    return Published(layout, exact.sums, (), tuple(heads), entries, other, scale, threshold)


def expected_halves(layout: Layout, scale: float, size: int, rank_scale: float = 0.0) -> dict[str, float]:
    """Return half the expected width of intervals for a group of this size, in units of each column's half range.

    Parameters
    ----------
    layout
        The public weights.
    scale
        The standard deviation of the noise.
    size
        The number of records of the group.
    rank_scale
        The deviation of the number of values below a quantile, from all rounds together.
    """
    weights, z = layout.weights, (LAPLACE if layout.is_laplace else GAUSSIAN).half
    halves = {"records": z * scale / weights.records}
    if layout.has_people:
        halves["people"] = z * scale / weights.people
    if layout.sums:
        halves["sum"] = z * scale / weights.sums
        halves["values"] = z * scale * math.sqrt(1 / weights.records**2 + 1 / weights.sums**2)
        halves["mean"] = math.hypot(halves["sum"], halves["values"] / 2) / size  # a mean half-way to a bound
    halves["rank"] = GAUSSIAN.half * rank_scale / size
    return halves


def plain_rows(published: Published, columns: Sequence[str], decode: Any) -> dict[str, list[Any]]:
    """Return the key columns of all rows of answers, the row of unpublished groups last."""
    texts = [decode(key) for key in published.keys]
    if published.other.size:
        texts.append(["other"] * len(columns))
    return {name: [row[place] for row in texts] for place, name in enumerate(columns)}
