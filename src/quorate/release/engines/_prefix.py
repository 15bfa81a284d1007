"""The engine `prefix`: thresholds, intervals and boxes by a factorisation of the prefix sums.

Errors grow with logarithms of the cells. A factor is a lower triangular matrix of whole numbers, the same down each
diagonal, held by its first column c, a power series: counts are multiplied by it exactly, and prefix sums come back
through the series 1 / ((1 - z) c(z)). On a grid each axis has its factor; a box is a range along each axis, and the
variance of its answer is the product of theirs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, signal
from scipy.linalg import toeplitz

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible
from quorate.release.engines.base import (
    Measurement,
    MeasuringEngine,
    Planned,
    Public,
    Released,
    expected_largest,
    histogram_scale,
    project_simplex,
)
from quorate.release.queries import BoxRanges, Prefixes, Queries, Ranges

_EXPONENTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of 1 / (1 - z): from the histogram to the square root
_EXACT_SEARCH = 4096  # cells up to which the sensitivity is searched, not bounded
_MOST_CELLS = 4_000_000
_GRID_EXPONENTS = (0.0, 0.2, 0.3, 0.4, 0.5)
_LONGEST, _MOST_GRID_CELLS = 2048, 4_000_000
_STEPS, _FEW_STEPS, _MANY_CELLS = 250, 80, 50_000  # of the search for weights
_MOST_ANSWERS = 5_000_000  # ranges in a list; more are answered from the weights on request


@dataclass(frozen=True)
class Factor:
    """A whole-number series for each of some lines of cells, the squared L2 change of the measured vector when a record
    is replaced, and the variance of each prefix sum of a line for noise of variance 1, the total of all being known.
    """

    coefficients: Integers
    lines: int
    squared_sensitivity: int
    variances: Floats
    _inverse: Floats
    _tail: Floats

    def measure(self, counts: Integers) -> Integers:
        """Return the series times the counts of each line, exactly."""
        size = int(np.abs(self.coefficients).max()) * int(np.abs(counts).sum())
        if size >= 2**52:
            raise Infeasible("these counts are too large to be measured exactly; use fewer records or cells")
        digits = [counts % 4096, counts // 4096]  # a transform of small numbers rounds to the right whole number
        low, high = (np.rint(self._each(self.coefficients, digit)).astype(np.int64) for digit in digits)
        return np.asarray(low + 4096 * high).ravel()

    def prefixes(self, measured: NDArray[np.int64], total: float) -> Floats:
        """Return the best linear estimate of the prefix sums of each line, given that all lines add up to `total`."""
        sums = self._each(self._inverse, measured)
        return np.asarray(sums - self._tail * (sums[:, -1].sum() - total) / self.lines).ravel()

    def _each(self, series: NDArray[np.float64] | Integers, values: Integers) -> Floats:
        return np.stack([_times(series, line) for line in values.reshape(self.lines, -1)])


def _times(first: NDArray[np.float64] | Integers, second: NDArray[np.float64] | Integers) -> Floats:
    """Return the product of two series, cut to the length of the first."""
    series = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    product = np.convolve(*series) if len(first) <= 64 else signal.fftconvolve(*series)
    return np.asarray(product[: len(first)])


def _reciprocal(series: Floats) -> Floats:
    """Return 1 / series by Newton's method: each step doubles the terms that are right."""
    inverse = np.array([1.0 / series[0]])
    while inverse.size < series.size:
        size = min(2 * inverse.size, series.size)
        longer = np.pad(inverse, (0, size - inverse.size))
        error = -_times(series[:size], longer)
        error[0] += 2.0
        inverse = _times(longer, error)
    return inverse


def make_factor(cells: int, exponent: float, lines: int = 1) -> Factor:
    """Return the factor nearest to (1 - z) ** -exponent in whole numbers: 0 is the histogram, 1/2 the square root."""
    if cells * lines > _MOST_CELLS:
        raise Infeasible(f"at most {_MOST_CELLS} cells can be measured at once, got {cells * lines}; use fewer")
    unit = 2 ** math.ceil(math.log2(8 * math.sqrt(cells)))  # rounding a term moves a prefix sum by that little
    steps = np.arange(1, cells)
    exact = np.concatenate([[1.0], np.cumprod((steps - 1 + exponent) / steps)])
    coefficients = np.rint(unit * exact).astype(np.int64)
    inverse = np.cumsum(_reciprocal(coefficients.astype(np.float64)))
    squares = np.cumsum(inverse**2)
    tail = _times(inverse, inverse[::-1]) / squares[-1]  # covariance of each error with that of the total
    variances = np.maximum(squares - tail**2 * squares[-1] / lines, 0.0)
    return Factor(coefficients, lines, _squared_sensitivity(coefficients, lines), variances, inverse, tail)


def _squared_sensitivity(coefficients: Integers, lines: int) -> int:
    """Return the largest squared distance of two columns, exact for few cells and an upper bound for many.

    The columns that are d apart are furthest where the first is column 0: squares of both less twice their product.
    Terms are not negative, so that leaving the product out is a bound; columns of two lines have no product.
    """
    cells = coefficients.size
    if lines > 1 or cells > _EXACT_SEARCH:
        return 2 * sum(int(term) ** 2 for term in coefficients)
    if cells == 1:
        return 1
    upto = np.cumsum(coefficients.astype(object) ** 2)
    products = np.correlate(coefficients, coefficients, mode="full")[cells:]  # whole numbers, exact
    return int(max(upto[-1] + upto[cells - 1 - gap] - 2 * int(products[gap - 1]) for gap in range(1, cells)))


def best_factor(cells: int, lines: int = 1) -> Factor:
    """Return the factor whose worst prefix sum has the least variance for its sensitivity."""
    factors = [make_factor(cells, exponent, lines) for exponent in _EXPONENTS]
    return min(factors, key=lambda factor: rounded_cost(float(factor.variances.max()), factor.squared_sensitivity))


def rounded_cost(variance: float, squared_sensitivity: int) -> float:
    """Return the variance for a sensitivity of 1, to nine digits.

    A release that grows takes the factor again with each update, perhaps on another processor. It must be the same.
    """
    return float(f"{variance * squared_sensitivity:.9g}")


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
        for axis in self._axes:  # covariance of each cell's error with that of the total
            moves = np.asarray(np.kron(moves, axis.inverse @ axis.inverse.sum(axis=0)), dtype=np.float64)
        return np.asarray(cells - moves / moves.sum() * (cells.sum() - total))

    def nearest_weights(self, estimates: Floats) -> Floats:
        """Return nonnegative weights of sum 1 near the estimates, in the metric of the measurement.

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
        for index, matrix in enumerate(matrices):
            grid = np.moveaxis(np.tensordot(matrix, grid, axes=(1, index)), 0, index)
        return grid.ravel()


@lru_cache(maxsize=8)
def make_grid(shape: tuple[int, ...]) -> Grid:
    """Return the grid whose axes each have the factor of the least variance for its sensitivity."""
    if max(shape) > _LONGEST or math.prod(shape) > _MOST_GRID_CELLS:
        raise Infeasible(f"a grid of {shape} is too large to be measured at once; use fewer public points")
    sides = {size: min((_axis(size, exponent) for exponent in _GRID_EXPONENTS), key=_cost) for size in set(shape)}
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


class PrefixEngine(MeasuringEngine):
    """Counts of cells on lines, each measured through a square-root factor (Henzinger, Upadhyay, Upadhyay 2023), with
    the total known and prefix sums made monotone.
    """

    name, answered = "prefix", (Prefixes, Ranges, BoxRanges)

    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        if isinstance(queries, BoxRanges):
            grid = make_grid(queries.shape)
            scale = histogram_scale(epsilon, delta, grid.squared_sensitivity)
            return expected_largest(scale * math.sqrt(grid.largest_variance), queries.cells) / records
        factor = best_factor(queries.length, queries.lines)
        scale = histogram_scale(epsilon, delta, factor.squared_sensitivity)
        deviation = scale * math.sqrt(float(factor.variances.max()))
        largest = expected_largest(deviation, max(queries.cells // 8, 1))  # neighbours err alike
        return largest * (1.0 if isinstance(queries, Prefixes) else 2.0) / records

    def _measure(self, queries: Any, public: Public, noise: float, planned: Planned) -> Measurement:
        """Return the cells of the lines, or of the grid, multiplied by the factor."""
        if isinstance(queries, BoxRanges):
            grid = make_grid(queries.shape)
            return Measurement(
                (grid.squared_sensitivity,),
                lambda private: [grid.measure(private.cells(queries))],
                partial(self._boxes, queries=queries, grid=grid),
                largest=grid.largest_coefficient,
            )
        factor = best_factor(queries.length, queries.lines)
        return Measurement(
            (factor.squared_sensitivity,),
            lambda private: [factor.measure(private.cells(queries))],
            partial(self._lines, queries=queries, factor=factor),
            largest=int(factor.coefficients.max()),
        )

    def _lines(self, noisy: Any, scales: Any, records: int, *, queries: Prefixes | Ranges, factor: Factor) -> Released:
        sums = (factor.prefixes(noisy[0], float(records)) / records).reshape(queries.lines, queries.length)
        raw, weights = (np.diff(lines, prepend=0.0, axis=1).ravel() for lines in (sums, _monotone(sums)))
        deviations = scales[0] * np.sqrt(factor.variances) / records
        largest = float(deviations.max()) * (1.0 if isinstance(queries, Prefixes) else math.sqrt(2.0))
        return self._read_off(queries, raw, weights, lambda: _errors(queries, deviations), largest=largest)

    def _boxes(self, noisy: Any, scales: Any, records: int, *, queries: BoxRanges, grid: Grid) -> Released:
        raw, scale = grid.estimate(noisy[0], float(records)) / records, scales[0] / records
        largest = scale * math.sqrt(grid.largest_variance)
        return self._read_off(
            queries, raw, grid.nearest_weights(raw), lambda: scale * grid.deviations(), largest=largest
        )

    def _read_off(
        self,
        queries: Queries,
        raw: Floats,
        weights: Floats,
        deviations: Callable[[], Floats],
        *,
        largest: float,
    ) -> Released:
        """Return the answers of the weights with the unbiased answers of `raw`, if they are few enough to list."""
        details = {"deviation": largest}
        if queries.count > _MOST_ANSWERS:
            notes = ("answers are read off the weights",)
            return Released(None, None, weights, None, self.name, notes, details)
        errors, answers = deviations(), np.clip(queries.answers(weights), 0.0, 1.0)
        unbiased = queries.answers(raw)
        return Released(answers, errors, weights, None, self.name, (), details, None, unbiased, errors)


def _monotone(sums: Floats) -> Floats:
    """Return the nearest prefix sums of each line that do not fall, from 0 to the line's own total.

    Totals are not negative and add up to 1. On a single line the largest error does not grow by it.
    """
    totals = project_simplex(sums[:, -1])
    rising = np.stack([optimize.isotonic_regression(line).x for line in sums])
    bounded = np.clip(rising, 0.0, totals[:, np.newaxis])
    bounded[:, -1] = totals
    return np.asarray(bounded)


def _errors(queries: Prefixes | Ranges, deviations: Floats) -> Floats:
    """Return one standard deviation an answer; for a range a bound, as if the errors of its ends were independent."""
    if isinstance(queries, Prefixes):
        return np.tile(deviations, queries.lines)
    previous = np.concatenate([[0.0], deviations])
    first, last = np.triu_indices(queries.length)
    return np.tile(np.sqrt(previous[last + 1] ** 2 + previous[first] ** 2), queries.lines)
