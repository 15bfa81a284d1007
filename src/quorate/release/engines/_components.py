"""Components of marginals, the strategy that measures them, and the best linear answers from noisy tables.

A table of counts splits into orthogonal components, one for each set of columns (what the set tells beyond its
subsets). A noisy marginal of columns A tells about every component B within A, with a precision of its own precision
over the sizes of the columns in A but not in B; precisions add up. So the variance of every answer is a convex function
of the precisions, and their best choice a small problem in public numbers (Xiao, He, Zhang, Kifer 2023).

For the mean error, components are assumed to have a typical size (`_TYPICAL`). Components below the noise are left to
the fit, which sets them to 0: with little budget, the strategy measures columns and few pairs of them.

Where a fitted model errs by more than the noise, each component of the answers lies between the model's and the noisy
one: at the noisy one where that is far outside (block shrinkage: Cai 1999). Then all marginals together are brought to
the nearest that agree and are nowhere negative. All of that is post-processing.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy import sparse, stats

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.release.engines._mixture import Mixture
from quorate.release.engines.base import descend
from quorate.release.queries import Marginals
from quorate.release.queries.marginals import Clique

_LEVEL = 1e-3  # of the tests whether a component, or a cell of one, is further off than noise explains
_ROUNDS, _CLOSE = 60, 0.02  # of the search for answers that agree; deviations below 0 at which it ends
_SHARPNESS = (4.0, 16.0, 64.0, 256.0)  # powers whose means approach the largest variance
_DECIMALS = 6  # of shares, in units of an equal one: the last bits of a search depend on the processor
_LEAST_SHARE = 1e-4  # of an equal share: below, a marginal is not worth its draws
_TYPICAL = 1.0  # of the mean cell: what columns, and pairs, tell beyond their parts
_DEEPER = 0.5  # times as much is told with each column more
_FOR_ALL = 0.1  # of the budget: goes where the largest error needs it, so that every answer has an unbiased estimate
NoisyTables = Mapping[Clique, tuple[Floats, float]]  # by sorted columns: shares, and the deviation of their noise


@dataclass(frozen=True)
class MarginalStrategy:
    """Marginals to measure (`cliques`, sorted columns) and the share of what may be told that each gets.

    `variances[k]` is the variance of a cell of the workload's k-th marginal where the shares are the precisions.
    """

    cliques: tuple[Clique, ...]
    shares: Floats
    variances: Floats


def subsets(clique: Sequence[int]) -> list[Clique]:
    """Return the nonempty subsets of a clique, smallest first."""
    return [part for size in range(1, len(clique) + 1) for part in itertools.combinations(clique, size)]


def plan_marginals(queries: Marginals, noise: float = 0.0) -> MarginalStrategy:
    """Return the best strategy of independent noise on marginals for the error that these queries minimise.

    `noise` is the deviation of a share when a single marginal is measured: the mean error depends on it.
    """
    sizes = queries.sizes  # a column of one code carries no information
    wanted = tuple(tuple(sorted(c for c in clique if sizes[c] > 1)) for clique in queries.cliques)
    return _plan(sizes, wanted, queries.importance, noise if queries.importance is not None else 0.0)


@lru_cache(maxsize=32)  # a prediction and the run that follows it ask for the same
def _plan(
    sizes: tuple[int, ...], wanted: tuple[Clique, ...], importance: tuple[float, ...] | None, noise: float
) -> MarginalStrategy:
    candidates = sorted(
        {part for clique in wanted for part in subsets(clique)}, key=lambda clique: (len(clique), clique)
    )
    if not candidates:
        raise Infeasible("marginals of no column are known without a measurement; choose engine='plain'")
    index = {clique: number for number, clique in enumerate(candidates)}
    precision = _precisions(sizes, candidates, index)
    variance = _variances(sizes, wanted, index)
    start = np.array([0.0 if clique in set(wanted) else -4.0 for clique in candidates])
    logits = start
    for sharpness in _SHARPNESS:
        logits = _search(precision, variance, 0.0, partial(_power_mean, sharpness), logits, steps=300)
    shares = _softmax(logits)
    if importance is not None:
        cells = np.array([math.prod(sizes[column] for column in clique) for clique in wanted], dtype=np.float64)
        prior = (noise / _typical(sizes, candidates)) ** 2
        loss = partial(_sum_of_deviations, cells * np.array(importance))
        mean = _search(precision, variance, prior, loss, np.maximum(start, -1.0), steps=600)
        shares = _FOR_ALL * shares + (1.0 - _FOR_ALL) * _softmax(mean)
    chosen = shares > _LEAST_SHARE / len(candidates)
    shares = np.where(chosen, shares, 0.0)
    if not bool((precision @ shares > 0).all()):  # each component must have some measurement
        chosen, shares = np.ones(len(candidates), dtype=bool), np.full(len(candidates), 1.0)
    shares = np.round(len(candidates) * shares / shares.sum(), _DECIMALS) / len(candidates)
    variances = np.asarray(variance @ (1.0 / (precision @ shares)))
    return MarginalStrategy(tuple(itertools.compress(candidates, chosen)), shares[chosen], variances)


def _typical(sizes: Sequence[int], candidates: Sequence[Clique]) -> Floats:
    """Return the assumed size of the cells of each component."""
    cells = np.array([math.prod(sizes[column] for column in clique) for clique in candidates], dtype=np.float64)
    return np.array([_TYPICAL * _DEEPER ** max(len(clique) - 2, 0) for clique in candidates]) / cells


def _precisions(sizes: Sequence[int], candidates: Sequence[Clique], numbers: dict[Clique, int]) -> sparse.csr_array:
    """Return the matrix that turns precisions of marginals into precisions of components."""
    rows, columns, values = [], [], []
    for number, clique in enumerate(candidates):
        for part in subsets(clique):
            rows.append(numbers[part])
            columns.append(number)
            values.append(1.0 / math.prod(sizes[column] for column in clique if column not in part))
    return sparse.csr_array((values, (rows, columns)), shape=(len(candidates), len(candidates)))


def _variances(sizes: Sequence[int], wanted: Sequence[Clique], numbers: dict[Clique, int]) -> sparse.csr_array:
    """Return the matrix that turns variances of components into those of the cells of each marginal wanted."""
    rows, columns, values = [], [], []
    for number, clique in enumerate(wanted):
        for part in subsets(clique):
            within = math.prod(1.0 - 1.0 / sizes[column] for column in part)
            rows.append(number)
            columns.append(numbers[part])
            values.append(within / math.prod(sizes[column] for column in clique if column not in part) ** 2)
    return sparse.csr_array((values, (rows, columns)), shape=(len(wanted), len(numbers)))


def _search(
    precision: sparse.csr_array,
    variance: sparse.csr_array,
    prior: Floats | float,
    loss: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    *,
    steps: int,
) -> Floats:
    """Return logits of shares that nearly minimise a loss of the variances, each component known by `prior` before.

    `loss` returns its value and its slope by the variances.
    """

    def objective(logits: Floats) -> tuple[float, Floats]:
        shares = _softmax(logits)
        precisions = precision @ shares + prior
        value, slope = loss(np.maximum(variance @ (1.0 / precisions), 1e-300))
        change = -(precision.T @ ((variance.T @ slope) / precisions**2))
        return value, shares * (change - shares @ change)

    return descend(objective, start, steps=steps)


def _power_mean(sharpness: float, variances: Floats) -> tuple[float, Floats]:
    """Return the logarithm of a power mean of variances, which a large power brings near the largest, and its slope."""
    worst = variances.max()
    powers = (variances / worst) ** sharpness
    total = powers.sum()
    return math.log(worst) + math.log(total) / sharpness, powers / total / variances


def _sum_of_deviations(weights: Floats, variances: Floats) -> tuple[float, Floats]:
    """Return the logarithm of the weighted sum of deviations, and its slope by the variances."""
    deviations = np.sqrt(variances)
    total = float(weights @ deviations)
    return math.log(total), 0.5 * weights / (deviations * total)


def _softmax(logits: Floats) -> Floats:
    shares = np.exp(logits - logits.max())
    return np.asarray(shares / shares.sum())


def without_impossible(queries: Marginals, noisy: NoisyTables) -> NoisyTables:
    """Return noisy tables with 0 in the impossible cells, whose noise is thereby known and removed."""
    possible = queries.possible
    if possible is None:
        return noisy
    mask = {clique: possible.table(clique, queries.sizes) for clique in noisy}
    return {clique: (np.where(mask[clique], table, 0.0), deviation) for clique, (table, deviation) in noisy.items()}


def centred(table: Floats) -> Floats:
    """Return the component of a table beyond its margins."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def component_precisions(sizes: Sequence[int], noisy: NoisyTables) -> dict[Clique, float]:
    """Return the precision of the best estimate of each component, the same in every direction of it."""
    precisions: dict[Clique, float] = {}
    for clique, (_, deviation) in noisy.items():
        for part in subsets(clique):
            rest = math.prod(sizes[column] for column in clique if column not in part)
            precisions[part] = precisions.get(part, 0.0) + deviation**-2.0 / rest
    return precisions


def split_components(
    sizes: Sequence[int], cliques: Sequence[Clique], precisions: Sequence[float], tables: Sequence[Floats]
) -> dict[Clique, Floats]:
    """Return the best estimate of each component from noisy marginals of these precisions."""
    sums: dict[Clique, Floats] = {}
    weights: dict[Clique, float] = {}
    for clique, precision, flat in zip(cliques, precisions, tables, strict=True):
        table = np.asarray(flat, dtype=np.float64).reshape([sizes[column] for column in clique])
        for part in subsets(clique):
            gone = tuple(index for index, column in enumerate(clique) if column not in part)
            component = centred(np.asarray(table.sum(axis=gone)))
            weight = precision / math.prod(table.shape[index] for index in gone)
            sums[part] = sums.get(part, 0.0) + weight * component
            weights[part] = weights.get(part, 0.0) + weight
    return {part: total / weights[part] for part, total in sums.items()}


def consistent_marginals(queries: Marginals, components: dict[Clique, Floats], total: float) -> Floats:
    """Return the marginals of these components: any two of them agree on the columns that they share."""
    parts = []
    for clique in queries.cliques:
        columns = tuple(sorted(clique))
        shape = [queries.sizes[column] for column in columns]
        table = np.full(shape, total / math.prod(shape))
        for part in subsets(columns):
            if part in components:
                spread = [queries.sizes[column] if column in part else 1 for column in columns]
                rest = math.prod(queries.sizes[column] for column in columns if column not in part)
                table = table + components[part].reshape(spread) / rest
        parts.append(table.transpose([columns.index(column) for column in clique]).ravel())
    return np.concatenate(parts)


def noise_spectrum(queries: Marginals, noisy: NoisyTables) -> dict[Clique, tuple[float, float, int]]:
    """Return, for each component, the variance of the noise of all answers along it, its weight in them, and in how
    many directions it has both.

    Noise is independent between components, and within one it has the same precision in every direction. Each answer
    has its share of each component: the squared length of a component in all answers is its own times the weight.
    """
    sizes, precisions = queries.sizes, component_precisions(queries.sizes, noisy)
    weights: dict[Clique, float] = {}
    for clique in queries.cliques:
        columns = tuple(sorted(column for column in clique if sizes[column] > 1))
        for part in subsets(columns):
            rest = math.prod(sizes[column] for column in columns if column not in part)
            weights[part] = weights.get(part, 0.0) + 1.0 / rest
    freedoms = {part: math.prod(sizes[column] - 1 for column in part) for part in weights}
    return {part: (weight / precisions[part], weight, freedoms[part]) for part, weight in weights.items()}


def least_squares(queries: Marginals, noisy: NoisyTables) -> tuple[Floats, Floats]:
    """Return the best linear answers of marginals from noisy tables that determine them, and their deviations.

    The deviation of a marginal's cells is one number: each component has its own precision, and they are independent.
    """
    sizes = queries.sizes
    precisions = component_precisions(sizes, noisy)
    variances = []
    for clique in queries.cliques:
        columns = tuple(sorted(column for column in clique if sizes[column] > 1))
        variance = 0.0
        for part in subsets(columns):
            rest = math.prod(sizes[column] for column in columns if column not in part)
            variance += math.prod(1.0 - 1.0 / sizes[column] for column in part) / (precisions[part] * rest**2)
        variances.append(variance)
    deviations = np.repeat(np.sqrt(variances), np.diff(queries.offsets))
    return consistent_marginals(queries, _components(sizes, noisy), 1.0), deviations


@dataclass(frozen=True)
class Agreement:
    """The weight of each noisy component against the model's, from 0 (the model's component) to 1."""

    beliefs: dict[Clique, float]

    @property
    def model_stands(self) -> bool:
        """Whether the model is within the noise everywhere, so that it gives all answers."""
        return not any(self.beliefs.values())

    def answers(self, queries: Marginals, noisy: NoisyTables, model: Mixture, deviations: Floats) -> Floats:
        """Return the answers: shares that agree with each other, none below 0."""
        if self.model_stands:
            answers = model.answers(queries)
            return answers if queries.mask is None else agreeing_marginals(queries, answers, deviations)
        components = _components(queries.sizes, noisy)
        for part, belief in self.beliefs.items():
            modelled = centred(model.table(part).reshape(components[part].shape))
            components[part] = modelled + belief * (components[part] - modelled)
        return agreeing_marginals(queries, consistent_marginals(queries, components, 1.0), deviations)


def weigh_components(sizes: tuple[int, ...], noisy: NoisyTables, model: Mixture) -> Agreement:
    """Return the weight of each noisy component, by its distance from the model's in units of its noise."""
    precisions, beliefs = component_precisions(sizes, noisy), {}
    for part, component in _components(sizes, noisy).items():
        freedom = math.prod(size - 1 for size in component.shape)
        off = component - centred(model.table(part).reshape(component.shape))
        square = float((off**2).sum()) * precisions[part]
        belief = max(0.0, 1.0 - float(stats.chi2.isf(_LEVEL, freedom)) / square) if square > 0 else 0.0
        remainder = (1.0 - belief) * float(np.abs(off).max()) * math.sqrt(precisions[part] * component.size / freedom)
        beliefs[part] = 1.0 if remainder > stats.norm.isf(_LEVEL / (2 * component.size)) else belief
    return Agreement(beliefs)


def agreeing_marginals(queries: Marginals, answers: Floats, deviations: Floats) -> Floats:
    """Return marginals that agree and are not negative, the nearest to these, each cell in units of its deviation.

    Projections in turn onto those that agree and onto those that are not negative, and 0 where nothing can occur
    (Dykstra 1983), until what is left outside is small against the noise.
    """
    precisions = [float(deviation) ** -2.0 if deviation > 0 else 1.0 for deviation in deviations[queries.offsets[:-1]]]
    cliques = [tuple(sorted(clique)) for clique in queries.cliques]
    near = _CLOSE * np.maximum(deviations, 1e-12)
    upper = np.inf if queries.mask is None else np.where(queries.mask, np.inf, 0.0)
    owed = np.zeros_like(answers)
    for _ in range(_ROUNDS):
        if bool((answers >= -near).all() and (answers <= upper + near).all()):
            break
        clipped = np.clip(answers + owed, 0.0, upper)
        owed = answers + owed - clipped
        parts = split_components(queries.sizes, cliques, precisions, _sorted_tables(queries, clipped))
        answers = consistent_marginals(queries, parts, 1.0)
    return np.clip(answers, 0.0, np.minimum(upper, 1.0))


def _sorted_tables(queries: Marginals, answers: Floats) -> list[Floats]:
    """Return the marginals with their columns in order."""
    tables = np.split(answers, queries.offsets[1:-1])
    pairs = zip(tables, queries.shapes, queries.cliques, strict=True)
    return [table.reshape(shape).transpose(np.argsort(clique)).ravel() for table, shape, clique in pairs]


def _components(sizes: tuple[int, ...], noisy: NoisyTables) -> dict[Clique, Floats]:
    tables, deviations = zip(*noisy.values(), strict=True)
    return split_components(sizes, list(noisy), [deviation**-2.0 for deviation in deviations], tables)
