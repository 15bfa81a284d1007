"""How many examples the published construction asks for, by its own constants."""

import math

from quorate.checks import check_count, check_delta, check_positive

__all__ = ["published_records"]

_TAU = 1.1e10  # the paper's tau must be above this


def published_records(*, vc_dimension: int, epsilon: float, delta: float, alpha: float, beta: float) -> float:
    """Return the n of GenericBBL (Naor, Nissim, Stemmer and Yan 2023, section 5), logarithms to base 2.

    For error 6 alpha with probability 1 - 4 beta, at epsilon below 1 and alpha, beta and delta below 1/16; epsilon = 1
    is taken as the limit.

    >>> f"{published_records(vc_dimension=1, epsilon=1.0, delta=1e-6, alpha=0.05, beta=0.05):.1e}"
    '3.6e+25'
    """
    epsilon, alpha, beta = (
        check_positive("epsilon", epsilon),
        check_positive("alpha", alpha),
        check_positive("beta", beta),
    )
    delta, dimension = check_delta(delta, zero=False), check_count("vc_dimension", vc_dimension)
    learning = 8 * dimension * math.log2(26 / alpha) + 4 * math.log2(4 / beta)
    chances = math.log2(1 / delta) * math.log2(8 * learning / (epsilon * alpha**2 * beta * delta)) ** 2
    return 8 * _TAU / (alpha**3 * epsilon**2) * learning**2 * chances * (3 + math.exp(epsilon + 4))
