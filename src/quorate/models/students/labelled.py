"""The public points that were asked, and their answers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.models.predictors import Predictions


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """The points that were put to the vote, in the order asked, and the labels released.

    All of it is public.

    `asked` holds row numbers; `answered` is the mask of those that found a quorum; `labels` has one label for each of
    the answered ones. Points that the budget could no longer pay for are not listed.

    >>> made = Labelled.of(np.array([4, 2, 7]), Predictions.of(
    ...     np.array([1, -1, -1]), classes=np.array(["no", "yes"]), refused=np.array([False, False, True])))
    >>> made.asked, made.answered, made.labels
    (array([4, 2]), array([ True, False]), array(['yes'], dtype='<U3'))
    """

    asked: NDArray[np.int64]
    answered: NDArray[np.bool_]
    labels: NDArray[np.generic]

    @classmethod
    def of(cls, points: NDArray[np.int64], replies: Predictions, *, kind: np.dtype | None = None) -> "Labelled":
        """Return the labels that the replies give these points."""
        put = replies.answered | replies.no_quorum
        labels = np.array(replies.labels[replies.answered].tolist(), dtype=kind)
        return cls(asked=points[put], answered=replies.answered[put], labels=labels)

    @property
    def points(self) -> NDArray[np.int64]:
        """The row numbers of the answered points, one for each of `labels`."""
        return self.asked[self.answered]

    def __add__(self, other: "Labelled") -> "Labelled":
        if self.asked.size == 0:
            return other
        return Labelled(
            asked=np.concatenate([self.asked, other.asked]),
            answered=np.concatenate([self.answered, other.answered]),
            labels=np.concatenate([self.labels, other.labels]),
        )
