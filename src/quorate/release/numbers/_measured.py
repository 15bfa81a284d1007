"""The columns with totals, means and quantiles: declared facts, and what has to be found with noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.ballots import release_counts
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVector, NoisyVectors
from quorate.core.mechanisms.sparse_histogram import noise_bound
from quorate.core.privacy import Budget
from quorate.release.domain import SealedCounts
from quorate.release.numbers._bounds import STEPS, FoundBounds, find_bounds, find_cuts, find_steps, grid_edges
from quorate.release.numbers._keys import MOST_GROUPS, GroupIndex
from quorate.release.numbers._layout import CutColumn, Layout, SummedColumn
from quorate.release.numbers._noise import SLACK_SHARE, GaussianNoise, LaplaceNoise, head_weight
from quorate.release.numbers._published import Statistics, expected_halves, quantile_name
from quorate.release.numbers._quantiles import POINTS, ROUNDS, quantile_share, rank_scale
from quorate.release.numbers._rows import PrivateRows
from quorate.release.numbers._weighting import Weighting
from quorate.tables.columns import Date, Kind, Number
from quorate.tables.cut_tree import STAGES, Draw, most_cells

_STEPS_SHARE = 0.02  # of the budget, for the steps of columns with quantiles, and counts between declared cuts
_BOUNDS_SHARE = 0.05  # of the budget, for bounds that are not declared
_CUTS_SHARE = 0.05  # of the budget, for cuts that are not declared
_EXPECTED_GROUPS = 20  # undeclared groups, for the choice of bounds


class MeasuredColumns:
    """The columns with totals, means and quantiles: declared facts, and what has to be found with noise."""

    def __init__(self, statistics: Statistics, kinds: Mapping[str, Kind], weights: str | None = None) -> None:
        self._statistics, self._kinds = statistics, kinds
        self._summed = tuple(dict.fromkeys([*statistics.totals, *statistics.means]))
        self.weighting = Weighting.of(weights, self._summed, kinds)
        self._cut = tuple(dict.fromkeys(name for name, _ in statistics.quantiles))
        self.names = tuple(dict.fromkeys([*self._summed, *self._cut]))
        for name in self.names:
            if name in kinds and (not isinstance(kinds[name], Number) or isinstance(kinds[name], Date)):
                raise InvalidInput(f"column {name!r} must be a Number to have totals, means or quantiles")
        if self.weighting is not None:
            if self._cut:
                raise InvalidInput("weights are for totals and means; leave medians and quantiles out")
            self.names, derived = (*self._summed, self.weighting.weight), self.weighting.kinds()
            self._kinds, self._summed = {**kinds, **derived}, tuple(derived)
        self._unbounded = [name for name in self._summed if self._number(name).low is None]
        self._uncut = [name for name in self._cut if self._number(name).cuts is None]
        self.notes: list[str] = []

    @property
    def sums(self) -> int:
        """The number of columns that are summed."""
        return len(self._summed)

    def _number(self, name: str) -> Number:
        return cast("Number", self._kinds.get(name, Number()))

    @property
    def are_declared(self) -> bool:
        """Whether the sums are all that noise is drawn for: no bound has to be found, and no quantile."""
        return not self._unbounded and not self._cut

    @property
    def rest_share(self) -> float:
        """The share of the budget that is left for the sums."""
        return (
            1.0
            - _BOUNDS_SHARE * bool(self._unbounded)
            - _STEPS_SHARE * bool(self._cut)
            - _CUTS_SHARE * bool(self._uncut)
        )

    def quantile_share(self, layout: Layout) -> float:
        """Return the share of what is left for sums and quantiles that quantiles take."""
        return quantile_share(layout, len(self._statistics.quantiles))

    def expected_halves(
        self, layout: Layout, vectors: NoisyVectors, size: int = 1, ranks: float = 0.0
    ) -> dict[str, float]:
        """Return half the expected width of the intervals of a group of this size, before anything is drawn."""
        fraction = self.rest_share * (1 - self.quantile_share(layout))
        scale = vectors.scale(squared_sensitivity=layout.squared_sensitivity, fraction=fraction)
        return expected_halves(layout, scale, size, ranks)

    def most_entries(self, layout: Layout, index: GroupIndex) -> int:
        """Return how many noisy entries are released at most, a public number: proof: step 1."""
        bound_entries = len(self._unbounded) * (len(grid_edges()) + 2) + len(self._uncut) * STAGES * most_cells()
        bound_entries += sum(len(STEPS) + 2 + len(self._number(name).cuts or ()) for name in self._cut)
        answers = ROUNDS * POINTS * len(self._statistics.quantiles)
        if not index.is_declared:
            return bound_entries + layout.squared_sensitivity + MOST_GROUPS * answers
        return bound_entries + index.declared_groups * (layout.entries + answers)

    def find(
        self, rows: PrivateRows, vectors: NoisyVectors | None, layout: Layout, index: GroupIndex
    ) -> tuple[list[SummedColumn], list[CutColumn]]:
        """Return the columns with their bounds and cuts, those that nobody declared found with noise."""
        if vectors is None:
            return [self._bounded(name, None) for name in self._summed], []
        spent = 0.0

        def draw(share: float, counts: Integers, *, squared_sensitivity: int) -> tuple[Integers, float]:
            nonlocal spent
            fraction, spent = share / (1.0 - spent), spent + share
            return vectors.release(counts, squared_sensitivity=squared_sensitivity, fraction=fraction)

        draw_steps, draw_cuts = partial(draw, _STEPS_SHARE), partial(draw, _CUTS_SHARE / STAGES)
        cuts, steps = {}, {}
        bounds = self._find_bounds(rows, vectors, layout, index, partial(draw, _BOUNDS_SHARE))
        if self._cut:
            values = dict(zip(self._cut, rows.unit_values(self._cut), strict=True))
            declared = [tuple(self._number(name).cuts or ()) for name in self._cut]
            found_steps = release_counts(
                SealedCounts([*values.values()]), lambda columns: find_steps(columns, declared, draw_steps)
            )
            steps = dict(zip(self._cut, found_steps, strict=True))
        if self._uncut:
            found_cuts = release_counts(
                SealedCounts([values[name] for name in self._uncut]),
                lambda columns: find_cuts(
                    columns, [steps[name][0] for name in self._uncut], draw_cuts, units=len(columns[0])
                ),
            )
            cuts = dict(zip(self._uncut, found_cuts, strict=True))
        self.notes += [bound.describe(name) for name, bound in bounds.items()]
        summed = [self._bounded(name, bounds.get(name)) for name in self._summed]
        return summed, [self._divided(name, steps[name], cuts.get(name)) for name in self._cut]

    def _find_bounds(
        self, rows: PrivateRows, vectors: NoisyVectors, layout: Layout, index: GroupIndex, draw: Draw
    ) -> dict[str, FoundBounds]:
        """Return bounds of the columns with sums for which none are declared."""
        if not self._unbounded:
            return {}
        noise = self.expected_halves(layout, vectors)
        most_records = 1 if rows.people is None else layout.groups_per_unit * layout.records_per_group
        found = release_counts(
            SealedCounts((rows.unit_values(self._unbounded), rows.count_records(index, layout))),
            lambda counted: find_bounds(
                counted[0],
                draw,
                groups=max(index.declared_groups, 1) if index.is_declared else _EXPECTED_GROUPS,
                sum_noise=math.hypot(noise["sum"], noise["values"]) / 1.96,
                records=counted[1],
                most_records=most_records,
            ),
        )
        return dict(zip(self._unbounded, found, strict=True))

    def _bounded(self, name: str, bounds: Any) -> SummedColumn:
        kind = self._number(name)
        low, high = (kind.low, kind.high) if bounds is None else (bounds.low, bounds.high)
        is_hidden = bounds is not None and math.isnan(bounds.beyond)
        return SummedColumn(name, cast("float", low), cast("float", high), kind.closed, is_hidden)

    def _divided(self, name: str, steps: tuple[float, tuple[float, ...]], found: Any) -> CutColumn:
        """Return a column with cuts inside of its bounds; counts of cells beyond are added to those next to them."""
        kind, (step, declared_counts) = self._number(name), steps
        cuts, counts = (tuple(kind.cuts or ()), declared_counts) if found is None else found
        low, high = kind.low, kind.high
        inside = [
            position for position, cut in enumerate(cuts) if (low is None or low < cut) and (high is None or cut < high)
        ]
        if counts:
            counts = np.add.reduceat(counts, [0, *(position + 1 for position in inside)]).tolist()
        return CutColumn(name, tuple(cuts[position] for position in inside), low, high, tuple(counts), step)

    def expected(self, halves: Mapping[str, float], *, has_people: bool) -> list[dict[str, Any]]:
        """Return the measures with half the expected width of their intervals, and its unit."""
        rows = [("records", halves["records"], "records")]
        if has_people:
            rows.append(("people", halves["people"], "people"))
        for measure, names in (("total", self._statistics.totals), ("mean", self._statistics.means)):
            for name in names:
                rows.append(self._expected_sum(f"{measure} {name}", name, halves, is_mean=measure == "mean"))
        rows += [
            (quantile_name(name, level), min(halves["rank"], 1.0), "ranks, as a share of the group")
            for name, level in self._statistics.quantiles
        ]
        return [dict(zip(("measure", "half_width", "unit"), row, strict=True)) for row in rows]

    def _expected_sum(
        self, measure: str, name: str, halves: Mapping[str, float], *, is_mean: bool
    ) -> tuple[str, float, str]:
        kind = self._number(name)
        if kind.low is None or kind.high is None:
            return (
                measure,
                halves["mean"] if is_mean else math.hypot(halves["sum"], halves["values"]),
                "half of its range",
            )
        column = SummedColumn(name, kind.low, kind.high, kind.closed)
        if self.weighting is not None:  # a mean of records whose weights are half of the bound
            column = replace(column, low=column.low * self.weighting.bound, high=column.high * self.weighting.bound)
            halves = {**halves, "mean": 2 * halves["mean"] / self.weighting.bound}
        if is_mean:
            return measure, min(column.half * halves["mean"], 2 * column.half), name
        values = halves["records"] if kind.closed else halves["values"]
        return measure, math.hypot(column.half * halves["sum"], column.middle * values), name


@dataclass(frozen=True)
class ChosenNoise:
    """The noise of a release, its budget, and the public weights that go with it; vectors where it is Gaussian."""

    columns: MeasuredColumns
    layout: Layout
    budget: Budget
    noise: GaussianNoise | LaplaceNoise
    vectors: NoisyVectors | None

    def halves(self, size: int = 1, levels: Sequence[float] = ()) -> dict[str, float]:
        """Return half the expected width of intervals of a group of this size, before anything is drawn."""
        if isinstance(self.noise, LaplaceNoise):
            return expected_halves(self.layout, self.noise.scale(self.layout), size)
        assert self.vectors is not None
        share = self.columns.rest_share * self.columns.quantile_share(self.layout)
        ranks = rank_scale(self.layout, levels, self.vectors, fraction=share)
        return self.columns.expected_halves(self.layout, self.vectors, size, ranks)


def choose_noise(
    columns: MeasuredColumns, layout: Layout, index: GroupIndex, *, epsilon: float, delta: float
) -> ChosenNoise:
    """Return Gaussian noise or, if only sums of columns with declared bounds are released, what gives less noise.

    Parameters
    ----------
    columns
        The columns with totals, means and quantiles.
    layout
        The weights for Gaussian noise.
    index
        The groups.
    epsilon, delta
        The privacy loss allowed.
    """
    if delta == 0 and not (columns.are_declared and index.is_declared):
        raise InvalidInput("delta must be above 0 unless groups and bounds are declared and there are no quantiles")
    slack = 0.0 if index.is_declared else delta * SLACK_SHARE
    if columns.are_declared:
        pure = Budget(epsilon=epsilon, delta=delta if slack else 0.0, order=math.inf, slack=slack)
        laplace = LaplaceNoise(pure, slack=slack)
        if delta == 0 or prefers_laplace(layout, laplace, epsilon=epsilon, delta=delta, slack=slack):
            return ChosenNoise(columns, replace(layout, is_laplace=True), pure, laplace, None)
    budget = Budget(epsilon=epsilon, delta=delta, slack=slack)
    vectors = NoisyVectors(budget, entries=columns.most_entries(layout, index))  # proof: step 1
    gaussian = GaussianNoise(vectors, slack=slack, fraction=1 - columns.quantile_share(layout))
    return ChosenNoise(columns, layout, budget, gaussian, vectors)


def prefers_laplace(layout: Layout, laplace: LaplaceNoise, *, epsilon: float, delta: float, slack: float) -> bool:
    """Return whether Laplace noise has the smaller expected intervals and threshold, by their geometric mean."""
    square, other = layout.squared_sensitivity, replace(layout, is_laplace=True)
    vector = NoisyVector.calibrate(epsilon=epsilon, delta=delta - slack, squared_sensitivities=(square,))
    threshold = noise_bound(keys=layout.groups_per_unit, scale=vector.scales[0], slack=slack) if slack else 0
    return _score(other, laplace.scale(other), laplace.above(other)) < _score(layout, vector.scales[0], threshold)


def _score(layout: Layout, scale: float, above: int) -> float:
    """Return the sum of logarithms of expected widths, and of about how many units an undeclared group needs."""
    halves = expected_halves(layout, scale, 1)
    widths = [halves["records"], *[halves.get("sum", 1.0)] * layout.sums, halves.get("people", 1.0)]
    return sum(map(math.log, [*widths, 1 + above / head_weight(layout)]))
