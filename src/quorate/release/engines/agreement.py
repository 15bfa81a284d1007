"""Answers between a fitted model and noisy tables: each is believed as far as the noise bears it out.

A mixture of products knows the tables that people have up to some distance. So each component of the answers lies
between the model's and the noisy one: at the model's where it is within the noise, at the noisy one where it is far
outside (block shrinkage: Cai 1999). Then all marginals together are brought to the nearest that agree and are nowhere
negative. Before that, pairs of columns of the model are taken back towards independence as far as they may be noise,
since one penalty for all pairs lets noise into those that are not tied (James and Stein 1961). All of it is
post-processing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from quorate.core.arrays import Floats
from quorate.release.engines.components import (
    Clique,
    NoisyTables,
    centred,
    consistent_marginals,
    precisions_told,
    split_components,
)
from quorate.release.engines.mixture import Mixture
from quorate.release.engines.mixture_fit import MixtureFit, fit_other_half
from quorate.release.queries import Marginals

__all__ = ["Agreement", "PairNoise", "Shrunk", "agreeing_marginals", "weigh_components"]

_MOST_MOVED = 1.0 / 3.0  # of the furthest that noise moves a cell of the pair: no cell is moved more
_LEVEL = 1e-3  # of the tests whether a component, or a cell of one, is further off than noise explains
_ROUNDS, _CLOSE = 60, 0.02  # of the search for answers that agree; deviations below 0 at which it ends


@dataclass(frozen=True, repr=False)
class Shrunk(Mixture):
    """A mixture of which each pair of columns is kept in part: the rest is what independent columns have."""

    kept: Floats  # columns by columns, from 0 to 1

    @property
    def mean_kept(self) -> float:
        """How much of a pair is kept, in the mean over all pairs."""
        return float(np.mean(self.kept[np.triu_indices(len(self.sizes), 1)]))

    def table(self, columns: Sequence[int]) -> Floats:
        """Return the marginal of some columns, the last running fastest."""
        table = super().table(columns)
        if len(columns) != 2:
            return table
        first, second = (super(Shrunk, self).table((column,)) for column in columns)
        apart = np.outer(first, second).ravel()
        return np.asarray(apart + self.kept[tuple(columns)] * (table - apart))


@dataclass(frozen=True, repr=False)
class PairNoise:
    """How noise moves what a fit says of each pair of columns: its squares added up, and its largest cell."""

    squares: Floats
    largest: Floats

    @classmethod
    def of_fit(cls, fit: MixtureFit, noisy: NoisyTables, estimate: Callable[[NoisyTables], NoisyTables]) -> "PairNoise":
        """Return the noise of a fit to noisy tables; `estimate` is what it was fitted with."""
        assert fit.half is not None
        other = fit_other_half(fit.half, noisy, estimate)
        return cls(*_sizes(_beyond_columns(fit.half.mixture) - _beyond_columns(other), other.sizes))

    def shrink(self, mixture: Mixture) -> Shrunk:
        """Return the mixture with as much of each pair as stands out from this noise: PROOF.md, step 7."""
        squares, largest = _sizes(_beyond_columns(mixture), mixture.sizes)
        noise = np.minimum(self.squares / np.maximum(squares, 1e-300), 1.0)
        least = 1.0 - _MOST_MOVED * self.largest / np.maximum(largest, 1e-300)
        kept = np.maximum(np.maximum(1.0 - noise**2, least), 0.0)
        return Shrunk(mixture.sizes, mixture.weights, mixture.shares, kept)


def _beyond_columns(mixture: Mixture) -> Floats:
    """Return the shares of all codes by all codes, less what they are in independent columns."""
    owned = mixture.weights[:, None] * mixture.shares
    columns = owned.sum(axis=0)
    return np.asarray(owned.T @ mixture.shares - np.outer(columns, columns))


def _sizes(cells: Floats, sizes: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the sum of the squares of each pair of columns, and its largest cell."""
    starts = np.cumsum([0, *sizes[:-1]])
    squares, largest = cells**2, np.abs(cells)
    for axis in (0, 1):
        squares, largest = np.add.reduceat(squares, starts, axis), np.maximum.reduceat(largest, starts, axis)
    return squares, largest


@dataclass(frozen=True)
class Agreement:
    """By how much each noisy component is believed, from 0 (the model's is taken) to 1."""

    beliefs: dict[Clique, float]

    @property
    def model_stands(self) -> bool:
        """Whether the model is within the noise everywhere: it then gives all answers."""
        return not any(self.beliefs.values())

    def answers(self, queries: Marginals, noisy: NoisyTables, model: Mixture, deviations: Floats) -> Floats:
        """Return the answers: shares that agree with each other, none below 0."""
        if self.model_stands:
            answers = model.answers(queries)
            return answers if queries.held is None else agreeing_marginals(queries, answers, deviations)
        found = _components(queries.sizes, noisy)
        for part, belief in self.beliefs.items():
            modelled = centred(model.table(part).reshape(found[part].shape))
            found[part] = modelled + belief * (found[part] - modelled)
        return agreeing_marginals(queries, consistent_marginals(queries, found, 1.0), deviations)


def weigh_components(sizes: tuple[int, ...], noisy: NoisyTables, model: Mixture) -> Agreement:
    """Return how far each noisy component is believed: by its distance from the model's in units of its noise."""
    told, beliefs = precisions_told(sizes, noisy), {}
    for part, component in _components(sizes, noisy).items():
        freedom = math.prod(size - 1 for size in component.shape)
        off = component - centred(model.table(part).reshape(component.shape))
        square = float((off**2).sum()) * told[part]
        belief = max(0.0, 1.0 - float(stats.chi2.isf(_LEVEL, freedom)) / square) if square > 0 else 0.0
        left = (1.0 - belief) * float(np.abs(off).max()) * math.sqrt(told[part] * component.size / freedom)
        beliefs[part] = 1.0 if left > stats.norm.isf(_LEVEL / (2 * component.size)) else belief
    return Agreement(beliefs)


def agreeing_marginals(queries: Marginals, answers: Floats, deviations: Floats) -> Floats:
    """Return marginals that agree and are not negative, the nearest to these, each cell in units of its deviation.

    Projections in turn onto those that agree and onto those that are not negative, and 0 where nothing can occur
    (Dykstra 1983), until what is left outside is small against the noise.
    """
    precisions = [float(deviation) ** -2.0 if deviation > 0 else 1.0 for deviation in deviations[queries.offsets[:-1]]]
    cliques = [tuple(sorted(clique)) for clique in queries.cliques]
    near = _CLOSE * np.maximum(deviations, 1e-12)
    most = np.inf if queries.held is None else np.where(queries.held, np.inf, 0.0)
    owed = np.zeros_like(answers)
    for _ in range(_ROUNDS):
        if bool((answers >= -near).all() and (answers <= most + near).all()):
            break
        kept = np.clip(answers + owed, 0.0, most)
        owed = answers + owed - kept
        parts = split_components(queries.sizes, cliques, precisions, _sorted_tables(queries, kept))
        answers = consistent_marginals(queries, parts, 1.0)
    return np.clip(answers, 0.0, np.minimum(most, 1.0))


def _sorted_tables(queries: Marginals, answers: Floats) -> list[Floats]:
    """Return the marginals with their columns in order."""
    tables = np.split(answers, queries.offsets[1:-1])
    pairs = zip(tables, queries.shapes, queries.cliques, strict=True)
    return [table.reshape(shape).transpose(np.argsort(clique)).ravel() for table, shape, clique in pairs]


def _components(sizes: tuple[int, ...], noisy: NoisyTables) -> dict[Clique, Floats]:
    tables, deviations = zip(*noisy.values(), strict=True)
    return split_components(sizes, list(noisy), [deviation**-2.0 for deviation in deviations], tables)
