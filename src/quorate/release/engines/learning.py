"""Weights that learn: one query is given its noisy share at a time, and earlier ones are gone through again.

All of it is post-processing of released and public numbers. Weights are not normalised: their total is kept beside
them, so that a correction touches the cells of its query and no others. Answers that contradict each other move the
total, by a factor in each pass: now and then it is brought back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.engines.released import Public
from quorate.release.queries import MOST_LISTED, NOTHING, Marginals, Queries, Rows

__all__ = ["LearnedWeights", "mask_query", "start_weights", "unseen_share"]

_CACHED = 4096  # lists of cells
_LEAST_TOTAL, _LARGEST_TOTAL = 1e-6, 1e9  # Weights are scaled back to 1 beyond these, before rounding shows.
_REPLAYED, _MOST_CORRECTIONS = 200, 800  # corrections applied again after a new one, and how often in all
_EXTREME, _SETTLED = 1e-14, 1e-9  # shares taken for none or all; a move that ends the replay


def unseen_share(counts: Floats) -> float:
    """Return the share of records of kinds that a public sample lacks: that of those it has once (Good 1953)."""
    amount = max(float(counts.sum()), 1.0)
    return float(np.clip(((counts > 0) & (counts <= 1)).sum() / amount, 1.0 / (amount + 1), 0.5))


def start_weights(queries: Queries, public: Public) -> Floats:
    """Return the distribution over all cells to begin with: uniform, or the public one with the unseen allowed for.

    The share of what was not seen is spread over all cells.
    """
    if queries.cells is None:
        raise Infeasible("these cells are too many to list; choose an engine that works on rows")
    if public is None:
        return np.full(queries.cells, 1.0 / queries.cells)
    if isinstance(public, Rows):
        numbers = public.cell(range(len(public.sizes)))
        counts = np.bincount(numbers, public.weights, minlength=queries.cells).astype(np.float64)
    else:
        counts = np.asarray(public, dtype=np.float64)
    amount = float(counts.sum()) if counts.shape == (queries.cells,) else 0.0
    if not amount > 0 or bool((counts < 0).any()):
        raise InvalidInput(f"public data must be Rows, or {queries.cells} counts that are not all zero")
    unseen = unseen_share(counts)
    return np.asarray((1.0 - unseen) * counts / amount + unseen / queries.cells)


class LearnedWeights:
    """Weights over all cells, or over the records of a support, that agree with released shares of some queries.

    A correction scales the cells of a query by one factor, which is the least change, by relative entropy, that gives
    the query its released share (Hardt and Rothblum 2010). A query may leave out another one that lies within it.
    """

    def __init__(self, queries: Queries, start: Floats, support: Rows | None = None) -> None:
        self.queries, self.support = queries, support
        self.corrections: list[tuple[int, int, float]] = []  # a query, the one left out of it, its released share
        self._weights = np.array(start, dtype=np.float64)
        self._total = float(self._weights.sum())
        self._members: dict[tuple[int, int], slice | NDArray[np.int64]] = {}

    @classmethod
    def from_public(cls, queries: Queries, public: Floats | Rows, *, blend: float) -> "LearnedWeights":
        """Return the public histogram, with a share `blend` of the uniform one so that no cell is ruled out."""
        support = public.merged() if isinstance(public, Rows) else None
        counts = np.asarray(public if support is None else support.weights, dtype=np.float64)
        total, uniform = float(counts.sum()), np.full(counts.size, 1.0 / counts.size)
        return cls(queries, uniform if total <= 0 else (1 - blend) * counts / total + blend * uniform, support)

    @property
    def weights(self) -> Floats:
        """The weights as they are now, adding up to 1."""
        return np.asarray(self._weights / self._weights.sum())

    def answers(self) -> Floats:
        """Return the share that the weights give to every query."""
        self._total = float(self._weights.sum())  # Rounding errors of the running total end here.
        weights = self._weights if self.support is None else self.support.weighted(self._weights)
        return np.asarray(self.queries.answers(weights) / self._total)

    def answer(self, query: int, without: int = NOTHING) -> float:
        """Return the share that the weights give to a query, less the query that is left out of it."""
        index, weights = self._cells(query, without)
        return min(1.0, float(weights[index].sum()) / self._total)

    def learn(self, query: int, share: float, without: int = NOTHING) -> None:
        """Take in a released share, and apply the earlier ones again until all agree."""
        self.corrections.append((int(query), int(without), float(share)))
        for _ in range(max(2, _MOST_CORRECTIONS // len(self.corrections))):
            moves = [self.correct(number, known, other) for number, other, known in self.corrections[-_REPLAYED:]]
            if max(map(abs, moves)) < _SETTLED:
                return

    def correct(self, query: int, share: float, without: int = NOTHING) -> float:
        """Give a query this share; return how far off it was, 0 where its cells have all of the weight or none."""
        index, weights = self._cells(query, without)
        total = float(weights[index].sum())
        current = total / self._total
        if not _EXTREME < current < 1 - _EXTREME:
            return 0.0
        share = min(max(share, _EXTREME), 1 - _EXTREME)
        factor = share * (1.0 - current) / (current * (1.0 - share))
        weights[index] *= factor
        self._total += (factor - 1.0) * total
        if not _LEAST_TOTAL < self._total < _LARGEST_TOTAL:
            self._weights /= self._weights.sum()  # in place, so that views stay valid
            self._total = 1.0
        return share - current

    def _cells(self, query: int, without: int) -> tuple[Any, Floats]:
        """Return the index of a query's cells, and the array that it is an index of: a view, never a copy."""
        if self.support is None and without == NOTHING and isinstance(self.queries, Marginals):
            return self.queries.slab(query), self._weights.reshape(self.queries.sizes)
        if (query, without) not in self._members:
            if len(self._members) >= _CACHED:
                self._members.clear()
            if self.support is None and without == NOTHING:
                self._members[query, without] = self.queries.members(query)
            else:
                self._members[query, without] = np.flatnonzero(mask_query(self.queries, query, without, self.support))
        return self._members[query, without], self._weights


def mask_query(queries: Queries, query: int, without: int, support: Rows | None) -> NDArray[np.bool_]:
    """Return which cells, or which rows of the support, a query holds and the one left out of it does not."""
    mask = _mask(queries, query, support)
    return mask if without == NOTHING else mask & ~_mask(queries, without, support)


def _mask(queries: Queries, query: int, support: Rows | None) -> NDArray[np.bool_]:
    if support is None:
        mask = np.zeros(queries.cells or 0, dtype=np.bool_)
        mask[queries.members(query)] = True
        return mask
    if isinstance(queries, Marginals):
        clique, codes = queries.find(query)
        return np.asarray((support.codes[:, list(queries.cliques[clique])] == np.array(codes)).all(axis=1))
    if queries.count > MOST_LISTED:
        raise Infeasible(f"{queries.count} queries are too many to find the rows of a single query")
    indicator = np.zeros(queries.count)
    indicator[query] = 1.0
    return np.asarray(queries.spread(indicator, support) > 0)
