"""A public histogram that learns from released answers: multiplicative weights, corrected one query at a time.

All of it is post-processing: it sees public records and released numbers, and nothing else.
"""

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.release.queries import MOST_LISTED, Marginals, Queries, Rows

__all__ = ["LearnedWeights"]

_REPLAYED, _SCALED = 200, 800  # corrections gone through again after each new one, and how often all of them at most
_EXTREME = 1e-12
_KEPT = 2**26  # bytes of masks


class LearnedWeights:
    """Weights over cells, or over public rows, that agree with what was released about some of the queries.

    The start is the public histogram with a share `blend` of the uniform one, so that no cell is ruled out. A
    correction scales a query's cells by one factor and the others by another, which is the least change, by relative
    entropy, that gives the query its released share (Hardt and Rothblum 2010).
    """

    def __init__(self, queries: Queries, start: Floats | Rows, *, blend: float) -> None:
        self.queries = queries
        self.support = start.merged() if isinstance(start, Rows) else None
        counts = self.support.weights if self.support is not None else np.asarray(start, dtype=np.float64)
        total = float(counts.sum())
        flat = np.full(counts.size, 1.0 / counts.size)
        self.weights: Floats = flat if total <= 0 else (1 - blend) * counts / total + blend * flat
        self.corrections: list[tuple[int, int, float]] = []  # a query, what is left out of it, its released share
        self._members: dict[tuple[int, int], NDArray[np.bool_]] = {}

    def answer(self, number: int, without: int = -1) -> float:
        """Return the share that the weights give to a query, or to what it holds and another does not."""
        return min(1.0, float(self.weights[self._cells(number, without)].sum()))

    def correct(self, number: int, share: float, without: int = -1) -> None:
        """Take in a released share, and go through the earlier ones again."""
        self.corrections.append((int(number), int(without), float(share)))
        for _ in range(max(2, _SCALED // len(self.corrections))):
            moved = [self._scale(*correction) for correction in self.corrections[-_REPLAYED:]]
            if max(moved) < 1e-9:
                return

    def _scale(self, number: int, without: int, share: float) -> float:
        """Give a query its share, and return by how much it was off; where it has all or nothing, leave it."""
        members = self._cells(number, without)
        now, wanted = float(self.weights[members].sum()), min(max(share, _EXTREME), 1 - _EXTREME)
        if not _EXTREME < now < 1 - _EXTREME:
            return 0.0
        self.weights[members] *= wanted * (1 - now) / (now * (1 - wanted))
        self.weights /= self.weights.sum()
        return abs(wanted - now)

    def _cells(self, number: int, without: int) -> NDArray[np.bool_]:
        """Return the mask of a query's cells or rows; some masks are kept."""
        cells = self._members.get((number, without))
        if cells is None:
            cells = self.mask(self.queries, number, without, self.support)
            self._members[number, without] = cells
            if len(self._members) * len(self.weights) > _KEPT and len(self._members) > 1:
                del self._members[next(iter(self._members))]
        return cells

    @staticmethod
    def mask(queries: Queries, number: int, without: int, support: Rows | None) -> NDArray[np.bool_]:
        """Return which cells, or which rows of the support, a query holds and the other does not."""
        held = _held(queries, number, support)
        return held if without < 0 else held & ~_held(queries, without, support)


def _held(queries: Queries, number: int, support: Rows | None) -> NDArray[np.bool_]:
    if support is None:
        held = np.zeros(queries.cells or 0, dtype=np.bool_)
        held[queries.members(number)] = True
        return held
    if isinstance(queries, Marginals):
        clique, codes = queries.find(number)
        return np.asarray((support.codes[:, list(queries.cliques[clique])] == np.array(codes)).all(axis=1))
    if queries.count > MOST_LISTED:
        raise Infeasible(f"{queries.count} queries are too many to find one's rows among them")
    one = np.zeros(queries.count)
    one[number] = 1.0
    return np.asarray(queries.spread(one, support) > 0)
