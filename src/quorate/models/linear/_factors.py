"""How columns go together where no public rows say it: a noisy second moment, as far as it stands out of its noise.

Made rows of independent columns have the right curvature for each column alone. Along what many columns share, a step
by that curvature is too long by their number. The noisy second moment corrects the few directions in which it clearly
differs from made rows; all others stay as independent columns have them.
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import block_diag, eigh

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import lengths

_VISIBLE = 0.02  # of all variance: the noise that is aimed at, measured by its largest eigenvalue
_HOPELESS = 0.25  # of all variance: noise above which a second moment is not worth its budget
_LARGEST_FRACTION = 0.15  # of the budget that is left
_MOST_COLUMNS = 1000  # with half a million pairs
_LONGEST_QUANTILE, _LONGER = 0.99, 1.15  # of made rows: where rows of a second moment are clipped
_LEAST_VARIANCE = 0.05  # of made rows in a direction, below which it is never taken to be
_NOTHING = 1e-6  # of the largest variance, below which a direction has none


def moment_entries(width: int) -> int:
    """Return how many entries the second moment of so many columns has, if it may be released at all."""
    return width * (width + 1) // 2 if width <= _MOST_COLUMNS else 0


def moment_fraction(private: PrivateSums, noisy: NoisyVectors, width: int) -> float:
    """Return the part of the budget that a second moment of so many columns takes: 0 where it would show nothing."""
    if width > _MOST_COLUMNS:
        return 0.0
    edge = 2 * np.sqrt(width) * private.moment_scale(noisy, 1.0) / private.units  # of noise alone, at the whole budget
    if edge > _HOPELESS * np.sqrt(_LARGEST_FRACTION):
        return 0.0
    return float(min(_LARGEST_FRACTION, (edge / _VISIBLE) ** 2))


def correlate_rows(
    made: Floats, sizes: Sequence[int], private: PrivateSums, noisy: NoisyVectors, fraction: float
) -> Floats:
    """Return made rows moved so that they share what the private rows share, for this part of the budget.

    `sizes` are the widths of the blocks of columns within which made rows are right already.
    """
    centre = made.mean(axis=0)
    moved = made - centre
    radius = float(np.quantile(lengths(moved), _LONGEST_QUANTILE)) * _LONGER + 1e-6
    moment, noise = private.release_moment(
        lambda features: features - centre, width=len(centre), radius=radius, noisy=noisy, fraction=fraction
    )
    return np.asarray(centre + moved @ _transport(moved.T @ moved / len(moved), moment, noise, sizes))


def _transport(independent: Floats, moment: Floats, noise: float, sizes: Sequence[int]) -> Floats:
    """Return the map that gives rows of independent blocks the second moment of private rows, as far as it is seen.

    What varies more than made rows do, beyond the largest eigenvalue of the noise, is taken as it was measured. What
    varies less is taken to vary as much as the noise allows: where curvature is unsure, a step too short is the lesser
    harm.
    """
    independent = np.where(block_diag(*(np.ones((size, size)) for size in sizes)) > 0, independent, 0.0)
    edge = 2 * noise * np.sqrt(len(moment))
    values, vectors = eigh(moment - independent)
    more = np.where(values > edge, values, np.minimum(values + edge, 0.0))
    root, inverse = _roots(independent)
    relative, turn = eigh(np.eye(len(moment)) + inverse @ (vectors * more) @ vectors.T @ inverse)
    middle = (turn * np.sqrt(np.maximum(relative, _LEAST_VARIANCE))) @ turn.T
    return np.asarray(inverse @ middle @ root)


def _roots(matrix: Floats) -> tuple[Floats, Floats]:
    """Return the square root of a positive matrix, and the inverse of that where the matrix is not about 0."""
    values, vectors = eigh(matrix)
    root = np.sqrt(np.maximum(values, 0.0))
    inverse = np.where(values > _NOTHING * values[-1], 1 / np.maximum(root, 1e-150), 0.0)
    return (vectors * root) @ vectors.T, (vectors * inverse) @ vectors.T
