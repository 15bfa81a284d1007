"""Exact draws from weights that no floating-point number can hold. PROOF.md has the steps.

Every law here is the stated one, without an error: integers come from the operating system, floating-point numbers only
make proposals, and whether a proposal stands is decided by enclosures of the true number that narrow until they decide.
"""

import decimal
import itertools
from fractions import Fraction

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.noise import NoiseSource

__all__ = ["draw_below", "draw_level", "enclose_exp", "happens", "proposal_weights"]

_MOST_CANDIDATES = 2**62
_SCALE = 61  # bits of the largest sum of proposal weights, but for the margin
_MARGIN = 2.0**-20  # by which a proposal weight exceeds its floating-point value: far above all rounding (step 2)


def draw_below(bound: int, noise: NoiseSource) -> int:
    """Return a uniform integer from 0 to `bound` - 1."""
    bits = (bound - 1).bit_length()
    while True:
        drawn = 0
        for word in noise.words((bits + 63) // 64).tolist():
            drawn = drawn << 64 | word
        drawn &= (1 << bits) - 1
        if drawn < bound:
            return drawn


def enclose_exp(exponent: Fraction, *, digits: int) -> tuple[Fraction, Fraction]:
    """Return two fractions around exp(-exponent), closer to each other the more digits are asked for."""
    largest = 1000 * digits  # beyond, the number itself would fill the memory; more digits reach further
    if exponent > largest:
        return Fraction(0), enclose_exp(Fraction(largest), digits=digits)[1]
    down, up = _context(digits, decimal.ROUND_FLOOR), _context(digits, decimal.ROUND_CEILING)
    top, bottom = decimal.Decimal(exponent.numerator), decimal.Decimal(exponent.denominator)
    # exp is rounded to the nearest, whatever the context says: one step outwards encloses it
    low = up.divide(top, bottom).copy_negate().exp(down).next_minus(down)
    high = down.divide(top, bottom).copy_negate().exp(up).next_plus(up)
    return max(Fraction(low), Fraction(0)), min(Fraction(high), Fraction(1))


def _context(digits: int, rounding: str) -> decimal.Context:
    """Return a decimal context of this many digits, with the widest exponents, that never raises."""
    return decimal.Context(prec=digits, rounding=rounding, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[])


def happens(factor: Fraction, exponent: Fraction, noise: NoiseSource) -> bool:
    """Return whether an event of probability factor * exp(-exponent), which is at most 1, takes place."""
    drawn = 0
    for step in itertools.count(1):
        drawn = drawn << 64 | int(noise.words(1)[0])  # the uniform number lies between drawn and drawn + 1, over unit
        unit = 1 << 64 * step
        if exponent == 0:
            low = high = factor
        else:
            low, high = (factor * end for end in enclose_exp(exponent, digits=24 * step + 6))
        if drawn + 1 <= low * unit:  # proof: step 3
            return True
        if drawn >= high * unit:
            return False
    raise AssertionError("the loop above has no end but a decision")


def proposal_weights(counts: Integers, rate: Fraction) -> tuple[Integers, int]:
    """Return whole numbers at least counts * exp(-rate * (m - least)) * 2**shift, barely more, and shift."""
    least = int(np.flatnonzero(counts)[0])
    with np.errstate(over="ignore", under="ignore"):
        fading = np.exp(-float(rate) * np.arange(counts.size - least))
    weights = counts[least:] * fading
    shift = _SCALE - int(np.frexp(weights.sum())[1])
    bounds = np.zeros(counts.size, dtype=np.int64)
    bounds[least:] = np.floor(np.ldexp(weights * (1 + _MARGIN), shift)).astype(np.int64) + 1  # proof: step 2
    bounds[counts == 0] = 0
    return bounds, shift


def draw_level(counts: Integers, rate: Fraction, noise: NoiseSource) -> int:
    """Return m with probability proportional to counts[m] * exp(-rate * m)."""
    total = sum(int(part.sum()) for part in np.array_split(counts, counts.size // 2**20 + 1))
    if not 0 < total < _MOST_CANDIDATES:
        raise InvalidInput("a choice is among at least one candidate and fewer than 2**62")
    bounds, shift = proposal_weights(counts, rate)
    upto, least = np.cumsum(bounds), int(np.flatnonzero(counts)[0])
    while True:
        level = int(np.searchsorted(upto, draw_below(int(upto[-1]), noise), side="right"))
        factor = Fraction(int(counts[level]) << max(shift, 0), int(bounds[level]) << max(-shift, 0))
        if happens(factor, rate * (level - least), noise):
            return level
