"""How well a class of hypotheses is learned from so many rows: explicit bounds, in expectation, from public numbers.

`log_growth(m)` is the logarithm of the number of dichotomies of m points (Sauer's bound, or the class's own). Every
routine returns an upper bound. All of them integrate a tail: if P(X > t) <= A exp(-b t) for all t, then
E X <= (log A + 1) / b.
"""

import math
from collections.abc import Callable
from functools import cache

from quorate.core.checks import check_count

__all__ = [
    "LogGrowth",
    "choice_excess",
    "consistent_error",
    "cover_deviation",
    "deviation",
    "net_error",
    "sauer_growth",
]

LogGrowth = Callable[[int], float]

_HALVES = math.log(2) / 2


def sauer_growth(dimension: int) -> LogGrowth:
    """Return the logarithm of Sauer's bound for a class of this VC dimension."""
    dimension = check_count("vc_dimension", dimension)

    @cache
    def log_growth(points: int) -> float:
        if points <= dimension:
            return points * math.log(2)
        if dimension > 30:
            return dimension * (1 + math.log(points / dimension))  # (e m / d)^d
        return math.log(sum(math.comb(points, size) for size in range(dimension + 1)))

    return log_growth


def deviation(log_growth: LogGrowth, rows: int) -> float:
    """Return by how much the error of a hypothesis exceeds its share of mistakes on `rows` rows, over all at once.

    Symmetrisation and Massart's lemma: sqrt(2 log growth(n) / n).
    """
    return math.sqrt(2 * log_growth(rows) / rows)


def cover_deviation(log_candidates: float, rows: int) -> float:
    """Return the same for a list of candidates that does not depend on the rows: sqrt(log N / (2 n))."""
    return math.sqrt(log_candidates / (2 * rows))


def choice_excess(log_candidates: float, *, epsilon: float, rows: int) -> float:
    """Return by how much the exponential mechanism's choice has a larger share of mistakes than the best candidate."""
    return 2 / epsilon * (log_candidates + 1) / rows


def net_error(log_growth: LogGrowth, points: int) -> float:
    """Return how often two hypotheses differ that agree on so many random points, over all pairs at once.

    A pair that differs with probability t agrees on m points, whichever it is, with probability at most
    2 growth(2m)^2 2^(-t m / 2).
    """
    return min(1.0, (math.log(2) + 2 * log_growth(2 * points) + 1) / (_HALVES * points))


def consistent_error(log_growth: LogGrowth, rows: int) -> float:
    """Return the error of a hypothesis that is right on so many rows, where one of the class is right on all.

    P(some such hypothesis has error t) <= 2 growth(2n) 2^(-t n / 2) (Blumer et al. 1989).
    """
    return min(1.0, (math.log(2) + log_growth(2 * rows) + 1) / (_HALVES * rows))
