"""Numbers rounded to a grid, so that a product of matrices adds them up exactly, in whatever order (PROOF.md).

A query is rounded to 26 bits below its largest feature, the coefficients of a score to 27 bits below the sum of their
magnitudes. Every sum of their products is then a whole number of grid steps of at most 2**53, which a double holds
exactly. Where this is not precise enough, what was rounded off is rounded to a finer grid, as a second slice.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from quorate.learners.inputs import Matrix

__all__ = ["SOUND", "gridded_coefficients", "gridded_queries", "sliced"]

SOUND = 1e200  # of a coefficient's magnitude: beyond, a score could overflow

_QUERY_BITS = 26
_COEFFICIENT_BITS = 27  # together 53, the bits of a double
_FINEST = 500  # no grid has steps below 2**-500: the product of two steps is a normal number
_CELLS = 2**18  # coefficients rounded together


def gridded_queries(queries: Matrix) -> Matrix:
    """Return queries rounded to a grid, each to one of its own: whole numbers of up to 2**26 times a power of 2.

    A largest magnitude is the same in any order, and all else is done to each number by itself: so a rounded query does
    not depend on its company. Magnitudes must be at most 1e76, the square of `LARGEST`.
    """
    exponents = _exponents(np.abs(queries).max(axis=1, keepdims=True), _QUERY_BITS)
    rounded: Matrix = np.rint(queries * np.ldexp(1.0, exponents)) * np.ldexp(1.0, -exponents)  # proof: step 2
    return rounded


def gridded_coefficients(coefficients: Matrix) -> Matrix:
    """Return coefficients (teachers, scores, columns) rounded to a grid, those of each teacher to one of its own.

    Each score's are whole numbers whose magnitudes sum to 2**27 at most, times a power of 2. Rounding again changes
    nothing. Magnitudes beyond 1e200 are counted as 1e200.
    """
    rounded = np.empty(coefficients.shape)
    teachers, scores, columns = coefficients.shape
    together = max(1, _CELLS // (scores * columns))
    for start in range(0, teachers, together):
        rounded[start : start + together] = _gridded_teachers(coefficients[start : start + together])
    return rounded


def _gridded_teachers(coefficients: Matrix) -> Matrix:
    clipped = np.clip(coefficients, -SOUND, SOUND)
    exponents = _exponents(np.abs(clipped).max(axis=(1, 2), keepdims=True), _COEFFICIENT_BITS)
    for _ in range(coefficients.shape[2].bit_length()):  # halving so often is enough for every teacher: proof, step 1
        sums = np.abs(np.rint(clipped * np.ldexp(1.0, exponents))).sum(axis=2, keepdims=True)  # of whole numbers: exact
        exponents = exponents - (sums.max(axis=1, keepdims=True) > 2.0**_COEFFICIENT_BITS)
    rounded: Matrix = np.rint(clipped * np.ldexp(1.0, exponents)) * np.ldexp(1.0, -exponents)  # proof: step 1
    return rounded


def _exponents(largest: Matrix, bits: int) -> NDArray[np.int64]:
    """Return the finest grids, as numbers of binary places, on which `largest` is at most 2**bits steps."""
    mantissas, exponents = np.frexp(largest)
    places: NDArray[np.int64] = np.minimum(bits - exponents + (mantissas == 0.5), _FINEST)
    return places


def sliced(gridded: Callable[[Matrix], Matrix], values: Matrix, slices: int) -> list[Matrix]:
    """Return values as this many slices, each of what the one before rounded off."""
    parts: list[Matrix] = []
    for _ in range(slices):
        parts.append(gridded(values))
        values = values - parts[-1]
    return parts
