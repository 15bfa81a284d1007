"""The loss and the coverage of a private quantile, by brute force over all small data sets."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from quorate.auditing._choices import quantile_law
from quorate.core.mechanisms import PrivateQuantile

Data = tuple[int, ...]  # how many values lie in each cell


def data_sets(values: int, cells: int) -> Iterator[Data]:
    """Yield every way in which so many values can lie in so many cells."""
    for bars in itertools.combinations(range(values + cells - 1), cells - 1):
        yield tuple(high - low - 1 for low, high in itertools.pairwise((-1, *bars, values + cells - 1)))


def worst_quantile_loss(quantile: PrivateQuantile) -> float:
    """Return the largest log ratio of two neighbouring laws, over all data sets: what epsilon must be at least."""
    worst = 0.0
    for counts in data_sets(quantile.units, quantile.cells):
        here = np.log(quantile_law(quantile, counts))
        for changed in _neighbours(counts):
            worst = max(worst, float((here - np.log(quantile_law(quantile, changed))).max()))
    return worst


def least_coverage(quantile: PrivateQuantile) -> float:
    """Return how often the value of one more unit is covered, in the worst case over all laws of the values.

    Any exchangeable law is a mixture of multisets of `units` + 1 values in random order, so that they are all tried.
    """
    least = 1.0
    for counts in data_sets(quantile.units + 1, quantile.cells):
        covered = []
        for cell in np.flatnonzero(counts).tolist():
            others = np.asarray(counts) - (np.arange(quantile.cells) == cell)
            covered.append(counts[cell] * float(quantile_law(quantile, others.tolist())[cell:].sum()))
        least = min(least, math.fsum(covered) / (quantile.units + 1))
    return least


def _neighbours(counts: Data) -> Iterator[Data]:
    for source, goal in itertools.permutations(range(len(counts)), 2):
        if counts[source]:
            moved = list(counts)
            moved[source] -= 1
            moved[goal] += 1
            yield tuple(moved)
