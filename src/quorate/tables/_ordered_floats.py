"""Floats in their order as whole numbers, so that a public tree can divide all of them, and short decimals."""

import math
from decimal import ROUND_CEILING, Context, Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats

NEXT_TO_0 = 5e-324
_DIGITS = 17  # of a decimal: as many tell any two floats apart
_TOP = np.uint64(2**63)

Keys = NDArray[np.uint64]


def keys_of_numbers(values: Floats) -> Keys:
    """Return whole numbers in the order of the values, without those that are no number."""
    bits = (values[~np.isnan(values)] + 0.0).view(np.int64)  # -0.0 becomes 0.0
    return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))).view(np.uint64) ^ _TOP


def number_of_key(key: int) -> float:
    """Return the number of a key."""
    bits = np.array([key], dtype=np.uint64) ^ _TOP
    signed = bits.view(np.int64)
    return float((signed ^ ((signed >> 63) & np.int64(2**63 - 1))).view(np.float64)[0])


def divide_range(low: float, high: float, parts: int) -> list[float]:
    """Return the inner ends of `parts` ranges between two finite floats, each with as many floats as the others.

    Between two powers of two the ranges have one width. Ends that fall together are left out.
    """
    first, last = (int(keys_of_numbers(np.array([end]))[0]) for end in (low, high))
    keys = [first + (last - first) * index // parts for index in range(1, parts)]
    return sorted({number_of_key(key) for key in keys if first < key < last})


def shortest_decimal(low: float, width: float) -> float:
    """Return the number of fewest decimals that is not below `low` and less than `width` above it.

    The number next to 0 stays, so that 0 has a cell of its own.
    """
    if not math.isfinite(low) or low == NEXT_TO_0:
        return low
    with localcontext(Context()):  # not the caller's, which may have fewer digits, or raise where some are lost
        lower, upper = Decimal(repr(low)), Decimal(repr(low)) + Decimal(width)
        first = max(lower.adjusted(), upper.adjusted()) + 1
        for index in range(first, first - _DIGITS, -1):
            number = lower.scaleb(-index).to_integral_value(ROUND_CEILING).scaleb(index)
            if number < upper:
                return float(number) + 0.0  # -0.0 becomes 0.0
    return low
