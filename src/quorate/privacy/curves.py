"""Renyi divergence of the standard mechanisms, as functions of the order. Upper bounds; proofs in PROOF.md, step 4."""

import math

from quorate.checks import check_count, check_order, check_positive

__all__ = ["exponential_renyi", "gaussian_renyi", "laplace_renyi", "pure_renyi"]


def _log_mean(terms: list[tuple[float, float]]) -> float:
    """Return log of the sum of exp(a) * b over (a, b)."""
    top = max(exponent for exponent, weight in terms if weight > 0)
    return top + math.log(math.fsum(weight * math.exp(exponent - top) for exponent, weight in terms))


def _round_up(value: float) -> float:
    """Return a value above the exact result of a handful of double-precision operations that gave this one."""
    return value * (1 + 2.0**-40)


def pure_renyi(epsilon: float, *, order: float) -> float:
    """Return the largest divergence that any epsilon-DP release can have: that of randomised response.

    Never above `min(epsilon, order * epsilon**2 / 2)`.
    """
    epsilon, order = check_positive("epsilon", epsilon), check_order(order)
    if order == math.inf:
        return epsilon
    likely = 1.0 / (1.0 + math.exp(-epsilon))
    value = _log_mean([((order - 1) * epsilon, likely), (-(order - 1) * epsilon, 1.0 - likely)]) / (order - 1)
    return min(epsilon, _round_up(order * epsilon**2 / 2), _round_up(value) + 2.0**-50 / (order - 1))


def exponential_renyi(epsilon: float, *, order: float) -> float:
    """Return a bound for a release whose log ratios span at most epsilon (the exponential mechanism)."""
    epsilon, order = check_positive("epsilon", epsilon), check_order(order)
    return epsilon if order == math.inf else min(_round_up(order * epsilon**2 / 8), pure_renyi(epsilon, order=order))


def gaussian_renyi(*, scale: float, order: float, sensitivity: float = 1.0) -> float:
    """Return the divergence of (discrete) Gaussian noise for an (integer) change of this L2 length.

    A group of r units costs what `r * sensitivity` costs.
    """
    ratio = check_positive("sensitivity", sensitivity) / check_positive("scale", scale)
    return _round_up(check_order(order) * ratio**2 / 2)


def laplace_renyi(*, scale: float, order: float, sensitivity: int = 1) -> float:
    """Return the divergence of discrete Laplace noise for an integer change of this size."""
    scale, order = check_positive("scale", scale), check_order(order)
    shift = check_count("sensitivity", sensitivity)
    if order == math.inf:
        return _round_up(shift / scale)
    decay = math.exp(-1.0 / scale)
    centre = -math.expm1(-1.0 / scale) / (1.0 + decay)
    terms = [
        ((order - 1) * shift / scale, 1.0 / (1.0 + decay)),
        ((1 - order) * shift / scale, math.exp(-shift / scale) / (1.0 + decay)),
    ]
    terms += [((order - 1) * (shift - 2 * x) / scale, centre * math.exp(-x / scale)) for x in range(1, shift)]
    return min(_round_up(shift / scale), _round_up(_log_mean(terms) / (order - 1)) + 2.0**-48 / (order - 1))
