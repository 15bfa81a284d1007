"""Sums of clipped vectors with one mistake each, caught by a replay on neighbours with one tape of noise.

The noise is the same in both runs, so that the released sums differ by what the unit adds. The sound twin of all of
them is `PrivateSums`.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.auditing.planted.bug import Caught, PlantedBug
from quorate.auditing.replay import entropy_tape
from quorate.linear.sums import GRID, PrivateSums, grid_length, on_the_grid
from quorate.mechanisms import NoisyVectors
from quorate.privacy import Budget

__all__ = ["LINEAR"]

_UNITS, _COLUMNS = 60, 3


class _EveryRowClipped(PrivateSums):
    """Clips each row of a person, and not what the person adds."""

    def contributions(self, vectors: Any, firsts: Any, radius: float) -> NDArray[np.int64]:
        """Put every row on the grid and add up a person's: that is the mistake."""
        return np.asarray(np.add.reduceat(on_the_grid(vectors, radius), firsts, axis=0))


class _ClippedToTheLongest(PrivateSums):
    """Takes the clipping threshold from the private vectors themselves."""

    def contributions(self, vectors: Any, firsts: Any, radius: float) -> NDArray[np.int64]:
        """Clip to the longest vector, so that nothing is lost: that is the mistake."""
        longest = float(np.linalg.norm(vectors, axis=1).max())
        return super().contributions(vectors, firsts, longest)


class _OneColumnAtATime(PrivateSums):
    """Clips every entry, and not the length of the vector."""

    def contributions(self, vectors: Any, firsts: Any, radius: float) -> NDArray[np.int64]:
        """Put the entries on the grid one by one: the mistake, for then their squares add up."""
        columns = [super(_OneColumnAtATime, self).contributions(one, firsts, radius) for one in np.split(vectors, 3, 1)]
        return np.hstack(columns)


def _rows(table: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(table[places])


def _replayed(sums: type[PrivateSums], _plays: int, seed: int) -> Caught:
    """Release the sum of two data sets that differ in the rows of one person, with the same noise."""
    generator = np.random.default_rng(seed)
    rows = [0.5 + generator.normal(size=(2, _COLUMNS)) / 4 for _ in range(_UNITS)]
    released = []
    for other in (np.full((40, _COLUMNS), 9.0), np.full((40, _COLUMNS), -0.5)):
        table = np.vstack([*rows[:-1], other])
        units = np.repeat(np.arange(_UNITS), [*[2] * (_UNITS - 1), 40])
        private = sums(partial(_rows, table), np.zeros((len(table), 1)), units, _UNITS)
        with entropy_tape(seed):
            noisy = NoisyVectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=_COLUMNS)
            mean, _ = private.release(
                lambda features, _: features, entries=_COLUMNS, radius=1.0, noisy=noisy, fraction=0.5
            )
        released.append(mean * _UNITS * grid_length(_COLUMNS))
    moved = float(np.linalg.norm(released[0] - released[1]))
    evidence = f"one person moved the sum by {moved:.1f}, and {2 * GRID} is what the noise is for"
    return Caught("replay on neighbours", evidence, found=moved > 2 * GRID + 1e-3)


def _bug(name: str, what: str, broken: type[PrivateSums]) -> PlantedBug:
    return PlantedBug(name, what, "replay", lambda: broken, lambda: PrivateSums, _replayed)


LINEAR = (
    _bug("row_clipped_for_person", "gradients clipped by row where a person is the unit", _EveryRowClipped),
    _bug("private_clipping", "a clipping threshold taken from the private gradients", _ClippedToTheLongest),
    _bug("entrywise_clipping", "gradients clipped entry by entry for noise in L2", _OneColumnAtATime),
)
