"""What one outcome adds to the moment E_q[(p/q)**order] that a Renyi divergence is the logarithm of."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["excess"]

Floats = NDArray[np.float64]


def excess(p: Floats, q: Floats, order: float) -> Floats:
    """Return q * phi(p / q) with phi(r) = r**order - 1 - order * (r - 1): what an outcome adds to the moment beyond 1.

    Never negative, and free of the cancellation that the plain sum of p**order * q**(1 - order) suffers.

    >>> float(excess(np.array(0.5), np.array(0.5), 2.0))
    0.0
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_ratio = np.log(p) - np.log(q)
        value = q * (np.expm1(order * log_ratio) - order * np.expm1(log_ratio))
    return np.where(p == 0, (order - 1) * q, np.where(q == 0, np.inf, np.maximum(value, 0.0)))
