"""How much of a population two hypotheses can differ on that agree on a sample of it."""

import math

from quorate.core.checks import check_count, check_rate
from quorate.models.concepts import Boxes, Concept, Conjunctions, Finite, Intervals, Stumps, Thresholds

__all__ = ["cover_share", "gap_share", "list_share", "pair_share"]


def cover_share(concept: Concept, points: int, beta: float) -> float:
    """Return a bound on how much of the population a hypothesis and its query of the cover differ on."""
    if isinstance(concept, Conjunctions) or (isinstance(concept, Stumps) and concept.binary):
        return 0.0  # every hypothesis is a query
    if isinstance(concept, Finite):
        return list_share(len(concept.members), points, beta)
    if isinstance(concept, Thresholds | Stumps):
        return gap_share(points, beta / concept.features)
    if isinstance(concept, Intervals | Boxes):  # two ends on each axis
        return gap_share(points, beta / concept.features, gaps=2 * concept.features)
    return pair_share(concept, points, beta)


def gap_share(points: int, beta: float, gaps: int = 1) -> float:
    """Return what the largest gap between so many points of a line holds at most, with probability 1 - beta.

    A gap that holds more than g has none of the points in it. By symmetry each of the points + 1 gaps between
    independent points holds more than g with probability (1 - g)**points, and ties only make gaps smaller. `gaps` is
    how many gaps a hypothesis can be wrong on; each is at most the largest.
    """
    points, beta = check_count("points", points, least=0), check_rate("beta", beta)
    largest = -math.expm1(math.log(beta / (points + 1)) / points) if points else 1.0
    return min(1.0, gaps * largest)


def list_share(members: int, points: int, beta: float) -> float:
    """Return on how much two of so many hypotheses differ at most if they agree on all points.

    A pair that differs on more than g agrees on all points with probability (1 - g)**points at most.
    """
    points, beta = check_count("points", points, least=0), check_rate("beta", beta)
    pairs = math.comb(members, 2)
    if pairs == 0:
        return 0.0
    return min(1.0, -math.expm1(math.log(min(1.0, beta / pairs)) / points)) if points else 1.0


def pair_share(concept: Concept, points: int, beta: float) -> float:
    """Return on how much two hypotheses of a class differ at most if they agree on all points, by its growth function.

    By a ghost sample (Haussler and Welzl 1987) of a size g of our choice (Komlos, Pach and Woeginger 1992): if a pair
    differs on a share k/g and agrees on the points, then with probability 1/2 at least k points of the ghost lie where
    it differs, and none of the sample. Given both samples together, that has probability (g choose k) over (points + g
    choose k) at most for one pair, and there are no more kinds of pairs than pairs of dichotomies.
    """
    points, beta = check_count("points", points, least=0), check_rate("beta", beta)
    return min([1.0, *(_ghost_share(concept, points, beta, max(1, points * eighths // 8)) for eighths in _GHOSTS)])


_GHOSTS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)  # sizes of the ghost sample, in eighths of the sample


def _ghost_share(concept: Concept, points: int, beta: float, ghost: int) -> float:
    """Return k/g for the least k that makes the probability of a bad pair at most beta, 1 where there is none."""
    pairs = math.comb(concept.growth(points + ghost), 2) + 1
    allowed = math.log(beta) - math.log(2) - _log(pairs)
    low, high = 0, ghost + 1  # the probability falls with k: `low` is too few
    while high - low > 1:
        middle = (low + high) // 2
        chance = _log_falling(ghost, middle) - _log_falling(points + ghost, middle)
        low, high = (low, middle) if chance <= allowed else (middle, high)
    return high / ghost if high <= ghost else 1.0


def _log_falling(size: int, factors: int) -> float:
    """Return the logarithm of size (size - 1) ... of so many factors."""
    return math.lgamma(size + 1) - math.lgamma(size - factors + 1)


def _log(value: int) -> float:
    """Return the logarithm of a whole number of any length, rounded up."""
    return math.log(value) * (1 + 1e-12)
