"""Round results of NumPy so that their last bits, which differ between processors, reach no cost and no decision.

NumPy and BLAS choose kernels by processor. Between two of them, the costs of this package agree to about 2**-37
relatively, and tails to 2**-50. So a cost is rounded up to 20 significant bits and a tail to 24. Two processors then
charge the same quanta, unless a value lies within that distance of a step; and both are upper bounds.
A bound that is checked again when a model is loaded allows for the difference (`exceeds`).
"""

import math

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.privacy import Cost

__all__ = ["TAIL_BITS", "exceeds", "least_charge", "stable_levels", "stable_up"]

TAIL_BITS = 24
_COST_BITS = 20
_LEVEL_DECIMALS = 3
_RECOMPUTED = 1 + 2.0**-40  # less than the rounding up of every value that is compared


def stable_up(value: float, *, bits: int = _COST_BITS) -> float:
    """Return a cost or a probability, at least 0, rounded up to this many significant bits."""
    if value == 0 or math.isinf(value):
        return value
    fraction, exponent = math.frexp(value)
    return math.ldexp(math.ceil(math.ldexp(fraction, bits)), exponent - bits)


def least_charge(cost: Cost) -> Cost:
    """Return the least that another processor charges for a cost that is rounded by `stable_up`: one step less."""
    return Cost(cost.renyi * (1 - 2.0 ** (2 - _COST_BITS)), cost.slack)


def stable_levels(levels: Floats) -> Floats:
    """Return numbers of levels rounded to thousandths; settings that differ by less are equally good."""
    return np.asarray(np.round(levels, _LEVEL_DECIMALS))


def exceeds(value: float, bound: float) -> bool:
    """Return whether a value that was rounded up by 2**-34 or more exceeds a bound.

    The bound may be the same value from another processor, which is then not exceeded.
    """
    return value > bound * _RECOMPUTED
