"""Held-out private rows: what a published model says of each, and one value for each unit.

What is said of a row is a function of the model and of that row alone (`quorate.core.estimator_calls`), and no error or
warning of the model leaves: where it fails on a row, it says nothing of that row. So no value of a private row is
refused either, be it missing, infinite or no number: the model takes it, or fails on that row.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_consistent_length

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import Calls, asks_a_copy, call_rows, one_thread
from quorate.core.isolation import global_randomness, silence
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
    """Refuse what is no fitted model, or one of other columns: from public values."""
    if isinstance(model, type) or not hasattr(model, "predict"):
        raise InvalidInput("model must be a fitted model that was published or is public: it needs predict")
    for part in _parts(model):
        if hasattr(part, "session_"):
            raise InvalidInput(
                f"a {type(part).__name__} answers from private records and is paid for: it is not published"
            )
    known = getattr(model, "n_features_in_", features)
    if features is not None and known != features:
        raise InvalidInput(f"the model takes {known} features and the rows have {features}; both must be the same")


def _parts(model: Any) -> Iterator[Any]:
    """Yield a model, and those that it is made of: the steps of a pipeline, the members of an ensemble."""
    yield model
    for value in [*getattr(model, "get_params", dict)().values(), *getattr(model, "__dict__", {}).values()]:
        yield from value if isinstance(value, list | tuple) else [value]


def classes_of(model: Any) -> NDArray[Any]:
    """Return the labels that a classifier knows, sorted."""
    classes = np.asarray(getattr(model, "classes_", np.empty(0)))
    if classes.ndim != 1 or classes.size < 2 or getattr(model, "multilabel_", False):
        raise InvalidInput("model must be a fitted classifier of one label: its classes_ name two or more")
    if not np.array_equal(classes, np.unique(classes)):
        raise InvalidInput("classes_ of the model must be sorted, each once")
    return classes


def model_rows(model: Any, X: Any) -> Any:
    """Return checked rows as the model takes them: by name where it knows names."""
    names = getattr(model, "feature_names_in_", None)
    return X if names is None else named_matrix(X, names)


def private_rows(columns: Any, model: Any, X: Any, schema: Schema | None = None) -> Any:
    """Return private rows as a model is asked about them, and let `columns` learn their names.

    What is refused depends on their shape and names: proof: step 1. Types of private columns decide nothing. Where a
    model says how it reads private rows, as the linear ones do, its rule is taken. Else the columns of a frame are what
    the model shows or what `schema` declares.
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
    known = getattr(model, "form_", None)
    if known is not None:
        return FrameFormat.declared(X, known.columns, known.kinds)
    names = list(column_names(X))
    if len(getattr(model, "feature_names_in_", ())) == len(names):
        names = model.feature_names_in_.tolist()
    if schema is not None:
        return FrameFormat.declared(X, names, schema.kinds_of(names))
    if hasattr(model, "form_"):  # a model of ours that was fitted on a matrix
        return FrameFormat.declared(X, names, ["number"] * len(names))
    texts = _text_columns(model, names)
    if texts is None:
        raise InvalidInput(
            f"a {type(model).__name__} does not show in which columns of a data frame it takes texts: declare the "
            "columns, as in schema=Schema.from_public(public_rows)"
        )
    return FrameFormat.declared(X, names, ["text" if name in texts else "date" for name in names])


def _text_columns(part: Any, names: Sequence[Any] | None) -> set[Any] | None:
    """Return in which of the named columns a fitted model of scikit-learn has seen texts.

    None where it may have seen texts and does not show in which columns: a part that is not of scikit-learn, a function
    of its user, categories of columns that an earlier step has made, for which `names` is None.
    """
    if hasattr(part, "form_"):  # a model of ours
        kinds = () if part.form_ is None else zip(part.form_.columns, part.form_.kinds, strict=True)
        return {name for name, kind in kinds if kind == "text"}
    if not _is_shown(part):
        return None
    found = [_own_text_columns(part, names), *(_text_columns(inner, seen) for inner, seen in _inner_parts(part, names))]
    return None if None in found else {name for texts in found for name in texts or ()}


def _is_shown(part: Any) -> bool:
    """Return whether a part is of scikit-learn, without a function of its user: then its state shows what it saw."""
    function = getattr(part, "func", None) if isinstance(part, FunctionTransformer) else None
    homes = [type(part).__module__, getattr(getattr(function, "func", function), "__module__", None) or "numpy"]
    return homes[0].startswith("sklearn.") and homes[1].partition(".")[0] in ("sklearn", "numpy")


def _own_text_columns(part: Any, names: Sequence[Any] | None) -> set[Any] | None:
    """Return the columns whose texts an encoder or an imputer has kept, or that a transformer takes one by one."""
    if isinstance(part, ColumnTransformer):
        return _columns_taken_alone(part, names)
    seen = getattr(part, "categories_", getattr(part, "statistics_", ()))
    shown = [any(isinstance(value, str) for value in np.atleast_1d(values)) for values in seen]
    if not any(shown):
        return set()
    if names is None or len(shown) != len(names):
        return None
    return {name for name, is_text in zip(names, shown, strict=True) if is_text}


def _columns_taken_alone(part: ColumnTransformer, names: Sequence[Any] | None) -> set[Any]:
    """Return the columns that a transformer hands on as vectors, which is how texts are counted."""
    single = [columns for _, _, columns in part.transformers_ if np.ndim(columns) == 0]
    single = [column for column in single if isinstance(column, str | int)]
    return {column if isinstance(column, str) else list(names or ())[column] for column in single}


def _inner_parts(part: Any, names: Sequence[Any] | None) -> Iterator[tuple[Any, Sequence[Any] | None]]:
    """Yield the estimators that one of scikit-learn is made of, each with the names of the columns that it takes."""
    if isinstance(part, ColumnTransformer):
        for _, fitted, columns in part.transformers_:
            if np.ndim(columns) == 1 and not isinstance(fitted, str):
                yield fitted, None if names is None else _named_columns(columns, names)
            elif isinstance(columns, slice) and not isinstance(fitted, str):
                yield fitted, None if names is None else list(names)[columns]
        return
    for inner in _fitted_parts(part):
        yield inner, names
        if isinstance(part, Pipeline) and isinstance(inner, ColumnTransformer):
            names = None  # its columns stand in another order


def _named_columns(columns: Any, names: Sequence[Any]) -> list[Any]:
    """Return the names of the columns of a transformer, of which some are given by their places or by a mask."""
    listed = np.asarray(columns)
    return [names[place] for place in np.arange(len(names))[listed]] if listed.dtype.kind in "iub" else listed.tolist()


def _fitted_parts(part: Any) -> Iterator[Any]:
    """Yield the estimators that one of scikit-learn is made of."""
    for value in vars(part).values():
        for one in value if isinstance(value, list | tuple) else [value]:
            for inner in one if isinstance(one, tuple) else [one]:
                if hasattr(inner, "get_params") or type(inner).__name__ == "_CalibratedClassifier":
                    yield inner


def probabilities_by_row(model: Any, X: Any) -> NDArray[np.float64]:
    """Return what the model gives to each class, one row a row of X: 0 for all where it fails or says no number.

    A model that says labels alone gives 1 to its label.
    """
    classes = classes_of(model)
    if not hasattr(model, "predict_proba"):
        said = labels_by_row(model, X)
        return np.vstack([np.eye(classes.size), np.zeros(classes.size)])[said]
    given = _asked(_Says(model, lambda asked, rows: asked.predict_proba(rows)), X, classes.size)
    return np.clip(np.nan_to_num(given, nan=0.0), 0.0, 1.0)


def labels_by_row(model: Any, X: Any) -> Integers:
    """Return the number of the class that the model says of each row; -1 where it fails."""
    classes = classes_of(model)
    says = _Says(model, lambda asked, rows: class_codes(classes, np.asarray(asked.predict(rows)))[:, np.newaxis])
    return np.nan_to_num(_asked(says, X, 1)[:, 0], nan=-1.0).astype(np.int64)


def values_by_row(model: Any, X: Any) -> NDArray[np.float64]:
    """Return the number that a regressor says of each row; nan where it fails."""
    return _asked(_Says(model, lambda asked, rows: np.asarray(asked.predict(rows)).reshape(len(rows), 1)), X, 1)[:, 0]


def _asked(says: "_Says", X: Any, width: int) -> NDArray[np.float64]:
    """Ask about each row once: rows that are alike would stand in the same place of a call, and need one each."""
    seen: dict[bytes, int] = {}
    numbers = np.array([seen.setdefault(digest, len(seen)) for digest in query_digests(X)], dtype=np.int64)
    different = take_rows(X, np.unique(numbers, return_index=True)[1])
    with progress("asking the model about held-out rows"), silence(), global_randomness() as seed, one_thread():
        says.seed = seed  # in this order, as where teachers are asked
        return Calls(different, says.rows).values(says, width)[numbers]


class _Says:
    """A published model as one that says numbers, so many of each row."""

    def __init__(self, model: Any, ask: Callable[[Any, Any], Any]) -> None:
        self._model, self._ask = model, ask
        self.rows, self._copied = call_rows(model), asks_a_copy(model)
        self.seed: Any = None

    def predict(self, X: Any) -> Any:
        if self.rows == 1:
            self.seed(0)  # a model that draws when it is asked draws the same for every row
        model = copy.deepcopy(self._model) if self._copied else self._model
        return self._ask(model, model_rows(model, X))


def first_rows(rows: int, groups: Any, y: Any) -> tuple[Integers, Integers, int]:
    """Return the unit of each row, the first row of each unit, and how many units there are."""
    check_consistent_length(np.empty(rows), y)
    units, count = unit_numbers(rows, groups)
    return units, np.unique(units, return_index=True)[1], count
