"""What `predict` returns: an array of labels that knows which of them are answers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.mechanisms import NO_QUORUM
from quorate.privacy import Cost

__all__ = ["Predictions"]


class Predictions(np.ndarray):
    """Labels, one a query, in an array like any other; `None` stands where there is no answer.

    `labels` is the same as a plain array, `answered` the mask of the answers; `no_quorum` marks the queries on which
    the teachers did not agree and `refused` counts those that could no longer be paid for. `spent` is what the batch
    cost, at the order of the budget. Slicing and comparing give plain arrays.

    >>> made = Predictions.of(np.array([1, -1]), classes=np.array(["no", "yes"]), refused=np.zeros(2, bool))
    >>> made.labels, made.answered, made.refused
    (array(['yes', None], dtype=object), array([ True, False]), 0)
    >>> made == "yes"
    array([ True, False])
    """

    answered: NDArray[np.bool_]
    no_quorum: NDArray[np.bool_]
    refused: int
    spent: Cost

    @classmethod
    def of(
        cls,
        codes: NDArray[np.int64],
        *,
        classes: NDArray[Any],
        refused: NDArray[np.bool_],
        spent: Cost | None = None,
        filled: NDArray[np.int64] | None = None,
    ) -> "Predictions":
        """Return the labels of these class numbers. Where there is no answer, `filled` may say what to put."""
        answered = codes != NO_QUORUM
        shown = codes if filled is None else np.where(answered | refused, codes, filled)
        labels = classes[np.maximum(shown, 0)]
        if (shown == NO_QUORUM).any():
            labels = labels.astype(object)
            labels[shown == NO_QUORUM] = None
        made = labels.view(cls)
        made.answered, made.no_quorum = answered, ~answered & ~refused
        made.refused, made.spent = int(refused.sum()), Cost(0.0) if spent is None else spent
        return made

    @property
    def labels(self) -> NDArray[Any]:
        """The labels as a plain array."""
        return self.view(np.ndarray)

    def __getitem__(self, key: Any) -> Any:
        return self.labels[key]

    def __array_finalize__(self, source: Any) -> None:
        """Let copies know what their source knew; whatever else is made of it knows nothing."""
        if isinstance(source, Predictions) and source.shape == self.shape:
            for name in ("answered", "no_quorum", "refused", "spent"):
                if hasattr(source, name):
                    setattr(self, name, getattr(source, name))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [part.view(np.ndarray) if isinstance(part, Predictions) else part for part in inputs]
        if "out" in options:
            options["out"] = tuple(
                part.view(np.ndarray) if isinstance(part, Predictions) else part for part in options["out"]
            )
        return getattr(ufunc, method)(*plain, **options)

    def __reduce__(self) -> Any:
        return self.labels.__reduce__()

    def __repr__(self) -> str:
        answered = getattr(self, "answered", None)
        if answered is None:
            return repr(self.labels)
        return f"Predictions({int(answered.sum())} of {self.size} answered, {self.refused} refused)"
