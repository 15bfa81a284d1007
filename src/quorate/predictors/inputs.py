"""What a classifier is given, checked before anything is spent.

Errors of `fit` are for the owner of the records and repeat no value of theirs. Queries belong to the one who asks.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from quorate.concepts import Concept
from quorate.errors import InvalidInput
from quorate.learners import batched_equivalent
from quorate.rows import FrameForm, as_frame, canonical_matrix, is_frame, is_number

__all__ = [
    "allows_missing",
    "check_matrix",
    "check_records",
    "class_codes",
    "declared_classes",
    "takes_frames",
    "two_classes",
    "without_values",
]


_REMEDY = (
    "encode text inside the estimator, so that each teacher does it for itself: make_pipeline(make_column_transformer(("
    "OneHotEncoder(handle_unknown='ignore'), [...]), remainder='passthrough'), LogisticRegression())"
)


def allows_missing(estimator: Any) -> bool:
    """Return whether teachers of this kind take missing values."""
    if isinstance(estimator, Concept) or batched_equivalent(estimator) is not None:
        return False
    if isinstance(estimator, Pipeline):  # its first step is the one that sees them
        return allows_missing(estimator.steps[0][1])
    return bool(get_tags(estimator).input_tags.allow_nan)


def check_records(classifier: Any, X: Any, *, estimator: Any, reset: bool, frames: bool | None = None) -> Any:
    """Return records or queries in canonical form, and check (or, with `reset`, learn) names, columns and types.

    The form is fixed by `reset` and kept as `form_`: a data frame stays one for an estimator that is fitted through
    joblib, which may choose columns by name (or where `frames` says so); anything else becomes a matrix of numbers
    (`quorate.rows`).
    """
    X = as_frame(X)
    frame = is_frame(X)
    if reset:
        keeps = takes_frames(estimator) if frames is None else frames
        classifier.form_ = FrameForm.of(X) if frame and keeps else None
    if classifier.form_ is None:
        return check_matrix(classifier, X, missing=allows_missing(estimator), reset=reset)
    if not frame:
        names = ", ".join(repr(name) for name in classifier.form_.columns[:5])
        raise InvalidInput(
            f"the model was fitted on a data frame, whose columns have names and types: ask with one too, of {names}"
            + (", ..." if len(classifier.form_.columns) > 5 else "")
        )
    validate_data(classifier, X, reset=reset, skip_check_array=True)
    if len(X) < 1:
        raise InvalidInput("X has no rows; at least 1 is needed")
    return classifier.form_.rows(X)


def takes_frames(estimator: Any) -> bool:
    """Return whether teachers of this kind get a data frame as one: those that are not fitted as one array do."""
    return not isinstance(estimator, Concept) and batched_equivalent(estimator) is None


def check_matrix(classifier: Any, X: Any, *, missing: bool = False, reset: bool) -> NDArray[np.float64]:
    """Return records or queries as a canonical matrix, and check (or, with `reset`, learn) names and columns."""
    X = as_frame(X)
    if is_frame(X):
        text = [str(name) for name in X.columns if not is_number(X[name].dtype) and str(X[name].dtype) != "object"]
        if text:
            raise InvalidInput(f"the columns {', '.join(repr(name) for name in text)} hold no numbers; {_REMEDY}")
    try:
        checked = validate_data(
            classifier,
            X.toarray() if hasattr(X, "toarray") else X,
            reset=reset,
            dtype=np.float64,
            ensure_all_finite="allow-nan" if missing else True,
        )
    except (TypeError, ValueError) as error:
        if not reset:
            raise
        raise type(error)(without_values(str(error))) from None
    return canonical_matrix(checked)


def without_values(text: str) -> str:
    """Return an error of scikit-learn without the values that some of them repeat."""
    if "could not convert" in text:
        return f"X must be numbers, and some values are text; {_REMEDY}"
    return text.partition("\n")[0]  # what follows shows rows


def declared_classes(classes: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the classes, sorted, and the labels as a vector.

    Classes that are not declared are the distinct labels of `y`, which are then public: published as they are.
    """
    if y is None:
        raise InvalidInput(
            "this classifier requires y to be passed, but the target y is None; give one label for each row of X"
        )
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    known = np.unique(labels if classes is None else np.asarray(classes))
    if classes is not None and len(known) != np.asarray(classes).size:
        raise InvalidInput("classes must be declared once each")
    if len(known) < 2:
        source = "y shows one class" if classes is None else f"classes declares {len(known)}"
        raise InvalidInput(f"a ballot needs at least 2 classes and {source}; declare all with classes=")
    return known, labels


def two_classes(classes: Any, X: Any, y: Any, *, instead: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return both classes and the number of each label, or refuse more than two; `instead` takes any number."""
    known, labels = declared_classes(classes, y)
    if len(known) > 2:
        raise InvalidInput(
            "Only binary classification is supported. A hypothesis tells two classes apart, not "
            f"{len(known)}: {instead} takes any number"
        )
    check_consistent_length(X, labels)
    return known, class_codes(known, labels)


def class_codes(classes: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of each label among the sorted classes."""
    try:
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        right = bool(np.all(classes[codes] == labels))
    except TypeError:
        right = False
    if not right:
        raise InvalidInput("y has labels that were not declared; classes must name every label that may occur")
    return codes.astype(np.int64)
