"""Pairs of columns of a fitted table, taken back towards independent columns as far as they may be noise.

One penalty is chosen for all pairs. Where a few of them are tied and most are not, it lets noise into those that are
not, and that adds up in the mean error. What noise does to a pair is seen by two fits to the noisy tables, to which one
draw of the noise is added and from which it is taken off. A pair about which the fit says no more than that becomes
independent; one about which it says much more stays as it is (block shrinkage: James and Stein 1961, Cai 1999).
Columns keep their shares, and no share falls below 0. All of it is post-processing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from quorate.core.arrays import Floats
from quorate.release.engines.misfit import NoisyTables
from quorate.release.engines.mixture import Mixture, MixtureFit, fit_other_half

__all__ = ["PairNoise", "Shrunk"]

_MOST_MOVED = 1.0 / 3.0  # of the furthest that noise moves a cell of the pair: no cell is moved more


@dataclass(frozen=True, repr=False)
class Shrunk(Mixture):
    """A mixture of which each pair of columns is kept in part: the rest is what independent columns have."""

    kept: Floats  # columns by columns, from 0 to 1

    @property
    def mean_kept(self) -> float:
        """How much of a pair is kept, in the mean over all pairs."""
        return float(np.mean(self.kept[np.triu_indices(len(self.sizes), 1)]))

    def table(self, columns: Sequence[int]) -> Floats:
        """Return the marginal of some columns, the last running fastest."""
        table = super().table(columns)
        if len(columns) != 2:
            return table
        first, second = (super(Shrunk, self).table((column,)) for column in columns)
        apart = np.outer(first, second).ravel()
        return np.asarray(apart + self.kept[tuple(columns)] * (table - apart))


@dataclass(frozen=True, repr=False)
class PairNoise:
    """How noise moves what a fit says of each pair of columns: its squares added up, and its largest cell."""

    squares: Floats
    largest: Floats

    @classmethod
    def of_fit(cls, fit: MixtureFit, noisy: NoisyTables, estimate: Callable[[NoisyTables], NoisyTables]) -> "PairNoise":
        """Return the noise of a fit to noisy tables; `estimate` is what it was fitted with."""
        assert fit.half is not None
        other = fit_other_half(fit.half, noisy, estimate)
        return cls(*_sizes(_beyond_columns(fit.half.mixture) - _beyond_columns(other), other.sizes))

    def shrink(self, mixture: Mixture) -> Shrunk:
        """Return the mixture with as much of each pair as stands out from this noise: PROOF.md, step 7."""
        squares, largest = _sizes(_beyond_columns(mixture), mixture.sizes)
        noise = np.minimum(self.squares / np.maximum(squares, 1e-300), 1.0)
        least = 1.0 - _MOST_MOVED * self.largest / np.maximum(largest, 1e-300)
        kept = np.maximum(np.maximum(1.0 - noise**2, least), 0.0)
        return Shrunk(mixture.sizes, mixture.weights, mixture.shares, kept)


def _beyond_columns(mixture: Mixture) -> Floats:
    """Return the shares of all codes by all codes, less what they are in independent columns."""
    owned = mixture.weights[:, None] * mixture.shares
    columns = owned.sum(axis=0)
    return np.asarray(owned.T @ mixture.shares - np.outer(columns, columns))


def _sizes(cells: Floats, sizes: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the sum of the squares of each pair of columns, and its largest cell."""
    starts = np.cumsum([0, *sizes[:-1]])
    squares, largest = cells**2, np.abs(cells)
    for axis in (0, 1):
        squares, largest = np.add.reduceat(squares, starts, axis), np.maximum.reduceat(largest, starts, axis)
    return squares, largest
