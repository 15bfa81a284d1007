"""Arithmetic on private rows whose result does not depend on order, block size or kernel: PROOF.md, step 2.

Matrix products and sums of floats round differently in different blocks. Here the numbers lie on grids of powers of 2
that are coarse enough for a double to hold every partial sum exactly.
"""

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.linear import gridded_coefficients
from quorate.core.arrays import Floats

_FEATURES = 2.0**26  # steps of a feature: with weights of 27 bits a sum of products has 53
_ROWS = 2.0**30  # steps of a row's vector, in units of the radius
_LONGEST = 4.0  # an entry of a row's vector, in the same units: 2**31 rows add up within 64 bits


def exact_features(features: Floats) -> Floats:
    """Return features rounded to multiples of 2**-26, row by row in memory."""
    rounded = np.multiply(features, _FEATURES, order="C")
    np.rint(rounded, out=rounded)
    rounded *= 1 / _FEATURES
    return rounded


def exact_weights(weights: Floats) -> Floats:
    """Return a vector of weights, or each column of a matrix, on a grid of 27 bits below the sum of its magnitudes.

    The product with rows of `exact_features` within [-1, 1] is then exact. Rounding again changes nothing.
    """
    columns = np.atleast_2d(np.asarray(weights, dtype=np.float64).T)
    rounded = gridded_coefficients(columns[:, np.newaxis, :])[:, 0]
    return np.ascontiguousarray(rounded.T.reshape(np.shape(weights)))


def lengths(vectors: Floats) -> Floats:
    """Return the length of each row to about six digits.

    The entries are rounded relative to the row's largest, so that their squares are whole numbers that add up to less
    than 2**53.
    """
    steps = 2.0 ** ((53 - int(vectors.shape[1]).bit_length()) // 2)
    largest = np.maximum(vectors.max(axis=1, initial=0.0), -vectors.min(axis=1, initial=0.0))
    whole = vectors * (steps / np.maximum(largest, 1e-300))[:, None]
    np.rint(whole, out=whole)
    return np.asarray(largest * (np.sqrt(np.einsum("ij,ij->i", whole, whole)) / steps))


def clip_rows(vectors: Floats, radius: float) -> Floats:
    """Return each row shortened to `radius` where it is longer."""
    return np.asarray(vectors * np.minimum(1.0, radius / np.maximum(lengths(vectors), 1e-300))[:, None])


def unit_means(vectors: Floats, firsts: NDArray[np.int64], radius: float) -> Floats:
    """Return the mean over each unit's rows, the first of which `firsts` names: a sum of whole numbers, divided once.

    What is no number counts as the largest entry.
    """
    bounded = np.fmax(np.fmin(vectors / radius, _LONGEST), -_LONGEST)
    totals = np.add.reduceat(np.rint(bounded * _ROWS).astype(np.int64), firsts, axis=0)
    return np.asarray(totals / (np.diff(firsts, append=len(vectors)) * _ROWS)[:, None] * radius)
