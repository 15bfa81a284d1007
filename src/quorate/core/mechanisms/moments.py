"""What one outcome adds to the moment E_q[(p/q)**order] that a Renyi divergence is the logarithm of."""

import numpy as np

from quorate.core.arrays import Floats

__all__ = ["excess", "excess_of_logs"]


def excess(p: Floats, q: Floats, order: float) -> Floats:
    """Return q * phi(p / q) with phi(r) = r**order - 1 - order * (r - 1): what an outcome adds to the moment beyond 1.

    Never negative, and free of the cancellation that the plain sum of p**order * q**(1 - order) suffers.
    """
    with np.errstate(divide="ignore"):
        return excess_of_logs(np.log(p), np.log(q), order)


def excess_of_logs(log_p: Floats, log_q: Floats, order: float) -> Floats:
    """Return the same from logarithms, also where the probabilities themselves would underflow. Infinite, never nan."""
    with np.errstate(invalid="ignore", over="ignore"):
        log_ratio = log_p - log_q
        p, q = np.exp(log_p), np.exp(log_q)
        near = q * (np.expm1(order * log_ratio) - order * np.expm1(log_ratio))
        far = np.exp(order * log_ratio + log_q) + (order - 1) * q - order * p
        value = np.maximum(np.where(np.abs(order * log_ratio) < 1, near, far), 0.0)
    value = np.where(np.isneginf(log_p), (order - 1) * q, np.where(np.isnan(value), np.inf, value))
    return np.where(np.isneginf(log_q) & ~np.isneginf(log_p), np.inf, value)
