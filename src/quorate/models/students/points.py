"""Choose the public points to ask, from public features and released labels only."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

Points = NDArray[np.int64]

_BLOCK = 2**16  # rows looked at together


def random_points(among: Points, number: int) -> Points:
    """Return this many of the points, in a random order; all of them if there are fewer."""
    return np.random.default_rng().permutation(among)[:number]


def margins(student: Any, X: Any) -> NDArray[np.float64]:
    """Return, for each row, how much the student prefers its label to the next best."""
    if hasattr(student, "predict_proba"):
        scores = np.asarray(student.predict_proba(X), dtype=np.float64)
    elif hasattr(student, "decision_function"):
        scores = np.asarray(student.decision_function(X), dtype=np.float64)
    else:
        raise InvalidInput(
            f"points='margin' needs a student with predict_proba or decision_function, which "
            f"{type(student).__name__} has not; choose another student, or points='random'"
        )
    if scores.ndim == 1:
        return np.abs(scores)
    if scores.shape[1] < 2:
        return np.zeros(len(scores))
    best = np.partition(scores, -2, axis=1)[:, -2:]
    return best[:, 1] - best[:, 0]


def k_centre_points(X: Any, number: int) -> Points:
    """Return points that cover the others: the first is random, each next one the farthest from all before it.

    Columns are scaled by their standard deviation. Apart from `X` itself, only a few vectors and a block of rows are in
    memory. If there are fewer distinct points than requested, all of those are returned.

    >>> chosen = k_centre_points(np.array([[0.0], [0.1], [10.0], [10.1]]), 2)
    >>> sorted(chosen.tolist()) in ([0, 2], [0, 3], [1, 3])
    True
    """
    number = check_count("number", number)
    rows = np.asarray(X)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub" or not rows.size:
        raise InvalidInput("points='k-centre' needs a matrix of numbers; encode the public points first, or ask random")
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(rows), _BLOCK)]
    spread = np.asarray(rows.std(axis=0, dtype=np.float64))
    weights = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    away = np.full(len(rows), np.inf)
    chosen = [int(np.random.default_rng().integers(len(rows)))]
    while len(chosen) < min(number, len(rows)):
        centre = rows[chosen[-1]].astype(np.float64)
        for block in blocks:
            apart = (rows[block] - centre) * weights
            np.minimum(away[block], np.einsum("ij,ij->i", apart, apart), out=away[block])
        farthest = int(away.argmax())
        if not away[farthest] > 0:
            break  # every point is as good as one that was chosen
        chosen.append(farthest)
    return np.array(chosen, dtype=np.int64)
