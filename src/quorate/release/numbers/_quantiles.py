"""Quantiles of groups, from noisy numbers of values below points that are chosen one after another.

Each round releases, for each group, how far the number of values below a point is from that below the quantile. The
next points are where the answers so far, of this and of all other groups, say that the quantile is: the first at its
median, then in turn below and above it. Proof: PROOF.md, steps 7 and 8.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from quorate.core.arrays import Floats, Integers
from quorate.core.mechanisms import NoisyVectors
from quorate.release.numbers._estimates import TOO_FEW, Answers
from quorate.release.numbers._layout import CutColumn, Layout

_WEIGHT = 10_000  # of a value; levels are whole numbers of its parts
_SIDES = (0, -1, 1, -1, 1, -1, 1)  # of the quantile, on which the point of each round lies
ROUNDS = len(_SIDES)
_SIDE_CHANCES = {-1: 0.01, 0: 0.5, 1: 0.99}  # that the quantile is below the point of a round
_Z = NormalDist().inv_cdf(1 - 0.025 / _SIDES.count(1))  # for the last one, two or three points of a side: proof: step 8
_PARTS = 16  # into which a cell between cuts is divided
_MOST_COUNTS, _MOST_POINTS = 2**24, 300  # exact counts in memory, and points of a column
_SLOPES = np.array([0.5, 1.0, 2.0, 4.0, 16.0])  # of a group's distribution, by that of all records
_SHIFTS, _SPREADS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0), (0.15, 0.4, 1.0, 2.5)  # of quantiles among the groups
_MISFIT = 0.25  # deviation of this model's numbers, as a share of their distance from the quantile
_CHUNK, _MOST_POOLED = 1024, 4096  # groups that are computed together, and that the model is fitted to


def quantile_share(layout: Layout, targets: int) -> float:
    """Return the share for quantiles of what bounds and cuts leave: a quantile weighs as much as a sum."""
    return targets / (targets + max(layout.sums, 0.5))


def _value_weights(level: float) -> tuple[int, int]:
    """Return the weights of values below and above a point, which cancel out at the quantile."""
    above = min(max(round(level * _WEIGHT), 1), _WEIGHT - 1)
    return _WEIGHT - above, above


def quantile_sensitivity(layout: Layout, levels: Sequence[float]) -> int:
    """Return the squared length by which a replaced unit moves the answers of one round: proof: step 7."""
    squares = sum(below**2 + above**2 for below, above in map(_value_weights, levels))
    return 2 * layout.groups_per_unit * layout.records_per_group**2 * squares


def rank_scale(layout: Layout, levels: Sequence[float], vectors: NoisyVectors, *, fraction: float) -> float:
    """Return the deviation of the number of values below a quantile, from all rounds together."""
    if not levels:
        return 0.0
    square = quantile_sensitivity(layout, levels)
    return vectors.scale(squared_sensitivity=square, fraction=fraction) / _WEIGHT


@dataclass(frozen=True)
class Grid:
    """The points of a column at which values can be counted: rising, public or found with noise."""

    edges: Floats

    @classmethod
    def of(cls, column: CutColumn, parts: int) -> "Grid":
        """Return cuts and bounds with this number of parts between them; without bounds, ever wider cells outside."""
        cuts = np.array(column.cuts or (0.0,) * (column.low is None))
        low, high = ([] if end is None else [end] for end in (column.low, column.high))
        knots = np.unique(np.concatenate([low, cuts, high]))
        inner = np.interp(np.arange((len(knots) - 1) * parts + 1) / parts, np.arange(len(knots)), knots)
        first, last = (knots[1] - knots[0], knots[-1] - knots[-2]) if len(knots) > 1 else (1.0, 1.0)
        steps = 2.0 ** np.arange(parts) - 1
        outside = [knots[0] - first * steps] * (not low), [knots[-1] + last * steps] * (not high)
        return cls(np.unique(np.concatenate([*outside[0], inner, *outside[1]])))

    @property
    def size(self) -> int:
        """The number of cells between and outside of the points."""
        return len(self.edges) + 1

    def values(self, positions: Floats, column: CutColumn) -> Floats:
        """Return the values at positions between 0 and the number of cells."""
        ends = (
            [self.edges[0] if column.low is None else column.low],
            [self.edges[-1] if column.high is None else column.high],
        )
        values = np.interp(positions, np.arange(self.size + 1), np.concatenate([ends[0], self.edges, ends[1]]))
        return np.asarray(values)


def choose_parts(columns: Sequence[CutColumn], groups: int) -> int:
    """Return into how many parts cells are divided, for this public number of groups."""
    cells = sum(column.size for column in columns) * max(groups, 1)
    widest = max((column.size for column in columns), default=1)
    return max(min(_PARTS, _MOST_COUNTS // max(cells, 1), _MOST_POINTS // widest), 2)


@dataclass(frozen=True)
class Probes:
    """For each target and round, the numbers of the points of all groups, and the noisy answers there."""

    points: Integers
    answers: Integers
    scale: float
    parts: int


Targets = Sequence[tuple[CutColumn, float]]


def no_probes() -> Probes:
    """Return the answers of a release without quantiles."""
    empty = np.zeros((0, 0, 0), dtype=np.int64)
    return Probes(empty, empty, 0.0, 1)


def release_probes(
    counts: Mapping[str, Integers],
    targets: Targets,
    sizes: Floats,
    vectors: NoisyVectors,
    *,
    layout: Layout,
    parts: int,
) -> Probes:
    """Release all rounds with all that the vectors have left.

    Parameters
    ----------
    counts
        For each column, the exact numbers of values of all groups in the cells of its grid.
    targets
        Columns and levels.
    sizes
        Noisy numbers of records of the groups.
    vectors
        The budget.
    layout
        How much a unit moves.
    parts
        Into which cells are divided.
    """
    square = quantile_sensitivity(layout, [level for _, level in targets])
    below = {name: np.cumsum(cells, axis=1) for name, cells in counts.items()}
    points = np.zeros((len(targets), ROUNDS, len(sizes)), dtype=np.int64)
    answers, groups, scale = np.zeros_like(points), np.arange(len(sizes)), 0.0
    for turn, side in enumerate(_SIDES):
        exact = np.zeros((len(targets), len(sizes)), dtype=np.int64)
        for target, (column, level) in enumerate(targets):
            past = Probes(points[target, :turn], answers[target, :turn], scale, parts)
            found = _locate(past, Grid.of(column, parts), level, sizes, _SIDE_CHANCES[side])
            numbers, (weight_below, weight_above) = below[column.name], _value_weights(level)
            points[target, turn] = np.clip(np.rint(found) - 1, 0, numbers.shape[1] - 2)
            values_below, values = numbers[groups, points[target, turn]], numbers[:, -1]
            exact[target] = weight_below * values_below - weight_above * (values - values_below)  # proof: step 7
        noisy, scale = vectors.release(exact.ravel(), squared_sensitivity=square, fraction=1 / (ROUNDS - turn))
        answers[:, turn] = noisy.reshape(exact.shape)
    return Probes(points, answers, scale, parts)


def _locate(past: Probes, grid: Grid, level: float, sizes: Floats, chance: float) -> Floats:
    """Return where the quantile of each group is below with this probability, as a number of cells."""
    pooled = np.concatenate([*_likelihoods(past, grid, level, sizes[:_MOST_POOLED])])
    cells = (np.arange(grid.size) + 0.5) / grid.size
    models = np.array(
        [
            softmax(-((logit(cells) - logit(level) - shift) ** 2) / (2 * spread**2) - np.log(cells * (1 - cells)))
            for shift in _SHIFTS
            for spread in _SPREADS
        ]
    )
    scores = np.log(pooled @ models.T + 1e-300).sum(axis=0)
    prior = softmax(scores) @ models
    positions = []
    for likelihoods in _likelihoods(past, grid, level, sizes):
        mass = np.cumsum(likelihoods * prior + 1e-300, axis=1)
        mass /= mass[:, -1:]
        cell = np.minimum((mass < chance).sum(axis=1), grid.size - 1)
        rows = np.arange(len(mass))
        mass_below = np.where(cell > 0, mass[rows, cell - 1], 0.0)
        positions.append(cell + (chance - mass_below) / (mass[rows, cell] - mass_below))
    return np.concatenate(positions)


def _likelihoods(past: Probes, grid: Grid, level: float, sizes: Floats) -> Iterator[Floats]:
    """Yield for a few groups at a time how likely their answers are if the quantile is in each cell, up to a factor.

    The logit of a group's distribution is taken to be a line in that of all records.
    """
    cells = logit((np.arange(grid.size) + 0.5) / grid.size)
    for start in range(0, max(len(sizes), 1), _CHUNK):
        numbers = np.maximum(sizes[start : start + _CHUNK], 1.0)[:, None, None]
        logs = np.zeros((len(numbers), len(_SLOPES), grid.size))
        for points, answers in zip(past.points, past.answers, strict=True):
            logits = logit((points[start : start + _CHUNK] + 1) / grid.size)[:, None, None]
            below = expit(logit(level) + _SLOPES[:, None] * (logits - cells))
            expected = numbers * (below - level)
            variance = (past.scale / _WEIGHT) ** 2 + (_MISFIT * expected) ** 2
            distance = answers[start : start + _CHUNK, None, None] / _WEIGHT - expected
            logs -= distance**2 / (2 * variance) + np.log(variance) / 2
        logs -= logs.max(axis=(1, 2), keepdims=True)
        yield np.exp(logs).sum(axis=1)


def quantile_answers(probes: Probes, column: CutColumn, level: float, sizes: Floats) -> Answers:
    """Return a quantile of a column in each group, from the answers of one target.

    The interval has a point, or a bound, at both ends. From each side it moves inwards over points of that side while
    the sum of the answers there and further in is clearly on the wrong side of 0: proof: step 8.
    """
    grid = Grid.of(column, probes.parts)
    estimates = grid.values(_locate(probes, grid, level, sizes, 0.5), column)
    low, has_low = _clear_points(probes, side=-1)
    high, has_high = _clear_points(probes, side=1)
    is_crossed = has_low & has_high & (low >= high)
    has_low, has_high = has_low & ~is_crossed, has_high & ~is_crossed
    lows = np.where(has_low, grid.edges[low], np.nan if column.low is None else column.low)
    highs = np.where(has_high, grid.edges[high], np.nan if column.high is None else column.high)
    is_unknown = ~has_low & ~has_high
    answers = np.where(is_unknown, np.nan, np.fmin(np.fmax(estimates, lows), highs))
    return Answers(answers, lows, highs, [TOO_FEW if unknown else "" for unknown in is_unknown.tolist()])


def _clear_points(probes: Probes, *, side: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the innermost point of each group that is clearly on this side of the quantile, and whether it has one."""
    turns = [turn for turn, of in enumerate(_SIDES) if of == side]
    points, answers = -side * probes.points[turns], side * probes.answers[turns]  # as on the left side, but for signs
    order = np.argsort(points, axis=0, kind="stable")
    points, answers = np.take_along_axis(points, order, axis=0), np.take_along_axis(answers, order, axis=0)
    sums = np.cumsum(answers[::-1], axis=0)[::-1]  # of this point and of those further in
    lengths = np.sqrt(np.arange(len(turns), 0, -1))[:, None]
    is_clear = np.cumprod(sums > _Z * probes.scale * lengths, axis=0).astype(np.bool_)
    clear = is_clear.sum(axis=0)
    last = np.take_along_axis(points, np.maximum(clear - 1, 0)[None], axis=0)[0]
    return np.asarray(-side * last), clear > 0
