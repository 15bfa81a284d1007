"""How columns of numbers go together where no public rows say it: made rows from a noisy second moment of scores.

Made rows of independent columns have the right curvature for each column alone. Along what many columns share, a step
by that curvature is too long by their number. Every column of numbers has one score, about the normal quantile of its
value among made ones. The second moment of the scores is released, far fewer numbers than pairs of columns of the
model, and made numbers are drawn together by a normal copula of these correlations. Whatever the noise is, made rows
have the means that were released.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import ndtr, ndtri

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._sample import Block, Shares, is_halfway
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import exact_weights, lengths

_VISIBLE = 0.01  # of all variance: the noise that is aimed at, measured by its largest eigenvalue
_HOPELESS = 0.25  # of all variance: noise above which a second moment is not worth its budget
_LARGEST_FRACTION = 0.15  # of the budget that is left
_MOST_SCORES = 1000  # with half a million pairs
_LONGEST_QUANTILE, _LONGER = 0.99, 1.15  # of independent scores: where scores are clipped
_LEAST_KEPT = 0.25  # of the variance of a score, after clipping
_MADE = 5000  # rows
_FARTHEST_LEVEL = 0.02  # of the values of a number: beyond it, all have one score
_TERMS, _NEWTON_STEPS = 12, 12  # of the expansion of a correlation of scores, and of its inversion
_LARGEST_NEWTON_STEP, _LEAST_SLOPE = 0.3, 0.1
_HIGHEST = 0.9995  # correlation of a normal copula
_LEAST_VARIANCE = 0.02  # of scores, in any direction
_LEVELS = np.linspace(-9.0, 9.0, 3601)  # of a normal number, over which expansions are integrated
_NOTHING = 1e-9


def moment_entries(scores: int) -> int:
    """Return how many entries the second moment of so many scores has, if it may be released at all."""
    return scores * (scores + 1) // 2 if scores <= _MOST_SCORES else 0


def moment_fraction(private: PrivateSums, noisy: NoisyVectors, scores: int) -> float:
    """Return the part of the budget that a second moment of so many scores takes: 0 where it would show nothing."""
    if not 1 < scores <= _MOST_SCORES:
        return 0.0
    edge = 2 * np.sqrt(scores) * private.moment_scale(noisy, 1.0) / private.units  # of noise alone, at all the budget
    if edge > _HOPELESS * np.sqrt(_LARGEST_FRACTION):
        return 0.0
    return float(min(_LARGEST_FRACTION, (edge / _VISIBLE) ** 2))


@dataclass(frozen=True)
class _Number:
    """A column of numbers: its values from the lowest to the highest, how often each is made, and its scores.

    A value halfway between two corners stands for all between these, `low` and `high`. If it stood for itself, nearly
    equal columns would be far apart where they lie on different sides of a jump.
    """

    block: Block
    chances: Floats
    low: Floats
    high: Floats
    corners: Floats  # the scores of the corners, of which those of a row are a mean, weighted by its shares

    @classmethod
    def of(cls, block: Block, chances: Floats) -> "_Number":
        """Return the column with scores that have mean 0 over made rows, and a variance of at most about 1.

        Scores are bounded, so that a column that is nearly constant has a small variance: what is seen of it is noise.
        """
        values = block.values
        halfway, low, high = is_halfway(values), values.copy(), values.copy()
        low[halfway], high[halfway] = values[np.roll(halfway, -1)], values[np.roll(halfway, 1)]
        if block.order == "all but the last":  # a missing value is drawn as one in the middle
            middle = int(np.searchsorted(np.cumsum(chances), 0.5))
            order = np.insert(np.arange(len(chances) - 1), min(middle, len(chances) - 1), len(chances) - 1)
            block, chances = replace(block, values=block.values[order]), chances[order]
            low, high = low[order], high[order]
        up_to = np.cumsum(chances)
        levels = np.clip(up_to - chances / 2, _FARTHEST_LEVEL, 1 - _FARTHEST_LEVEL)
        at_corners = (block.values[None] == block.corners[:, None]).all(axis=2).argmax(axis=1)
        corners = ndtri(levels[at_corners])
        scores = (block.values @ block.turn + block.start) @ corners
        return cls(block, chances, low, high, corners - float(chances @ scores))

    @property
    def slopes(self) -> Floats:
        """The score of a row is its columns times these, plus `start`."""
        return np.asarray(self.block.turn @ self.corners)

    @property
    def start(self) -> float:
        """The score of a row of zeros."""
        return float(self.block.start @ self.corners)

    def score(self, normal: Floats) -> Floats:
        """Return the scores of the values that these normal numbers stand for."""
        return np.asarray(self.draw(normal) @ self.slopes + self.start)

    def draw(self, normal: Floats) -> Floats:
        """Return the values that these normal numbers stand for."""
        index, part = self._positions(normal)
        return np.asarray(self.low[index] + part[:, None] * (self.high - self.low)[index])

    def expansion(self) -> Floats:
        """Return the Hermite coefficients of the score, at variance 1, in the normal number that draws it."""
        scores = self.score(_LEVELS) * np.exp(-(_LEVELS**2) / 2)
        former, here, coefficients = np.zeros_like(_LEVELS), np.ones_like(_LEVELS), []
        for term in range(1, _TERMS + 1):
            former, here = here, (_LEVELS * here - np.sqrt(term - 1) * former) / np.sqrt(term)
            coefficients.append(float(scores @ here))
        return np.array(coefficients) / max(float(np.linalg.norm(coefficients)), _NOTHING)

    def _positions(self, normal: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return which value each normal number stands for, and how far it is among those that stand for it."""
        up_to = np.clip(np.append(0.0, np.cumsum(self.chances)), 0.0, 1.0)
        level = ndtr(normal)
        index = np.searchsorted(up_to[1:-1], level)
        part = (level - up_to[index]) / np.maximum(self.chances[index], _NOTHING)
        return index, np.clip(part, 0.0, 1.0)


def draw_rows(
    shares: Shares, measured: Floats, noise: float, private: PrivateSums, noisy: NoisyVectors, *, fraction: float
) -> Floats:
    """Return made rows with these mean shares, whose numbers go together as private ones do.

    The second moment of the scores takes this part of the budget; without it, all columns are independent.
    """
    blocks = shares.chances(measured, noise)
    numbers = {index: _Number.of(*pair) for index, pair in enumerate(blocks) if pair[0].is_number}
    generator = np.random.default_rng(0)  # it hides nothing: proof, step 4
    normal = generator.normal(size=(_MADE, len(numbers)))
    if fraction:
        release = partial(private.release_moment, noisy=noisy, fraction=fraction)
        normal = normal @ _release_copula(shares, numbers, normal, release)
    columns = dict(zip(numbers, normal.T, strict=True))
    return np.hstack(
        [
            numbers[index].draw(columns[index])
            if index in numbers
            else block.values[generator.choice(len(chances), size=_MADE, p=chances)]
            for index, (block, chances) in enumerate(blocks)
        ]
    )


def _release_copula(
    shares: Shares, numbers: Mapping[int, _Number], normal: Floats, release: Callable[..., tuple[Floats, float]]
) -> Floats:
    """Return what independent normal numbers are multiplied by, so that their scores go together as private ones do."""
    slopes, start = np.zeros((shares.width, len(numbers))), np.array([part.start for part in numbers.values()])
    for column, (index, part) in enumerate(numbers.items()):
        slopes[shares.columns(index), column] = part.slopes
    slopes = exact_weights(slopes)
    scores = [part.score(values) for part, values in zip(numbers.values(), normal.T, strict=True)]
    moment, noise = release(
        lambda features: features @ slopes + start,  # proof: step 2
        width=len(numbers),
        radius=float(np.quantile(lengths(np.stack(scores, axis=1)), _LONGEST_QUANTILE)) * _LONGER + 1e-6,
    )
    # Rows are clipped in all directions alike: the variances that are left say by how much.
    variances = np.maximum(np.diag(moment), _LEAST_KEPT)
    correlations = moment / np.sqrt(np.outer(variances, variances))
    np.fill_diagonal(correlations, 1.0)
    shrunk = _shrink_correlations(correlations, 2 * noise / float(variances.mean()) * np.sqrt(len(numbers)))
    return _root(_normal_correlations(shrunk, np.array([part.expansion() for part in numbers.values()])))


def _shrink_correlations(correlations: Floats, edge: float) -> Floats:
    """Return correlations whose eigenvalues are replaced by their mean where they may differ by noise alone.

    `edge` is how far noise moves an eigenvalue; those that most others are near to have one level.
    """
    values, vectors = eigh(correlations)
    near = (values >= values[:, None]) & (values <= values[:, None] + 2 * edge)  # from each eigenvalue on
    common = near[near.sum(axis=1).argmax()]
    values = np.maximum(np.where(common, values[common].mean(), values), _LEAST_VARIANCE)
    shrunk = (vectors * values) @ vectors.T
    scale = np.sqrt(np.diag(shrunk))
    return np.asarray(shrunk / np.outer(scale, scale))


def _normal_correlations(scores: Floats, expansions: Floats) -> Floats:
    """Return the correlations of normal numbers that give their scores these correlations, by Newton's method."""
    normal = np.clip(scores, -_HIGHEST, _HIGHEST)
    for _ in range(_NEWTON_STEPS):
        value, slope = np.zeros_like(normal), np.zeros_like(normal)
        for coefficients in expansions.T[::-1]:  # Horner's rule, for the sum and its derivative
            slope = slope * normal + value
            value = value * normal + np.outer(coefficients, coefficients)
        value, slope = value * normal, slope * normal + value
        step = np.clip((scores - value) / np.maximum(slope, _LEAST_SLOPE), -_LARGEST_NEWTON_STEP, _LARGEST_NEWTON_STEP)
        normal = np.clip(normal + step, -_HIGHEST, _HIGHEST)
    np.fill_diagonal(normal, 1.0)
    return normal


def _root(correlations: Floats) -> Floats:
    """Return a root of the nearest correlations that are possible: rows of it have length 1."""
    values, vectors = eigh(correlations)
    root = vectors * np.sqrt(np.maximum(values, 1 - _HIGHEST))
    return np.asarray((root / np.linalg.norm(root, axis=1, keepdims=True)).T)
