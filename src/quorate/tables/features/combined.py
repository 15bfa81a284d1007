"""Features of several columns: interactions of two of them, and random Fourier features of all columns of numbers.

Both are functions of the row alone, value by value, to the last bit (models/linear/PROOF.md, step 2). An interaction is
a product of coarse features and lies in [0, 1] like its factors. A coarse feature is a linear function of the features
of its column, so that interactions can be made of rows that are encoded already. Fourier features are cosines along
directions from a fixed seed, which is public and hides nothing. They represent smooth interactions of several numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import cosm1, ndtri

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables.features.blocks import Categories, Ramps, spread_ramps

_LEAST_MASS = 0.04  # of the rows: a category with fewer is merged with others


@dataclass(frozen=True)
class Interaction:
    """The products of two blocks; `places` says which columns they are.

    `codes` says which coarse category each category of a column belongs to; it is empty where they are the same.
    """

    places: tuple[int, int]
    first: Ramps | Categories
    second: Ramps | Categories
    codes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def names(self) -> list[str]:
        """The names of the products."""
        return [f"{name} and {partner}" for name in self.first.names for partner in self.second.names]

    def spread(self, read: Sequence[NDArray[Any]]) -> Floats:
        """Return one row of products for each row, of all columns as they were read."""
        values = [
            np.array(codes)[read[position]] if codes else read[position]
            for position, codes in zip(self.places, self.codes, strict=True)
        ]
        return multiply(*(block.spread(column) for block, column in zip(self._blocks, values, strict=True)))

    def atoms(self) -> list[Floats]:
        """Return what every pair of values becomes."""
        first, second = (block.atoms() for block in self._blocks)
        return [multiply(np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1)))]

    @property
    def _blocks(self) -> tuple[Ramps | Categories, Ramps | Categories]:
        return self.first, self.second


def multiply(first: Floats, second: Floats) -> Floats:
    """Return the products of all entries of each row with those of the other one's."""
    return (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)


def make_interactions(blocks: Sequence[Any], names: Sequence[Any], pairs: Any) -> list[Interaction]:
    """Return the interactions of pairs of columns, which are named. A number takes part in two straight pieces."""
    interactions = []
    for pair in pairs or ():
        if isinstance(pair, str) or len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(names):
            raise InvalidInput(f"a cross is a pair of two columns of the table, not {pair!r}")
        indices = (list(names).index(pair[0]), list(names).index(pair[1]))
        if not all(isinstance(blocks[index], Ramps | Categories) for index in indices):
            raise InvalidInput("a column of texts cannot be crossed")
        interactions.append(Interaction(indices, _coarse(blocks[indices[0]]), _coarse(blocks[indices[1]])))
    return interactions


def _coarse(block: Ramps | Categories) -> Ramps | Categories:
    if isinstance(block, Categories) or len(block.points) == 2:
        return block
    points = block.points
    return Ramps(block.name, (points[0], points[len(points) // 2], points[-1]))


class Side(NamedTuple):
    """A column as one factor of interactions: a coarse block, and its features as products of those of all columns."""

    place: int
    block: Ramps | Categories
    codes: tuple[int, ...]
    lift: Floats
    columns: slice  # of the column's own features


def make_side(
    blocks: Sequence[Ramps | Categories], position: int, start: int, means: Floats, *, pieces: int
) -> Side | None:
    """Return a column in at most so many pieces of about equal mass, or None if it has a single value.

    `means` are those of the features of all columns, of which the column's own begin at `start`.
    """
    block = blocks[position]
    mass = means[start : start + len(block.names)]
    coarse: tuple[Ramps | Categories, tuple[int, ...], Floats]
    coarse = (
        _coarse_categories(block, mass, pieces) if isinstance(block, Categories) else _coarse_ramps(block, mass, pieces)
    )
    lift = coarse[2]
    if lift.shape[1] < 1:
        return None
    full_lift = np.zeros((len(means), lift.shape[1]))
    full_lift[start : start + len(mass)] = lift
    return Side(position, coarse[0], coarse[1], full_lift, slice(start, start + len(mass)))


def _coarse_categories(block: Categories, means: Floats, pieces: int) -> tuple[Categories, tuple[int, ...], Floats]:
    """Keep the most frequent categories; merge all others."""
    order = np.argsort(-means[:-1], kind="stable")[:pieces]
    frequent = sorted(int(index) for index in order if means[index] > _LEAST_MASS)
    codes = np.full(len(means), len(frequent))
    codes[frequent] = np.arange(len(frequent))
    coarse = Categories(block.name, tuple(block.values[index] for index in frequent))
    return coarse, tuple(codes.tolist()), np.eye(len(frequent) + 1)[codes][:, : None if frequent else 0]


def _coarse_ramps(block: Ramps, means: Floats, pieces: int) -> tuple[Ramps, tuple[int, ...], Floats]:
    """Keep the cuts below which about equal parts of the values are."""
    rising, cuts = means[int(block.line is not None) :][: len(block.cuts) - 1], np.array(block.cuts)
    below = np.concatenate([[0.0], 1 - (rising[1:] + rising[:-1]) / 2, [1.0]])
    levels = np.linspace(_LEAST_MASS, 1 - _LEAST_MASS, pieces + 1)
    chosen = np.unique(np.abs(below[:, None] - levels).argmin(axis=0))
    if len(chosen) < 2:
        chosen = np.array([0, len(cuts) - 1])
    lift = np.zeros((len(means), len(chosen) - 1))
    for piece, (low, high) in enumerate(pairwise(chosen)):
        widths = np.diff(cuts[low : high + 1]) / (cuts[high] - cuts[low])
        lift[int(block.line is not None) + np.arange(low, high), piece] = widths
    return Ramps(block.name, tuple(cuts[chosen].tolist())), (), lift


_VALUES, _DIRECTIONS = 2.0**20, 2.0**16  # steps of a value and of a direction: sums of products have 53 bits
_USUAL = 0.2  # the spread of a number between the ends of its line
_FARTHEST = 4.0  # standard deviations of a direction's entry


class FourierTerms(NamedTuple):
    """The cosine of rint(line * scale) @ directions / steps + phases is a wave."""

    scale: float
    directions: Floats
    steps: float
    phases: Floats


@dataclass(frozen=True)
class FourierFeatures:
    """So many cosines of the columns at `places`, each of which is first a straight line from 0 to 1."""

    places: tuple[int, ...]
    lines: tuple[Ramps, ...]
    number: int

    @property
    def names(self) -> list[str]:
        """The names of the cosines."""
        return [f"wave {index}" for index in range(self.number)]

    def spread(self, read: Sequence[NDArray[Any]]) -> Floats:
        """Return one row of cosines in [0, 1] for each row, of all columns as they were read."""
        lines = spread_ramps(self.lines, np.stack([read[index] for index in self.places], axis=1))
        terms = self.terms()
        along = np.rint(lines * terms.scale) @ terms.directions / terms.steps  # proof: step 2 of models/linear/PROOF.md
        return np.asarray((cosm1(along + terms.phases) + 2) / 2)

    def terms(self) -> "FourierTerms":
        """Return the numbers of its sums."""
        directions, phases = _draw_waves(len(self.places), self.number)
        return FourierTerms(_VALUES, directions, _VALUES * _DIRECTIONS, phases)

    def atoms(self) -> list[Floats]:
        """Return values of each cosine."""
        return [np.array([[0.0], [0.5], [1.0]])] * self.number


@lru_cache(maxsize=16)
def _draw_waves(columns: int, number: int) -> tuple[Floats, Floats]:
    """Return directions, in whole steps, and phases: as many radians apart as usual rows are standard deviations."""
    levels = _levels((columns + 1) * number).reshape(columns + 1, number)
    directions = np.clip(ndtri(levels[:-1]), -_FARTHEST, _FARTHEST) / (_USUAL * math.sqrt(columns))
    return np.rint(directions * _DIRECTIONS), 2 * math.pi * levels[-1]


def _levels(number: int) -> Floats:
    """Return levels between 0 and 1 from a fixed seed, the same in every version. They hide nothing: proof, step 4."""
    return (np.asarray(np.random.PCG64(1).random_raw(number) >> np.uint64(12), dtype=np.float64) + 0.5) / 2.0**52


def make_fourier_features(blocks: Sequence[Any], number: int) -> list[FourierFeatures]:
    """Return the Fourier features of all columns of numbers; none if `number` is 0."""
    if not number:
        return []
    indices = [index for index, block in enumerate(blocks) if isinstance(block, Ramps) and len(block.points) > 2]
    if not indices:
        raise InvalidInput("waves need a column of numbers")
    lines = [Ramps(blocks[index].name, (blocks[index].points[0], blocks[index].points[-1])) for index in indices]
    return [FourierFeatures(tuple(indices), tuple(lines), number)]
