"""Whole-number factors of the prefix sums: lower triangular, and the same down each diagonal.

A factor is held by its first column c, a power series: counts are multiplied by it exactly, and prefix sums come back
through the series 1 / ((1 - z) c(z)).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible

__all__ = ["Factor", "best_factor", "make_factor", "rounded_cost"]

_EXPONENTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of 1 / (1 - z): from the histogram to the square root
_EXACT_SEARCH = 4096  # cells up to which the sensitivity is searched, not bounded
_MOST_CELLS = 4_000_000


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
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    product = np.convolve(one, two) if one.size <= 64 else signal.fftconvolve(one, two)
    return np.asarray(product[: one.size])


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
        raise Infeasible(f"{cells * lines} cells are more than the {_MOST_CELLS} that are measured at once; use fewer")
    unit = 2 ** math.ceil(math.log2(8 * math.sqrt(cells)))  # rounding a term moves a prefix sum by that little
    steps = np.arange(1, cells)
    exact = np.concatenate([[1.0], np.cumprod((steps - 1 + exponent) / steps)])
    coefficients = np.rint(unit * exact).astype(np.int64)
    inverse = np.cumsum(_reciprocal(coefficients.astype(np.float64)))
    squares = np.cumsum(inverse**2)
    tail = _times(inverse, inverse[::-1]) / squares[-1]  # how each error goes with that of the total
    variances = np.maximum(squares - tail**2 * squares[-1] / lines, 0.0)
    return Factor(coefficients, lines, _squared_sensitivity(coefficients, lines), variances, inverse, tail)


def _squared_sensitivity(coefficients: Integers, lines: int) -> int:
    """Return the largest squared distance of two columns: exact for few cells, a bound above it for many.

    The columns that are d apart are furthest where the first is column 0: squares of both less twice their product.
    Terms are not negative, so that leaving the product out is a bound; columns of two lines have no product.
    """
    cells = coefficients.size
    if lines > 1:
        return 2 * sum(int(term) ** 2 for term in coefficients)
    if cells == 1:
        return 1
    upto = np.cumsum(coefficients.astype(object) ** 2) if cells <= _EXACT_SEARCH else None
    if upto is None:
        total = sum(int(term) ** 2 for term in coefficients)
        return 2 * total
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
