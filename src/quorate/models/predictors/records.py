"""How rows enter a model, in one canonical form, checked before anything is spent; and how answers leave it.

Errors of `fit` are for the owner of the records and repeat no value of theirs. Queries belong to their caller.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import assert_all_finite, check_array, get_tags
from sklearn.utils.validation import check_consistent_length, validate_data

from quorate.core.checks import check_choice, check_count, is_named_id, warn_of_id
from quorate.core.errors import InvalidInput
from quorate.core.privacy import Cost
from quorate.core.progress import html_card
from quorate.core.requests import NO_QUORUM
from quorate.core.rows import canonical_and_finite
from quorate.models.predictors.labels import numbers_for, without_values
from quorate.tables.containers import (
    Role,
    check_differ,
    column_names,
    is_frame,
    is_object_column,
    open_matrix,
    open_table,
    shown_names,
    subject,
)
from quorate.tables.frames import FrameFormat, read_column
from quorate.tables.results import make_frame

_MOST_BYTES = 2**32  # of a sparse matrix that is filled
_SPARSE = ("csr", "csc", "coo", "bsr")  # filled as they are: made a csr, one unsorted row changes sums in all others
_PROJECT = (
    "Project it to a few hundred columns first, by numbers that do not depend on the records: "
    "SparseRandomProjection(256, random_state=0, dense_output=True).fit(X[:1]).transform(X), for records and queries "
    "alike; or encode a column of texts inside the estimator"
)


def is_auto(estimator: Any) -> bool:
    """Return whether the estimator is to be chosen on public rows."""
    return isinstance(estimator, str) and estimator == "auto"


def forget_fit(model: Any) -> None:
    """Drop all fitted attributes of a model, since no answer mixes two fits."""
    for name in [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]:
        del vars(model)[name]


def unless_auto(setting: Any) -> Any:
    """Return a setting, or None where it is "auto": it is then chosen from public numbers."""
    return None if isinstance(setting, str) and setting == "auto" else setting


def allows_missing(estimator: Any) -> bool:
    """Return whether teachers of this kind take missing values."""
    from quorate.compute.learners import batched_equivalent  # noqa: PLC0415  models without teachers do not load it
    from quorate.core.hypotheses.concept import Concept  # noqa: PLC0415

    if isinstance(estimator, Concept):
        return False
    if (batched := batched_equivalent(estimator)) is not None:
        return batched.takes_missing
    if isinstance(estimator, Pipeline):  # its first step is the one that sees them
        return allows_missing(next(step for _, step in estimator.steps if step not in (None, "passthrough")))
    if isinstance(estimator, ColumnTransformer):  # each part sees its own columns, and one of them may fill in
        return any(allows_missing(part) for _, part, _ in estimator.transformers if not isinstance(part, str))
    tags, parts = get_tags(estimator), _estimators_in(estimator)
    return tags.input_tags.allow_nan or tags.no_validation or (bool(parts) and all(map(allows_missing, parts)))


def _estimators_in(estimator: Any) -> list[Any]:
    """Return the estimators that a search, a vote, a union or a calibration hands its rows to."""
    settings = estimator.get_params(deep=False).values() if hasattr(estimator, "get_params") else ()
    entries = [entry for value in settings if isinstance(value, list) for entry in value]
    members = [entry[1] for entry in entries if isinstance(entry, tuple) and len(entry) > 1]
    return [part for part in (*settings, *members) if hasattr(part, "fit") and not isinstance(part, type)]


def check_jobs(n_jobs: int | None) -> None:
    """Raise an error for a number of processes that joblib does not take."""
    if n_jobs == 0:
        raise InvalidInput("n_jobs must be a number of processes, or -1 for all cores, not 0")


def check_auto_counts(classifier: Any, *names: str) -> None:
    """Raise an error for settings that are neither "auto" nor a count."""
    for name in names:
        if getattr(classifier, name) != "auto":
            check_count(name, getattr(classifier, name))


def check_records(
    classifier: Any,
    X: Any,
    *,
    estimator: Any,
    reset: bool,
    frames: bool | None = None,
    missing: bool | None = None,
    role: Role | None = None,
    form: FrameFormat | None = None,
    public: Any = None,
) -> Any:
    """Return records or queries in canonical form, and check (or, with `reset`, learn) names and columns.

    The format is fixed by `reset` and kept as `form_`: a data frame stays one for an estimator that is fitted through
    joblib, which may choose columns by name (or where `frames` says so); anything else becomes a matrix of numbers.
    Public rows (`public`) declare it, or a published model as `form`; without them, the types of the columns decide,
    and the claim says so (`types_are_public_`).
    `role` says whose rows they are: private ones with `reset` and queries without it, unless it is given. No private
    value is refused. A query may miss values where the estimator takes gaps, or where `missing` says so.
    """
    role = role or ("private" if reset else "query")
    if is_frame(X):
        check_differ(column_names(X))
        form = FrameFormat.of_public(public, X) if form is None else form
    if reset:
        classifier.form_ = _frame_format(X, estimator, frames, form)
        classifier.types_are_public_ = is_frame(X) and form is None and role == "private"
    if classifier.form_ is not None:
        return _read_frame(classifier, X, reset=reset, role=role)
    if is_frame(X):
        _check_numbers(classifier, _text_columns(form))
    missing = allows_missing(estimator) if missing is None else missing
    return check_matrix(classifier, X, missing=missing, reset=reset, role=role, declared=form is not None)


def _frame_format(X: Any, estimator: Any, frames: bool | None, form: FrameFormat | None) -> FrameFormat | None:
    """Return the format of the frames that the estimator gets, or None where it gets a matrix.

    Teachers that are fitted as one array, and hypotheses, get matrices.
    """
    from quorate.compute.learners import batched_equivalent  # noqa: PLC0415
    from quorate.core.hypotheses.concept import Concept  # noqa: PLC0415

    if not is_frame(X) or frames is False:
        return None
    if frames is None and (isinstance(estimator, Concept) or batched_equivalent(estimator) is not None):
        return None
    form = form or FrameFormat.of(X)
    if form.library == "pyarrow" and not hasattr(estimator, "private_queries"):  # models of ours take Arrow tables
        raise InvalidInput("the estimator gets this table as a data frame: install pandas or polars")
    return form


def _read_frame(classifier: Any, X: Any, *, reset: bool, role: Role) -> Any:
    if not is_frame(X):
        raise InvalidInput(
            "the model was fitted on a data frame, whose columns have names and types: ask with one too, of "
            f"{shown_names(classifier.form_.columns)}"
        )
    validate_data(classifier, X, reset=reset, skip_check_array=True)
    if len(X) < 1:
        raise InvalidInput("X has no rows; at least 1 is needed")
    return classifier.form_.read(X, role=role)


def check_matrix(
    classifier: Any,
    X: Any,
    *,
    missing: bool = False,
    reset: bool,
    role: Role | None = None,
    declared: bool = False,
) -> NDArray[np.float64]:
    """Return records or queries as a canonical matrix, and check (or, with `reset`, learn) names and columns.

    `role` is as for `check_records`. A private value that is no number is NaN; an infinite one stays. Columns of texts
    or dates are refused by their types: of public rows and queries always, of private ones where a fit begins and
    nothing public has `declared` that they are numbers. The claim of such a fit says that types are public.
    """
    role = role or ("private" if reset else "query")
    if reset:
        classifier.types_are_public_ = is_frame(X) and role == "private" and not declared
    _check_size(X)
    refused: Any = "allow-nan" if missing and role != "private" else False  # infinite values alone, or none
    if is_frame(X):
        frame = _frame_matrix(classifier, X, role, reset=reset, declared=declared)
        numbers = check_array(frame, ensure_all_finite=refused)
    else:
        numbers = _array_matrix(classifier, X, role, refused=refused, reset=reset)
    matrix, finite = canonical_and_finite(numbers)
    if role != "private" and not (finite or missing):
        _refuse_not_finite(classifier, matrix)
    return matrix


def _refuse_not_finite(classifier: Any, matrix: NDArray[np.float64]) -> None:
    """Raise scikit-learn's error for NaN or infinite values, without a value in its text."""
    try:
        assert_all_finite(matrix, estimator_name=type(classifier).__name__, input_name="X")
    except ValueError as error:
        raise ValueError(without_values(str(error), classifier)) from None


def _check_size(X: Any) -> None:
    """Refuse a sparse matrix that would not fit into memory once it is filled."""
    if hasattr(X, "toarray") and 8 * X.shape[0] * X.shape[1] > _MOST_BYTES:
        raise InvalidInput(
            f"a sparse matrix is filled, and this one, {X.shape[0]:,} x {X.shape[1]:,}, would not fit. {_PROJECT}"
        )


def _array_matrix(classifier: Any, X: Any, role: Role, *, refused: Any, reset: bool) -> Any:
    """Return an array, a list or a sparse matrix as scikit-learn reads it; errors repeat no private value."""
    try:
        return validate_data(
            classifier,
            X if role != "private" or _is_plain(X) else open_matrix(X),
            reset=reset,
            accept_sparse=_SPARSE,
            dtype=np.float64,
            ensure_all_finite=refused,
        )
    except (TypeError, ValueError) as error:
        if role != "private":
            raise
        raise type(error)(without_values(str(error), classifier)) from None


def _is_plain(X: Any) -> bool:
    """Return whether scikit-learn makes a matrix of floats of this, or refuses it, by its type alone."""
    kind = getattr(X, "dtype", None)
    numbers = isinstance(kind, np.dtype) and (kind.kind in "iubc" or (kind.kind == "f" and kind.itemsize <= 8))
    return (numbers and not isinstance(X, np.ma.MaskedArray)) or hasattr(X, "toarray")


def fill_missing(X: Any) -> Any:
    """Return private rows of a matrix with 0 for what is missing, and the largest number for what is infinite.

    This is for learners that take every row and no gaps. A frame is returned as it is.
    """
    from quorate.compute.learners.teachers import LARGEST  # noqa: PLC0415

    return np.nan_to_num(X, posinf=LARGEST, neginf=-LARGEST) if isinstance(X, np.ndarray) else X


def _frame_matrix(classifier: Any, X: Any, role: Role, *, reset: bool, declared: bool) -> NDArray[np.float64]:
    check_differ(column_names(X))
    validate_data(classifier, X, reset=reset, skip_check_array=True)
    for name in filter(is_named_id, column_names(X) if reset else []):
        warn_of_id(name)
    opened = open_table(X, source=subject(role))
    if role != "private" or (reset and not declared):
        texts = [name for name, kind in opened.kinds.items() if kind != "number" and not is_object_column(X, name)]
        _check_numbers(classifier, texts)
    columns = [read_column(name, column, "number", role) for name, column in opened.columns.items()]
    return np.stack(columns, axis=1) if columns else np.empty((opened.rows, 0))


def _text_columns(form: FrameFormat | None) -> list[Any]:
    """Return the columns of a declared format that hold no numbers."""
    return [] if form is None else [name for name in form.columns if form.kind_of(name) != "number"]


def _check_numbers(classifier: Any, texts: Sequence[Any]) -> None:
    if texts:
        raise InvalidInput(f"the columns {shown_names(texts)} hold no numbers; {numbers_for(classifier)}")


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
        return make_frame(plain, library)

    def __repr__(self) -> str:
        return f"Predictions({int(self.answered.sum())} of {self.size} answered, {self.refused} refused)"

    def _repr_html_(self) -> str:
        first = ", ".join("no answer" if label is None else str(label) for label in self.labels[:_SHOWN].tolist())
        facts = {"queries": self.size, "no quorum": int(self.no_quorum.sum()), "refused": self.refused}
        share = float(self.answered.mean()) if self.size else 0.0
        ellipsis = ", ..." if self.size > _SHOWN else ""
        return html_card("Predictions", facts | {"labels": f"{first}{ellipsis}"}, bar=("answered", share))
