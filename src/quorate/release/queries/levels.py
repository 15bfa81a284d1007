"""The nodes of a hierarchy: each level splits the cells more finely than the one above it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.release.queries.protocol import Members, Queries, Whole, check_weights
from quorate.release.queries.rows import Rows

__all__ = ["Levels"]


class Levels(Queries):
    """Every node of each level, the top level first; `maps[k]` says for each cell in which node of level k it lies.

    The last level has one node for each cell.
    """

    def __init__(self, maps: Sequence[Whole]) -> None:
        self.maps = tuple(np.asarray(one, dtype=np.int64) for one in maps)
        self.sizes = tuple(int(one.max()) + 1 for one in self.maps)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        for upper, lower in zip(self.maps, self.maps[1:], strict=False):
            if len(set(zip(lower.tolist(), upper.tolist(), strict=True))) != int(lower.max()) + 1:
                raise InvalidInput("each node of a level lies in one node of the level above it")
        if not np.array_equal(self.maps[-1], np.arange(len(self.maps[-1]))):
            raise InvalidInput("the last level of a hierarchy has a node for each cell")

    def parents(self, level: int) -> Whole:
        """Return for each node of a level but the first the node of the level above that it lies in."""
        parents = np.empty(self.sizes[level], dtype=np.int64)
        parents[self.maps[level]] = self.maps[level - 1]
        return parents

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return int(self.offsets[-1])

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return self.sizes[-1]

    @property
    def squares(self) -> tuple[int, ...]:
        """The squared L2 change of each level when one record is replaced: it leaves one node and enters another."""
        return tuple(2 if size > 1 else 0 for size in self.sizes)

    @property
    def sensitivity(self) -> int:
        """The squared L2 change of all levels together when one record is replaced."""
        return sum(self.squares)

    def answers(self, weights: "ArrayLike | Rows") -> Floats:
        """Return the sum of the weights of each node's cells."""
        values = check_weights(weights, self.cells)
        pairs = zip(self.maps, self.sizes, strict=True)
        return np.concatenate([np.bincount(where, values, minlength=size) for where, size in pairs])

    def members(self, query: int) -> Members:
        """Return the cells of one node."""
        level = int(np.searchsorted(self.offsets, query, side="right")) - 1
        return np.flatnonzero(self.maps[level] == query - self.offsets[level])

    def spread(self, values: ArrayLike, support: Rows | None = None) -> Floats:
        """Return for each cell the sum of the values of the nodes that it lies in."""
        if support is not None:
            raise InvalidInput("the nodes of a hierarchy are spread over cells, not over rows")
        given = np.asarray(values, dtype=np.float64)
        parts = [given[start:][where] for start, where in zip(self.offsets, self.maps, strict=False)]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)
