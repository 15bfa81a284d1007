"""What a concept is given: points and labels, checked for shape and type; and cuts of the points of a line.

Values of private rows are no reason for an error: a row that has a missing or infinite value, or one that the class
does not declare, or a label other than 0 and 1, is left out without a word. A row that is left out is nobody's mistake,
so replacing one row still moves each number of mistakes by at most 1. Shapes and types are refused, and they may come
from values: one text in a column makes it a column of texts, so turn rows into numbers, row by row, before they come
here. Points whose labels are asked for belong to the one who asks, and are refused.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import CALL, Calls, one_thread, silence

Points = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]


def check_points(X: Any, *, features: int, name: str = "X") -> Points:
    """Return `X` as a matrix of 64-bit floats with this many columns; one column may be given as a plain list."""
    values = np.asarray(X)
    shaped = values[:, np.newaxis] if values.ndim == 1 and features == 1 else values
    if values.size == 0 and values.ndim == 1:
        shaped = np.empty((0, features))
    if shaped.ndim != 2 or shaped.shape[1] != features or shaped.dtype.kind not in "fiub":
        raise InvalidInput(
            f"{name} must be a matrix of numbers with {features} columns, got {values.dtype} of shape {values.shape}"
        )
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(shaped, dtype=np.float64)


def check_queries(X: Any, *, features: int) -> Points:
    """Return points to be labelled, or refuse them where a value is missing or infinite."""
    queries = check_points(X, features=features)
    if not np.isfinite(queries).all():
        raise InvalidInput("X must be finite numbers: fill in or leave out missing and infinite values first")
    return queries


def which_finite(points: Points) -> Mask:
    """Return which rows have finite values only."""
    return np.asarray(np.isfinite(points).all(axis=1))


def check_labels(y: Any, *, rows: int) -> Labels:
    """Return `y` as one whole number for each row; which numbers they are is not looked at."""
    labels = np.asarray(y)
    if labels.shape != (rows,) or (labels.dtype.kind not in "iub" and labels.size > 0):
        raise InvalidInput(
            f"y must be {rows} whole numbers, 0 or 1, one for each row of X, got {labels.dtype} of shape {labels.shape}"
        )
    return labels.astype(np.int64)


def which_labelled(labels: Labels) -> Mask:
    """Return which labels are 0 or 1."""
    return np.asarray((labels == 0) | (labels == 1))


def usable_rows(
    X: Any, y: Any, *, features: int, usable: Callable[[Points], Mask] = which_finite
) -> tuple[Points, Labels]:
    """Return the rows that are usable points and have a label, and their labels."""
    points = check_points(X, features=features)
    labels = check_labels(y, rows=len(points))
    used = usable(points) & which_labelled(labels)
    return (points, labels) if used.all() else (points[used], labels[used])


def say_by_row(ask: Callable[[Points], Any], points: Points, *, rows: int | None = CALL) -> Mask:
    """Return of which rows `ask` says 1, each by itself: not of one on which it raises, or says anything but 0 and 1.

    It is asked in calls of a fixed shape, so that no row changes how another is summed
    (`quorate.core.estimator_calls`).
    """
    with one_thread(), silence():
        mask: Mask = Calls(points, rows).ballots(_Asked(ask), majority=0, classes=2) == 1
        return mask


class _Asked:
    """A function of rows as a model: 1, or something else, of each."""

    def __init__(self, ask: Callable[[Points], Any]) -> None:
        self._ask = ask

    def predict(self, X: Points) -> Any:
        values = np.asarray(self._ask(X))
        return values.reshape(len(X)) == 1 if values.shape in ((len(X),), (len(X), 1)) else values


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
