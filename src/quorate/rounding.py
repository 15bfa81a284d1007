"""Doubles on the safe side of an exact value."""

import math
from fractions import Fraction

__all__ = ["float_down", "float_up", "text_up"]


def float_up(exact: Fraction) -> float:
    """Return the smallest double that is not below `exact`."""
    value = float(exact)
    return value if Fraction(value) >= exact else math.nextafter(value, math.inf)


def float_down(exact: Fraction) -> float:
    """Return the largest double that is not above `exact`."""
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)


def text_up(value: float) -> str:
    """Return a number as a short text that is not below it, for a claim."""
    short = f"{value:g}"
    return short if float(short) >= value else repr(float(value))
