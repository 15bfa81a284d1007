"""The game on a private quantile, its exact law, and its coverage by brute force over all small data sets."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from quorate.auditing.games import attempts_at, laws_of, most_telling
from quorate.auditing.plays import PlayNoise
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.mechanisms import PrivateQuantile

__all__ = ["audit_quantile", "data_sets", "least_coverage", "quantile_law", "worst_quantile_loss"]

_MOST = 100_000  # plays: each is drawn exactly, one at a time
_REACH = 12  # ranks on either side of the quantile at which values lie

Data = tuple[int, ...]  # how many values lie in each cell


def data_sets(values: int, cells: int) -> Iterator[Data]:
    """Yield every way in which so many values can lie in so many cells."""
    for bars in itertools.combinations(range(values + cells - 1), cells - 1):
        yield tuple(high - low - 1 for low, high in itertools.pairwise((-1, *bars, values + cells - 1)))


def quantile_law(quantile: PrivateQuantile, counts: Sequence[int]) -> np.ndarray:
    """Return the probability of each cell, by the distances of the mechanism and the rate of its choice."""
    distances = quantile.distances(np.asarray(counts))
    weights = np.exp(-float(quantile.choice.rate) * (distances - distances.min()))
    return np.asarray(weights / weights.sum())


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


@game(PrivateQuantile)
def audit_quantile(target: PrivateQuantile, effort: Effort) -> Verdict:
    """Release the quantile of values in three cells, of which one moves from the first to the last; judge the claim.

    The empty cells between them lie below the quantile: together they outweigh it, all of them lose by the move, and
    the last cell wins. Every release is drawn by the real code, so that plays end at a hundred thousand.
    """
    effort, noise = effort.at_most(_MOST), PlayNoise(effort.seed)
    pairs = [
        (_spread(target, low, high, 0), _spread(target, low, high, 1))
        for low in range(max(0, target.rank - _REACH), target.rank + 1)
        for high in range(target.rank, min(target.rank + _REACH, target.units) + 1)
        if low
    ]
    first, second = most_telling(pairs, lambda counts: quantile_law(target, counts), delta=0.0, effort=effort)
    law = laws_of(quantile_law(target, first), quantile_law(target, second))
    seen = [
        np.array([target.draw_cell(counts, None, noise) for _ in range(effort.plays)]) for counts in (first, second)
    ]
    attack = f"one of {target.units} values moved from the first cell to the last of {target.cells}"
    claims = [(target.epsilon, 0.0)]
    attempts = attempts_at(claims, *seen, attack=attack, confidence=effort.confidence, law=law)
    not_tested = "other places of the values; exact enumeration in the tests tries all small data sets"
    return settled("PrivateQuantile", attempts, plays=effort.plays, confidence=effort.confidence, not_tested=not_tested)


def _neighbours(counts: Data) -> Iterator[Data]:
    for source, goal in itertools.permutations(range(len(counts)), 2):
        if counts[source]:
            moved = list(counts)
            moved[source] -= 1
            moved[goal] += 1
            yield tuple(moved)


def _spread(target: PrivateQuantile, low: int, high: int, moved: int) -> Data:
    """Return the values: `low` in the first cell, up to `high` before the last, and some moved from first to last."""
    counts = np.zeros(target.cells, dtype=np.int64)
    counts[0] += low - moved
    counts[max(target.cells - 2, 0)] += high - low
    counts[-1] += target.units - high + moved
    return tuple(counts.tolist())
