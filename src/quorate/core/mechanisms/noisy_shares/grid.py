"""Shares of the vote on a public grid, each point of which has a number: an answer is then one whole number.

A memory, a ledger and a request keep 64-bit numbers. A point of the grid is a vector of whole numbers of at least 0,
one a class, that sum to `steps`. Points are numbered by their running sums d_0 <= d_1 <= ..., as the sum of
C(j + d_j, j + 1) over all classes j but the last: the combinatorial number system, in which no number is left out.
"""

import math
from functools import lru_cache

import numpy as np

from quorate.core.arrays import Integers

__all__ = ["nearest_points", "numbers_of", "points_of", "steps_for"]


_NUMBERS = 2**63  # that an answer may have
_MOST_STEPS = 2**20  # beyond, the table of binomials takes more room than the precision is worth


@lru_cache(maxsize=64)
def steps_for(teachers: int, classes: int) -> int:
    """Return into how many steps a share is cut: one a teacher, or as many as can be numbered."""
    low, high = 1, min(teachers, _MOST_STEPS)
    while low < high:
        middle = (low + high + 1) // 2
        fits = math.comb(middle + classes - 1, classes - 1) <= _NUMBERS
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


@lru_cache(maxsize=8)
def _binomials(steps: int, classes: int) -> Integers:
    """Return C(j + d, j + 1), one row for each class j but the last and one column for each d from 0 to `steps`."""
    table = np.empty((classes - 1, steps + 1), dtype=np.int64)
    table[0] = np.arange(steps + 1)
    for row in range(1, classes - 1):  # C(j + d, j + 1) is the sum of C(j - 1 + c, j) for c up to d
        np.cumsum(table[row - 1], out=table[row])
    return table


def numbers_of(points: Integers, steps: int) -> Integers:
    """Return the number of each point, one row a point."""
    running = np.cumsum(points[:, :-1], axis=1)
    table = _binomials(steps, points.shape[1])
    numbers: Integers = np.take_along_axis(table, running.T, axis=1).sum(axis=0)
    return numbers


def points_of(numbers: Integers, steps: int, classes: int) -> Integers:
    """Return the points of these numbers, one row each: what `numbers_of` numbered."""
    table, rest = _binomials(steps, classes), numbers.copy()
    running = np.full((len(numbers), classes + 1), steps, dtype=np.int64)
    running[:, 0] = 0
    for row in range(classes - 2, -1, -1):  # the largest binomial that fits, from the last row up
        running[:, row + 1] = np.searchsorted(table[row], rest, side="right") - 1
        rest -= table[row, running[:, row + 1]]
    return np.diff(running, axis=1)


def nearest_points(counts: Integers, teachers: int, steps: int) -> Integers:
    """Return a point near each row of noisy counts: the row is moved onto the simplex, and rounded so as to sum up.

    Moved by the shortest way (all counts lowered alike, and none below 0); each share is rounded down, and what is
    missing goes to those that lost most.
    """
    falling = -np.sort(-counts, axis=1)
    places = np.arange(1, counts.shape[1] + 1)
    levels = (np.cumsum(falling, axis=1) - teachers) / places
    kept = (falling > levels).sum(axis=1)  # the largest counts stay above 0
    moved = np.maximum(counts - levels[np.arange(len(counts)), kept - 1, np.newaxis], 0.0) * (steps / teachers)
    points = np.floor(moved).astype(np.int64)
    missing = steps - points.sum(axis=1)
    order = np.argsort(points - moved, axis=1, kind="stable")  # who lost most first
    first = places <= missing[:, np.newaxis]
    np.put_along_axis(points, order, np.take_along_axis(points, order, axis=1) + first, axis=1)
    return points
