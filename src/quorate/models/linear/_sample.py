"""Points that stand for the private rows where the geometry is chosen: public rows, or rows made of released means.

Each column of a made row has one of the values that it may take, so that the means are those released. How columns
of numbers go together is measured apart (`_factors.py`). Of all others nothing is known; more and smaller steps make
up for that. How good made rows are depends on the noise of the means, so that these are measured as `Shares`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.special import logsumexp, softmax

from quorate.core.arrays import Floats
from quorate.models.linear.exact import exact_weights, lengths

_USUAL = 0.98  # of public rows, that are not clipped
_MOST_UNSURE = 0.3  # of a made column, drawn from what it may be and not from what was released
_UNSURE = 0.25  # of the noise, that a value may be there though nothing was seen of it
_HIDDEN = 2.0  # standard deviations of the noise, at which half of a share is believed
_SIGNIFICANT = 4.0  # standard deviations of the noise
_NEARER = 1 - 1e-9  # of a distance, below which another one is shorter by more than rounding


def shift(public: Floats, means: Floats, noise: Floats) -> float:
    """Return by how much the released means differ from the public ones beyond noise, in standard deviations."""
    centre = public.mean(axis=0)
    likely = np.clip(means, 0.0, 1.0)
    spread = np.maximum(public.var(axis=0), likely * (1 - likely))
    by_chance = _SIGNIFICANT * np.sqrt(noise**2 + spread / len(public))
    beyond = np.maximum(np.abs(means - centre) - by_chance, 0.0)
    return float(np.max(beyond / np.sqrt(spread + noise**2 + 1e-12)))


class Around:
    """What is measured of rows that should be like public ones: the columns, clipped, and how many were clipped."""

    def __init__(self, public: Floats) -> None:
        self._public, self._centre = public, public.mean(axis=0)
        self._longest = float(np.quantile(np.linalg.norm(public - self._centre, axis=1), _USUAL)) + 1e-6
        self.entries, self.radius = len(self._centre) + 1, float(np.hypot(self._longest, 1.0))

    def of(self, features: Floats) -> Floats:
        """Return the columns of each row less the centre, and a 1 where they were clipped."""
        moved = features - self._centre
        distance = lengths(moved)
        moved *= np.minimum(1.0, self._longest / np.maximum(distance, 1e-300))[:, None]
        return np.hstack([moved, (distance > self._longest)[:, None]])

    def means(self, measured: Floats, noise: float) -> tuple[Floats, Floats, float]:
        """Return the means of the columns, the standard deviation of their noise, and the part of rows beyond."""
        return self._centre + measured[:-1], np.full(len(self._centre), noise), float(measured[-1])

    def measured(self, shares: Floats, noise: float) -> tuple[Floats, float] | None:
        """Return None: shares of blocks say nothing of distances from public rows."""


class Shares:
    """What is measured of rows of which nothing is known but what each block of columns may be.

    A value of a column lies at a category or between two cuts: at a corner of what its block may be, or between two of
    them. Its shares of these corners add up to 1, so that they are within a ball of radius 1, however many cuts there
    are. The ramps themselves are within a larger one, and their means would need more noise. Shares are linear in the
    columns. A block that has no such corners is measured as it is.
    """

    def __init__(self, atoms: Sequence[Floats]) -> None:
        self._blocks = [Block.of(values) for values in atoms]
        self._turn = exact_weights(block_diag(*(block.turn for block in self._blocks)))
        self._middle = np.concatenate([block.middle for block in self._blocks])
        self._centre = self._middle - np.concatenate([block.start for block in self._blocks])
        self._back = block_diag(*(block.corners for block in self._blocks))
        self.entries = len(self._centre)
        self.radius = float(np.linalg.norm([block.radius for block in self._blocks])) + 1e-6

    def of(self, features: Floats) -> Floats:
        """Return the shares of each row, less those in the middle. Features are those of `exact_features`."""
        return np.asarray(features @ self._turn - self._centre)  # proof: step 2

    def measured(self, shares: Floats, noise: float) -> tuple[Floats, float] | None:
        """Return known mean shares as if they had been measured, or None where blocks have other corners."""
        sizes = [len(block.middle) for block in self._blocks]
        if len(shares) != sum(sizes) or not all(block.simplex for block in self._blocks):
            return None
        return shares - self._middle, noise

    def means(self, measured: Floats, noise: float) -> tuple[Floats, Floats, float]:
        """Return the means of the columns, the standard deviation of their noise, and that no row lies beyond."""
        return (measured + self._middle) @ self._back, noise * np.sqrt((self._back**2).sum(axis=0)), 0.0

    @property
    def numbers(self) -> int:
        """How many blocks are columns of numbers."""
        return sum(block.is_number for block in self._blocks)

    @property
    def width(self) -> int:
        """How many columns all blocks have."""
        return len(self._turn)

    def columns(self, index: int) -> slice:
        """Return which columns are those of a block."""
        ends = np.cumsum([0, *(block.values.shape[1] for block in self._blocks)])
        return slice(int(ends[index]), int(ends[index + 1]))

    def chances(self, measured: Floats, noise: float) -> list[tuple["Block", Floats]]:
        """Return each block with the chances of its values: mean shares as near to those measured as noise allows."""
        parts = self._parts(measured)
        return [(block, block.chances(part, noise)) for block, part in zip(self._blocks, parts, strict=True)]

    def _parts(self, measured: Floats) -> list[Floats]:
        return np.split(measured, np.cumsum([len(block.middle) for block in self._blocks])[:-1])


@dataclass(frozen=True)
class Block:
    """Columns that are drawn together: the values they may have, and what is measured of them."""

    values: Floats
    corners: Floats
    turn: Floats  # from columns to shares of the corners
    start: Floats  # the shares of a row of zeros
    middle: Floats
    radius: float  # how far from the middle shares may be
    simplex: bool
    order: Literal["none", "all", "all but the last"] = "none"  # of values, from the lowest; the last may be missing

    @property
    def is_number(self) -> bool:
        """Whether the values are those of a column of numbers."""
        return self.order != "none"

    @classmethod
    def of(cls, values: Floats) -> "Block":
        """Return the block of these values: by shares where the corners are those of a simplex, or else as it is."""
        corners = values[~is_halfway(values)]
        number, width = corners.shape
        beside_ones = np.hstack([corners, np.ones((number, 1))])
        around = not corners.min(axis=0).any() and bool((corners.max(axis=0) == 1).all())  # all that the columns may be
        if around and np.linalg.matrix_rank(beside_ones) == number:
            turn, middle = np.linalg.pinv(beside_ones), np.full(number, 1 / number)
            radius, order = float(np.sqrt(1 - 1 / number)), _order_of(corners)
            return cls(values, corners, turn[:-1], turn[-1], middle, radius, True, order)
        middles = ((values.min(axis=0) + values.max(axis=0)) / 2, values.mean(axis=0))
        far = [float(np.linalg.norm(values - middle, axis=1).max()) for middle in middles]
        nearest = int(far[1] < _NEARER * far[0])  # Where both are equally far, the last bits must not choose.
        return cls(values, np.eye(width), np.eye(width), np.zeros(width), middles[nearest], far[nearest], simplex=False)

    def chances(self, part: Floats, noise: float) -> Floats:
        """Return how often each value is drawn. Of a share that may be noise little is believed."""
        seen, ridge = part + self.middle, noise
        if self.simplex:
            seen = np.maximum(seen, 0.0)
            believed = seen**3 / np.maximum(seen**2 + (_HIDDEN * noise) ** 2, 1e-300)
            seen, ridge = believed / believed.sum() if believed.any() else self.middle, noise / 10
        even = np.full(len(self.values), 1 / len(self.values))
        chances = _tilted(self.values @ self.turn + self.start, even, seen, ridge)
        unsure = min(_MOST_UNSURE, _UNSURE * noise * len(even))  # a rare value may be there though the noise hides it
        return (1 - unsure) * chances + unsure * even


def _order_of(corners: Floats) -> Literal["none", "all", "all but the last"]:
    """Return whether corners are those of a number, whose columns rise; the last one may say that it is missing."""
    if len(corners) == 2 or (np.diff(corners, axis=0) >= 0).all():
        return "all"
    rise = len(corners) > 2 and not corners[-1, :-1].any() and not corners[:-1, -1].any()
    return "all but the last" if rise and (np.diff(corners[:-1], axis=0) >= 0).all() else "none"


def is_halfway(values: Floats) -> NDArray[np.bool_]:
    """Return which values are halfway between those before and after them: they are no corners."""
    halfway = np.zeros(len(values), dtype=bool)
    halfway[1:-1] = np.isclose(values[1:-1], (values[:-2] + values[2:]) / 2).all(axis=1)
    return halfway


def _tilted(values: Floats, prior: Floats, mean: Floats, noise: float) -> Floats:
    """Return the weights nearest to `prior`, in relative entropy, that have about this mean: by Newton, in the dual."""
    centred, tilt = values - mean, np.zeros(values.shape[1])
    ridge = max(noise**2, 1e-6)

    def dual(tilt: Floats) -> float:
        return float(logsumexp(centred @ tilt, b=prior) + ridge * (tilt @ tilt) / 2)

    for _ in range(60):
        weights = softmax(centred @ tilt + np.log(prior))
        slope = weights @ centred + ridge * tilt
        about = centred - weights @ centred
        curvature = (about * weights[:, None]).T @ about + ridge * np.eye(len(tilt))
        step, size, now = np.linalg.solve(curvature, slope), 1.0, dual(tilt)
        while dual(tilt - size * step) > now and size > 1e-6:
            size /= 2
        tilt = tilt - size * step
        if np.abs(slope).max() < 1e-6:
            break
    weights = softmax(centred @ tilt + np.log(prior))
    return np.asarray(weights / weights.sum())
