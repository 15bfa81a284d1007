"""Sums of clipped vectors of private units, as whole numbers: all that ever leaves the private rows. PROOF.md.

A unit (a row, or a person with all their rows) adds one vector of whole numbers whose squares add up to at most GRID^2.
Replacing it moves the sum by at most 2 GRID in L2, whatever its values.
"""

import math
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.blocks import AddBlock, Blocks, RowBlocks
from quorate.core.arrays import Floats
from quorate.core.ballots import Ballots, release_counts
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear.exact import exact_features, lengths, unit_means

GRID = 2**14  # the length, in whole numbers, of the longest vector that a unit can add
SQUARED_SENSITIVITY = 4 * GRID**2  # proof: step 2
_MOST_ENTRIES = 2**25  # proof: step 1

MOMENT_GRID = 2**12  # the length, in whole numbers, of the longest row in a second moment
_DIAGONAL_WEIGHT, _PAIR_WEIGHT = 5, 7  # 7^2 <= 2 * 5^2: proof: step 7
MOMENT_SQUARED_SENSITIVITY = 2 * _DIAGONAL_WEIGHT**2 * MOMENT_GRID**4  # proof: step 7

Encode = Callable[[Any], tuple[Floats, Floats]]  # from rows of a block to numbers in [0, 1] and targets
Vectors = Callable[[Floats, Floats], Floats]


def on_the_grid(vectors: Floats, radius: float) -> NDArray[np.int64]:
    """Return each vector clipped to `radius`, in units of radius / `grid_length`, rounded to whole numbers.

    The squares of every row add up to at most GRID^2: a row for which arithmetic failed is left out. Proof: step 1.
    """
    with np.errstate(all="ignore"):
        rounded = vectors * (grid_length(vectors.shape[1]) / np.maximum(lengths(vectors), radius))[:, None]
        np.rint(rounded, out=rounded)
    np.fmin(rounded, GRID, out=rounded)  # what is no number becomes GRID
    np.fmax(rounded, -GRID, out=rounded)
    rounded[np.einsum("ij,ij->i", rounded, rounded) > GRID**2] = 0  # proof: step 1: whole numbers that a double holds
    return rounded.astype(np.int64)


def grid_length(entries: int) -> int:
    """Return the length that is rounded: a rounding moves a vector by at most half the root of its entries."""
    if entries > _MOST_ENTRIES:
        raise InvalidInput(f"vectors of {entries} entries are longer than sums of their squares stay exact")
    return math.floor(GRID - math.sqrt(entries) / 2 - 1)


def _encode_more(encode: Encode, products: Callable[[Floats], Floats], rows: Any) -> tuple[Floats, Floats]:
    features, targets = encode(rows)
    features = exact_features(features)
    return np.hstack([features, products(features)]), targets


class PrivateSums:
    """The private rows behind one door: sums of clipped vectors leave it through a NoisyVector, and nothing else does.

    `encode` makes numbers in [0, 1] of rows in memory, by their numbers; `targets` has a column for each output;
    `units` says whose row each is. With `one_each`, where no groups were given, every row is a unit.
    """

    def __init__(
        self,
        encode: Callable[[NDArray[np.int64]], Floats],
        targets: Floats,
        units: NDArray[np.int64],
        number: int,
        *,
        one_each: bool = False,
    ) -> None:
        self.blocks: Blocks = RowBlocks(units, number)
        self._encode: Encode = lambda rows: (encode(rows), targets[rows])
        self.units, self._one_each = number, one_each

    @classmethod
    def of_blocks(cls, blocks: Blocks, encode: Encode, *, one_each: bool) -> "PrivateSums":
        """Return the sums of rows that are not in memory. `encode` may travel to where the blocks are."""
        private = cls.__new__(cls)
        vars(private).update(blocks=blocks, _encode=encode, units=blocks.count, _one_each=one_each)
        return private

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker of a cluster needs: the blocks stay here."""
        return {name: value for name, value in vars(self).items() if name != "blocks"}

    def with_columns(self, products: Callable[[Floats], Floats]) -> "PrivateSums":
        """Return the same rows, with more columns that are computed from each row's columns alone."""
        wider = copy(self)
        vars(wider).update(blocks=self.blocks, _encode=partial(_encode_more, self._encode, products))
        return wider

    def release(
        self, vectors: Vectors, *, entries: int, radius: float, noisy: NoisyVectors, fraction: float
    ) -> tuple[Floats, float]:
        """Return the mean over units of what `vectors` says of their rows, with noise, and the noise's scale.

        `vectors` depends on public values, and takes rows and targets a few at a time: what it returns for a row must
        not depend on the rows beside it, to the last bit (products and lengths by `linear.exact`). The mean over a
        unit's rows is clipped to `radius`. `fraction` is the part of what is left of `noisy` that is spent. How many
        rows a person has is not public: only the number of units divides.
        """

        def add_block(rows: Any, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
            features, targets = self._encode(rows)
            row_vectors = vectors(exact_features(features), targets)
            return np.asarray(self.contributions(row_vectors, firsts, radius).sum(axis=0))

        released, scale = self._release_total(add_block, entries, SQUARED_SENSITIVITY, noisy, fraction)
        step = radius / grid_length(entries) / self.units
        return np.asarray(released * step, dtype=np.float64), scale * step

    def release_moment(
        self, rows: Callable[[Floats], Floats], *, width: int, radius: float, noisy: NoisyVectors, fraction: float
    ) -> tuple[Floats, float]:
        """Return the mean over units of the second moment of their rows, and the noise's scale off its diagonal.

        `rows` has the obligations of `vectors` in `release`. Each row is clipped to `radius`, and a unit of m rows adds
        the mean of their m outer products.
        """
        pairs = np.triu_indices(width)
        weights = np.where(pairs[0] == pairs[1], _DIAGONAL_WEIGHT, _PAIR_WEIGHT)

        def add_block(encoded: Any, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
            whole = self.moment_rows(rows(exact_features(self._encode(encoded)[0])), firsts, radius)
            return np.asarray((whole.T @ whole)[pairs].astype(np.int64) * weights)  # proof: step 7: exact

        released, scale = self._release_total(add_block, len(weights), MOMENT_SQUARED_SENSITIVITY, noisy, fraction)
        step = radius**2 / MOMENT_GRID**2 / self.units
        moment = np.zeros((width, width))
        moment[pairs] = released * (step / weights)
        return moment + np.triu(moment, 1).T, scale * step / _PAIR_WEIGHT

    def moment_rows(self, rows: Floats, firsts: NDArray[np.int64], radius: float) -> Floats:
        """Return rows of whole numbers; the squares of all rows of a unit add up to at most MOMENT_GRID^2."""
        sizes = np.diff(firsts, append=len(rows))
        longest = np.maximum(lengths(rows), radius) * np.sqrt(np.repeat(sizes, sizes))
        rounded = np.nan_to_num(np.trunc(rows * (MOMENT_GRID / longest)[:, None]), posinf=0.0, neginf=0.0)
        np.clip(rounded, -MOMENT_GRID, MOMENT_GRID, out=rounded)
        squares = np.add.reduceat(np.einsum("ij,ij->i", rounded, rounded), firsts)
        rounded[np.repeat(squares > MOMENT_GRID**2, sizes)] = 0.0  # proof: step 7
        return np.asarray(rounded)

    def moment_scale(self, noisy: NoisyVectors, fraction: float) -> float:
        """Return the noise's scale off the diagonal of the next second moment, for rows clipped to radius 1."""
        scale = noisy.scale(squared_sensitivity=MOMENT_SQUARED_SENSITIVITY, fraction=fraction)
        return scale / (_PAIR_WEIGHT * MOMENT_GRID**2)

    def _release_total(
        self, add_block: AddBlock, entries: int, squared_sensitivity: int, noisy: NoisyVectors, fraction: float
    ) -> tuple[NDArray[np.int64], float]:
        """Add up what `add_block` returns for each block of whole units, and release the total."""
        total = self.blocks.map_add(partial(_add_quietly, add_block), entries)  # proof: step 2
        return release_counts(  # proof: step 3
            Ballots(total),
            lambda whole: noisy.release(whole, squared_sensitivity=squared_sensitivity, fraction=fraction),
        )

    def contributions(self, vectors: Floats, firsts: NDArray[np.int64], radius: float) -> NDArray[np.int64]:
        """Return what each unit adds: the mean over its rows, the first of which `firsts` names, on the grid."""
        if not self._one_each:  # proof: steps 1 and 2
            vectors = unit_means(vectors, firsts, radius)
        return on_the_grid(vectors, radius)

    def scale(self, noisy: NoisyVectors, fraction: float) -> float:
        """Return the noise's scale in the next release, for vectors clipped to radius 1."""
        return noisy.scale(squared_sensitivity=SQUARED_SENSITIVITY, fraction=fraction) / GRID


def _add_quietly(add_block: AddBlock, rows: Any, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
    with np.errstate(all="ignore"):  # proof: step 5: a warning would tell of private values
        return add_block(rows, firsts)
