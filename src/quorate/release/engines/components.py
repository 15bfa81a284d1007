"""Consistent marginals from noisy ones: least squares, component by component, without a matrix."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quorate.release.engines.strategy import Clique, subsets
from quorate.release.queries import Floats, Marginals

__all__ = ["consistent_marginals", "split_components"]

Table = NDArray[np.float64]


def split_components(
    sizes: Sequence[int], cliques: Sequence[Clique], precisions: Sequence[float], tables: Sequence[Floats]
) -> dict[Clique, Table]:
    """Return the best estimate of each component from noisy marginals of these precisions.

    >>> parts = split_components((2,), [(0,)], [1.0], [np.array([3.0, 1.0])])
    >>> parts[(0,)]
    array([ 1., -1.])
    """
    sums: dict[Clique, Table] = {}
    weights: dict[Clique, float] = {}
    for clique, precision, flat in zip(cliques, precisions, tables, strict=True):
        table = np.asarray(flat, dtype=np.float64).reshape([sizes[column] for column in clique])
        for part in subsets(clique):
            gone = tuple(place for place, column in enumerate(clique) if column not in part)
            component = np.asarray(table.sum(axis=gone))
            for axis in range(component.ndim):
                component = component - component.mean(axis=axis, keepdims=True)
            weight = precision / math.prod(table.shape[place] for place in gone)
            sums[part] = sums.get(part, 0.0) + weight * component
            weights[part] = weights.get(part, 0.0) + weight
    return {part: total / weights[part] for part, total in sums.items()}


def consistent_marginals(queries: Marginals, components: dict[Clique, Table], total: float) -> Floats:
    """Return the marginals of these components: any two of them agree on the columns that they share.

    >>> consistent_marginals(Marginals((2, 2), [(1, 0)]), {(0,): np.array([1.0, -1.0])}, 4.0)
    array([1.5, 0.5, 1.5, 0.5])
    """
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
