"""The labels of private records: classes, the number of each label, targets of regressions. No error repeats one."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_consistent_length

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.tables.containers import is_frame, list_values, open_column, open_matrix, single_column
from quorate.tables.reading import PLAIN_NUMBER
from quorate.tables.values import canonical_text, object_texts, read_codes, read_numbers, read_texts

_ENCODE_INSIDE = (
    "encode text inside the estimator, so that each teacher does it for itself: make_pipeline(make_column_transformer(("
    "OneHotEncoder(handle_unknown='ignore'), [...]), remainder='passthrough'), LogisticRegression())"
)
_ENCODE_FIRST = (
    "encode the table first, by public rows or a schema: quorate.tables.Schema.from_public(public).encode(table)"
)
_IMPUTE = (
    "fill them inside the estimator, so that each teacher does it for itself: "
    "make_pipeline(SimpleImputer(), LogisticRegression())"
)
_MARK_GAPS = (
    "mark them by further columns: quorate.tables.Schema.from_public(public).with_gaps().encode(table), or fill them "
    "with values that are public"
)


def declared_classes(classes: Any, y: Any) -> tuple[NDArray[Any], Any]:
    """Return the classes, sorted, and the labels, one a row.

    Classes that are not declared are the distinct labels of `y`, which are then public: published as they are. A
    missing label is none of them. With declared classes no label is looked at here.
    """
    if y is None:
        raise InvalidInput(
            "this classifier requires y to be passed, but the target y is None; give one label for each row of X"
        )
    declared = None if classes is None else _as_array(classes)
    labels = _one_a_row(y)
    names = _label_set(labels) if declared is None else np.unique(declared)
    if declared is not None and len(names) != declared.size:
        raise InvalidInput("classes must be declared once each")
    if len(names) < 2:
        source = "y shows one class" if classes is None else f"classes declares {len(names)}"
        raise InvalidInput(f"a ballot needs at least 2 classes and {source}; declare all with classes=")
    return names, labels


def label_columns(y: Any) -> int:
    """Return how many labels a row has, by the shape of `y`. That of a list is the shape of its first row."""
    if isinstance(y, list | tuple):
        return max(1, _width(y[0])) if y else 1
    shape: tuple[int, ...] = getattr(y, "shape", (0,))
    return int(shape[1]) if len(shape) == 2 else 1


def label_matrix(y: Any) -> NDArray[np.float64]:
    """Return several labels of each row as numbers. A row of a list that has not as many of them misses all."""
    if isinstance(y, list | tuple):
        width = label_columns(y)
        y = [row if _width(row) == width else [None] * width for row in y]
    return open_matrix(y, source="y")


def _width(row: Any) -> int:
    """Return how many values a row of a list has: 0 for a value that is no row."""
    return len(row) if isinstance(row, list | tuple) or (isinstance(row, np.ndarray) and row.ndim == 1) else 0


def _one_a_row(y: Any) -> Any:
    """Return labels, one a row, as they are given; a single column of them is a vector, with scikit-learn's warning.

    In a list each row is taken by itself: [1] is the label 1, whatever the other rows are.
    """
    if label_columns(y) > 1:
        raise InvalidInput(f"y should be a 1d array, got {label_columns(y)} labels a row instead.")
    if isinstance(y, list | tuple):
        return [row[0] if _width(row) == 1 else row for row in y]
    labels = as_vector(y)
    shape = getattr(labels, "shape", (0,))
    if len(shape) != 1:
        raise InvalidInput(f"y should be a 1d array, got an array of shape {shape} instead.")
    return labels


def _label_set(labels: Any) -> NDArray[Any]:
    """Return the distinct labels of a vector, sorted: whole numbers, numbers, truth values or texts.

    It is a function of the set of labels alone. Missing labels and the type that they give a container change nothing:
    a class is the whole number 1 beside a NaN, too. Labels of different types are classes by their texts.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind == "c":
        raise InvalidInput("Complex data not supported: y must hold classes")
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iufb":
        labels = np.unique(labels)
    values = list_values(labels)
    texts = read_texts(object_texts(values)).to_pylist()
    typed = {(text, _label_type(value, text)) for text, value in zip(texts, values, strict=True) if text is not None}
    kind = _common_type({kind for _, kind in typed})
    return np.array(sorted({text == "true" if kind is bool else kind(text) for text, _ in typed}))


def _common_type(types: set[type]) -> type:
    """Return the type of all classes, which is text if theirs differ; fractions are refused."""
    if float in types and types <= {int, float}:
        raise InvalidInput(
            "Unknown label type: continuous. Labels must be classes, and some are fractions; a regression predicts "
            "numbers"
        )
    return next(iter(types)) if len(types) == 1 else str


def _label_type(value: object, text: str) -> type:
    """Return the type of a class that is written so: int for whole numbers of any type, float for other numbers."""
    if isinstance(value, str | bytes | bytearray):
        return str
    if isinstance(value, bool | np.bool_):
        return bool
    if PLAIN_NUMBER.fullmatch(text) is None:
        return str
    return int if text.lstrip("-").isdigit() else float


def _as_array(classes: Any) -> NDArray[Any]:
    """Return declared classes as an array: of a list, a set, an index, or anything else that names them one by one."""
    if isinstance(classes, str | bytes) or not hasattr(classes, "__iter__"):
        raise InvalidInput(f"classes must list every label, as in classes=['no', 'yes'], not {classes!r}")
    return np.asarray(classes if hasattr(classes, "__array__") else list(classes))


def as_vector(y: Any) -> Any:
    """Return labels or targets as they are, and a single column of them as a vector, with scikit-learn's warning."""
    vector = y if y is None or hasattr(y, "__getitem__") else np.asarray(y) if hasattr(y, "__array__") else list(y)
    if getattr(vector, "shape", ())[1:] != (1,):
        return vector
    message = "A column-vector y was passed when a 1d array was expected: it is read as one"
    warnings.warn(message, DataConversionWarning, stacklevel=4)
    if is_frame(vector):
        return single_column(vector)  # as an array of one type, long whole numbers would be floats beside a gap
    return vector.ravel() if isinstance(vector, np.ma.MaskedArray) else np.asarray(vector).ravel()


def two_classes(classes: Any, X: Any, y: Any, *, instead: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return both classes and the number of each label, or refuse more than two; `instead` takes any number.

    A label that is missing or not a class counts as the first class: a hypothesis counts every row.
    """
    names, labels = declared_classes(classes, y)
    if len(names) > 2:
        raise InvalidInput(
            "Only binary classification is supported. A hypothesis tells two classes apart, not "
            f"{len(names)}: {instead} takes any number"
        )
    check_consistent_length(X, labels)
    return names, np.maximum(class_codes(names, labels), 0)


def class_codes(classes: NDArray[Any], labels: Any) -> Integers:
    """Return the place of each private label among the sorted classes; -1 for one that is missing or not a class.

    Each label is compared by itself, as a text: 1, 1.0 and "1" are one class, whatever the type of the others.
    """
    if labels is None:
        raise InvalidInput("this classifier requires y to be passed, but the target y is None")
    names = [canonical_text(value) for value in classes.tolist()]
    codes = read_codes(open_column(_one_a_row(labels), name="y"), names, ())
    return np.where(codes < len(classes), codes, -1)


def known_codes(classes: NDArray[Any], labels: Any, *, name: str = "y") -> Integers:
    """Return the place of each public label among the sorted classes. One that is not a class is refused."""
    codes = class_codes(classes, labels)
    if (codes < 0).any():
        raise InvalidInput(f"{name} must hold labels from classes, got one that was not declared")
    return codes


def target_numbers(y: Any) -> NDArray[np.float64]:
    """Return the targets of a regression, each read by itself: what is no number is nan, and nothing is said of it.

    No type of a column is refused: one private value that is no number makes texts or objects of all of them.
    """
    if y is None:
        raise InvalidInput("this regression requires y to be passed, but the target y is None")
    return read_numbers(open_column(_one_a_row(y), name="y"))


def without_values(text: str, model: Any = None) -> str:
    """Return an error of scikit-learn without the values that some of them repeat, and with what this model needs."""
    if "could not convert" in text:
        return f"X must be numbers, and some values are text; {numbers_for(model)}"
    if "contains NaN" in text:
        message = "Input X contains NaN: values are missing, and this estimator does not take gaps"
        return f"{message}; {_IMPUTE if _has_teachers(model) else _MARK_GAPS}"
    return text.partition("\n")[0]  # what follows shows rows


def numbers_for(model: Any) -> str:
    """Return how a table of texts or dates becomes numbers for this model, without learning from private rows."""
    return _ENCODE_INSIDE if _has_teachers(model) else _ENCODE_FIRST


def _has_teachers(model: Any) -> bool:
    """Return whether an estimator can be given to a model, which fits one on the rows of each teacher."""
    return hasattr(model, "estimator")
