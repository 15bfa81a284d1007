"""The answers to a batch of queries, as labels that NumPy and scikit-learn take for an array."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from quorate.core.checks import check_choice
from quorate.core.errors import InvalidInput
from quorate.core.notebook import html_card
from quorate.core.privacy import Cost
from quorate.core.requests import NO_QUORUM

_SHOWN = 10  # labels in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Labels, one per query, with `None` for queries without an answer. NumPy and scikit-learn take it as an array.

    `answered` is the mask of the answers. `no_quorum` marks the queries on which the teachers did not agree; `refused`
    counts those that could no longer be paid for. `spent` is the cost of the batch, at the order of the budget; None if
    a server answered, which does not report it. `scores` are the noisy shares of the classes, one row per query, if
    labels were derived from them. `corrected` is the mask of the answers that differ from a student's proposal, if one
    was asked first. Indexing and comparing give plain arrays.

    >>> answers = Predictions.of(np.array([1, -1]), classes=np.array(["no", "yes"]), refused=np.zeros(2, bool))
    >>> answers.labels, answers.answered, answers.refused
    (array(['yes', None], dtype=object), array([ True, False]), 0)
    >>> answers == "yes"
    array([ True, False])
    """

    labels: NDArray[Any]
    answered: NDArray[np.bool_]
    no_quorum: NDArray[np.bool_]
    refused: int
    classes: NDArray[Any]
    spent: Cost | None = None
    scores: NDArray[np.float64] | None = None
    corrected: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls,
        codes: NDArray[np.int64],
        *,
        classes: NDArray[Any],
        refused: NDArray[np.bool_],
        spent: Cost | None = None,
        filled: NDArray[np.int64] | None = None,
        scores: NDArray[np.float64] | None = None,
        corrected: NDArray[np.bool_] | None = None,
    ) -> "Predictions":
        """Return the labels of these class numbers; `filled` may replace no-quorums."""
        answered = codes != NO_QUORUM
        numbers = codes if filled is None else np.where(answered | refused, codes, filled)
        # NO_QUORUM, which is -1, indexes the last label.
        names = classes if numbers.min(initial=0) >= 0 else np.concatenate([classes.astype(object), [None]])
        return cls(
            labels=names[numbers],
            answered=answered,
            no_quorum=~answered & ~refused,
            refused=int(refused.sum()),
            classes=classes,
            spent=Cost(0.0) if spent is None else spent,
            scores=scores,
            corrected=corrected,
        )

    @property
    def size(self) -> int:
        """The number of queries."""
        return self.labels.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the labels."""
        return self.labels.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the labels."""
        return self.labels.dtype

    def tolist(self) -> list[Any]:
        """Return the labels as a list."""
        labels: list[Any] = self.labels.tolist()
        return labels

    def ravel(self) -> NDArray[Any]:
        """Return the labels as a plain vector, as scikit-learn's own tools ask for them."""
        return self.labels.ravel()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.labels, dtype=dtype) if copy else np.asarray(self.labels, dtype=dtype)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.labels)

    def __getitem__(self, key: Any) -> Any:
        return self.labels[key]

    def __eq__(self, other: object) -> Any:
        return self.labels == np.asarray(other)

    def __ne__(self, other: object) -> Any:
        return self.labels != np.asarray(other)

    __hash__ = None  # type: ignore[assignment]

    def score(self, y: Any, *, of: Literal["all", "answered"] = "all") -> float:
        """Return the share of all queries, or of the answered ones, whose label equals `y`.

        Nothing is asked. A query without an answer counts as wrong; with `of="answered"` it does not count.

        >>> answers = Predictions.of(np.array([1, -1, 0]), classes=np.array(["no", "yes"]), refused=np.zeros(3, bool))
        >>> truth = ["yes", "yes", "yes"]
        >>> round(answers.score(truth), 3), answers.score(truth, of="answered")
        (0.333, 0.5)
        """
        check_choice("of", of, ("all", "answered"))
        truth = np.asarray(y)
        check_consistent_length(self.labels, truth)
        right = (self.labels == truth) & self.answered
        counted = self.size if of == "all" else int(self.answered.sum())
        if not counted:
            raise InvalidInput("no query was answered, so that no answer can be right or wrong")
        return float(right.sum() / counted)

    @property
    def outcomes(self) -> NDArray[np.str_]:
        """The outcome of each query: "answered", "no_quorum" or "refused"."""
        return np.where(self.answered, "answered", np.where(self.no_quorum, "no_quorum", "refused"))

    def to_frame(self, library: Literal["pandas", "polars", "arrow"] = "pandas") -> Any:
        """Return a data frame or an Arrow table with the columns that `quorate predict` writes, one row per query.

        `answer` is missing if there is none; `outcome` says why. If there are scores, each class has a column.

        >>> refused = np.array([False, True])
        >>> answers = Predictions.of(np.array([1, -1]), classes=np.array(["no", "yes"]), refused=refused)
        >>> answers.to_frame("arrow").to_pylist()
        [{'answer': 'yes', 'outcome': 'answered'}, {'answer': None, 'outcome': 'refused'}]
        """
        check_choice("library", library, ("pandas", "polars", "arrow"))
        columns: dict[str, Any] = {"answer": self.labels, "outcome": self.outcomes}
        if self.scores is not None:
            columns |= {f"score_{label}": self.scores[:, code] for code, label in enumerate(self.classes.tolist())}
        plain = columns if library == "pandas" else {name: values.tolist() for name, values in columns.items()}
        if library == "arrow":
            return import_module("pyarrow").table(plain)
        try:
            return import_module(library).DataFrame(plain)
        except ModuleNotFoundError:
            raise InvalidInput(f"a data frame of {library} needs {library}: install it, or ask for 'arrow'") from None

    def __repr__(self) -> str:
        return f"Predictions({int(self.answered.sum())} of {self.size} answered, {self.refused} refused)"

    def _repr_html_(self) -> str:
        first = ", ".join("no answer" if label is None else str(label) for label in self.labels[:_SHOWN].tolist())
        facts = {"queries": self.size, "no quorum": int(self.no_quorum.sum()), "refused": self.refused}
        share = float(self.answered.mean()) if self.size else 0.0
        ellipsis = ", ..." if self.size > _SHOWN else ""
        return html_card("Predictions", facts | {"labels": f"{first}{ellipsis}"}, bar=("answered", share))
