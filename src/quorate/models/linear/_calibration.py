"""A last look at logistic scores: how many private units have a score of about so much, and how many of them are 1.

Made rows do not know how columns go together, so that the scores of a model fitted by them may be too large or too
small. A noisy table of scores and targets says by how much; it depends on two numbers of private units in each cell and
on nothing that made rows guess.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._sums import PrivateSums

_EDGES = np.linspace(-6.0, 6.0, 25)
_USUAL = 0.5  # the standard deviation of the shift and of the factor, before anything is known
_CELLS = len(_EDGES) + 1
CALIBRATION_ENTRIES = 2 * _CELLS


def calibration(
    score: Callable[[Floats], Floats], private: PrivateSums, noisy: NoisyVectors, fraction: float
) -> tuple[float, float]:
    """Return the shift a and the factor b for which a + b * score are the log odds, as far as the noise shows."""

    def vectors(features: Floats, targets: Floats) -> Floats:
        cell = np.searchsorted(_EDGES, score(features))
        table = np.zeros((len(features), 2 * _CELLS))
        table[np.arange(len(features)), cell + _CELLS * (targets[:, 0] > 0.5)] = 1.0
        return table

    table, noise = private.release(vectors, entries=CALIBRATION_ENTRIES, radius=1.0, noisy=noisy, fraction=fraction)
    share, ones = np.maximum(table[:_CELLS] + table[_CELLS:], 0.0), table[_CELLS:]
    middle = np.concatenate([[_EDGES[0]], (_EDGES[1:] + _EDGES[:-1]) / 2, [_EDGES[-1]]])
    columns = np.stack([np.ones(_CELLS), middle], axis=1)
    found = np.array([0.0, 1.0])
    for _ in range(30):
        p = expit(columns @ found)
        slope = columns * (share * p * (1 - p))[:, None]
        variance = share * p * (1 - p) / private.units + noise**2 * ((1 - p) ** 2 + p**2) + 1e-12
        precision = (slope / variance[:, None]).T @ slope + np.eye(2) / _USUAL**2
        miss = (slope / variance[:, None]).T @ (ones - share * p) + (np.array([0.0, 1.0]) - found) / _USUAL**2
        step = np.linalg.solve(precision, miss)
        found = found + np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-6:
            break
    return float(found[0]), float(max(found[1], 0.05))
