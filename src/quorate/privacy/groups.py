"""Group privacy: what a guarantee for one unit says about several."""

import math
from fractions import Fraction

from quorate.checks import check_count, check_delta, check_positive
from quorate.rounding import float_up

__all__ = ["group_privacy"]


def group_privacy(*, epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Return the (epsilon, delta), rounded up, that holds for `size` units changed together.

    This is the rule that needs nothing but the guarantee. A mechanism whose curve is known does better: recompute it
    with `size` times the sensitivity (the functions of `quorate.privacy.curves` take a sensitivity).
    """
    epsilon, delta, size = check_positive("epsilon", epsilon), check_delta(delta), check_count("size", size)
    if size * epsilon > 700:  # exp would overflow, and delta is 1 long before
        return float_up(size * Fraction(epsilon)), 0.0 if delta == 0 else 1.0
    factor = math.expm1(size * epsilon) / math.expm1(epsilon)
    return float_up(size * Fraction(epsilon)), min(1.0, delta * factor * (1 + 2.0**-40))
