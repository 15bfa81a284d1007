"""Pairs of columns that interact, chosen by one noisy sum of residuals. PROOF.md, step 4.

After the first steps, the residuals of private rows are added up in the cells of many pairs of columns, all pairs in
one vector. Pairs are kept whose sums are more probable with an effect than without one. How many pairs are tried, for
what part of the budget, depends on public numbers; where noise would hide all but the largest effects, none is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._families import Family
from quorate.models.linear._geometry import Belief
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import exact_weights
from quorate.tables.features.combined import Interaction, Side, multiply

_MOST_FRACTION = 0.12  # of the budget of the steps
_LEAST_GAIN = 0.015  # of the variance of residuals: a pair that explains as much is to be found
_MORE = 2.0  # times as many pairs are tried where these are all
_USUAL_CELLS, _USUAL_LENGTH = 16, 0.6  # of a pair: its cells, and the length of its vector
_SIGNIFICANT = 4.0  # standard deviations
_MOST_ENTRIES, _MOST_WORK = 20_000, 3e8  # cells of all pairs; units times cells
PAIR_ENTRIES = 100_000  # of the sums and of the products that are added to the columns: more than there are
_COARSE, _FINE = 4, 8  # pieces of a column, beside one of several pieces or of few
_FINEST = 24  # pieces of a column that is kept beside one of few: an effect that is found is smooth, and shrunk
_FEW = 3  # pieces
_UNCLIPPED = 0.9  # of residuals
_WHOLE = 0.98  # of rows, whose vectors are not clipped
_EFFECT_SIZES = (0.1, 0.3, 1.0)  # of a cell, in units of the largest residual that is not clipped
_LEAST_ODDS = 2.0  # as a logarithm
_MOST_KEPT = 6
_MOST_SHARED = 0.02  # of the mean square of a pair's cells, up to which columns of made rows seem independent


@dataclass(frozen=True)
class PairPlan:
    """How many pairs are tried, and what part of the budget of the steps that takes."""

    number: int
    fraction: float


@dataclass(frozen=True)
class CellMeasurement:
    """Noisy sums of residuals in cells of pairs, at the weights `at`; `cells` are those of the sample."""

    at: Floats
    cells: Floats
    limit: float
    noise: Floats
    error: float = 0.0

    def along(self, sample: Floats) -> tuple[Floats, Floats]:
        """Return the cells of the sample, and the largest residual of each row that is not clipped."""
        return self.cells, np.full(len(sample), self.limit)

    def widen(self, columns: int) -> "CellMeasurement":
        """Return the same measurement among more columns, which it left out."""
        return replace(self, at=np.append(self.at, np.zeros(columns)))


@dataclass(frozen=True)
class FoundPairs:
    """The interactions that were kept, and what was measured of them with noise of this scale."""

    interactions: tuple[Interaction, ...]
    lifts: tuple[tuple[Floats, Floats], ...]  # from the features of all columns to both factors of each pair
    measured: Floats
    cells: Floats
    limit: float
    scale: float

    def of(self, features: Floats) -> Floats:
        """Return the products of each row. Features are those of `exact_features`."""
        return np.hstack([multiply(features @ one, features @ other) for one, other in self.lifts])  # proof: step 2

    def families(self, together: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which columns are shrunk together, with the products of each pair after the others."""
        widths = [len(part.names) for part in self.interactions]
        return np.concatenate([together, together.max() + 1 + np.repeat(np.arange(len(widths)), widths)])

    def measurement(self, at: Floats, sample: Floats, family: Family, units: int) -> CellMeasurement:
        """Return what was measured at these weights, the last of which are those of the products."""
        eta = sample @ at
        spread = (self.cells * family.square(eta, np.full_like(eta, self.limit))[:, None]).T @ self.cells
        noise = spread / len(eta) / units
        noise[np.diag_indices_from(noise)] += self.scale**2
        return CellMeasurement(at, self.cells, self.limit, noise)


def plan_pairs(columns: int, private: PrivateSums, noisy: NoisyVectors) -> PairPlan | None:
    """Return how many pairs of so many columns are tried; None where noise would hide all but the largest effects."""
    if columns < 2:
        return None
    scale = private.scale(noisy, _MOST_FRACTION) * _USUAL_LENGTH / private.units
    visible = _LEAST_GAIN / (_SIGNIFICANT * np.sqrt(2.0) * _USUAL_CELLS**1.5 * scale**2)
    most = min(visible, _MOST_ENTRIES / _USUAL_CELLS, _MOST_WORK / _USUAL_CELLS / private.units)
    if most < columns - 1:
        return None
    every = columns * (columns - 1) // 2
    number = every if every <= _MORE * most else int(most)  # the last pairs of a ranking may be those that interact
    return PairPlan(number, float(_MOST_FRACTION * min(number / visible, 1.0)))


class Cells:
    """The cells of pairs: products of the shares of both columns' pieces, less their means over the sample."""

    def __init__(self, pairs: Sequence[tuple[Side, Side]], points: Floats) -> None:
        sides = {id(side): side for pair in pairs for side in pair}
        turns, starts = zip(*(_shares_of(side) for side in sides.values()), strict=True)
        self._turn, start = exact_weights(np.hstack(turns)), np.concatenate(starts)
        self._start = start - (points @ self._turn + start).mean(axis=0)
        places = np.cumsum([0, *(turn.shape[1] for turn in turns)])
        slices = dict(zip(sides, (slice(*ends) for ends in pairwise(places.tolist())), strict=True))
        self._pairs = [(slices[id(one)], slices[id(other)]) for one, other in pairs]

    def of(self, features: Floats) -> list[Floats]:
        """Return the cells of each pair."""
        shares = features @ self._turn + self._start  # proof: step 2
        return [multiply(shares[:, one], shares[:, other]) for one, other in self._pairs]


def _shares_of(side: Side) -> tuple[Floats, Floats]:
    """Return how the shares of a side's pieces are computed of encoded rows: a matrix, and the shares of zeros."""
    if side.codes:
        return side.lift, np.zeros(side.lift.shape[1])
    nothing = np.zeros((len(side.lift), 1))
    return np.hstack([nothing, side.lift]) - np.hstack([side.lift, nothing]), np.eye(side.lift.shape[1] + 1)[0]


def _choose_pairs(
    sides_of: Callable[[int], list[Side]], weights: Floats, points: Floats, *, is_made: bool
) -> list[tuple[Side, Side]]:
    """Return pairs, those with the columns of the largest effects first.

    Pairs of made rows that go together are left out: a wrong law of their products would be taken for an effect.
    """
    coarse, fine = sides_of(_COARSE), sides_of(_FINE)
    effects = np.array([np.std(points[:, side.columns] @ weights[side.columns]) for side in coarse])
    rank = np.argsort(np.argsort(-effects, kind="stable"), kind="stable")
    pairs = sorted(combinations(range(len(coarse)), 2), key=lambda pair: sorted(rank[list(pair)].tolist()))
    chosen = [
        ((fine if _is_few(coarse[other]) else coarse)[one], (fine if _is_few(coarse[one]) else coarse)[other])
        for one, other in pairs
    ]
    return [pair for pair in chosen if not is_made or _seem_independent(pair, points)]


def _find_clear(odds: Floats) -> list[int]:
    """Return the pairs with the largest odds of an effect, if these are large enough."""
    return [number for number in np.argsort(-odds)[:_MOST_KEPT].tolist() if odds[number] > _LEAST_ODDS]


def _is_few(side: Side) -> bool:
    return bool(side.lift.shape[1] < _FEW)


def _refine(pair: tuple[Side, Side], finest: Mapping[int, Side]) -> tuple[Side, Side]:
    """Return the factors whose products are kept: more pieces of a column beside one of few."""
    one, other = pair
    return (finest[one.place] if _is_few(other) else one), (finest[other.place] if _is_few(one) else other)


def _seem_independent(pair: tuple[Side, Side], points: Floats) -> bool:
    one, other = (points @ side.lift for side in pair)
    cells = multiply(one - one.mean(axis=0), other - other.mean(axis=0))
    return bool(np.sum(cells.mean(axis=0) ** 2) < _MOST_SHARED * np.mean(np.sum(cells**2, axis=1)))


def find_pairs(
    sides_of: Callable[[int], list[Side]],
    belief: Belief,
    sample: Floats,
    points: Floats,
    family: Family,
    *,
    plan: PairPlan,
    private: PrivateSums,
    noisy: NoisyVectors,
    fraction: float,
    is_made: bool,
) -> FoundPairs | None:
    """Return the pairs in whose cells residuals are not 0 on average, by one release; None if there are none."""
    pairs = _choose_pairs(sides_of, belief.weights[1:], points, is_made=is_made)[: plan.number]
    if not pairs:
        return None
    cells, slopes = Cells(pairs, points), exact_weights(belief.weights[1:])
    base = float(belief.weights[0] - points.mean(axis=0) @ slopes)
    eta = points @ slopes + base
    typical = family.typical(eta, np.random.default_rng(0).random(len(eta)))  # proof: step 4: nothing private
    limit = float(np.quantile(typical, _UNCLIPPED)) + 1e-9

    def vectors(features: Floats, targets: Floats) -> Floats:
        residual = targets[:, 0] - family.mean(features @ slopes + base)  # proof: step 2
        return np.asarray(np.hstack(cells.of(features)) * np.clip(residual, -limit, limit)[:, None])

    sampled = cells.of(points)
    together = np.hstack(sampled)
    radius = limit * float(np.quantile(np.linalg.norm(together, axis=1), _WHOLE)) + 1e-9
    total, scale = private.release(vectors, entries=together.shape[1], radius=radius, noisy=noisy, fraction=fraction)
    measured = np.split(total, np.cumsum([part.shape[1] for part in sampled])[:-1])
    value, slope = family.clipped(eta, eta, np.full_like(eta, limit))
    variance = float(np.mean(family.square(eta, np.full_like(eta, limit)))) / private.units
    doubt = belief.root.T @ (sample * slope[:, None]).T / len(points)
    odds = np.array(
        [
            _pair_odds(part - value @ own / len(own), own, doubt @ own, variance=variance, scale=scale, limit=limit)
            for part, own in zip(measured, sampled, strict=True)
        ]
    )
    kept = _find_clear(odds)
    if not kept:
        return None
    finest = {side.place: side for side in sides_of(_FINEST)}
    factors = [_refine(pairs[number], finest) for number in kept]
    return FoundPairs(
        tuple(_interaction(one, other) for one, other in factors),
        tuple((exact_weights(one.lift), exact_weights(other.lift)) for one, other in factors),
        np.concatenate([measured[number] for number in kept]),
        np.hstack([sampled[number] for number in kept]),
        limit,
        scale,
    )


def _interaction(one: Side, other: Side) -> Interaction:
    return Interaction((one.place, other.place), one.block, other.block, (one.codes, other.codes))


def _pair_odds(measured: Floats, cells: Floats, doubt: Floats, *, variance: float, scale: float, limit: float) -> float:
    """Return by how much effects of some size make a pair's sums more probable than chance, as a logarithm.

    Chance is noise of this scale, sampling with this variance of a residual, and the doubt of the weights.
    """
    moment = cells.T @ cells / len(cells)
    noise = variance * moment + doubt.T @ doubt
    noise[np.diag_indices_from(noise)] += scale**2
    half = cholesky(noise, lower=True)
    left, sizes, _ = np.linalg.svd(solve_triangular(half, moment * limit, lower=True))
    along = left.T @ solve_triangular(half, measured, lower=True)
    strengths = [(size * sizes) ** 2 for size in _EFFECT_SIZES]
    return max(float(np.sum(along**2 * strength / (1 + strength) - np.log1p(strength)) / 2) for strength in strengths)
