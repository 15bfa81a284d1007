"""How much of a population two hypotheses can differ on that agree on a sample of it."""

import math

from quorate.checks import check_count, check_rate
from quorate.concepts import Concept

__all__ = ["gap_share", "list_share", "pair_share"]


def gap_share(points: int, beta: float, gaps: int = 1) -> float:
    """Return what the largest gap between so many points of a line holds at most, with probability 1 - beta.

    A gap that holds more than g has none of the points in it. By symmetry each of the points + 1 gaps between
    independent points holds more than g with probability (1 - g)**points, and ties only make gaps smaller. `gaps` is
    how many gaps a hypothesis can be wrong on; each is at most the largest.

    >>> round(gap_share(10_000, 0.05), 5)
    0.00122
    >>> gap_share(0, 0.05)
    1.0
    """
    points, beta = check_count("points", points, least=0), check_rate("beta", beta)
    largest = -math.expm1(math.log(beta / (points + 1)) / points) if points else 1.0
    return min(1.0, gaps * largest)


def list_share(members: int, points: int, beta: float) -> float:
    """Return on how much two of so many hypotheses differ at most if they agree on all points.

    A pair that differs on more than g agrees on all points with probability (1 - g)**points at most.

    >>> round(list_share(100, 10_000, 0.05), 5)
    0.00115
    """
    points, beta = check_count("points", points, least=0), check_rate("beta", beta)
    pairs = math.comb(members, 2)
    if pairs == 0:
        return 0.0
    return min(1.0, -math.expm1(math.log(min(1.0, beta / pairs)) / points)) if points else 1.0


def pair_share(concept: Concept, points: int, beta: float) -> float:
    """Return on how much two hypotheses of a class differ at most if they agree on all points, by its growth function.

    By a ghost sample as large as the first (Haussler and Welzl 1987), for pairs of hypotheses: such a pair exists with
    probability 2 growth(2 points)**2 2**(-share points / 2) at most. It says something from some hundred points on.

    >>> from quorate.concepts import Halfspaces
    >>> pair_share(Halfspaces(2), 40, 0.05), round(pair_share(Halfspaces(2), 10_000, 0.05), 3)
    (1.0, 0.012)
    """
    points, beta = check_count("points", points, least=0), check_rate("beta", beta)
    if points == 0:
        return 1.0
    return min(1.0, 2 / points * (1 + 2 * math.log2(concept.growth(2 * points)) - math.log2(beta)))
