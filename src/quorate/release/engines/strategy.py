"""Which marginals to measure, and with how much noise each, so that the worst answer errs least, or the mean.

A table of counts splits into orthogonal components, one for each set of columns (what the set tells beyond its
subsets). A noisy marginal of columns A tells about every component B within A, with a precision of its own precision
over the sizes of the columns in A but not in B; precisions add up. So the variance of every answer is a convex function
of the precisions, and their best choice a small problem in public numbers (Xiao, He, Zhang, Kifer 2023).

For the mean, components are taken to be of some size (`_TYPICAL`), and what noise would drown is left to the fit, which
takes it for nothing: with little budget, columns are measured and few pairs of them.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy import sparse

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.release.engines.entropy import descend
from quorate.release.queries import Marginals

__all__ = ["Clique", "MarginalStrategy", "plan_marginals", "subsets"]

Clique = tuple[int, ...]
_SHARPNESS = (4.0, 16.0, 64.0, 256.0)  # powers whose means approach the largest variance
_DECIMALS = 6  # of shares, in units of an equal one: the last bits of a search depend on the processor
_LEAST_SHARE = 1e-4  # of an equal share: below, a marginal is not worth its draws
_TYPICAL, _DEEPER = (
    1.0,
    0.5,
)  # of the mean cell: what columns, and pairs, tell beyond their parts; with each column more
_FOR_ALL = 0.1  # of the budget: goes where the largest error needs it, so that every answer has an unbiased estimate


@dataclass(frozen=True)
class MarginalStrategy:
    """Marginals to measure (`cliques`, sorted columns) and the share of what may be told that each gets.

    `variances[k]` is the variance of a cell of the workload's k-th marginal where the shares are the precisions.
    """

    cliques: tuple[Clique, ...]
    shares: Floats
    variances: Floats


def subsets(clique: Sequence[int]) -> list[Clique]:
    """Return the subsets of a clique but the empty one, smallest first."""
    return [part for size in range(1, len(clique) + 1) for part in itertools.combinations(clique, size)]


def plan_marginals(queries: Marginals, noise: float = 0.0) -> MarginalStrategy:
    """Return the best strategy, among independent noise on marginals, for what these marginals are to make small.

    `noise` is the deviation of a share, if one marginal were all that is measured: the mean error depends on it.
    """
    sizes = queries.sizes  # a column of one code tells nothing
    wanted = tuple(tuple(sorted(c for c in clique if sizes[c] > 1)) for clique in queries.cliques)
    return _plan(sizes, wanted, queries.importance, noise if queries.importance is not None else 0.0)


@lru_cache(maxsize=32)  # a prediction and the run that follows it ask for the same
def _plan(
    sizes: tuple[int, ...], wanted: tuple[Clique, ...], importance: tuple[float, ...] | None, noise: float
) -> MarginalStrategy:
    known = sorted({part for clique in wanted for part in subsets(clique)}, key=lambda clique: (len(clique), clique))
    if not known:
        raise Infeasible("marginals of no column are known without a measurement; choose engine='plain'")
    place = {clique: number for number, clique in enumerate(known)}
    precision = _precisions(sizes, known, place)
    variance = _variances(sizes, wanted, place)
    start = np.array([0.0 if clique in set(wanted) else -4.0 for clique in known])
    shares = _search(precision, variance, start)
    if importance is not None:
        cells = np.array([math.prod(sizes[column] for column in clique) for clique in wanted], dtype=np.float64)
        prior = (noise / _typical(sizes, known)) ** 2
        mean = _search_mean(precision, variance, cells * np.array(importance), prior, np.maximum(start, -1.0))
        shares = _FOR_ALL * shares + (1.0 - _FOR_ALL) * mean
    kept = shares > _LEAST_SHARE / len(known)
    shares = np.where(kept, shares, 0.0)
    if not bool((precision @ shares > 0).all()):  # each component must be told by something
        kept, shares = np.ones(len(known), dtype=bool), np.full(len(known), 1.0)
    shares = np.round(len(known) * shares / shares.sum(), _DECIMALS) / len(known)
    variances = np.asarray(variance @ (1.0 / (precision @ shares)))
    return MarginalStrategy(tuple(itertools.compress(known, kept)), shares[kept], variances)


def _typical(sizes: Sequence[int], known: Sequence[Clique]) -> Floats:
    """Return how large the cells of each component are taken to be."""
    cells = np.array([math.prod(sizes[column] for column in clique) for clique in known], dtype=np.float64)
    return np.array([_TYPICAL * _DEEPER ** max(len(clique) - 2, 0) for clique in known]) / cells


def _precisions(sizes: Sequence[int], known: Sequence[Clique], place: dict[Clique, int]) -> sparse.csr_array:
    """Return the matrix that turns precisions of marginals into precisions of components."""
    rows, columns, values = [], [], []
    for number, clique in enumerate(known):
        for part in subsets(clique):
            rows.append(place[part])
            columns.append(number)
            values.append(1.0 / math.prod(sizes[column] for column in clique if column not in part))
    return sparse.csr_array((values, (rows, columns)), shape=(len(known), len(known)))


def _variances(sizes: Sequence[int], wanted: Sequence[Clique], place: dict[Clique, int]) -> sparse.csr_array:
    """Return the matrix that turns variances of components into those of the cells of each marginal wanted."""
    rows, columns, values = [], [], []
    for number, clique in enumerate(wanted):
        for part in subsets(clique):
            within = math.prod(1.0 - 1.0 / sizes[column] for column in part)
            rows.append(number)
            columns.append(place[part])
            values.append(within / math.prod(sizes[column] for column in clique if column not in part) ** 2)
    return sparse.csr_array((values, (rows, columns)), shape=(len(wanted), len(place)))


def _search(precision: sparse.csr_array, variance: sparse.csr_array, start: Floats) -> Floats:
    """Return shares that nearly minimise the largest variance: L-BFGS on power means of growing sharpness."""

    def objective(sharpness: float, logits: Floats) -> tuple[float, Floats]:
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        told = precision @ shares
        variances = np.maximum(variance @ (1.0 / told), 1e-300)
        worst = variances.max()
        powers = (variances / worst) ** sharpness
        slope = -(variance.T @ (powers / powers.sum() / variances)) / told**2
        change = precision.T @ slope
        value = math.log(worst) + math.log(powers.sum()) / sharpness
        return value, shares * (change - shares @ change)

    logits = start
    for sharpness in _SHARPNESS:
        logits = descend(partial(objective, sharpness), logits, steps=300)
    shares = np.exp(logits - logits.max())
    return np.asarray(shares / shares.sum())


def _search_mean(
    precision: sparse.csr_array, variance: sparse.csr_array, weights: Floats, prior: Floats, start: Floats
) -> Floats:
    """Return shares that minimise the weighted sum of deviations of answers, each component known by `prior` before."""

    def objective(logits: Floats) -> tuple[float, Floats]:
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        told = precision @ shares + prior
        deviations = np.sqrt(np.maximum(variance @ (1.0 / told), 1e-300))
        total = float(weights @ deviations)
        slope = -(variance.T @ (0.5 * weights / (deviations * total))) / told**2
        change = precision.T @ slope
        return math.log(total), shares * (change - shares @ change)

    logits = descend(objective, start, steps=600)
    shares = np.exp(logits - logits.max())
    return np.asarray(shares / shares.sum())
