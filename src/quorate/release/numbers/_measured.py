"""The columns with totals, means and quantiles: declared facts, and what has to be found with noise."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.ballots import release_counts
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVectors
from quorate.release.domain import SealedCounts
from quorate.release.numbers._bounds import STEPS, FoundBounds, find_bounds, find_cuts, find_steps, grid_edges
from quorate.release.numbers._keys import MOST_GROUPS, GroupIndex
from quorate.release.numbers._layout import CutColumn, Layout, SummedColumn
from quorate.release.numbers._published import Statistics, expected_halves, quantile_name
from quorate.release.numbers._quantiles import POINTS, ROUNDS, quantile_share
from quorate.release.numbers._rows import PrivateRows
from quorate.tables.columns import Date, Kind, Number
from quorate.tables.cut_tree import STAGES, Draw, most_cells

_STEPS_SHARE = 0.02  # of the budget, for the steps of columns with quantiles, and counts between declared cuts
_BOUNDS_SHARE = 0.05  # of the budget, for bounds that are not declared
_CUTS_SHARE = 0.05  # of the budget, for cuts that are not declared
_EXPECTED_GROUPS = 20  # undeclared groups, for the choice of bounds


class MeasuredColumns:
    """The columns with totals, means and quantiles: declared facts, and what has to be found with noise."""

    def __init__(self, statistics: Statistics, kinds: Mapping[str, Kind]) -> None:
        self._statistics, self._kinds = statistics, kinds
        self._summed = tuple(dict.fromkeys([*statistics.totals, *statistics.means]))
        self._cut = tuple(dict.fromkeys(name for name, _ in statistics.quantiles))
        self.names = tuple(dict.fromkeys([*self._summed, *self._cut]))
        for name in self.names:
            if name in kinds and (not isinstance(kinds[name], Number) or isinstance(kinds[name], Date)):
                raise InvalidInput(f"column {name!r} must be a Number to have totals, means or quantiles")
        self._unbounded = [name for name in self._summed if self._number(name).low is None]
        self._uncut = [name for name in self._cut if self._number(name).cuts is None]
        self.notes: list[str] = []

    def _number(self, name: str) -> Number:
        return cast("Number", self._kinds.get(name, Number()))

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
        self, rows: PrivateRows, vectors: NoisyVectors, layout: Layout, index: GroupIndex
    ) -> tuple[list[SummedColumn], list[CutColumn]]:
        """Return the columns with their bounds and cuts, those that nobody declared found with noise."""
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
        return SummedColumn(name, cast("float", low), cast("float", high), kind.closed)

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
        if is_mean:
            return measure, min(column.half * halves["mean"], 2 * column.half), name
        values = halves["records"] if kind.closed else halves["values"]
        return measure, math.hypot(column.half * halves["sum"], column.middle * values), name
