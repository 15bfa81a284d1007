"""Sums of clipped vectors of private units, as whole numbers: all that ever leaves the private rows. PROOF.md.

A unit (a row, or a person with all their rows) adds one vector of whole numbers whose squares add up to at most GRID^2.
Replacing it moves the sum by at most 2 GRID in L2, whatever its values.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.ballots import Ballots, release_counts
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import one_thread
from quorate.core.mechanisms import NoisyVectors
from quorate.core.rows import usable_cores
from quorate.models.linear.exact import exact_features, lengths, unit_means

GRID = 2**14  # the length, in whole numbers, of the longest vector that a unit can add
SQUARED_SENSITIVITY = 4 * GRID**2  # proof: step 2
_MOST_ENTRIES = 2**25  # proof: step 1
_BLOCK = 2**10  # rows encoded together: few enough for the caches
_THREADS = 4  # that encode blocks, at most

Vectors = Callable[[Floats, Floats], Floats]


def on_the_grid(vectors: Floats, radius: float) -> NDArray[np.int64]:
    """Return each vector clipped to `radius`, in units of radius / `grid_length`, rounded to whole numbers.

    The squares of every row add up to at most GRID^2: a row for which arithmetic failed is left out. Proof: step 1.
    """
    with np.errstate(all="ignore"):
        whole = vectors * (grid_length(vectors.shape[1]) / np.maximum(lengths(vectors), radius))[:, None]
        np.rint(whole, out=whole)
    np.fmin(whole, GRID, out=whole)  # what is no number becomes GRID
    np.fmax(whole, -GRID, out=whole)
    whole[np.einsum("ij,ij->i", whole, whole) > GRID**2] = 0  # proof: step 1: whole numbers that a double holds
    return whole.astype(np.int64)


def grid_length(entries: int) -> int:
    """Return the length that is rounded: a rounding moves a vector by at most half the root of its entries."""
    if entries > _MOST_ENTRIES:
        raise InvalidInput(f"vectors of {entries} entries are longer than sums of their squares stay exact")
    return math.floor(GRID - math.sqrt(entries) / 2 - 1)


class PrivateSums:
    """The private rows behind one door: sums of clipped vectors leave it through a NoisyVector, and nothing else does.

    `encode` makes numbers in [0, 1] of rows; `targets` has a column for each output; `units` says whose row each is.
    With `one_each`, where no groups were given, every row is a unit.
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
        self._encode, self._targets = encode, targets
        self.units, self._one_each = number, one_each
        self._order = np.argsort(units, kind="stable")
        self._starts = np.flatnonzero(np.diff(units[self._order], prepend=-1))

    def release(
        self, vectors: Vectors, *, entries: int, radius: float, noisy: NoisyVectors, fraction: float
    ) -> tuple[Floats, float]:
        """Return the mean over units of what `vectors` says of their rows, with noise, and the noise's scale.

        `vectors` depends on public values, and takes rows and targets a few at a time: what it returns for a row must
        not depend on the rows beside it, to the last bit (products and lengths by `linear.exact`). The mean over a
        unit's rows is clipped to `radius`. `fraction` is the part of what is left of `noisy` that is spent. How many
        rows a person has is not public: only the number of units divides.
        """

        def added(block: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
            rows, firsts = block
            with np.errstate(all="ignore"):  # proof: step 5: a warning would tell of private values
                row_vectors = vectors(exact_features(self._encode(rows)), self._targets[rows])
                return np.asarray(self.contributions(row_vectors, firsts, radius).sum(axis=0))

        total = np.zeros(entries, dtype=np.int64)
        with (
            one_thread(),
            ThreadPoolExecutor(usable_cores(most=_THREADS)) as threads,
        ):  # each block by one thread: they do not wait
            for part in threads.map(added, self._blocks()):
                total += part  # proof: step 2
        released, scale = release_counts(  # proof: step 3
            Ballots(total),
            lambda whole: noisy.release(whole, squared_sensitivity=SQUARED_SENSITIVITY, fraction=fraction),
        )
        step = radius / grid_length(entries) / self.units
        return np.asarray(released * step, dtype=np.float64), scale * step

    def contributions(self, vectors: Floats, firsts: NDArray[np.int64], radius: float) -> NDArray[np.int64]:
        """Return what each unit adds: the mean over its rows, the first of which `firsts` names, on the grid."""
        if not self._one_each:  # proof: steps 1 and 2
            vectors = unit_means(vectors, firsts, radius)
        return on_the_grid(vectors, radius)

    def scale(self, noisy: NoisyVectors, fraction: float) -> float:
        """Return the noise's scale in the next release, for vectors clipped to radius 1."""
        return noisy.scale(squared_sensitivity=SQUARED_SENSITIVITY, fraction=fraction) / GRID

    def _blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the rows of a block of whole units, and where each unit begins among them."""
        ends = np.append(self._starts[1:], len(self._order))
        first = 0
        while first < len(self._starts):
            last = max(first + 1, int(np.searchsorted(ends, self._starts[first] + _BLOCK, side="right")))
            begin = self._starts[first]
            yield self._order[begin : ends[last - 1]], self._starts[first:last] - begin
            first = last
