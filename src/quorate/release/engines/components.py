"""Components of marginals: the best linear answers from noisy tables, and how noisy they are.

A table splits into orthogonal components, one for each set of columns. Every noisy marginal tells about the components
within it, and the best estimate of each is the mean of what the marginals tell, weighted by precision.
"""

import math
from collections.abc import Sequence

import numpy as np

from quorate.core.arrays import Floats
from quorate.release.engines.misfit import NoisyTables
from quorate.release.engines.strategy import Clique, subsets
from quorate.release.queries import Marginals

__all__ = [
    "centred",
    "consistent_marginals",
    "least_squares",
    "noise_spectrum",
    "precisions_told",
    "split_components",
    "without_impossible",
]


def without_impossible(queries: Marginals, noisy: NoisyTables) -> NoisyTables:
    """Return noisy tables with 0 in the cells that cannot occur: their noise is known, and taken off."""
    possible = queries.possible
    if possible is None:
        return noisy
    held = {clique: possible.table(clique, queries.sizes) for clique in noisy}
    return {clique: (np.where(held[clique], table, 0.0), deviation) for clique, (table, deviation) in noisy.items()}


def centred(table: Floats) -> Floats:
    """Return what a table tells beyond its margins."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def precisions_told(sizes: Sequence[int], noisy: NoisyTables) -> dict[Clique, float]:
    """Return the precision of the best estimate of each component, the same in every direction of it."""
    told: dict[Clique, float] = {}
    for clique, (_, deviation) in noisy.items():
        for part in subsets(clique):
            rest = math.prod(sizes[column] for column in clique if column not in part)
            told[part] = told.get(part, 0.0) + deviation**-2.0 / rest
    return told


def split_components(
    sizes: Sequence[int], cliques: Sequence[Clique], precisions: Sequence[float], tables: Sequence[Floats]
) -> dict[Clique, Floats]:
    """Return the best estimate of each component from noisy marginals of these precisions."""
    sums: dict[Clique, Floats] = {}
    weights: dict[Clique, float] = {}
    for clique, precision, flat in zip(cliques, precisions, tables, strict=True):
        table = np.asarray(flat, dtype=np.float64).reshape([sizes[column] for column in clique])
        for part in subsets(clique):
            gone = tuple(place for place, column in enumerate(clique) if column not in part)
            component = centred(np.asarray(table.sum(axis=gone)))
            weight = precision / math.prod(table.shape[place] for place in gone)
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
    sizes, told = queries.sizes, precisions_told(queries.sizes, noisy)
    weights: dict[Clique, float] = {}
    for clique in queries.cliques:
        columns = tuple(sorted(column for column in clique if sizes[column] > 1))
        for part in subsets(columns):
            rest = math.prod(sizes[column] for column in columns if column not in part)
            weights[part] = weights.get(part, 0.0) + 1.0 / rest
    freedoms = {part: math.prod(sizes[column] - 1 for column in part) for part in weights}
    return {part: (weight / told[part], weight, freedoms[part]) for part, weight in weights.items()}


def least_squares(queries: Marginals, noisy: NoisyTables) -> tuple[Floats, Floats]:
    """Return the best linear answers of marginals from noisy tables that tell about all of them, and their deviations.

    The deviation of a marginal's cells is one number: each component has its own precision, and they are independent.
    """
    sizes = queries.sizes
    told = precisions_told(sizes, noisy)
    precisions = [deviation**-2.0 for _, deviation in noisy.values()]
    components = split_components(sizes, list(noisy), precisions, [table for table, _ in noisy.values()])
    variances = []
    for clique in queries.cliques:
        columns = tuple(sorted(column for column in clique if sizes[column] > 1))
        variance = 0.0
        for part in subsets(columns):
            rest = math.prod(sizes[column] for column in columns if column not in part)
            variance += math.prod(1.0 - 1.0 / sizes[column] for column in part) / (told[part] * rest**2)
        variances.append(variance)
    deviations = np.repeat(np.sqrt(variances), np.diff(queries.offsets))
    return consistent_marginals(queries, components, 1.0), deviations
