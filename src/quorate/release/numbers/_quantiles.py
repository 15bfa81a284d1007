"""Quantiles of groups, from noisy numbers of values below points that are chosen round by round.

Each round releases, for each group, how far the numbers of values below a few points are from that below the quantile.
A strategy matrix mixes the points, so that their mean has as little noise as a single point would have. The next points
are where the answers so far, of this and of all other groups, say that the quantile is. Proof: PROOF.md, steps 7 and 8.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import release_counts
from quorate.core.mechanisms import NoisyVectors
from quorate.release.domain import SealedCounts
from quorate.release.numbers._estimates import TOO_FEW, Answers, Z
from quorate.release.numbers._layout import CutColumn, Layout

_WEIGHT = 10_000  # of a value; levels are whole numbers of its parts
_MATRIX_UNIT = 64  # the largest entry of a strategy matrix
_STEPS = 30  # of the iteration that finds a strategy
_ROUND_SHARES = (0.04, 0.16, 0.8)  # of the budget of quantiles
ROUNDS = len(_ROUND_SHARES)
_SIDE = (0.5, 1.3, 3.0, 12.0)  # distances of points from the expected quantile, in deviations; the last for gaps
_DEVIATIONS = np.array([-distance for distance in reversed(_SIDE)] + list(_SIDE))
POINTS = len(_DEVIATIONS)
_EXPECTED_WIDTH = 3.0  # half the width of an interval in deviations of a point's noise, by simulation
_SLOPES = np.array([0.35, 0.7, 1.4, 2.8, 8.0])  # of a group's distribution, by that of all records
_SHIFTS, _SPREADS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0), (0.15, 0.4, 1.0, 2.5)  # of quantiles among the groups
_MISFIT = 0.12  # deviation of this model's numbers, as a share of their distance from the quantile
_WIDEST = 2.5  # deviation of a group's quantile before anything is known, as a logit of shares
_COARSE, _FINE = np.linspace(-8.0, 8.0, 13), np.linspace(-4.0, 4.0, 25)  # candidates: logits, and deviations
_ZOOMS = 5  # how often candidates are placed anew after a round
_CHUNK, _MOST_POOLED = 512, 4096  # groups that are computed together, and that the model is fitted to
_TAIL_KNOTS, _LEAST_MASS = 24, 0.05  # knots beyond the last cut, and the share of all records that lies evenly on cells


def quantile_share(layout: Layout, targets: int) -> float:
    """Return the share for quantiles of what bounds and cuts leave: a quantile weighs as much as a sum."""
    return targets / (targets + max(layout.sums, 0.5))


@dataclass(frozen=True)
class Strategy:
    """How the numbers of values below the points of a round are mixed before noise is added.

    A value below a point adds `below` to its number, another one takes `above` from it; the level is where they cancel.
    `matrix` mixes the numbers of all points. What p values of a group add, less what q others do, has a squared length
    of at most `square` times p^2 + q^2.
    """

    below: int
    above: int
    matrix: Integers
    inverse: Floats
    square: int

    @classmethod
    def of(cls, level: float) -> "Strategy":
        """Return the strategy for quantiles at this level."""
        return _find_strategy(level)

    def numbers(self, counts: Integers) -> Integers:
        """Return the mixed numbers of groups from exact counts of values between their points: proof: step 7."""
        below = np.cumsum(counts, axis=-1)
        numbers = self.below * below[..., :-1] - self.above * (below[..., -1:] - below[..., :-1])
        return np.asarray(numbers @ self.matrix.T)

    @property
    def mean_deviation(self) -> float:
        """The deviation of the noise of the mean number of all points, in units of the noise of an entry."""
        return float(np.sqrt((self.inverse.mean(axis=0) ** 2).sum()))

    @property
    def point_deviations(self) -> Floats:
        """The deviation of the noise of each point's number, in units of the noise of an entry."""
        return np.asarray(np.sqrt((self.inverse**2).sum(axis=1)))


@lru_cache(maxsize=256)
def _find_strategy(level: float) -> Strategy:
    """Return a strategy of nearly the least noise at all points, found by reweighing cells as for an optimal design."""
    above = min(max(round(level * _WEIGHT), 1), _WEIGHT - 1)
    below = _WEIGHT - above
    cells = np.where(np.arange(POINTS) >= np.arange(POINTS + 1)[:, None], below, -above)  # what a value in a cell adds
    steps, top = cells / _WEIGHT, (below**2 + above**2) / _WEIGHT**2
    means = steps.mean(axis=1)
    limits = top - (means * np.where(means < 0, below / above, above / below)) ** 2
    weights = np.full(POINTS + 1, 1 / (POINTS + 1))
    for _ in range(_STEPS):
        values, vectors = np.linalg.eigh((steps.T * (weights / limits)) @ steps)
        precision = (vectors / np.sqrt(values)) @ vectors.T
        weights *= np.einsum("ij,jk,ik->i", steps, precision, steps) / limits
        weights /= weights.sum()
    values, vectors = np.linalg.eigh(precision)
    root = (vectors * np.sqrt(values)) @ vectors.T
    matrix = np.rint(root / np.abs(root).max() * _MATRIX_UNIT).astype(np.int64)
    columns = (cells @ matrix.T).tolist()
    square = max(_pair_square(first, second) for first in columns for second in columns)
    return Strategy(below, above, matrix, np.linalg.inv(matrix.astype(np.float64)), square)


def _pair_square(first: Sequence[int], second: Sequence[int]) -> int:
    """Return an upper bound of |p first - q second|^2 / (p^2 + q^2) for all p and q that are not negative."""
    squares = [sum(entry * entry for entry in column) for column in (first, second)]
    product = min(sum(map(int.__mul__, first, second)), 0)
    return (sum(squares) + math.isqrt((squares[0] - squares[1]) ** 2 + 4 * product**2) + 2) // 2  # proof: step 7


def quantile_sensitivity(layout: Layout, levels: Sequence[float]) -> int:
    """Return the squared length by which a replaced unit moves the answers of one round: proof: step 7."""
    squares = sum(Strategy.of(level).square for level in levels)
    return 2 * layout.groups_per_unit * layout.records_per_group**2 * squares


def rank_scale(layout: Layout, levels: Sequence[float], vectors: NoisyVectors, *, fraction: float) -> float:
    """Return half the expected width of an interval in ranks, in units of 1.96, for the widest of the levels."""
    if not levels:
        return 0.0
    square = quantile_sensitivity(layout, levels)
    scale = vectors.scale(squared_sensitivity=square, fraction=fraction * _ROUND_SHARES[-1]) / _WEIGHT
    return float(scale * _EXPECTED_WIDTH / Z * max(Strategy.of(level).point_deviations.min() for level in levels))


class Shares:
    """The rising function from values to the share of all records below, as far as cuts and noisy counts tell it."""

    def __init__(self, column: CutColumn) -> None:
        self.column = column
        cuts = np.array(column.cuts or (0.0,) * (column.low is None))
        masses = np.array(column.counts if column.cuts and column.counts else (1.0,) * (len(cuts) + 1))
        masses = np.maximum(masses, 0.0) + 1e-9
        below = np.cumsum((1 - _LEAST_MASS) * masses / masses.sum() + _LEAST_MASS / len(masses))[:-1]
        powers, widths = 2.0 ** np.arange(1, _TAIL_KNOTS), np.diff(cuts) if len(cuts) > 1 else np.ones(1)
        knots, shares = [cuts], [below]
        for end, share, side in ((column.low, 0.0, 0), (column.high, 1.0, -1)):
            is_open = end is None
            tail = cuts[side] + (2 * share - 1) * widths[side] * (powers - 1) if is_open else np.full(1, end)
            knots.append(tail)
            shares.append(share + (below[side] - share) / powers if is_open else np.full(1, share))
        self._knots, first_of = np.unique(np.concatenate(knots), return_index=True)
        self._shares = np.clip(np.concatenate(shares)[first_of], 1e-9, 1 - 1e-9)

    def logits(self, values: Floats) -> Floats:
        """Return the logit of the share of records below values."""
        return np.asarray(logit(np.interp(values, self._knots, self._shares)))

    def values(self, logits: Floats) -> Floats:
        """Return the values at logits of shares."""
        return np.asarray(np.interp(expit(logits), self._shares, self._knots))

    def points(self, logits: Floats) -> Floats:
        """Return the points of groups, a row each: multiples of the step of a column that has one, rounded outwards."""
        lower, upper = np.split(logits, 2, axis=1)
        return np.concatenate([self.quantiles(lower), -self._multiples(-self.values(upper))], axis=1)

    def quantiles(self, logits: Floats) -> Floats:
        """Return the values that quantiles at these logits take: multiples of the step of a column that has one."""
        return self._multiples(self.values(logits))

    def _multiples(self, values: Floats) -> Floats:
        step = self.column.step
        return np.floor(values / step + 1e-9) * step if step else values


@dataclass(frozen=True)
class Probes:
    """For each target and round, the points of all groups, and the noisy numbers there; the scale of each round."""

    points: Floats
    answers: Integers
    scales: tuple[float, ...]

    def of_target(self, target: int) -> "Probes":
        """Return the points and numbers of one target."""
        return replace(self, points=self.points[target], answers=self.answers[target])

    def part(self, rounds: slice, groups: slice) -> "Probes":
        """Return some rounds of some groups of one target."""
        points, answers = self.points[rounds, :, groups], self.answers[rounds, :, groups]
        return Probes(points, answers, self.scales[rounds])


Targets = Sequence[tuple[CutColumn, float]]
CountValues = Callable[[Sequence[tuple[str, Floats]]], SealedCounts]  # between the points of groups, by target


def empty_probes(targets: int = 0, groups: int = 0) -> Probes:
    """Return answers of which nothing is released."""
    shape = (targets, ROUNDS * (targets > 0), POINTS, groups)
    return Probes(np.zeros(shape), np.zeros(shape, dtype=np.int64), ())


def release_probes(
    count_values: CountValues, targets: Targets, sizes: Floats, vectors: NoisyVectors, *, layout: Layout
) -> Probes:
    """Release all rounds with all that the vectors have left.

    Parameters
    ----------
    count_values
        The function from the columns and points of targets to sealed counts of values between the points of groups.
    targets
        Columns and levels.
    sizes
        Noisy numbers of records of the groups.
    vectors
        The budget.
    layout
        How much a unit moves.
    """
    square, shares = quantile_sensitivity(layout, [level for _, level in targets]), [Shares(of) for of, _ in targets]
    probes, left = empty_probes(len(targets), len(sizes)), 1.0
    for turn, share in enumerate(_ROUND_SHARES):
        for target, (_, level) in enumerate(targets):
            past = probes.of_target(target).part(slice(turn), slice(None))
            scale = vectors.scale(squared_sensitivity=square, fraction=min(share / left, 1.0))
            noise = scale * Strategy.of(level).mean_deviation / _WEIGHT
            beliefs = _locate(past, shares[target], level, sizes)
            points = shares[target].points(beliefs.points(noise, level, sizes, is_first=turn == 0))
            probes.points[target, turn] = points.T
        counts = count_values(
            [(column.name, probes.points[target, turn].T) for target, (column, _) in enumerate(targets)]
        )
        settings: dict[str, Any] = {"squared_sensitivity": square, "fraction": min(share / left, 1.0)}
        noisy, scale = release_counts(counts, partial(_release_round, targets=targets, vectors=vectors, **settings))
        left -= share
        probes.answers[:, turn] = np.moveaxis(noisy.reshape(len(targets), len(sizes), POINTS), 2, 1)
        probes = replace(probes, scales=(*probes.scales, scale))
    return probes


def _release_round(
    counts: Integers, *, targets: Targets, vectors: NoisyVectors, **settings: Any
) -> tuple[Integers, float]:
    """Return the noisy numbers of all points, one vector of all targets and groups, and their scale: proof: step 7."""
    parts = [Strategy.of(level).numbers(own) for own, (_, level) in zip(counts, targets, strict=True)]
    return vectors.release(np.stack(parts).ravel(), **settings)


@dataclass(frozen=True)
class _Beliefs:
    """What is believed of the quantile of each group, as a logit of the share of all records below it."""

    medians: Floats
    means: Floats
    deviations: Floats
    slopes: Floats

    def points(self, noise: float, level: float, sizes: Floats, *, is_first: bool) -> Floats:
        """Return the logits of the next points: by what is believed, and by what the noise of a round can tell."""
        ranks = noise / np.maximum(sizes, 1.0)  # as a share of the group
        reach = np.minimum(ranks / (level * (1 - level)) / self.slopes, _WIDEST) * (not is_first)
        return np.asarray(self.means[:, None] + _DEVIATIONS * np.hypot(self.deviations, reach)[:, None])


def _locate(past: Probes, shares: Shares, level: float, sizes: Floats) -> _Beliefs:
    """Return what the rounds so far say of the quantile of each group.

    The logit of a group's distribution is taken to be a line in that of all records. Candidates for the quantile are
    placed anew around what is believed until they are as close as the noise requires.
    """
    means, deviations = np.full(len(sizes), logit(level)), np.full(len(sizes), _WIDEST)
    for _ in range(_ZOOMS):
        candidates = np.sort(
            np.concatenate(
                [np.tile(_COARSE, (len(sizes), 1)), means[:, None] + _FINE * deviations[:, None]],
                axis=1,
            ),
            axis=1,
        )
        widths = np.gradient(candidates, axis=1)
        likelihoods = np.concatenate([*_likelihoods(past, shares, level, sizes, candidates)])
        prior = _fit_prior(likelihoods.sum(axis=1) * widths, candidates, level)
        joint = likelihoods * (prior * widths)[:, None, :] + 1e-300
        joint /= joint.sum(axis=(1, 2), keepdims=True)
        mass = joint.sum(axis=1)
        means = (mass * candidates).sum(axis=1)
        spreads = np.sqrt((mass * (candidates - means[:, None]) ** 2).sum(axis=1))
        rows, nearest = np.arange(len(sizes)), np.abs(candidates - means[:, None]).argmin(axis=1)
        deviations = np.maximum(spreads, widths[rows, nearest] / 2)  # never closer than candidates can tell
    return _Beliefs(
        _weighted_median(candidates, widths, mass), means, spreads, np.exp(joint.sum(axis=2) @ np.log(_SLOPES))
    )


def _weighted_median(candidates: Floats, widths: Floats, mass: Floats) -> Floats:
    """Return the median of each row of candidates, whose mass lies evenly on their widths."""
    below, rows = np.cumsum(mass, axis=1), np.arange(len(mass))
    middle = np.minimum((below < 0.5).sum(axis=1), mass.shape[1] - 1)
    own = mass[rows, middle]
    share = (0.5 - (below[rows, middle] - own)) / np.maximum(own, 1e-300)
    return np.asarray(candidates[rows, middle] + widths[rows, middle] * (share - 0.5))


def _fit_prior(evidence: Floats, candidates: Floats, level: float) -> Floats:
    """Return the density of candidates: a mixture of normal laws that the evidence of all groups together chooses."""
    models = [(logit(level) + shift, spread) for shift in _SHIFTS for spread in _SPREADS]
    pooled, placed = evidence[:_MOST_POOLED], candidates[:_MOST_POOLED]
    scores = np.array(
        [np.log((pooled * _normal_density(placed, *model)).sum(axis=1) + 1e-300).sum() for model in models]
    )
    chances = np.exp(scores - scores.max())
    return np.asarray(
        sum(
            chance * _normal_density(candidates, *model)
            for chance, model in zip(chances / chances.sum(), models, strict=True)
            if chance > 1e-9
        )
    )


def _normal_density(points: Floats, middle: float, spread: float) -> Floats:
    return np.asarray(np.exp(-(((points - middle) / spread) ** 2) / 2) / spread)


def _likelihoods(past: Probes, shares: Shares, level: float, sizes: Floats, candidates: Floats) -> Iterator[Floats]:
    """Yield for a few groups at a time how likely their answers are, by slope and candidate, up to a factor."""
    strategy = Strategy.of(level)
    mix = strategy.matrix.T * float(_WEIGHT)
    for start in range(0, max(len(sizes), 1), _CHUNK):
        groups = slice(start, start + _CHUNK)
        places, numbers = candidates[groups], np.maximum(sizes[groups], 1.0)[:, None, None, None]
        logs = np.zeros((len(places), len(_SLOPES), places.shape[1]))
        recent = past.part(slice(None), groups)
        for points, answers, scale in zip(recent.points, recent.answers, past.scales, strict=True):
            distances = shares.logits(points).T[:, None, None, :] - places[:, None, :, None]
            expected = numbers * (expit(logit(level) + _SLOPES[:, None, None] * distances) - level)
            variance = scale**2 + (_MISFIT * expected) ** 2 @ mix**2
            errors = answers.T[:, None, None, :] - expected @ mix
            logs -= (errors**2 / (2 * variance) + np.log(variance) / 2).sum(axis=-1)
        logs -= logs.max(axis=(1, 2), keepdims=True, initial=-np.inf)
        yield np.exp(logs)


def quantile_answers(probes: Probes, column: CutColumn, level: float, sizes: Floats) -> Answers:
    """Return a quantile of a column in each group, from the answers of one target.

    The interval has a point of the last round, or a bound, at both ends. From each side it moves inwards over points
    while the number at each is clearly on the wrong side of 0: proof: step 8.
    """
    shares = Shares(column)
    estimates = shares.quantiles(_locate(probes, shares, level, sizes).medians)
    strategy = Strategy.of(level)
    numbers = strategy.inverse @ probes.answers[-1]
    limits = Z * probes.scales[-1] * strategy.point_deviations[:, None]
    low, has_low = _innermost(probes.points[-1], numbers < -limits)
    high, has_high = _innermost(probes.points[-1][::-1], (numbers > limits)[::-1])
    is_crossed = has_low & has_high & (low >= high)
    has_low, has_high = has_low & ~is_crossed, has_high & ~is_crossed
    ends = [np.nan if end is None else end for end in (column.low, column.high)]
    lows, highs = (
        np.fmin(np.fmax(end, ends[0]), ends[1])
        for end in (np.where(has_low, low, ends[0]), np.where(has_high, high, ends[1]))
    )
    is_unknown = ~has_low & ~has_high
    answers = np.where(is_unknown, np.nan, np.fmin(np.fmax(estimates, lows), highs))
    return Answers(answers, lows, highs, [TOO_FEW if unknown else "" for unknown in is_unknown.tolist()])


def _innermost(points: Floats, is_clear: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the last point of each group before one that is not clear, and whether there is one."""
    clear = np.cumprod(is_clear, axis=0).sum(axis=0)
    last = np.take_along_axis(points, np.maximum(clear - 1, 0)[None], axis=0)[0]
    return np.asarray(last), np.asarray(clear > 0)
