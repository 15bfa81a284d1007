"""What a learner is given, checked for shape and type. Values of private rows are never the reason for an error."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.checks import check_count
from quorate.errors import InvalidInput

__all__ = [
    "LARGEST",
    "MEMORY",
    "Matrix",
    "check_features",
    "check_labels",
    "check_memory",
    "check_queries",
    "usable_rows",
]

MEMORY = 256 * 2**20  # bytes that a call may use for its blocks unless told otherwise
LARGEST = 1e38  # of a feature's magnitude in a usable row: fits single precision, and its powers fit double precision

_SLICE = 2**16  # rows looked at together

Matrix = NDArray[np.float64]


def check_features(X: Any, *, name: str = "X") -> Matrix:
    """Return `X` as a matrix of 64-bit floats, one row a record and one column a feature."""
    given = np.asarray(X)
    if given.ndim != 2 or given.shape[1] < 1 or given.dtype.kind not in "fiub":
        raise InvalidInput(
            f"{name} must be a matrix of numbers with at least 1 column, not {given.dtype} of shape {given.shape}"
        )
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(given, dtype=np.float64)


def check_labels(y: Any, *, rows: int) -> NDArray[np.int64]:
    """Return `y` as 64-bit integer codes, one for each row."""
    given = np.asarray(y)
    if given.ndim != 1 or given.shape[0] != rows or (given.dtype.kind not in "iu" and given.size > 0):
        raise InvalidInput(f"y must be {rows} integer codes, one for each row of X, not {given.dtype} of {given.shape}")
    return given.astype(np.int64, copy=False)


def check_queries(X: Any, *, features: int) -> Matrix:
    """Return queries as a matrix of finite 64-bit floats with the number of columns that the teachers were fitted on.

    A query belongs to its caller, so its values may cause an error. Magnitudes beyond `LARGEST` are
    counted as `LARGEST`.
    """
    queries = check_features(X, name="queries")
    if queries.shape[1] != features:
        raise InvalidInput(
            f"queries must have {features} columns, as the teachers were fitted on, not {queries.shape[1]}"
        )
    if not all(np.isfinite(queries[start : start + _SLICE]).all() for start in range(0, len(queries), _SLICE)):
        raise InvalidInput("queries must be finite numbers: fill in or leave out missing and infinite values first")
    return queries


def check_memory(memory: object) -> int:
    """Return `memory` as a number of bytes."""
    return check_count("memory", memory, least=1024)


def usable_rows(X: Matrix, y: NDArray[np.int64], *, classes: int) -> NDArray[np.bool_]:
    """Return which rows a teacher can use: features of magnitude at most `LARGEST`, a label among the declared ones.

    The others are left out by their own teacher, without a word: an error or a warning would speak of private values.
    """
    usable = (y >= 0) & (y < classes)
    with np.errstate(invalid="ignore"):
        for start in range(0, len(X), _SLICE):
            part = slice(start, start + _SLICE)
            usable[part] &= (np.abs(X[part]) <= LARGEST).all(axis=1)
    return usable
