"""Amplification by sampling without replacement, for replace-one neighbours (Balle, Barthe and Gaboardi 2018).

The result is an (epsilon, delta) statement. It cannot be put back into a budget that is kept at one Renyi order: a
run that is amplified has a budget of its own.
"""

import math

from quorate.checks import check_delta, check_positive, check_rate

__all__ = ["amplify", "amplify_inverse"]

_UP = 1 + 2.0**-48


def amplify(*, epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """Return (epsilon, delta), rounded up, of a mechanism run on a secret random share of the units."""
    epsilon, delta, rate = check_positive("epsilon", epsilon), check_delta(delta), check_rate("rate", rate)
    if epsilon < 30:
        sampled = math.log1p(rate * math.expm1(epsilon))
    else:  # the same, where the exponential would overflow
        sampled = epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon)) + epsilon * 2.0**-50
    return min(epsilon, sampled * _UP), min(delta, rate * delta * _UP)


def amplify_inverse(*, epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """Return the (epsilon, delta), rounded down, of a mechanism whose amplified run meets the target."""
    epsilon, delta, rate = check_positive("epsilon", epsilon), check_delta(delta), check_rate("rate", rate)
    if epsilon < 30:
        inner = math.log1p(math.expm1(epsilon) / rate)
    else:
        inner = epsilon + math.log(1 / rate - (1 - rate) / rate * math.exp(-epsilon)) - epsilon * 2.0**-50
    return inner / _UP, min(delta / rate, 1.0 - 2.0**-53) / _UP
