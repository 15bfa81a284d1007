"""A mixture of products fitted to noisy marginals, by the likelihood of the noise and a penalty.

The penalty is on what the components know beyond the columns one by one. How strong it is to be is found by splitting
the noise: tables y with noise of deviation e, and z drawn like that noise, give y + z / 2 and y - 2 z, whose noise is
independent. What is fitted to the first is held against the second. All of it is post-processing.

Pairs are compared with a mixture as one matrix of all codes by all codes. Tables of three columns and more are compared
in groups: all that differ in their last two columns alone are one matrix, since few large products are faster.

A penalty that suits all cells of a pair makes columns that rise together come apart. So the covariance of the ranks of
the codes of two columns, one number, counts for as much as several cells: it is followed where the noise lets it.

Pairs of columns of a fitted table are taken back towards independence as far as they may be noise, since one penalty
for all pairs lets noise into those that are not tied (block shrinkage: James and Stein 1961, Cai 1999).
"""

import itertools
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.release.engines._components import NoisyTables
from quorate.release.engines._mixture import Mixture, pairwise
from quorate.release.engines.base import descend
from quorate.release.queries.marginals import Clique

_MOST_MOVED = 1.0 / 3.0  # of the furthest that noise moves a cell of a pair: no cell is moved more
_STANDS_OUT, _MOST_WEIGHT = 2.5, 10.0  # deviations of an answer; the factor of its weight
_COMPONENTS = 100
_SPREAD = 0.3  # of the components at the start, in logits of an even column
_FIRST_PENALTY, _STRONGER, _MOST_STEPS = 8.0, 2.0, 20  # the ladder of penalties
_APART = 0.5  # of the noise that is added to the half that is fitted; the other half has its inverse
_START_STEPS, _LADDER_STEPS, _CHECK_STEPS = 150, 60, 50  # of the descent
_STAGES, _WORTHWHILE = 30, 0.985  # of a descent that is not yet within the noise; what makes one more worth it
_ARRIVED = 1.5  # of the misfit of one half: above it, the descent of the other was too short
_CHECKS = 3  # times that cells which stand out get more weight
_RANK_WEIGHT = (
    8.0  # of the ranks of two columns, in cells of their table: that they rise together is not penalised away
)
_FEWEST_RANKS = 4  # codes of a column: with fewer, ranks are nearly all that there is
_LEAST_SHARE = 1e-3  # below it a code's logit is not scaled further


@dataclass(frozen=True)
class _Group:
    """Tables of the same first columns: codes of the first by those of the last but one, and by those of the last."""

    first: Clique
    middle: Integers
    last: Integers
    slices: dict[Clique, tuple[slice, slice, slice]]
    target: Floats
    weight: Floats


class Misfit:
    """The squared distance of a mixture from noisy tables in units of their noise, and its slope."""

    def __init__(self, sizes: Sequence[int], noisy: NoisyTables) -> None:
        self.sizes = tuple(sizes)
        ends = np.cumsum([0, *sizes])
        self.blocks = [slice(int(start), int(end)) for start, end in itertools.pairwise(ends)]
        self.codes = int(ends[-1])
        self.one, self.one_weight = np.zeros(self.codes), np.zeros(self.codes)
        self.two = np.zeros((self.codes, self.codes))
        self.two_weight = np.zeros((self.codes, self.codes))
        self.cells = sum(len(table) for table, _ in noisy.values())
        larger: dict[Clique, list[Clique]] = {}
        for clique, (table, deviation) in noisy.items():
            where = tuple(self.blocks[column] for column in clique)
            if len(clique) == 1:
                self.one[where], self.one_weight[where] = table, deviation**-2.0
            elif len(clique) == 2:
                shape = [self.sizes[column] for column in clique]
                self.two[where], self.two_weight[where] = table.reshape(shape), deviation**-2.0
            else:
                larger.setdefault(clique[:-2], []).append(clique)
        self.groups = [self._group(first, cliques, noisy) for first, cliques in larger.items()]
        self._ranks, self._rank_weight = self._rank_pairs(noisy)

    def _rank_pairs(self, noisy: NoisyTables) -> tuple[Floats, Floats]:
        """Return the ranks of the codes of each column, as a vector of length 1, and the weight of each pair."""
        sums = np.maximum(self.two.sum(axis=0) + self.two.sum(axis=1) + self.one, 0.0)
        ranks, weight = np.zeros((self.codes, len(self.sizes))), np.zeros((len(self.sizes),) * 2)
        for column, block in enumerate(self.blocks):
            shares = sums[block] / max(float(sums[block].sum()), 1e-300)
            centred = np.cumsum(shares) - shares / 2.0
            centred -= centred.mean()
            ranks[block, column] = centred / max(float(np.linalg.norm(centred)), 1e-300)
        for clique, (_, deviation) in noisy.items():
            if len(clique) == 2 and min(self.sizes[column] for column in clique) >= _FEWEST_RANKS:
                weight[clique] = _RANK_WEIGHT * deviation**-2.0
        return ranks, weight

    def _group(self, first: Clique, cliques: list[Clique], noisy: NoisyTables) -> _Group:
        middle, last = (
            {column: slice(0) for column in sorted({clique[end] for clique in cliques})} for end in (-2, -1)
        )
        for slices in (middle, last):
            upto = 0
            for column in slices:
                slices[column] = slice(upto, upto := upto + self.sizes[column])
        codes = [np.concatenate([np.r_[self.blocks[column]] for column in slices]) for slices in (middle, last)]
        target = np.zeros((math.prod(self.sizes[column] for column in first), len(codes[0]), len(codes[1])))
        weight = np.zeros_like(target)
        indices = {clique: (slice(None), middle[clique[-2]], last[clique[-1]]) for clique in cliques}
        for clique, index in indices.items():
            table, deviation = noisy[clique]
            target[index], weight[index] = table.reshape(target[index].shape), deviation**-2.0
        return _Group(first, codes[0], codes[1], indices, target, weight)

    def emphasised(self, checked: NoisyTables, fitted: Callable[[Clique], Floats]) -> "Misfit":
        """Return the same with more weight on cells where a fit differs from the best estimate beyond the noise."""
        heavier = copy(self)
        heavier.one, heavier.one_weight = self.one.copy(), self.one_weight.copy()
        heavier.two_weight = self.two_weight.copy()
        heavier.groups = [replace(group, weight=group.weight.copy()) for group in self.groups]
        weights = {clique: group.weight[index] for group in heavier.groups for clique, index in group.slices.items()}
        for clique, (table, deviation) in checked.items():
            off = np.abs(fitted(clique) - table) / max(deviation, 1e-12)
            factor = np.clip((off / _STANDS_OUT) ** 2, 1.0, _MOST_WEIGHT)
            where = tuple(self.blocks[column] for column in clique)
            if len(clique) == 1:
                added = np.where(off > _STANDS_OUT, factor / max(deviation, 1e-12) ** 2, 0.0)
                total = heavier.one_weight[where] + added
                mean = heavier.one[where] * heavier.one_weight[where] + table * added
                heavier.one[where] = np.where(total > 0, mean / np.maximum(total, 1e-300), 0.0)
                heavier.one_weight[where] = total
            elif len(clique) == 2:
                heavier.two_weight[where] *= factor.reshape(heavier.two_weight[where].shape)
            elif clique in weights:
                weights[clique] *= factor.reshape(weights[clique].shape)  # a view: the group's own
        return heavier

    def slope(self, weights: Floats, shares: Floats) -> tuple[float, Floats, Floats]:
        """Return half the misfit, its slope by the shares over the weight of their component, and by the weights."""
        owned = weights[:, None] * shares
        off_one, off_two = owned.sum(axis=0) - self.one, owned.T @ shares - self.two
        pull_one, pull_two = self.one_weight * off_one, self.two_weight * off_two
        by_ranks = self._ranks.T @ off_two @ self._ranks
        value = float(pull_one @ off_one) + float(np.vdot(pull_two, off_two))
        value += float(np.vdot(self._rank_weight * by_ranks, by_ranks))
        pull_two = pull_two + self._ranks @ (self._rank_weight * by_ranks) @ self._ranks.T
        by_pairs = shares @ (pull_two + pull_two.T)
        by_shares = by_pairs + pull_one
        by_weights = 0.5 * (shares * by_pairs).sum(axis=1) + shares @ pull_one
        for group in self.groups:
            value += self._larger(group, weights, shares, by_shares, by_weights)
        return 0.5 * value, by_shares, by_weights

    def _larger(self, group: _Group, weights: Floats, shares: Floats, by_shares: Floats, by_weights: Floats) -> float:
        """Add the slopes of a group of tables, and return their misfit."""
        firsts = [shares[:, self.blocks[column]] for column in group.first]
        middle, last = shares[:, group.middle], shares[:, group.last]
        products = list(itertools.accumulate(firsts, pairwise))
        product = pairwise(products[-1], middle)
        target, weight = (table.reshape(product.shape[1], -1) for table in (group.target, group.weight))
        off = (weights[:, None] * product).T @ last - target
        pull = weight * off
        by_last = product @ pull
        by_shares[:, group.last] += by_last
        by_weights += (by_last * last).sum(axis=1)
        cube = (last @ pull.T).reshape(len(weights), -1, middle.shape[1])
        by_shares[:, group.middle] += (products[-1][:, None, :] @ cube)[:, 0]
        back = (cube @ middle[:, :, None])[:, :, 0]
        for index in range(len(firsts) - 1, 0, -1):
            cube = back.reshape(len(weights), -1, firsts[index].shape[1])
            by_shares[:, self.blocks[group.first[index]]] += np.einsum("kij,ki->kj", cube, products[index - 1])
            back = np.einsum("kij,kj->ki", cube, firsts[index])
        by_shares[:, self.blocks[group.first[0]]] += back
        return float(np.vdot(pull, off))


@dataclass(frozen=True)
class MixtureFit:
    """A mixture fitted to noisy tables, with the state from which another fit continues."""

    mixture: Mixture
    misfit: float  # the mean square of the differences in units of the noise
    point: Floats
    penalty: float
    measure: Misfit
    base: Floats  # logarithms of the shares of each column by itself
    half: "MixtureFit | None" = None  # the one of this penalty to tables with more noise, by which it was chosen


def fit_mixture(
    sizes: Sequence[int],
    noisy: NoisyTables,
    estimate: Callable[[NoisyTables], NoisyTables],
    *,
    emphasis: bool = True,
) -> MixtureFit:
    """Return the mixture that is expected to be nearest to the tables behind noisy ones.

    `estimate` returns the best estimate of each column, and of whatever must not stand out, from noisy tables. With
    `emphasis` cells that stand out get more weight, which makes the largest error smaller and the mean one larger.
    """
    fitted, held_out = split_noise(noisy)
    fit = _ladder(_settle(_begin(sizes, Misfit(sizes, fitted), estimate(fitted))), Misfit(sizes, held_out))
    return fit_again(replace(fit, half=fit), noisy, estimate, emphasis=emphasis)


def fit_other_half(half: MixtureFit, noisy: NoisyTables, estimate: Callable[[NoisyTables], NoisyTables]) -> Mixture:
    """Return the fit to noisy tables less what the tables of a half have more of noise: it differs from the half by as
    much as the noise moves a fit.

    It is made anew, as the half was. Where that is still far from its tables, it begins at the half.
    """
    fitted, _ = split_noise(noisy)
    other = {clique: (2.0 * table - fitted[clique][0], fitted[clique][1]) for clique, (table, _) in noisy.items()}
    sizes = half.mixture.sizes
    fit = _begin(sizes, Misfit(sizes, other), estimate(other), half.penalty)
    if fit.misfit > _ARRIVED * half.misfit:
        fit = fit_again(half, other, estimate, emphasis=False)
    return fit.mixture


def fit_again(
    fit: MixtureFit,
    noisy: NoisyTables,
    estimate: Callable[[NoisyTables], NoisyTables],
    *,
    emphasis: bool = True,
    steps: int = _LADDER_STEPS,
) -> MixtureFit:
    """Return the fit of the same penalty to the full noise, or to other noise, starting at this fit."""
    checked = estimate(noisy)
    measure = Misfit(fit.mixture.sizes, noisy)
    fit = _descend(replace(_rebase(fit, _logarithms(measure, checked)), measure=measure), fit.penalty, steps)
    for _ in range(_CHECKS if emphasis else 0):
        emphasised = fit.measure.emphasised(checked, fit.mixture.table)
        fit = replace(_descend(replace(fit, measure=emphasised), fit.penalty, _CHECK_STEPS), misfit=fit.misfit)
    return fit


def split_noise(noisy: NoisyTables) -> tuple[NoisyTables, NoisyTables]:
    """Return two copies of noisy tables whose noise is independent, the first with less of it."""
    generator = np.random.default_rng(2)
    fitted: dict[Clique, tuple[Floats, float]] = {}
    held_out: dict[Clique, tuple[Floats, float]] = {}
    for clique, (table, deviation) in noisy.items():
        extra = deviation * generator.normal(size=len(table))
        fitted[clique] = table + _APART * extra, deviation * math.hypot(1.0, _APART)
        held_out[clique] = table - extra / _APART, deviation * math.hypot(1.0, 1.0 / _APART)
    return fitted, held_out


def _logarithms(measure: Misfit, checked: NoisyTables) -> Floats:
    """Return the logarithms of the shares of each column by itself."""
    base = np.empty(measure.codes)
    for column, block in enumerate(measure.blocks):
        size = measure.sizes[column]
        table, deviation = checked.get((column,), (np.full(size, 1.0 / size), 0.0))
        shares = np.clip(table, max(0.1 * deviation, 1e-6), None)
        base[block] = np.log(shares / shares.sum())
    return base


def _begin(sizes: Sequence[int], measure: Misfit, checked: NoisyTables, penalty: float = _FIRST_PENALTY) -> MixtureFit:
    base = _logarithms(measure, checked)
    enough = math.prod(sizes) // max(sizes)  # one component for each choice of the other columns represents any table
    components = min(_COMPONENTS, 2 * enough)  # twice as many, since a descent leaves some components unused
    spread = _SPREAD * np.random.default_rng(0).normal(size=(components, measure.codes)) / _scale(base)
    point = np.concatenate([spread.ravel(), np.zeros(components)])
    start = MixtureFit(Mixture(tuple(sizes), np.ones(1), np.exp(base)[None, :]), math.inf, point, 0.0, measure, base)
    return _descend(start, penalty, _START_STEPS)


def _settle(fit: MixtureFit) -> MixtureFit:
    """Return the fit after more steps, while its misfit exceeds the noise and the steps help."""
    for _ in range(_STAGES):
        if fit.misfit <= 1.0:
            break
        previous, fit = fit, _descend(fit, fit.penalty, _START_STEPS)
        if fit.misfit > _WORTHWHILE * previous.misfit:
            break
    return fit


def _rebase(fit: MixtureFit, base: Floats) -> MixtureFit:
    """Return the same mixture, relative to other shares of the columns."""
    beyond, weights = _parts(fit.point, len(base))
    logits = fit.base + beyond * _scale(fit.base)
    point = np.concatenate([((logits - base) / _scale(base)).ravel(), weights])
    return replace(fit, point=point, base=base)


def _parts(point: Floats, codes: int) -> tuple[Floats, Floats]:
    """Split a point into the logits of each component relative to the columns, and the logits of weights."""
    components = len(point) // (codes + 1)
    return point[:-components].reshape(components, codes), point[-components:]


def _ladder(fit: MixtureFit, held_out: Misfit) -> MixtureFit:
    """Return the fit of the penalty that is nearest to tables with other noise.

    The ladder ends where a fit is further from them than the best one by more than their noise would move either.
    """
    best, smallest = fit, held_out.slope(fit.mixture.weights, fit.mixture.shares)[0]
    for _ in range(_MOST_STEPS):
        fit = _descend(fit, fit.penalty * _STRONGER, _LADDER_STEPS)
        away = held_out.slope(fit.mixture.weights, fit.mixture.shares)[0]
        if away < smallest:
            best, smallest = fit, away
        elif away > smallest + math.sqrt(held_out.cells / 2):
            break
    return best


def _scale(base: Floats) -> Floats:
    """Return the scale of each logit, since rare codes have small slopes and would move slowly."""
    return np.asarray(np.maximum(np.exp(base), _LEAST_SHARE) ** -0.5 * math.sqrt(float(np.exp(base).max())))


def _descend(fit: MixtureFit, penalty: float, steps: int) -> MixtureFit:
    """Return the fit of this penalty after this many steps of descent."""
    measure, base, scale = fit.measure, fit.base, _scale(fit.base)
    starts = [block.start for block in measure.blocks]
    sizes = list(measure.sizes)

    def read(point: Floats) -> tuple[Floats, Floats]:
        beyond, logits_of_weights = _parts(point, len(base))
        logits = base + beyond * scale
        logits = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts, axis=1), sizes, axis=1))
        shares = logits / np.repeat(np.add.reduceat(logits, starts, axis=1), sizes, axis=1)
        weights = np.exp(logits_of_weights - logits_of_weights.max())
        return weights / weights.sum(), shares

    def objective(point: Floats) -> tuple[float, Floats]:
        weights, shares = read(point)
        value, by_shares, by_weights = measure.slope(weights, shares)
        beyond = np.log(np.maximum(shares, 1e-30)) - base
        divergence = (shares * beyond).sum(axis=1)
        by_shares = weights[:, None] * shares * (by_shares + penalty * beyond)
        inner = np.repeat(np.add.reduceat(by_shares, starts, axis=1), sizes, axis=1)
        by_weights = by_weights + penalty * divergence
        slope = [((by_shares - shares * inner) * scale).ravel(), weights * (by_weights - weights @ by_weights)]
        return value + penalty * float(weights @ divergence), np.concatenate(slope)

    point = descend(objective, fit.point, steps=steps)
    weights, shares = read(point)
    value = 2.0 * measure.slope(weights, shares)[0] / max(measure.cells, 1)
    return replace(fit, mixture=Mixture(measure.sizes, weights, shares), misfit=value, point=point, penalty=penalty)


@dataclass(frozen=True, repr=False)
class Shrunk(Mixture):
    """A mixture with each pair of columns shrunk towards independence."""

    fractions: Floats  # columns by columns, from 0 to 1

    @property
    def mean_fraction(self) -> float:
        """The mean kept fraction over all pairs."""
        return float(np.mean(self.fractions[np.triu_indices(len(self.sizes), 1)]))

    def table(self, columns: Sequence[int]) -> Floats:
        """Return the marginal of some columns, the last running fastest."""
        table = super().table(columns)
        if len(columns) != 2:
            return table
        first, second = (super(Shrunk, self).table((column,)) for column in columns)
        product = np.outer(first, second).ravel()
        return np.asarray(product + self.fractions[tuple(columns)] * (table - product))


@dataclass(frozen=True, repr=False)
class PairNoise:
    """The effect of noise on each fitted pair of columns: its sum of squares and its largest cell."""

    squares: Floats
    largest: Floats

    @classmethod
    def of_fit(cls, fit: MixtureFit, noisy: NoisyTables, estimate: Callable[[NoisyTables], NoisyTables]) -> "PairNoise":
        """Return the noise of a fit to noisy tables; `estimate` is what it was fitted with."""
        assert fit.half is not None
        other = fit_other_half(fit.half, noisy, estimate)
        return cls(*_sizes(_beyond_columns(fit.half.mixture) - _beyond_columns(other), other.sizes))

    def shrink(self, mixture: Mixture) -> Shrunk:
        """Return the mixture with each pair shrunk to its part above this noise: PROOF.md, step 7."""
        squares, largest = _sizes(_beyond_columns(mixture), mixture.sizes)
        noise = np.minimum(self.squares / np.maximum(squares, 1e-300), 1.0)
        lower = 1.0 - _MOST_MOVED * self.largest / np.maximum(largest, 1e-300)
        fractions = np.maximum(np.maximum(1.0 - noise**2, lower), 0.0)
        return Shrunk(mixture.sizes, mixture.weights, mixture.shares, fractions)


def _beyond_columns(mixture: Mixture) -> Floats:
    """Return the pair shares of all codes, minus the shares under independence."""
    owned = mixture.weights[:, None] * mixture.shares
    columns = owned.sum(axis=0)
    return np.asarray(owned.T @ mixture.shares - np.outer(columns, columns))


def _sizes(cells: Floats, sizes: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the sum of the squares of each pair of columns, and its largest cell."""
    starts = np.cumsum([0, *sizes[:-1]])
    squares, largest = cells**2, np.abs(cells)
    for axis in (0, 1):
        squares, largest = np.add.reduceat(squares, starts, axis), np.maximum.reduceat(largest, starts, axis)
    return squares, largest
