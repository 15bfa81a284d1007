"""Boxes on a grid: the factors of the prefix sums along each axis, all at once.

The measured vector is the grid multiplied by a factor along each axis; a box is a range along each axis, and the
variance of its answer is the product of theirs. Errors grow with the logarithms of the sides, not with the cells.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import toeplitz

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible
from quorate.release.engines.released import project_simplex
from quorate.release.engines.series import make_factor, rounded_cost

__all__ = ["Grid", "make_grid"]

_EXPONENTS = (0.0, 0.2, 0.3, 0.4, 0.5)
_LONGEST, _MOST_CELLS = 2048, 4_000_000
_STEPS, _FEW_STEPS, _MANY_CELLS = 250, 80, 50_000  # of the search for weights


@dataclass(frozen=True)
class _Axis:
    """One axis: its factor as a matrix, the inverse, and the variance of every range for noise of variance 1."""

    matrix: Floats
    inverse: Floats
    ranges: Floats
    squares: int


@dataclass(frozen=True)
class Grid:
    """A grid of cells with a factor along each axis."""

    shape: tuple[int, ...]
    _axes: tuple[_Axis, ...]

    @property
    def squared_sensitivity(self) -> int:
        """A bound on the squared L2 change of the measured vector when a record is replaced.

        Columns have no negative entries, so that two of them are no further apart than if they did not meet.
        """
        return 2 * math.prod(axis.squares for axis in self._axes)

    @property
    def largest_variance(self) -> float:
        """The variance of the worst box for noise of variance 1."""
        return math.prod(float(axis.ranges.max()) for axis in self._axes)

    @property
    def largest_coefficient(self) -> int:
        """The most that one record adds to an entry of the measured vector."""
        return math.prod(int(axis.matrix.max()) for axis in self._axes)

    def measure(self, counts: Integers) -> Integers:
        """Return the grid multiplied along each axis, exactly: whole numbers that doubles hold."""
        if self.largest_coefficient * int(counts.sum()) >= 2**52:
            raise Infeasible("these counts are too large to be measured exactly; use fewer records or cells")
        return np.rint(self._along([axis.matrix for axis in self._axes], counts)).astype(np.int64)

    def estimate(self, measured: Integers, total: float) -> Floats:
        """Return the best linear estimate of the cells, of any sign, given that they add up to `total`."""
        cells = self._along([axis.inverse for axis in self._axes], measured)
        moves: Floats = np.ones(1)
        for axis in self._axes:  # how the error of each cell goes with that of the total
            moves = np.asarray(np.kron(moves, axis.inverse @ axis.inverse.sum(axis=0)), dtype=np.float64)
        return np.asarray(cells - moves / moves.sum() * (cells.sum() - total))

    def nearest_weights(self, estimates: Floats) -> Floats:
        """Return weights, not negative and adding up to 1, that come near to estimates as the measurement sees them.

        Where cells are many, cutting off what is negative would add up over a box. What is large in the measurement is
        what boxes see, and accelerated projected gradients (Beck and Teboulle 2009) settle it first.
        """
        units = [axis.matrix / axis.matrix[0, 0] for axis in self._axes]
        grams = [unit.T @ unit for unit in units]
        step = 1.0 / math.prod(float(np.linalg.norm(gram, 2)) for gram in grams)
        weights = ahead = project_simplex(estimates)
        pace = 1.0
        for _ in range(_STEPS if estimates.size <= _MANY_CELLS else _FEW_STEPS):
            following = project_simplex(ahead - step * self._along(grams, ahead - estimates))
            faster = (1.0 + math.sqrt(1.0 + 4.0 * pace**2)) / 2.0
            ahead = following + (pace - 1.0) / faster * (following - weights)
            weights, pace = following, faster
        return weights

    def deviations(self) -> Floats:
        """Return the standard deviation of every box for noise of variance 1: a bound, since the total is known."""
        variances: Floats = np.ones(1)
        for axis in self._axes:
            variances = np.asarray(np.kron(variances, axis.ranges[np.triu_indices(len(axis.matrix))]), dtype=np.float64)
        return np.sqrt(variances)

    def _along(self, matrices: list[Floats], values: Integers | Floats) -> Floats:
        grid = np.asarray(values, dtype=np.float64).reshape(self.shape)
        for place, matrix in enumerate(matrices):
            grid = np.moveaxis(np.tensordot(matrix, grid, axes=(1, place)), 0, place)
        return grid.ravel()


@lru_cache(maxsize=8)
def make_grid(shape: tuple[int, ...]) -> Grid:
    """Return the grid whose axes each have the factor of the least variance for its sensitivity."""
    if max(shape) > _LONGEST or math.prod(shape) > _MOST_CELLS:
        raise Infeasible(f"a grid of {shape} is longer or larger than is measured at once; use fewer public points")
    sides = {size: min((_axis(size, exponent) for exponent in _EXPONENTS), key=_cost) for size in set(shape)}
    return Grid(shape, tuple(sides[size] for size in shape))


def _axis(size: int, exponent: float) -> _Axis:
    coefficients = make_factor(size, exponent).coefficients.astype(np.float64)
    matrix = np.tril(toeplitz(coefficients))
    reciprocal = np.linalg.solve(matrix, np.eye(size)[:, 0])
    inverse = np.tril(toeplitz(reciprocal))
    sums = np.concatenate([np.zeros((1, size)), np.cumsum(inverse, axis=0)])
    products = sums @ sums.T
    alone = np.diag(products)
    ranges = alone[None, 1:] + alone[:-1, None] - 2 * products[:-1, 1:]
    return _Axis(matrix, inverse, np.triu(ranges), sum(int(term) ** 2 for term in coefficients))


def _cost(axis: _Axis) -> float:
    return rounded_cost(float(axis.ranges.max()), axis.squares)
