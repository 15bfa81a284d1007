"""Vote counts: the only private value a mechanism sees, checked for shape and never repeated in an error.

A neighbouring data set moves at most one ballot from one class to another.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import InvalidInput

__all__ = ["Counts", "check_votes", "check_votes_batch", "distances"]

Counts = NDArray[np.int64]


def check_votes(votes: Any, *, teachers: int, classes: int | None = None) -> Counts:
    """Return one query's counts as a batch of one row."""
    counts = np.asarray(votes)
    if counts.ndim != 1:
        raise InvalidInput(f"votes of one query must be a vector of counts, one per class, not of shape {counts.shape}")
    return check_votes_batch(counts[np.newaxis, :], teachers=teachers, classes=classes)


def check_votes_batch(votes: Any, *, teachers: int, classes: int | None = None) -> Counts:
    """Return a batch of counts, one row a query and one column a class, as 64-bit integers.

    The three ways in which values can be wrong share one message, so that the message says nothing about them.
    """
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] < 2:
        raise InvalidInput(
            "votes must be a matrix, one row a query and one column for each of at least 2 classes, "
            f"not of shape {counts.shape}"
        )
    if classes is not None and counts.shape[1] != classes:
        raise InvalidInput(f"votes must have one column for each of the {classes} classes, not {counts.shape[1]}")
    if counts.size == 0:
        return np.empty(counts.shape, dtype=np.int64)
    if counts.dtype.kind not in "iu":
        raise InvalidInput(f"votes must be whole numbers of an integer type, not {counts.dtype}")
    wrong = InvalidInput(f"votes must be counts of at least 0 that sum to teachers={teachers} for every query")
    if counts.min() < 0 or counts.max() > teachers:
        raise wrong
    counts = counts.astype(np.int64, copy=False)
    totals = counts[:, 0] + counts[:, 1] if counts.shape[1] == 2 else counts.sum(axis=1)
    if (totals != teachers).any():
        raise wrong
    return counts


def distances(counts: Counts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each query's top label and the number of ballots that can change without changing it.

    The distance is max(0, ceil(gap / 2) - 1): one ballot moves the gap by 2. It has sensitivity 1, and wherever it is
    at least 1 every neighbour has the same top label.
    """
    if counts.shape[1] == 2:
        lead = counts[:, 1] - counts[:, 0]
        labels = (lead > 0).astype(np.int64)
        gaps = np.abs(lead)
    else:
        labels = counts.argmax(axis=1)
        top_two = np.partition(counts, -2, axis=1)[:, -2:]
        gaps = top_two[:, 1] - top_two[:, 0]
    return labels, np.maximum(0, (gaps + 1) // 2 - 1)
