"""What a concept is given: points and labels, checked for shape and type.

Values of private rows are never the reason for an error: a row that has a missing or infinite value, or a label other
than 0 and 1, is left out without a word. A row that is left out is nobody's mistake, so replacing one row still moves
each number of mistakes by at most 1. Points whose labels are asked for belong to the one who asks, and are refused.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import InvalidInput

__all__ = [
    "Labels",
    "Points",
    "check_labels",
    "check_points",
    "check_queries",
    "usable_points",
    "usable_rows",
    "which_usable",
]

Points = NDArray[np.float64]
Labels = NDArray[np.int64]


def check_points(X: Any, *, features: int, name: str = "X") -> Points:
    """Return `X` as a matrix of 64-bit floats with this many columns; one column may be given as a plain list.

    >>> check_points([1, 2], features=1)
    array([[1.], [2.]])
    >>> check_points([[1, 2]], features=3)
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: X must be a matrix of numbers with 3 columns, not int64 of shape (1, 2)
    """
    given = np.asarray(X)
    shaped = given[:, np.newaxis] if given.ndim == 1 and features == 1 else given
    if given.size == 0 and given.ndim == 1:
        shaped = np.empty((0, features))
    if shaped.ndim != 2 or shaped.shape[1] != features or shaped.dtype.kind not in "fiub":
        raise InvalidInput(
            f"{name} must be a matrix of numbers with {features} columns, not {given.dtype} of shape {given.shape}"
        )
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(shaped, dtype=np.float64)


def check_queries(X: Any, *, features: int) -> Points:
    """Return points to be labelled, or refuse them where a value is missing or infinite.

    >>> check_queries([0.5], features=1)
    array([[0.5]])
    """
    queries = check_points(X, features=features)
    if not np.isfinite(queries).all():
        raise InvalidInput("X must be finite numbers: fill in or leave out missing and infinite values first")
    return queries


def usable_points(X: Any, *, features: int) -> Points:
    """Return the rows of `X` whose values are all finite.

    >>> usable_points([1.0, float("nan"), 3.0], features=1)
    array([[1.], [3.]])
    """
    points = check_points(X, features=features)
    finite = np.isfinite(points).all(axis=1)
    return points if finite.all() else points[finite]


def check_labels(y: Any, *, rows: int) -> Labels:
    """Return `y` as one whole number for each row; which numbers they are is not looked at.

    >>> check_labels([True, False], rows=2)
    array([1, 0])
    """
    labels = np.asarray(y)
    if labels.shape != (rows,) or (labels.dtype.kind not in "iub" and labels.size > 0):
        raise InvalidInput(
            f"y must be {rows} whole numbers, 0 or 1, one for each row of X, not {labels.dtype} of shape {labels.shape}"
        )
    return labels.astype(np.int64)


def which_usable(points: Points, labels: Labels) -> NDArray[np.bool_]:
    """Return which rows have finite values and a label that is 0 or 1.

    >>> which_usable(np.array([[1.0], [np.nan], [2.0]]), np.array([1, 1, 7]))
    array([ True, False, False])
    """
    usable: NDArray[np.bool_] = np.isfinite(points).all(axis=1) & ((labels == 0) | (labels == 1))
    return usable


def usable_rows(X: Any, y: Any, *, features: int) -> tuple[Points, Labels]:
    """Return the rows that are usable, and their labels.

    >>> usable_rows([1.0, float("nan"), 3.0, 4.0], [1, 1, 0, 7], features=1)
    (array([[1.], [3.]]), array([1, 0]))
    """
    points = check_points(X, features=features)
    labels = check_labels(y, rows=len(points))
    usable = which_usable(points, labels)
    return (points, labels) if usable.all() else (points[usable], labels[usable])
