"""Bounds of summed columns, and cuts of columns with quantiles, that nobody declared: found with noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.tables.cut_tree import CutTree, Draw, grow_trees

_PARTS = 4  # into which a cell between two powers of two is divided, as candidates for a bound
_POWERS = (-20, 50)  # of two: values beyond are clipped
_CLEAR = 5.0  # deviations of the noise that a cell must exceed: a false cell could be far away from all values
_TAIL, _LEAST_BEND = 5, -0.02  # clear cells that a tail goes on from, and the bend of its logarithm
CELLS = 16  # of a column with quantiles
STEPS = (100.0, 10.0, 1.0)  # of which the values of a column may be multiples
_FEW = 0.02  # of the values, which may be no multiples
_LIKELY, _ENOUGH = 3.0, 10.0  # deviations of noise: of values that are none, and of all values at least
_ROUNDING = 1e-9  # relative, of a multiple
_BATCH = 2**18  # values in temporary arrays


@lru_cache(maxsize=1)
def grid_edges() -> Floats:
    """Return the inner ends of the public cells of numbers: powers of two of both signs."""
    positive = 2.0 ** np.arange(_POWERS[0], _POWERS[1] + 1)
    return np.concatenate([-positive[::-1], positive])


def count_cells(values: Floats) -> Integers:
    """Return how many values are in each public cell; numbers near 0 have one cell, missing values none."""
    numbers = values[~np.isnan(values)]
    edges = grid_edges()
    cells = np.searchsorted(edges, numbers, side="right")
    return np.bincount(cells, minlength=len(edges) + 1).astype(np.int64)


@dataclass(frozen=True)
class FoundBounds:
    """Bounds of a column, and about which share of the sum of absolute values lies beyond them; NaN if nobody knows."""

    low: float
    high: float
    beyond: float

    def describe(self, name: str) -> str:
        """Return what a reader of totals and means of this column must know."""
        if math.isnan(self.beyond):
            return (
                f"no bounds of {name} could be found under this noise; {self.low:g} to {self.high:g} was taken, "
                "and its totals and means are left out; declare low and high"
            )
        return (
            f"bounds of {name} were found with noise: {self.low:g} to {self.high:g}; values were clipped there, "
            f"by at most about {self.beyond:.1%} of the sum of absolute values"
        )


def choose_bounds(
    noisy: Floats, *, cell_noise: float, groups: int, sum_noise: float, records: float | None = None
) -> FoundBounds:
    """Return the bounds with the smallest expected error of a group's total, from noisy counts of the public cells.

    Parameters
    ----------
    noisy
        Noisy counts of the public cells.
    cell_noise
        The scale of their noise.
    groups
        About how many groups there are, a public number.
    sum_noise
        The standard deviation of a group's total in units of half the distance of the bounds.
    records
        About how many records count, where the cells count one of each person; by default as many as the cells do.
    """
    counts = np.where(noisy > _CLEAR * cell_noise, noisy, 0.0)
    middle = len(counts) // 2
    for side in (slice(middle + 1, None), slice(middle - 1, None, -1)):
        counts[side] = _continue_tail(counts[side], noisy[side], cell_noise)
    present = np.flatnonzero(counts)
    if not len(present):
        return FoundBounds(0.0, 1.0, math.nan)
    lows, highs, counts = _divide_cells(counts)
    middles, present = (lows + highs) / 2, np.flatnonzero(counts)
    ends = np.unique(np.concatenate([lows[present], highs[present], [0.0]]))
    lower = ends[ends <= max(lows[present[0]], 0.0)]
    upper = ends[ends >= min(highs[present[-1]], 0.0)]
    above = np.maximum(middles - upper[:, None], 0.0) @ counts
    below = np.maximum(lower[:, None] - middles, 0.0) @ counts
    repeats = 1.0 if records is None else max(records / float(counts.sum()), 1.0)
    lost = (below[:, None] + above[None, :]) * repeats / groups
    width = upper[None, :] - lower[:, None]
    errors = np.where(width > 0, np.hypot(lost, sum_noise * np.abs(width) / 2), math.inf)
    row, column = np.unravel_index(int(np.argmin(errors)), errors.shape)
    total = float(np.abs(middles) @ counts)
    beyond = float(below[row] + above[column]) / total if total > 0 else 0.0
    return FoundBounds(float(lower[row]), float(upper[column]), min(beyond, 1.0))


def _continue_tail(counts: Floats, noisy: Floats, cell_noise: float) -> Floats:
    """Return counts of the cells of one sign with guesses for those beyond the last clear one, which are in its noise.

    Their logarithms go on as a parabola through the last clear cells that is nowhere above a line, and the count of the
    next cell, which is known to be small, limits them.
    """
    tail, last = counts.copy(), int(np.max(np.flatnonzero(counts), initial=-1))
    cells = np.arange(max(int(np.argmax(counts)), last - _TAIL + 1), last + 1)
    cells = cells[counts[cells] > 0]
    if len(cells) < 3 or last + 1 == len(counts):
        return tail
    weights = counts[cells] / (cell_noise + np.sqrt(counts[cells]))
    bend, slope, _ = np.polyfit(cells - last, np.log(counts[cells]), 2, w=weights)
    if bend > _LEAST_BEND:
        bend = _LEAST_BEND
        slope = np.polyfit(cells - last, np.log(counts[cells]) - bend * (cells - last) ** 2, 1, w=weights)[0]
    steps = np.arange(1, len(counts) - last)
    guess = counts[last] * np.exp(np.minimum(slope * steps + bend * steps**2, 0.0))
    guess *= min(1.0, (max(noisy[last + 1], 0.0) + cell_noise) / guess[0])
    tail[last + 1 :] = np.where(guess >= 1.0, guess, 0.0)
    return tail


def _divide_cells(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the ends and counts of parts of the cells; the cell of 0 is a point, and so are both open cells."""
    powers = np.arange(_POWERS[0] * _PARTS, _POWERS[1] * _PARTS + 1) / _PARTS
    positive = 2.0**powers
    middle = len(counts) // 2
    above = np.repeat(counts[middle + 1 : -1] / _PARTS, _PARTS)
    below = np.repeat(counts[1:middle][::-1] / _PARTS, _PARTS)
    lows = np.concatenate([-positive[-1:], -positive[:0:-1], [0.0], positive])
    highs = np.concatenate([-positive[::-1], [0.0], positive[1:], positive[-1:]])
    return lows, highs, np.concatenate([counts[:1], below[::-1], counts[middle : middle + 1], above, counts[-1:]])


def find_bounds(
    values: Sequence[Floats], draw: Draw, *, groups: int, sum_noise: float, records: int = 0, most_records: int = 1
) -> list[FoundBounds]:
    """Return bounds of private columns, each one value a unit. Only `draw` reads the counts.

    `records` is the private number of records that count, at most `most_records` of each unit.
    """
    if not values:
        return []
    counts = [count_cells(column) for column in values]
    counts.append(np.array([records // most_records] if most_records > 1 else [], dtype=np.int64))
    noisy, scale = draw(np.concatenate(counts), squared_sensitivity=2 * len(values) + len(counts[-1]))  # proof: step 6
    *parts, rest = np.split(np.asarray(noisy, dtype=np.float64), np.cumsum([len(part) for part in counts[:-1]]))
    total = float(rest[0]) * most_records if len(rest) else None
    return [choose_bounds(part, cell_noise=scale, groups=groups, sum_noise=sum_noise, records=total) for part in parts]


def count_steps(values: Floats) -> Integers:
    """Return how many values have each of the steps, and how many have none; 0, which has all, is left out."""
    counts = np.zeros(len(STEPS) + 1, dtype=np.int64)
    for start in range(0, len(values), _BATCH):
        batch = values[start : start + _BATCH]
        parts = batch[~np.isnan(batch) & (batch != 0)][:, None] / np.array(STEPS)
        with np.errstate(invalid="ignore"):  # infinite values have no step
            is_multiple = np.abs(parts - np.rint(parts)) <= _ROUNDING * np.maximum(np.abs(parts), 1.0)
        first = np.where(is_multiple.any(axis=1), is_multiple.argmax(axis=1), len(STEPS))
        counts += np.bincount(first, minlength=len(counts))
    return counts


def choose_step(noisy: Floats, *, cell_noise: float) -> float:
    """Return the largest step of which nearly all values are multiples, 0 if there is none or too few values."""
    total = float(noisy.sum())
    for position, step in enumerate(STEPS):
        others = noisy[position + 1 :]
        noise = cell_noise * math.sqrt(len(others))
        if total > _ENOUGH * noise and float(others.sum()) < max(_FEW * total, _LIKELY * noise):
            return step
    return 0.0


def find_steps(
    values: Sequence[Floats], cuts: Sequence[Sequence[float]], draw: Draw
) -> list[tuple[float, tuple[float, ...]]]:
    """Return for private columns, each one value a unit, the step and noisy counts of the cells of declared cuts."""
    counts = [count_steps(column) for column in values]
    for column, ends in zip(values, cuts, strict=True):
        cells = np.searchsorted(np.array(ends), column[~np.isnan(column)], side="right")
        counts.append(np.bincount(cells, minlength=len(ends) + 1).astype(np.int64) if ends else np.zeros(0, np.int64))
    square = 2 * len(values) + 2 * sum(bool(ends) for ends in cuts)
    noisy, scale = draw(np.concatenate(counts), squared_sensitivity=square)  # proof: step 6
    parts = np.split(np.asarray(noisy, dtype=np.float64), np.cumsum([len(part) for part in counts[:-1]]))
    return [
        (choose_step(steps, cell_noise=scale), tuple(cells.tolist()))
        for steps, cells in zip(parts[: len(values)], parts[len(values) :], strict=True)
    ]


def find_cuts(
    values: Sequence[Floats], steps: Sequence[float], draw: Draw, *, units: int
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return cuts of private columns that leave about equally many units between them, and noisy counts of the cells.

    Each column has one value a unit. Cuts of a column with a step are whole where its step is.
    """
    trees = [CutTree(units, is_whole=step >= 1, most_cells=CELLS) for step in steps]
    grow_trees(trees, values, draw)  # proof: step 6
    marginals = [tree.marginal() for tree in trees]
    return [(marginal.cuts, marginal.counts) for marginal in marginals]
