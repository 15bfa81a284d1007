"""The inputs of a model: how the tensors of a request become checked queries.

    a model fitted on arrays        one tensor "features", FP64 [-1, columns]; FP16, FP32, INT, UINT and BOOL will do
    a model with a schema.json      one tensor a column of the table, [-1] or [-1, 1]: numbers, texts (BYTES) or BOOL
    a model fitted on data frames   one tensor a column, by its name
    a release                       one tensor "query", BYTES: each as `--ask` of `quorate release` takes it

A missing value is null, in JSON, or an empty text, where the schema or the estimator takes missing values. Nothing here
changes once it is made: the work done for a request depends on that request, and on no other.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from quorate.core.errors import InvalidInput, QuorateError
from quorate.core.rows import canonical_matrix
from quorate.release.answers import parse_queries
from quorate.release.proposals import rows_of_numbers
from quorate.service._codec import Tensor, TensorInfo, join_names
from quorate.service._errors import Refused
from quorate.tables import Category, Number, QueryEncoder, Schema
from quorate.tables.columns import feature_names, unknown_values
from quorate.tables.containers import Role, open_column
from quorate.tables.frames import FrameFormat


class Inputs:
    """The inputs of a model. They turn the tensors of a request into queries through the model's own check."""

    missing_texts: Sequence[str] | None = None  # of a file, where a schema says which texts mean a missing value

    def __init__(self, tensors: Sequence[TensorInfo]) -> None:
        self.tensors, self.names = list(tensors), [tensor.name for tensor in tensors]

    def queries(self, tensors: Mapping[str, Tensor], *, role: Role = "query") -> Any:
        """Return checked queries, or refuse. No value of a private record is refused: an unreadable one is missing."""
        raise NotImplementedError

    def count_unknown(self, X: Any) -> Mapping[str, int]:
        """Return how many queries have a category that the model does not know, by column."""
        return {}

    def check_names(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse a request that lacks an input. No name is unknown or stands twice: reading the request saw to it."""
        if len(tensors) != len(self.names):
            raise Refused(
                "bad_request", f"all inputs of this model must be sent, and they are {join_names(self.names)}"
            )

    def check_columns(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse all but one column for each input, of the same number of rows."""
        self.check_names(tensors)
        rows = tensors[self.names[0]].shape[0]
        for name in self.names:
            shape = tensors[name].shape
            if shape[0] != rows or shape[1:] not in ([], [1]):
                raise Refused(
                    "bad_tensor",
                    f"input {name!r} must have the shape [rows] or [rows, 1], with as many rows as input "
                    f"{self.names[0]!r}",
                )


class MatrixInput(Inputs):
    """One matrix of numbers."""

    def __init__(self, columns: int, *, missing: bool = False) -> None:
        super().__init__([TensorInfo("features", "FP64", [-1, columns])])
        self._columns, self._missing = columns, missing

    def queries(self, tensors: Mapping[str, Tensor], *, role: Role = "query") -> NDArray[np.float64]:
        """Return the matrix."""
        self.check_names(tensors)
        tensor = tensors["features"]
        if len(tensor.shape) != 2 or tensor.shape[1] != self._columns:
            raise Refused("bad_tensor", f"input 'features' must have the shape [rows, {self._columns}]")
        return canonical_matrix(_read_numbers(tensor, missing=self._missing or role == "private").reshape(tensor.shape))


class NamedInputs(Inputs):
    """Columns of numbers, by name: a model fitted on a data frame of numbers."""

    def __init__(self, names: Sequence[str], *, missing: bool = False) -> None:
        super().__init__([TensorInfo(name, "FP64", [-1]) for name in names])
        self._missing = missing

    def queries(self, tensors: Mapping[str, Tensor], *, role: Role = "query") -> NDArray[np.float64]:
        """Return the columns as a matrix, in the order of the model."""
        self.check_columns(tensors)
        missing = self._missing or role == "private"
        columns = [_read_numbers(tensors[name], missing=missing) for name in self.names]
        return canonical_matrix(np.column_stack(columns))


class SchemaInputs(Inputs):
    """Columns of a table, encoded by its schema."""

    def __init__(self, schema: Schema) -> None:
        columns = schema.columns.items()
        super().__init__(
            [TensorInfo(name, "FP64" if type(kind) is Number else "BYTES", [-1]) for name, kind in columns]
        )
        self.schema, self.encoder, self.missing_texts = schema, QueryEncoder(schema), schema.reading.missing_texts
        ends = np.cumsum([0, *(len(feature_names(kind, name)) for name, kind in columns)]).tolist()
        spans = zip(columns, pairwise(ends), strict=True)
        self._categories = {name: slice(*span) for (name, kind), span in spans if isinstance(kind, Category)}

    def queries(self, tensors: Mapping[str, Tensor], *, role: Role = "query") -> NDArray[np.float64]:
        """Return the encoded columns; a refusal names the column and the row, never the value."""
        self.check_columns(tensors)
        if role == "private":
            return self.schema.encode({name: tensors[name].values for name in self.names})
        try:
            columns = [self.encoder.encode(name, tensors[name].values) for name in self.names]
        except InvalidInput as error:
            raise Refused("invalid_input", str(error), unknown=self._count_refused(tensors)) from None
        except Exception:  # of a library, which may repeat a value
            raise Refused("invalid_input") from None
        return canonical_matrix(np.concatenate(columns, axis=1))

    def count_unknown(self, X: NDArray[np.float64]) -> Mapping[str, int]:
        """Return how many queries have a category that the schema does not declare, by column: all of it is 0 there."""
        return {name: int((~X[:, part].any(axis=1)).sum()) for name, part in self._categories.items()}

    def _count_refused(self, tensors: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the same of queries that were refused; nothing where a column cannot be read at all."""
        kinds, reading = self.schema.columns, self.schema.reading
        try:
            return {
                name: int(unknown_values(kinds[name], open_column(tensors[name].values), reading).sum())
                for name in self._categories
            }
        except Exception:  # as above
            return {}


class FrameInputs(Inputs):
    """Columns of a data frame, for learners that choose columns by name, or `opened` for models that read them so."""

    def __init__(self, form: FrameFormat, *, opened: bool = False) -> None:
        columns = zip(form.columns, form.kinds, strict=True)
        super().__init__(
            [TensorInfo(str(name), "FP64" if kind == "number" else "BYTES", [-1]) for name, kind in columns]
        )
        self._read = form.read_opened if opened else form.read

    def queries(self, tensors: Mapping[str, Tensor], *, role: Role = "query") -> Any:
        """Return the frame that the learners take; a refusal names the column and the row, never the value."""
        self.check_columns(tensors)
        try:
            return self._read({name: tensors[name].values for name in self.names}, role=role)
        except QuorateError as error:
            raise Refused("invalid_input", str(error)) from None
        except (TypeError, ValueError):
            raise Refused("invalid_input") from None


class QueryInput(Inputs):
    """Texts of queries, which become the numbers that a release, published or online, knows them by."""

    def __init__(self, release: Any) -> None:
        super().__init__([TensorInfo("query", "BYTES", [-1])])
        self._release = release

    def queries(self, tensors: Mapping[str, Tensor], *, role: Role = "query") -> Any:
        """Return the queries in the form that the release takes, one a row."""
        self.check_columns(tensors)
        texts = [text for text in tensors["query"].values if isinstance(text, str)]
        if len(texts) < len(tensors["query"].values):  # a null, or numbers
            raise Refused("bad_tensor", "input 'query' must be texts")
        try:
            return self._find(texts)
        except InvalidInput:
            raise Refused("invalid_input", "each query must be a readable query of this release") from None

    def _find(self, texts: Sequence[str]) -> Any:
        """Return the numbers of the queries, one a row."""
        queries = parse_queries(texts, self._release.subject)
        numbers = self._release.domain_.find(queries)
        if any(self._release.domain_.between(queries)):  # The answer at another cut would answer another query.
            raise Refused("invalid_input", "the ends of a query must be cuts of this release; ask at its cuts")
        return rows_of_numbers(numbers)  # from 0 up: below 0 would not be an answer


class GroupQueryInput(QueryInput):
    """Texts of queries to numbers by group: a measure and a group, as a JSON object."""

    def _find(self, texts: Sequence[str]) -> Any:
        queries = parse_queries(texts, None)
        self._release.ask(queries)  # refuses what is not published
        return queries


def inputs_of(model: Any, schema: Schema | None) -> Inputs:
    """Return the inputs of a fitted model; `schema` is the schema of its folder."""
    if model.inputs == "queries":
        return (GroupQueryInput if model.outputs == "released numbers" else QueryInput)(model)
    if schema is not None:
        return SchemaInputs(schema)
    form = getattr(model, "form_", None)
    if form is not None:
        return FrameInputs(form, opened=getattr(model, "takes_opened", False))
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    missing = hasattr(model, "__sklearn_tags__") and bool(get_tags(model).input_tags.allow_nan)
    return NamedInputs(names, missing=missing) if names else MatrixInput(int(model.n_features_in_), missing=missing)


def _read_numbers(tensor: Tensor, *, missing: bool) -> NDArray[np.float64]:
    if isinstance(tensor.values, list):
        raise Refused("bad_tensor", f"input {tensor.name!r} takes numbers, and BYTES are texts")
    numbers = tensor.values.astype(np.float64, copy=False)
    if not missing and np.isnan(numbers).any():
        raise Refused(
            "not_finite",
            f"a value of input {tensor.name!r} is missing (null), and this model takes no gap: fill it in or leave the "
            "query out",
        )
    return numbers
