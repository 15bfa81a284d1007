"""Random Fourier features of all columns of numbers together: cosines along directions from a fixed seed.

They represent smooth interactions of several numbers, which a sum of curves misses. The seed is public and hides
nothing. The features of a row depend on that row alone, to the last bit: models/linear/PROOF.md, step 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import cosm1, ndtri

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables.features.blocks import Ramps, spread_ramps

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
