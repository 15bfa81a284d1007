"""A label that is turned with a stated probability, exactly: randomised response on one bit.

PROOF_CONCEPTS.md, steps 10 and 13, says what that buys.
"""

import secrets
from fractions import Fraction

from quorate.core.errors import InvalidInput

__all__ = ["flip"]


def flip(label: int, probability: Fraction) -> int:
    """Return the label, or with this probability the other one. The draw is exact: a whole number below another."""
    if not 0 <= probability <= 1 or label not in (0, 1):
        raise InvalidInput("flip takes a label, 0 or 1, and a probability")
    return label ^ (secrets.randbelow(probability.denominator) < probability.numerator)
