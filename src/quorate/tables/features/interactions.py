"""Interactions of two columns: the products of their coarse features.

A product is a function of the row alone, value by value, and lies in [0, 1] like its factors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables.features.blocks import Categories, Ramps


@dataclass(frozen=True)
class Interaction:
    """The products of two blocks; `places` says which columns they are."""

    places: tuple[int, int]
    first: Ramps | Categories
    second: Ramps | Categories

    @property
    def names(self) -> list[str]:
        """The names of the products."""
        return [f"{one} and {other}" for one in self.first.names for other in self.second.names]

    def spread(self, read: Sequence[NDArray[Any]]) -> Floats:
        """Return one row of products for each row, of all columns as they were read."""
        return _products(*(block.spread(read[index]) for block, index in zip(self._blocks, self.places, strict=True)))

    def atoms(self) -> list[Floats]:
        """Return what every pair of values becomes."""
        one, other = (block.atoms() for block in self._blocks)
        return [_products(np.repeat(one, len(other), axis=0), np.tile(other, (len(one), 1)))]

    @property
    def _blocks(self) -> tuple[Ramps | Categories, Ramps | Categories]:
        return self.first, self.second


def _products(one: Floats, other: Floats) -> Floats:
    return (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)


def make_interactions(blocks: Sequence[Any], names: Sequence[Any], pairs: Any) -> list[Interaction]:
    """Return the interactions of pairs of columns, which are named. A number takes part in two straight pieces."""
    interactions = []
    for pair in pairs or ():
        if isinstance(pair, str) or len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(names):
            raise InvalidInput(f"a cross is a pair of two columns of the table, not {pair!r}")
        indices = (list(names).index(pair[0]), list(names).index(pair[1]))
        if not all(isinstance(blocks[index], Ramps | Categories) for index in indices):
            raise InvalidInput("a column of texts cannot be crossed")
        interactions.append(Interaction(indices, *(_coarse(blocks[index]) for index in indices)))
    return interactions


def _coarse(block: Ramps | Categories) -> Ramps | Categories:
    if isinstance(block, Categories) or len(block.points) == 2:
        return block
    points = block.points
    return Ramps(block.name, (points[0], points[len(points) // 2], points[-1]))
