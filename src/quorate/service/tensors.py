"""The tensors of a model: how inputs become checked queries, and what each query was answered.

Inputs:

    a model fitted on arrays        one tensor "features", FP64 [-1, columns]; FP16, FP32, INT, UINT and BOOL will do
    a model with a schema.json      one tensor a column of the table, [-1] or [-1, 1]: numbers, texts (BYTES) or BOOL
    a model fitted on data frames   one tensor a column, by its name

A missing value is null, in JSON, or an empty text, where the schema or the estimator takes missing values. Queries
leave here as `checked` of the classifier would return them: a matrix of 64-bit floats, of the right width, with nan for
what is missing, or a frame that it has checked.

Outputs:

    label     the class: BYTES, INT64, FP64 or BOOL, as the classes are
    index     INT64: the number of the class among the sorted classes, -1 for no quorum, -2 for refused
    outcome   BYTES: answered, no_quorum or refused (the budget ended before this query, or its phase is closed)
    scores    FP64 [-1, classes], of a model with scores: the noisy share of each class, zeros for refused; of a
              published model with probabilities: these

of a model of several labels at once, these two and no others:

    labels    INT64 [-1, labels]: 1 for each label that is likelier than not, 0 for the others
    scores    FP64 [-1, labels]: the probability of each label

Where a query was not answered, `label` is an empty text, or a number that is no class (`metadata` says which), or
false; read `outcome` first. Responses are not padded: a caller is told the outcome anyway, and nobody else reads it
where the connection is encrypted, but the length of a response can tell an eavesdropper one class from another.

Nothing here changes once it is made: the work done for a request depends on that request, and on no other.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from quorate.core.errors import InvalidInput, QuorateError
from quorate.core.rows import canonical_matrix
from quorate.models.predictors.scores import Scoring
from quorate.service.codec import ResponseTensor, Tensor, Values, listed
from quorate.service.errors import Refused
from quorate.tables import Category, Number, QueryEncoder, Schema
from quorate.tables.columns import feature_names, unknown_values
from quorate.tables.containers import open_column
from quorate.tables.frames import FrameFormat

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

OUTPUTS = ("label", "index", "outcome")

_OUTCOMES = ("refused", "no_quorum", "answered")


class TensorInfo(NamedTuple):
    """How the protocol describes a tensor."""

    name: str
    datatype: str
    shape: list[int]


class Inputs(Protocol):
    """What a model takes."""

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the tensors."""

    def described(self) -> list[TensorInfo]:
        """Return the tensors."""

    def queries(self, tensors: Mapping[str, Tensor]) -> Any:
        """Return checked queries, or refuse."""


class MatrixInput:
    """One matrix of numbers."""

    names: Sequence[str] = ("features",)

    def __init__(self, columns: int, *, missing: bool = False) -> None:
        self.columns, self._missing = columns, missing

    def described(self) -> list[TensorInfo]:
        """Return the one tensor."""
        return [TensorInfo("features", "FP64", [-1, self.columns])]

    def queries(self, tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """Return the matrix."""
        _check_names(self.names, tensors)
        tensor = tensors["features"]
        if len(tensor.shape) != 2 or tensor.shape[1] != self.columns:
            raise Refused("bad_tensor", f"input 'features' must have the shape [rows, {self.columns}]")
        return canonical_matrix(_numbers(tensor, missing=self._missing).reshape(tensor.shape))


class NamedInputs:
    """Columns of numbers, by name: a model fitted on a data frame of numbers."""

    def __init__(self, names: Sequence[str], *, missing: bool = False) -> None:
        self.names, self._missing = list(names), missing

    def described(self) -> list[TensorInfo]:
        """Return one tensor a column."""
        return [TensorInfo(name, "FP64", [-1]) for name in self.names]

    def queries(self, tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """Return the columns as a matrix, in the order of the model."""
        _check_columns(self.names, tensors)
        columns = [_numbers(tensors[name], missing=self._missing) for name in self.names]
        return canonical_matrix(np.column_stack(columns))


class SchemaInputs:
    """Columns of a table, encoded by its schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = list(schema.columns)
        self.encoder = QueryEncoder(schema)
        ends = np.cumsum([0, *(len(feature_names(kind, name)) for name, kind in schema.columns.items())]).tolist()
        spans = zip(schema.columns.items(), pairwise(ends), strict=True)
        self._categories = {name: slice(*span) for (name, kind), span in spans if isinstance(kind, Category)}

    def described(self) -> list[TensorInfo]:
        """Return one tensor a column."""
        kinds = self.schema.columns.items()
        return [TensorInfo(name, "FP64" if type(kind) is Number else "BYTES", [-1]) for name, kind in kinds]

    def queries(self, tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """Return the encoded columns; what the schema refuses is told by column and row, never by value."""
        _check_columns(self.names, tensors)
        try:
            columns = [self.encoder.encode(name, tensors[name].values) for name in self.names]
        except InvalidInput as error:
            raise Refused("invalid_input", str(error), unknown=self._refused(tensors)) from None
        except Exception:  # of a library, which may repeat a value
            raise Refused("invalid_input") from None
        return canonical_matrix(np.concatenate(columns, axis=1))

    def unknown(self, X: NDArray[np.float64]) -> dict[str, int]:
        """Return how many queries have a category that the schema does not declare, by column: all of it is 0 there."""
        return {name: int((~X[:, part].any(axis=1)).sum()) for name, part in self._categories.items()}

    def _refused(self, tensors: Mapping[str, Tensor]) -> dict[str, int]:
        """Return the same of queries that were refused; nothing where a column cannot be read at all."""
        kinds, reading = self.schema.columns, self.schema.reading
        try:
            return {
                name: int(unknown_values(kinds[name], open_column(tensors[name].values), reading).sum())
                for name in self._categories
            }
        except Exception:  # as above
            return {}


class FrameInputs:
    """Columns of a data frame, for learners that choose columns by name."""

    def __init__(self, form: FrameFormat) -> None:
        self.names, self._form = [str(name) for name in form.columns], form

    def described(self) -> list[TensorInfo]:
        """Return one tensor a column."""
        pairs = zip(self.names, self._form.kinds, strict=True)
        return [TensorInfo(name, "FP64" if kind == "number" else "BYTES", [-1]) for name, kind in pairs]

    def queries(self, tensors: Mapping[str, Tensor]) -> Any:
        """Return the frame that the learners take. What is refused is told by column and row, never by value."""
        _check_columns(self.names, tensors)
        try:
            return self._form.read({name: tensors[name].values for name in self.names})
        except QuorateError as error:
            raise Refused("invalid_input", str(error)) from None
        except (TypeError, ValueError):
            raise Refused("invalid_input") from None


class Outputs:
    """The answers of a classifier with these classes, as tensors; of a model of several labels, these are `labels`."""

    names: Sequence[str] = OUTPUTS
    labels: NDArray[Any] | None = None

    def __init__(self, classes: NDArray[Any]) -> None:
        self.classes = classes
        self._texts: list[str] | None = None
        self._numbers: NDArray[Any] = classes
        self.unanswered: Any
        kind = classes.dtype.kind
        if kind in "iu":
            self.datatype, self.unanswered = "INT64", _no_class(classes.astype(np.int64))
        elif kind == "f":
            self.datatype, self.unanswered = "FP64", _no_class(classes.astype(np.float64))
        elif kind == "b":
            self.datatype, self.unanswered = "BOOL", False
        else:
            self.datatype, self.unanswered = "BYTES", ""
            self._texts = [str(label) for label in classes.tolist()] + [""]  # the last stands for no answer
        if self._texts is None:
            dtype = {"INT64": np.int64, "FP64": np.float64, "BOOL": np.bool_}[self.datatype]
            self._numbers = np.array([*classes.tolist(), self.unanswered], dtype=dtype)

    def described(self) -> list[TensorInfo]:
        """Return the three tensors."""
        return [
            TensorInfo(name, datatype, [-1])
            for name, datatype in zip(OUTPUTS, (self.datatype, "INT64", "BYTES"), strict=True)
        ]

    def chosen(self, asked: Sequence[tuple[str, bool]] | None, *, binary: bool) -> Sequence[tuple[str, bool]]:
        """Return the outputs to send, all of them where none is asked for. An unknown one is refused."""
        if asked is None:
            return [(name, binary) for name in self.names]
        if any(name not in self.names for name, _ in asked):
            raise Refused("bad_request", f"the outputs of a model are {listed(self.names)}; another was asked for")
        return asked

    def written(
        self,
        labels: Numbers,
        refused: Flags,
        chosen: Sequence[tuple[str, bool]],
        told: Any = None,
    ) -> list[ResponseTensor]:
        """Return the chosen tensors, in the order chosen; `told` is what a model said beyond class numbers."""
        numbers, more = self.read(labels, refused, told)
        index = np.where(refused, -2, numbers)
        return [ResponseTensor(name, *self.tensor(name, index, more), binary) for name, binary in chosen]

    def read(self, labels: Numbers, refused: Flags, told: Any) -> tuple[Numbers, Any]:
        """Return the class numbers of answers, and what else they say. A subclass reads numbers that are no classes."""
        return labels, told

    def tensor(self, name: str, index: Numbers, told: Any) -> tuple[str, Values]:
        """Return the datatype and the values of one tensor; -1 in `index` is no quorum, -2 refused."""
        if name == "label":
            return self.datatype, self._labels(index)
        if name == "index":
            return "INT64", index
        return "BYTES", [_OUTCOMES[min(place, 0) + 2] for place in index.tolist()]

    def _labels(self, index: Numbers) -> Values:
        places = np.maximum(index, -1)
        if self._texts is not None:
            return [self._texts[place] for place in places.tolist()]
        numbers: NDArray[Any] = self._numbers[places]
        return numbers


class ColumnOutputs(Outputs):
    """Columns of numbers by name, which `read` finds, of a model that has no classes; and perhaps the outcome."""

    def __init__(self) -> None:
        super().__init__(np.zeros(0))

    def described(self) -> list[TensorInfo]:
        """Return the tensors."""
        return [TensorInfo(name, "BYTES" if name == "outcome" else "FP64", [-1]) for name in self.names]

    def tensor(self, name: str, index: Numbers, told: Any) -> tuple[str, Values]:
        """Return the datatype and the values of one tensor."""
        return super().tensor(name, index, told) if name == "outcome" else ("FP64", told[name])


class ScoreOutputs(Outputs):
    """The labels of a classifier, and a score for each class: probabilities, or shares of the vote."""

    names = (*OUTPUTS, "scores")

    def described(self) -> list[TensorInfo]:
        """Return the four tensors."""
        return [*super().described(), TensorInfo("scores", "FP64", [-1, len(self.classes)])]

    def tensor(self, name: str, index: Numbers, told: Any) -> tuple[str, Values]:
        """Return the datatype and the values of one tensor."""
        return ("FP64", told) if name == "scores" else super().tensor(name, index, told)


class LabelsOutputs(Outputs):
    """Which of several labels a query has, all at once, and the probability of each."""

    names = ("labels", "scores")

    def __init__(self, labels: NDArray[Any]) -> None:
        super().__init__(np.array([0, 1]))
        self.labels, self._shape = labels, [-1, len(labels)]

    def described(self) -> list[TensorInfo]:
        """Return the two tensors."""
        return [TensorInfo("labels", "INT64", self._shape), TensorInfo("scores", "FP64", self._shape)]

    def tensor(self, name: str, index: Numbers, told: Any) -> tuple[str, Values]:
        """Return the datatype and the values of one tensor."""
        return ("FP64", told) if name == "scores" else ("INT64", (told > 0.5).astype(np.int64))


class NoisyScoreOutputs(ScoreOutputs):
    """The answers of a classifier with scores: labels made of noisy shares, and the shares."""

    def __init__(self, classes: NDArray[Any], scoring: Scoring) -> None:
        super().__init__(classes)
        self._scoring = scoring

    def read(self, labels: Numbers, refused: Flags, told: Any) -> tuple[Numbers, Any]:
        """Return the labels that noisy shares make, and the shares."""
        shares = np.where(refused[:, np.newaxis], 0.0, self._scoring.probabilities(labels))
        return self._scoring.labels(labels), shares


def inputs_of(classifier: Any, schema: Schema | None) -> Inputs:
    """Return what a fitted classifier takes."""
    if schema is not None:
        return SchemaInputs(schema)
    names = [str(name) for name in getattr(classifier, "feature_names_in_", [])]
    form = getattr(classifier, "form_", None)
    if form is not None:
        return FrameInputs(form)
    missing = hasattr(classifier, "__sklearn_tags__") and bool(get_tags(classifier).input_tags.allow_nan)
    if names:
        return NamedInputs(names, missing=missing)
    return MatrixInput(int(classifier.n_features_in_), missing=missing)


def _check_names(names: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
    if len(tensors) != len(names):  # none is unknown and none stands twice: reading saw to it
        raise Refused("bad_request", f"all inputs of this model must be sent, and they are {listed(names)}")


def _check_columns(names: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
    _check_names(names, tensors)
    rows = tensors[names[0]].shape[0]
    for name in names:
        shape = tensors[name].shape
        if shape[0] != rows or shape[1:] not in ([], [1]):
            raise Refused("bad_tensor", f"input {name!r} must have the shape [rows] or [rows, 1], with as many rows as "
                          f"input {names[0]!r}")  # fmt: skip


def _numbers(tensor: Tensor, *, missing: bool) -> NDArray[np.float64]:
    if isinstance(tensor.values, list):
        raise Refused("bad_tensor", f"input {tensor.name!r} takes numbers, and BYTES are texts")
    numbers = tensor.values.astype(np.float64, copy=False)
    if not missing and np.isnan(numbers).any():
        raise Refused("not_finite", f"a value of input {tensor.name!r} is missing (null), and this model takes no gap: "
                      "fill it in or leave the query out")  # fmt: skip
    return numbers


def _no_class(classes: NDArray[Any]) -> Any:
    """Return -1, or a number below all classes where that is one."""
    return -1 if -1 not in classes else classes.min().item() - 1
