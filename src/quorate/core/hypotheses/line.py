"""Cut points on a line, and what is right and wrong on either side of them."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers

Values = NDArray[np.float64]


def cuts_between(low: Values, high: Values) -> Values:
    """Return for low < high a number halfway, above `low` and at most `high`: `x >= cut` tells the two apart."""
    middle = low / 2 + high / 2
    return np.where((middle > low) & (middle <= high), middle, high)


def cut_points(values: Values) -> Values:
    """Return one cut between each two neighbours among the distinct values, in rising order."""
    distinct = np.unique(values)
    return cuts_between(distinct[:-1], distinct[1:])


def lead_below(cuts: Values, values: Values, labels: Integers, *, side: Literal["left", "right"] = "left") -> Integers:
    """Return for each cut how many more ones than zeros lie below it, or at and below it where `side` is right."""
    order = np.argsort(values)
    lead = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(2 * labels[order] - 1, out=lead[1:])
    return lead[np.searchsorted(values[order], cuts, side=side)]  # left: a value at a cut is not below it


def mistakes_upward(cuts: Values, values: Values, labels: Integers) -> Any:
    """Return for each cut the mistakes of saying 1 at and above it and 0 below."""
    return np.count_nonzero(labels == 0) + lead_below(cuts, values, labels)
