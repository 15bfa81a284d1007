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
from quorate.release.queries import Marginals, Queries, Rows

__all__ = ["LearningTable", "start_weights", "unseen_share"]

_KEPT = 4096  # lists of cells that are remembered
_LEAST_TOTAL, _LARGEST_TOTAL = 1e-6, 1e9  # of the weights: beyond, they are brought back to 1, or rounding would tell


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


class LearningTable:
    """Weights over all cells, or over the records of a support, that are corrected query by query."""

    def __init__(self, queries: Queries, start: Floats, support: Rows | None) -> None:
        self.queries, self.support = queries, support
        self._weights = np.array(start, dtype=np.float64)
        self._total = float(self._weights.sum())
        self._members: dict[int, slice | NDArray[np.int64]] = {}

    @property
    def weights(self) -> Floats:
        """The weights as they are now, adding up to 1."""
        return np.asarray(self._weights / self._weights.sum())

    def answers(self) -> Floats:
        """Return the share that the weights give to every query."""
        self._total = float(self._weights.sum())  # what rounding has added up is forgotten
        whole = self._weights if self.support is None else self.support.weighted(self._weights)
        return np.asarray(self.queries.answers(whole) / self._total)

    def correct(self, query: int, share: float) -> float:
        """Give a query this share, changing the weights least by relative entropy; return how far off it was.

        Where its cells have all of the weight or none, nothing can be done and nothing is.
        """
        place, view = self._cells(query)
        held = float(view[place].sum())
        now = held / self._total
        if not 1e-14 < now < 1 - 1e-14:
            return 0.0
        factor = share * (1.0 - now) / (now * (1.0 - share))
        view[place] *= factor
        self._total += (factor - 1.0) * held
        if not _LEAST_TOTAL < self._total < _LARGEST_TOTAL:
            self._weights /= self._weights.sum()  # in its place: views stay
            self._total = 1.0
        return share - now

    def _cells(self, query: int) -> tuple[Any, Floats]:
        """Return a query's cells as an index, and the array that it is an index of: a view, never a copy."""
        if self.support is None and isinstance(self.queries, Marginals):
            return self.queries.slab(query), self._weights.reshape(self.queries.sizes)
        if query not in self._members:
            if len(self._members) >= _KEPT:
                self._members.clear()
            self._members[query] = self._found(query)
        return self._members[query], self._weights

    def _found(self, query: int) -> slice | NDArray[np.int64]:
        if self.support is None or not isinstance(self.queries, Marginals):
            return self.queries.members(query)
        clique, codes = self.queries.find(query)
        columns = list(self.queries.cliques[clique])
        return np.flatnonzero((self.support.codes[:, columns] == codes).all(axis=1))
