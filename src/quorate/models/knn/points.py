"""Rows as points of whole numbers. A point is a function of its row alone, to the last bit (PROOF.md, step 1)."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.checks import check_positive
from quorate.core.errors import InvalidInput
from quorate.models.linear.exact import lengths

Metric = Literal["cosine", "euclidean"]
Points = NDArray[np.float32]  # whole numbers, which 32-bit floats hold exactly

LONGEST = 1447  # of a point: its square is below 2**21, and so no sum of a distance exceeds 2**24; proof: step 2


@dataclass(frozen=True, eq=False)
class Space:
    """How rows become points: taken relative to a public centre, then scaled to one length or by a public reach.

    With the metric "cosine" all points have about the same length, so that distances are those between directions.
    With "euclidean" a row at the distance `reach` from the centre has the largest length, and rows further out are
    moved towards the centre onto that sphere.

    >>> space = Space("euclidean", np.zeros(2), reach=10.0)
    >>> space.points(np.array([[10.0, 0.0], [0.0, -5.0], [0.0, 99.0]])).tolist()
    [[1445.0, 0.0], [0.0, -722.0], [0.0, 1445.0]]
    """

    metric: Metric
    centre: Floats
    reach: float = 1.0

    @classmethod
    def of_public(cls, metric: Metric, public: Floats | None, *, features: int) -> "Space":
        """Return the space whose centre and reach are those of public rows. Cosines can do without them."""
        if public is None:
            if metric == "euclidean":
                raise InvalidInput("the scale of distances is taken from public rows: pass public=, or metric='cosine'")
            return cls(metric, np.zeros(features))
        centre = np.asarray(public, dtype=np.float64).mean(axis=0)
        reach = float(lengths(public - centre).max())
        return cls(metric, centre, check_positive("the spread of public rows", reach))

    @property
    def length(self) -> int:
        """The length of a point before its entries are rounded."""
        return math.floor(LONGEST - math.sqrt(len(self.centre)) / 2 - 1)

    @property
    def unit(self) -> float:
        """The distance between points that stands for a distance of 1: between rows, or between directions."""
        return self.length / (self.reach if self.metric == "euclidean" else 1.0)

    def points(self, X: Any) -> Points:
        """Return the point of each row. No value raises or warns: rows are private."""
        with np.errstate(all="ignore"):
            rows = np.asarray(X, dtype=np.float64) - self.centre
            long = lengths(rows)
            farthest = np.maximum(long, self.reach) if self.metric == "euclidean" else np.maximum(long, 1e-300)
            whole = np.rint(rows * (self.length / farthest)[:, np.newaxis])
        whole = np.fmax(np.fmin(whole, LONGEST), -LONGEST)  # what is no number becomes one
        whole[np.einsum("ij,ij->i", whole, whole) > LONGEST**2] = 0  # proof: step 1
        return whole.astype(np.float32)
