"""What a classifier is given, checked before anything is spent.

Errors of `fit` are for the owner of the records and repeat no value of theirs. Queries belong to the one who asks.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from quorate.errors import InvalidInput
from quorate.learners import batched_equivalent

__all__ = ["allows_missing", "check_records", "class_codes", "declared_classes", "without_values"]


_REMEDY = (
    "encode text inside the estimator, so that each teacher does it for itself: make_pipeline(make_column_transformer(("
    "OneHotEncoder(handle_unknown='ignore'), [...]), remainder='passthrough'), LogisticRegression())"
)


def allows_missing(estimator: Any) -> bool:
    """Return whether teachers of this kind take missing values.

    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> allows_missing(HistGradientBoostingClassifier())
    True
    """
    return bool(get_tags(estimator).input_tags.allow_nan)


def check_records(classifier: Any, X: Any, *, estimator: Any, reset: bool) -> Any:
    """Return records or queries as the teachers take them, and check (or, with `reset`, learn) names and columns.

    A data frame stays one for an estimator that is fitted through joblib, which may choose columns by name; anything
    else becomes a matrix of numbers.

    >>> from sklearn.linear_model import LogisticRegression
    >>> check_records(LogisticRegression(), [[1, 2]], estimator=LogisticRegression(), reset=True)
    array([[1., 2.]])
    """
    batched, missing = batched_equivalent(estimator) is not None, allows_missing(estimator)
    frame = hasattr(X, "columns") and hasattr(X, "__getitem__")
    if frame and not batched:
        validate_data(classifier, X, reset=reset, skip_check_array=True)
        if len(X) < 1:
            raise InvalidInput("X has no rows; at least 1 is needed")
        _check_kinds(classifier, X, reset=reset)
        return X
    if frame:
        text = [str(name) for name in X.columns if not _holds_numbers(X[name]) and str(X[name].dtype) != "object"]
        if text:
            raise InvalidInput(f"the columns {', '.join(repr(name) for name in text)} hold no numbers; {_REMEDY}")
    try:
        return validate_data(
            classifier,
            X,
            reset=reset,
            dtype=np.float64 if batched else "numeric",
            ensure_all_finite="allow-nan" if missing and not batched else True,
        )
    except (TypeError, ValueError) as error:
        if not reset:
            raise
        raise type(error)(without_values(str(error))) from None


def _holds_numbers(column: Any) -> bool:
    """Return whether a column of a pandas or polars frame is of a type of numbers."""
    if hasattr(column.dtype, "is_numeric"):
        return bool(column.dtype.is_numeric()) or str(column.dtype) == "Boolean"
    return getattr(column.dtype, "kind", "O") in "fiub"


def _check_kinds(classifier: Any, X: Any, *, reset: bool) -> None:
    """Learn which columns of a data frame hold numbers, or refuse queries in which one of those does not."""
    kinds = ["number" if _holds_numbers(X[name]) else "other" for name in X.columns]
    if reset:
        classifier.column_kinds_ = kinds
        return
    for name, kind, before in zip(X.columns, kinds, getattr(classifier, "column_kinds_", kinds), strict=True):
        if before == "number" and kind != "number":
            raise InvalidInput(
                f"column {name!r} held numbers when the teachers were fitted, and now holds something else"
            )


def without_values(text: str) -> str:
    """Return an error of scikit-learn without the values that some of them repeat.

    >>> print(without_values("could not convert string to float: 'Smith, 1987'"))
    X must be numbers, and some values are text; ...
    """
    if "could not convert" in text:
        return f"X must be numbers, and some values are text; {_REMEDY}"
    return text.partition("\n")[0]  # what follows shows rows


def declared_classes(classes: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the classes, sorted, and the labels as a vector.

    Classes that are not declared are the distinct labels of `y`, which are then public: published as they are.

    >>> declared_classes(["b", "a"], ["a", "a"])
    (array(['a', 'b'], dtype='<U1'), array(['a', 'a'], dtype='<U1'))
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


def class_codes(classes: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of each label among the sorted classes.

    >>> class_codes(np.array(["a", "b"]), np.array(["b", "a"]))
    array([1, 0])
    """
    try:
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        right = bool(np.all(classes[codes] == labels))
    except TypeError:
        right = False
    if not right:
        raise InvalidInput("y has labels that were not declared; classes must name every label that may occur")
    return codes.astype(np.int64)
