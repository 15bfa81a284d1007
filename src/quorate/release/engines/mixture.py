"""A mixture of products fitted to noisy marginals: one table, nowhere negative, that everything is read off.

Every marginal of it agrees with every other, and records are drawn from it. It is fitted by the likelihood of the noise
and a penalty on what the components know beyond the columns one by one. How strong the penalty is to be is found by
splitting the noise: tables y with noise of deviation e, and z drawn like that noise, give y + z / 2 and y - 2 z, whose
noise is independent. What is fitted to the first is held against the second.
All of it is post-processing: it reads noisy tables and draws nothing but from a generator of a fixed seed.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.release.engines.entropy import descend
from quorate.release.engines.misfit import Misfit, NoisyTables, pairwise
from quorate.release.engines.strategy import Clique
from quorate.release.queries import Marginals, Possible

__all__ = ["Mixture", "MixtureFit", "fit_again", "fit_mixture", "fit_other_half", "split_noise"]

_COMPONENTS = 100
_SPREAD = 0.3  # of the components at the start, in logits of an even column
_FIRST_PENALTY, _STRONGER, _MOST_STEPS = 8.0, 2.0, 20  # the ladder of penalties
_APART = 0.5  # of the noise that is added to the half that is fitted; the other half has its inverse
_START_STEPS, _LADDER_STEPS, _CHECK_STEPS = 150, 60, 50  # of the descent
_STAGES, _WORTHWHILE = 30, 0.985  # of a descent that is not yet within the noise; what makes one more worth it
_ARRIVED = 1.5  # of the misfit of one half: above it, the descent of the other was too short
_CHECKS = 3  # times that cells which stand out get more weight
_MOST_MENDED, _SWEEPS = 1_000_000, 3  # records whose pairs are mended, and how often
_AGAIN = 30  # times that records which cannot occur are drawn again
_LEAST_SHARE = 1e-3  # below it a code's logit is not scaled further


@dataclass(frozen=True, repr=False)
class Mixture:
    """Components of independent columns: `shares[k]` has the distributions of all columns, one after the other."""

    sizes: tuple[int, ...]
    weights: Floats
    shares: Floats

    def table(self, columns: Sequence[int]) -> Floats:
        """Return the marginal of some columns, the last running fastest."""
        *first, last = columns
        product = self.weights[:, None]
        for column in first:
            product = pairwise(product, self._block(column))
        return np.asarray(product.T @ self._block(last)).ravel()

    def answers(self, queries: Marginals) -> Floats:
        """Return all marginals, one after the other."""
        return np.concatenate([self.table(clique) if clique else np.ones(1) for clique in queries.cliques])

    def pairs(self, queries: Marginals, answers: Floats) -> Floats:
        """Return the shares of all codes by all codes: as released, and those of the mixture where none was."""
        shares = (self.weights[:, None] * self.shares).T @ self.shares
        starts = np.cumsum([0, *self.sizes])
        tables = zip(np.split(answers, queries.offsets[1:-1]), queries.shapes, queries.cliques, strict=True)
        for table, shape, clique in tables:
            for first, second in itertools.combinations(range(len(clique)), 2):
                gone = tuple(axis for axis in range(len(clique)) if axis not in (first, second))
                one, two = (slice(starts[clique[axis]], starts[clique[axis] + 1]) for axis in (first, second))
                shares[one, two] = table.reshape(shape).sum(axis=gone)
                shares[two, one] = shares[one, two].T
        return np.asarray(shares)

    def draw(self, rows: int, pairs: Floats | None = None, possible: Possible | None = None) -> Integers:
        """Return the codes of so many records: the same each time.

        Each component has its share of the records, and each column of it the shares of its codes, up to one record
        each. Which codes meet in a record is drawn, and then mended until the pairs of columns have their shares too:
        those of the mixture, or others that are given. With `possible`, records that cannot occur are drawn again until
        all can.
        """
        generator = np.random.default_rng(0)
        owned = _rounded(self.weights[None, :], np.array([rows]), generator)[0]
        owner = np.repeat(np.arange(len(owned)), owned)
        codes = np.empty((rows, len(self.sizes)), dtype=np.int64)
        for column, size in enumerate(self.sizes):
            counts = _rounded(self._block(column), owned, generator)
            drawn = np.repeat(np.tile(np.arange(size), len(owned)), counts.ravel())
            codes[:, column] = drawn[np.lexsort((generator.random(rows), owner))]
        if possible is not None:
            blocks = [self._block(column) for column in range(len(self.sizes))]
            _draw_again(codes, owner, possible, (self.weights, blocks), generator)
            codes = possible.repaired(codes)
            if pairs is not None and len(self.sizes) > 1:
                chosen = _raked(codes, self.sizes, pairs)
                codes, owner = codes[chosen], owner[chosen]
        if rows <= _MOST_MENDED and len(self.sizes) > 1:
            wanted = (self.weights[:, None] * self.shares).T @ self.shares if pairs is None else pairs
            starts = np.cumsum([0, *self.sizes[:-1]])
            allowed = None if possible is None else lambda places: possible.records(places - starts)
            places = _mended(codes + starts, owner, rows * wanted, generator, allowed)
            if pairs is not None:  # what no swap within a component mends
                places = _mended(places, np.zeros_like(owner), rows * wanted, generator, allowed)
            codes = places - starts
        return codes

    def _block(self, column: int) -> Floats:
        start = sum(self.sizes[:column])
        return self.shares[:, start : start + self.sizes[column]]


def _draw_again(
    codes: Integers,
    owner: Integers,
    possible: Possible,
    mixture: tuple[Floats, list[Floats]],
    generator: np.random.Generator,
) -> None:
    """Draw records that cannot occur again from the whole mixture, in their place, a few times."""
    weights, blocks = mixture
    for _ in range(_AGAIN):
        places = np.flatnonzero(~possible.records(codes))
        if not places.size:
            return
        owner[places] = generator.choice(len(weights), size=len(places), p=weights / weights.sum())
        for column, block in enumerate(blocks):
            upto = np.cumsum(block, axis=1)
            spots = generator.random(len(places)) * upto[owner[places], -1]
            within = (spots[:, None] >= upto[owner[places]]).sum(axis=1)
            codes[places, column] = np.minimum(within, block.shape[1] - 1)


def _rounded(shares: Floats, totals: Integers, generator: np.random.Generator) -> Integers:
    """Return counts that add up to the total of each row, each within 1 of its share: systematic rounding."""
    upto = np.cumsum(shares, axis=1)
    upto = upto / upto[:, -1:]
    marks = np.floor(upto * totals[:, None] + generator.random((len(totals), 1))).astype(np.int64)
    marks = np.minimum(marks, totals[:, None])
    marks[:, -1] = totals
    return np.diff(marks, prepend=0, axis=1)


def _raked(codes: Integers, sizes: tuple[int, ...], pairs: Floats) -> Integers:
    """Return as many of these records, some more than once, so that each column has its shares: by iterated scaling."""
    weights = np.full(len(codes), 1.0 / len(codes))
    starts = np.cumsum([0, *sizes])
    for sweep in range(_SWEEPS * len(sizes)):
        column = sweep % len(sizes)
        block = slice(starts[column], starts[column + 1])
        wanted = (pairs[block].sum(axis=1) - pairs[block, block].sum(axis=1)) / (len(sizes) - 1)
        now = np.bincount(codes[:, column], weights, minlength=sizes[column])
        weights *= np.divide(wanted, now, out=np.ones_like(now), where=now > 0)[codes[:, column]]
    order = np.lexsort(codes.T[::-1])  # records that are alike stand side by side
    marks = (np.arange(len(codes)) + 0.5) / len(codes)
    upto = np.cumsum(weights[order]) / weights.sum()
    return np.asarray(order[np.minimum(np.searchsorted(upto, marks), len(codes) - 1)])


def _mended(
    places: Integers,
    owner: Integers,
    wanted: Floats,
    generator: np.random.Generator,
    allowed: Callable[[Integers], NDArray[np.bool_]] | None = None,
) -> Integers:
    """Return records whose counts of pairs are nearer to those wanted: records of a component swap codes of a column.

    `places` has a code's place among the codes of all columns. A swap leaves the counts of every column as they are,
    and is made only where both records are `allowed` after it.
    """
    rows, columns = places.shape
    excess = -np.array(wanted)
    for column in range(columns):
        np.add.at(excess, (np.repeat(places[:, column], columns), places.ravel()), 1.0)
    for sweep in range(_SWEEPS * columns):
        column = sweep % columns
        order = np.lexsort(np.stack([generator.random(rows), owner]))
        first, second = order[:-1:2], order[1::2]
        pairs = (owner[first] == owner[second]) & (places[first, column] != places[second, column])
        codes = len(np.unique(places[:, column]))
        count = max(1, int(pairs.sum()) // int(np.clip(20 * codes * (codes - 1), 40, 400)))
        for one, two in zip(np.array_split(first[pairs], count), np.array_split(second[pairs], count), strict=True):
            _swap(places, excess, one, two, column=column, allowed=allowed)
    return places


def _swap(
    places: Integers,
    excess: Floats,
    one: Integers,
    two: Integers,
    *,
    column: int,
    allowed: Callable[[Integers], NDArray[np.bool_]] | None,
) -> None:
    """Swap codes of a column between records of two lists, if that brings pairs nearer to what is wanted.

    Of swaps of the same two codes only the best is made: many at once would overshoot.
    """
    others = np.delete(np.arange(places.shape[1]), column)
    here, there = places[one, column][:, None], places[two, column][:, None]
    left, right = places[np.ix_(one, others)], places[np.ix_(two, others)]
    gain = excess[here, left] - excess[there, left] + excess[there, right] - excess[here, right] - 2.0
    gains = (gain * (left != right)).sum(axis=1)
    best = np.argsort(-gains, kind="stable")
    best = best[gains[best] > 0]
    if allowed is not None:
        swapped = places[one[best]], places[two[best]]
        swapped[0][:, column], swapped[1][:, column] = there[best, 0], here[best, 0]
        best = best[allowed(swapped[0]) & allowed(swapped[1])]
    kept = best[np.unique(here[best, 0] * len(excess) + there[best, 0], return_index=True)[1]]
    one, two, left, right = one[kept], two[kept], left[kept], right[kept]
    here, there = here[kept], there[kept]
    for code, others_code, step in ((here, left, -1), (there, left, 1), (there, right, -1), (here, right, 1)):
        where = np.broadcast_to(code, others_code.shape)
        np.add.at(excess, (where, others_code), step)
        np.add.at(excess, (others_code, where), step)
    places[one, column], places[two, column] = there.ravel(), here.ravel()


@dataclass(frozen=True)
class MixtureFit:
    """A mixture fitted to noisy tables, and what another fit of the same kind starts from."""

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
    fitted, held = split_noise(noisy)
    fit = _ladder(_settled(_begin(sizes, Misfit(sizes, fitted), estimate(fitted))), Misfit(sizes, held))
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
    """Return the fit of the same penalty to all of the noise, or to other noise, from where this one is."""
    checked = estimate(noisy)
    measure = Misfit(fit.mixture.sizes, noisy)
    fit = _descend(replace(_moved(fit, _logarithms(measure, checked)), measure=measure), fit.penalty, steps)
    for _ in range(_CHECKS if emphasis else 0):
        emphasised = fit.measure.emphasised(checked, fit.mixture.table)
        fit = replace(_descend(replace(fit, measure=emphasised), fit.penalty, _CHECK_STEPS), misfit=fit.misfit)
    return fit


def split_noise(noisy: NoisyTables) -> tuple[NoisyTables, NoisyTables]:
    """Return two copies of noisy tables whose noise is independent, the first with less of it."""
    generator = np.random.default_rng(2)
    fitted: dict[Clique, tuple[Floats, float]] = {}
    held: dict[Clique, tuple[Floats, float]] = {}
    for clique, (table, deviation) in noisy.items():
        drawn = deviation * generator.normal(size=len(table))
        fitted[clique] = table + _APART * drawn, deviation * math.hypot(1.0, _APART)
        held[clique] = table - drawn / _APART, deviation * math.hypot(1.0, 1.0 / _APART)
    return fitted, held


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
    enough = math.prod(sizes) // max(sizes)  # with one for each choice of the other columns any table is a mixture
    components = min(_COMPONENTS, 2 * enough)  # twice as many, since a descent does not find each its place
    spread = _SPREAD * np.random.default_rng(0).normal(size=(components, measure.codes)) / _scale(base)
    point = np.concatenate([spread.ravel(), np.zeros(components)])
    start = MixtureFit(Mixture(tuple(sizes), np.ones(1), np.exp(base)[None, :]), math.inf, point, 0.0, measure, base)
    return _descend(start, penalty, _START_STEPS)


def _settled(fit: MixtureFit) -> MixtureFit:
    """Return the fit after more steps, as long as it is further from its tables than noise is and they help."""
    for _ in range(_STAGES):
        if fit.misfit <= 1.0:
            break
        before, fit = fit, _descend(fit, fit.penalty, _START_STEPS)
        if fit.misfit > _WORTHWHILE * before.misfit:
            break
    return fit


def _moved(fit: MixtureFit, base: Floats) -> MixtureFit:
    """Return the same mixture, to be held against other shares of the columns."""
    beyond, weights = _parts(fit.point, len(base))
    logits = fit.base + beyond * _scale(fit.base)
    point = np.concatenate([((logits - base) / _scale(base)).ravel(), weights])
    return replace(fit, point=point, base=base)


def _parts(point: Floats, codes: int) -> tuple[Floats, Floats]:
    """Return what a point says: how the logits of each component differ from the columns', and logits of weights."""
    components = len(point) // (codes + 1)
    return point[:-components].reshape(components, codes), point[-components:]


def _ladder(fit: MixtureFit, held: Misfit) -> MixtureFit:
    """Return the fit of the penalty that is nearest to tables with other noise.

    The ladder ends where a fit is further from them than the best one by more than their noise would move either.
    """
    best, least = fit, held.slope(fit.mixture.weights, fit.mixture.shares)[0]
    for _ in range(_MOST_STEPS):
        fit = _descend(fit, fit.penalty * _STRONGER, _LADDER_STEPS)
        away = held.slope(fit.mixture.weights, fit.mixture.shares)[0]
        if away < least:
            best, least = fit, away
        elif away > least + math.sqrt(held.cells / 2):
            break
    return best


def _scale(base: Floats) -> Floats:
    """Return by how much logits are scaled: rare codes have small slopes, and would be slow to move."""
    return np.asarray(np.maximum(np.exp(base), _LEAST_SHARE) ** -0.5 * math.sqrt(float(np.exp(base).max())))


def _descend(fit: MixtureFit, penalty: float, steps: int) -> MixtureFit:
    """Return the fit of this penalty after so many steps of descent."""
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
        known = (shares * beyond).sum(axis=1)
        by_shares = weights[:, None] * shares * (by_shares + penalty * beyond)
        inner = np.repeat(np.add.reduceat(by_shares, starts, axis=1), sizes, axis=1)
        by_weights = by_weights + penalty * known
        slope = [((by_shares - shares * inner) * scale).ravel(), weights * (by_weights - weights @ by_weights)]
        return value + penalty * float(weights @ known), np.concatenate(slope)

    point = descend(objective, fit.point, steps=steps)
    weights, shares = read(point)
    value = 2.0 * measure.slope(weights, shares)[0] / max(measure.cells, 1)
    return replace(fit, mixture=Mixture(measure.sizes, weights, shares), misfit=value, point=point, penalty=penalty)
