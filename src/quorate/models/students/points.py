"""Choose the public points to ask, from public features and released labels only."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import deal_units
from quorate.core.checks import check_count
from quorate.core.errors import Infeasible, InvalidInput
from quorate.models.predictors import Predictions
from quorate.tables.containers import is_arrow, take_arrow_rows
from quorate.tables.persons import unit_numbers

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
            offsets = (rows[block] - centre) * weights
            np.minimum(away[block], np.einsum("ij,ij->i", offsets, offsets), out=away[block])
        farthest = int(away.argmax())
        if not away[farthest] > 0:
            break  # every point is as good as one that was chosen
        chosen.append(farthest)
    return np.array(chosen, dtype=np.int64)


Rows = NDArray[np.int64]


def split_units(rows: int, groups: Any = None) -> tuple[Rows, Rows]:
    """Return the rows that keep their labels and the rows that lose them: halves of the units, by a secret permutation.

    Positions are permuted; no label and no feature has a say (PROOF.md, step 4).
    """
    units, count = unit_numbers(rows, groups)
    if count < 2:
        raise Infeasible(f"mode='label-private' splits the units in two halves, and there is {count}")
    deal, _ = deal_units(units, count, teachers=2)
    first_half = int(deal.sizes[0])
    return np.sort(deal.rows[:first_half]), np.sort(deal.rows[first_half:])


def labels_of(y: Any, rows: Rows) -> Any:
    """Return the labels of these rows; the labels of no other row are looked at, not even for their type."""
    if y is None:
        raise InvalidInput("y is missing: one label is needed for each row of X")
    if hasattr(y, "iloc"):
        return y.iloc[rows].tolist()
    if is_arrow(y):  # whose values are no plain ones
        return take_arrow_rows(y, rows).to_pylist()
    if isinstance(y, np.ndarray):
        values = y[rows]
        return np.array(values.tolist()) if y.dtype.kind in "SU" else values  # as if there were no longer texts
    return [y[row] for row in rows.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """The points that were put to the vote, in the order asked, and the labels released.

    All of it is public.

    `rows` holds row numbers; `answered` is the mask of those that found a quorum; `labels` has one label for each of
    the answered ones. Points that the budget could no longer pay for are not listed.

    >>> made = Labelled.of(np.array([4, 2, 7]), Predictions.of(
    ...     np.array([1, -1, -1]), classes=np.array(["no", "yes"]), refused=np.array([False, False, True])))
    >>> made.rows, made.answered, made.labels
    (array([4, 2]), array([ True, False]), array(['yes'], dtype='<U3'))
    """

    rows: NDArray[np.int64]
    answered: NDArray[np.bool_]
    labels: NDArray[np.generic]

    @classmethod
    def of(cls, points: NDArray[np.int64], replies: Predictions, *, kind: np.dtype | None = None) -> "Labelled":
        """Return the labels that the replies give these points."""
        put = replies.answered | replies.no_quorum
        labels = np.array(replies.labels[replies.answered].tolist(), dtype=kind)
        return cls(rows=points[put], answered=replies.answered[put], labels=labels)

    @property
    def points(self) -> NDArray[np.int64]:
        """The row numbers of the answered points, one for each of `labels`."""
        return self.rows[self.answered]

    def __add__(self, other: "Labelled") -> "Labelled":
        if self.rows.size == 0:
            return other
        return Labelled(
            rows=np.concatenate([self.rows, other.rows]),
            answered=np.concatenate([self.answered, other.answered]),
            labels=np.concatenate([self.labels, other.labels]),
        )
