"""Held-out private rows: the predictions of a published model, and one value for each unit.

The prediction of a row depends on the model and on that row alone (`quorate.core.estimator_calls`). Errors and warnings
of the model are suppressed, and a row on which it fails has no prediction. So no private value is refused, not even a
missing or infinite one.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_consistent_length

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import Calls, asks_a_copy, call_rows, global_randomness, one_thread, silence
from quorate.core.progress import progress
from quorate.core.rows import query_digests, take_rows
from quorate.models.predictors.labels import class_codes
from quorate.models.predictors.records import check_records
from quorate.tables.containers import column_names, is_frame
from quorate.tables.features.words import finite_numbers
from quorate.tables.frames import FrameFormat, named_matrix
from quorate.tables.persons import unit_numbers
from quorate.tables.schema import Schema


def check_published(model: Any, features: int | None = None) -> None:
    """Refuse an unfitted model, or a model of other columns, by public values alone."""
    if isinstance(model, type) or not hasattr(model, "predict"):
        raise InvalidInput("model must be a fitted model that was published or is public: it needs predict")
    settings: dict[str, Any] = getattr(model, "get_params", dict)()
    for part in _flatten([model, *settings.values(), *getattr(model, "__dict__", {}).values()]):
        if hasattr(part, "session_"):
            raise InvalidInput(
                f"a {type(part).__name__} answers from private records and spends budget; give a published model"
            )
    expected = getattr(model, "n_features_in_", features)
    if features is not None and expected != features:
        raise InvalidInput(f"X must have {expected} features like the model, got {features}")


def _flatten(value: Any) -> Iterator[Any]:
    """Yield a value, or the members of lists and tuples at any depth."""
    if isinstance(value, list | tuple):
        for member in value:
            yield from _flatten(member)
    else:
        yield value


def classes_of(model: Any) -> NDArray[Any]:
    """Return the sorted class labels of a classifier."""
    classes = np.asarray(getattr(model, "classes_", np.empty(0)))
    if classes.ndim != 1 or classes.size < 2 or getattr(model, "multilabel_", False):
        raise InvalidInput("model must be a fitted classifier of one label: its classes_ name two or more")
    if not np.array_equal(classes, np.unique(classes)):
        raise InvalidInput("classes_ of the model must be sorted and distinct")
    return classes


def model_rows(model: Any, X: Any) -> Any:
    """Return checked rows as the model takes them, with column names if it has names."""
    names = getattr(model, "feature_names_in_", None)
    return X if names is None else named_matrix(X, names)


def private_rows(columns: Any, model: Any, X: Any, schema: Schema | None = None) -> Any:
    """Return private rows in the form that the model takes, and record their column names in `columns`.

    Refusals depend on shape and names alone: proof: step 1. Types of private columns decide nothing. A model with its
    own rule for private rows, as the linear models have, uses it. Otherwise the column types are those of the model or
    of `schema`.
    """
    form = None
    if hasattr(model, "private_queries"):
        X = model.private_queries(X)
        form = FrameFormat.of(X) if is_frame(X) else None  # of the model's making
    elif is_frame(X):
        form = format_of_model(model, X, schema)
    else:
        X = finite_numbers(X)
    rows = check_records(columns, X, estimator=model, reset=True, frames=True, missing=True, form=form)
    check_published(model, rows.shape[1])
    return rows


def format_of_model(model: Any, X: Any, schema: Schema | None = None) -> FrameFormat:
    """Return the format in which a published model takes the columns of a frame.

    It is that in which the model was fitted, or what `schema` declares. Of a model of scikit-learn the columns in which
    its encoders have seen texts are texts, and all others are numbers or dates. A model that shows neither is refused.
    """
    form = getattr(model, "form_", None)
    if form is not None:
        return FrameFormat.of_kinds(X, form.columns, form.kinds)
    names = list(column_names(X))
    if len(getattr(model, "feature_names_in_", ())) == len(names):
        names = model.feature_names_in_.tolist()
    if schema is not None:
        return FrameFormat.of_kinds(X, names, schema.kinds_of(names))
    if hasattr(model, "form_"):  # a model of ours that was fitted on a matrix
        return FrameFormat.of_kinds(X, names, ["number"] * len(names))
    texts = _text_columns(model, names)
    if texts is None or not texts <= set(names):  # an earlier step may have made columns of other names
        raise InvalidInput(
            f"a {type(model).__name__} does not show in which columns of a data frame it takes texts: declare the "
            "columns, as in schema=Schema.from_public(public_rows)"
        )
    return FrameFormat.of_kinds(X, names, ["text" if name in texts else "date" for name in names])


def _text_columns(part: Any, names: Sequence[Any] | None) -> set[Any] | None:
    """Return the columns in which a fitted scikit-learn model and its parts have seen text.

    `names` are those of the columns that the part takes, if it does not know them itself. The result is None where it
    may have seen texts and does not show in which columns: a part that is not of scikit-learn, a function of its user,
    categories of columns that an earlier step has made.
    """
    if hasattr(part, "form_"):  # a model of ours
        kinds = () if part.form_ is None else zip(part.form_.columns, part.form_.kinds, strict=True)
        return {name for name, kind in kinds if kind == "text"}
    if not _shows_state(part):
        return None
    names = getattr(part, "feature_names_in_", names)
    columns = [_own_text_columns(part, names), *_inner_text_columns(part, names)]
    return None if None in columns else {name for texts in columns for name in texts or ()}


def _inner_text_columns(part: Any, names: Sequence[Any] | None) -> Iterator[set[Any] | None]:
    """Yield the columns in which each estimator that a part is made of has seen texts."""
    if isinstance(part, ColumnTransformer):
        names = None  # each of its parts takes some of the columns
    for inner in _flatten(list(vars(part).values())):
        if hasattr(inner, "get_params") or type(inner).__name__ == "_CalibratedClassifier":
            yield _text_columns(inner, names)
        if isinstance(inner, ColumnTransformer):
            names = None  # what follows it in a pipeline takes its columns, in another order


def _shows_state(part: Any) -> bool:
    """Return whether a part is of scikit-learn without user code, so that its state shows the columns it saw."""
    function = getattr(part, "func", None) if isinstance(part, FunctionTransformer) else None
    homes = [type(part).__module__, getattr(getattr(function, "func", function), "__module__", None) or "numpy"]
    return homes[0].startswith("sklearn.") and homes[1].partition(".")[0] in ("sklearn", "numpy")


def _own_text_columns(part: Any, names: Sequence[Any] | None) -> set[Any] | None:
    """Return the text columns that an encoder or an imputer stores, or that a transformer takes one by one.

    A transformer hands a single column on as a vector, which is how texts are counted.
    """
    if isinstance(part, ColumnTransformer):
        single = [columns for _, _, columns in part.transformers_ if isinstance(columns, str | int)]
        return {column if isinstance(column, str) else list(names or ())[column] for column in single}
    seen = getattr(part, "categories_", getattr(part, "statistics_", ()))
    is_text = [any(isinstance(value, str) for value in np.atleast_1d(values)) for values in seen]
    if not any(is_text):
        return set()
    return None if names is None or len(is_text) != len(names) else set(compress(names, is_text))


def probabilities_by_row(model: Any, X: Any) -> NDArray[np.float64]:
    """Return the class probabilities of each row; all are 0 where the model fails or returns NaN.

    A model without probabilities gives 1 to its label.
    """
    classes = classes_of(model)
    if not hasattr(model, "predict_proba"):
        return np.vstack([np.eye(classes.size), np.zeros(classes.size)])[labels_by_row(model, X)]
    probabilities = _numbers_by_row(model, X, lambda subject, rows: subject.predict_proba(rows), classes.size)
    return np.clip(np.nan_to_num(probabilities, nan=0.0), 0.0, 1.0)


def labels_by_row(model: Any, X: Any) -> Integers:
    """Return the predicted class number of each row; -1 where the model fails."""
    classes = classes_of(model)
    codes = _numbers_by_row(model, X, lambda subject, rows: class_codes(classes, np.asarray(subject.predict(rows))))
    return np.nan_to_num(codes[:, 0], nan=-1.0).astype(np.int64)


def values_by_row(model: Any, X: Any) -> NDArray[np.float64]:
    """Return a regressor's prediction for each row; NaN where it fails."""
    return _numbers_by_row(model, X, lambda subject, rows: subject.predict(rows))[:, 0]


def _numbers_by_row(model: Any, X: Any, ask: Callable[[Any, Any], Any], width: int = 1) -> NDArray[np.float64]:
    """Return the numbers of `ask` for each row, in calls of a fixed shape; NaN where the model fails.

    Each row is predicted once: equal rows take the same position in a call, so they need one call each.
    """
    first_with: dict[bytes, int] = {}
    numbers = np.array([first_with.setdefault(digest, len(first_with)) for digest in query_digests(X)], dtype=np.int64)
    distinct = take_rows(X, np.unique(numbers, return_index=True)[1])
    rows_a_call, is_copied = call_rows(model), asks_a_copy(model)

    def predict(rows: Any) -> Any:
        if rows_a_call == 1:
            seed(0)  # a model that draws random numbers in predict draws the same for every row
        subject = copy.deepcopy(model) if is_copied else model
        return np.asarray(ask(subject, model_rows(subject, rows))).reshape(len(rows), -1)

    with progress("asking the model about held-out rows"), silence(), global_randomness() as seed, one_thread():
        return Calls(distinct, rows_a_call).values(SimpleNamespace(predict=predict), width)[numbers]


def first_rows(rows: int, groups: Any, y: Any) -> tuple[Integers, Integers, int]:
    """Return the unit of each row, the first row of each unit, and how many units there are."""
    check_consistent_length(np.empty(rows), y)
    units, count = unit_numbers(rows, groups)
    return units, np.unique(units, return_index=True)[1], count


def count_cells(shape: tuple[int, ...], *coordinates: Integers) -> Integers:
    """Return the number of units in each cell, by one coordinate for each dimension; -1 puts a unit in no cell.

    A unit is in at most one cell, so replacing it changes at most two counts by 1.
    """
    counts = np.zeros(shape, dtype=np.int64)
    counted = np.all(np.stack(coordinates) >= 0, axis=0)
    np.add.at(counts, tuple(coordinate[counted] for coordinate in coordinates), 1)  # proof: step 2
    return counts
