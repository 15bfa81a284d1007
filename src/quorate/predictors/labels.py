"""The labels of private records: classes, the number of each label, targets of regressions. No error repeats one."""

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from quorate.errors import InvalidInput
from quorate.features.blocks import as_numbers
from quorate.quiet import silence

__all__ = [
    "REMEDY",
    "as_vector",
    "class_codes",
    "declared_classes",
    "target_numbers",
    "two_classes",
    "without_values",
]

REMEDY = (
    "encode text inside the estimator, so that each teacher does it for itself: make_pipeline(make_column_transformer(("
    "OneHotEncoder(handle_unknown='ignore'), [...]), remainder='passthrough'), LogisticRegression())"
)


def declared_classes(classes: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the classes, sorted, and the labels as a vector.

    Classes that are not declared are the distinct labels of `y`, which are then public: published as they are.
    """
    if y is None:
        raise InvalidInput(
            "this classifier requires y to be passed, but the target y is None; give one label for each row of X"
        )
    try:
        labels = column_or_1d(y, warn=True)
        with nullcontext() if classes is None else silence():  # that few rows show many classes is then no surprise
            check_classification_targets(labels)
    except ValueError as error:
        raise type(error)(without_values(str(error))) from None
    known = np.unique(labels if classes is None else np.asarray(classes))
    if classes is not None and len(known) != np.asarray(classes).size:
        raise InvalidInput("classes must be declared once each")
    if len(known) < 2:
        source = "y shows one class" if classes is None else f"classes declares {len(known)}"
        raise InvalidInput(f"a ballot needs at least 2 classes and {source}; declare all with classes=")
    return known, labels


def as_vector(y: Any) -> Any:
    """Return labels or targets as they are, and a single column of them as a vector, with scikit-learn's warning."""
    given = y if y is None or hasattr(y, "__getitem__") else np.asarray(y)
    if getattr(given, "shape", ())[1:] != (1,):
        return given
    told = "A column-vector y was passed when a 1d array was expected: it is read as one"
    warnings.warn(told, DataConversionWarning, stacklevel=4)
    return np.asarray(given).ravel()


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


def target_numbers(y: Any) -> NDArray[np.float64]:
    """Return the targets of a regression, each read by itself: what is no number is nan, and nothing is said of it."""
    if y is None:
        raise InvalidInput("this regression requires y to be passed, but the target y is None")
    if getattr(getattr(y, "dtype", None), "kind", "O") in "mMSU":
        raise InvalidInput("y must be numbers")
    values: NDArray[np.float64] = as_vector(as_numbers(y))
    if values.ndim != 1:
        raise InvalidInput(f"y must be a vector with a number for each row, not an array of shape {values.shape}")
    return values


_IMPUTE = (
    "fill them inside the estimator, so that each teacher does it for itself: "
    "make_pipeline(SimpleImputer(), LogisticRegression())"
)


def without_values(text: str) -> str:
    """Return an error of scikit-learn without the values that some of them repeat."""
    if "could not convert" in text:
        return f"X must be numbers, and some values are text; {REMEDY}"
    if "contains NaN" in text:
        return f"Input X contains NaN: values are missing, and this estimator does not take gaps; {_IMPUTE}"
    return text.partition("\n")[0]  # what follows shows rows
