"""The input tensors of a model, and how they become checked queries.

    a model fitted on arrays        one tensor "features", FP64 [-1, columns]; FP16, FP32, INT, UINT and BOOL will do
    a model with a schema.json      one tensor a column of the table, [-1] or [-1, 1]: numbers, texts (BYTES) or BOOL
    a model fitted on data frames   one tensor a column, by its name

A missing value is an empty text, where the schema takes missing values. Queries leave here as `checked` of the
classifier would return them: a matrix of finite 64-bit floats, of the right width, or a frame that it has checked.

Nothing here changes after it was made: what is done for a request depends on that request, and on no other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.errors import InvalidInput, QuorateError
from quorate.rows import canonical_matrix
from quorate.service.codec import Tensor, listed
from quorate.service.errors import Refused
from quorate.tables import Number, QueryEncoder, Schema

__all__ = ["FrameInputs", "Inputs", "MatrixInput", "NamedInputs", "SchemaInputs", "TensorInfo", "inputs_of"]


class TensorInfo(NamedTuple):
    """How the protocol describes a tensor.

    >>> TensorInfo("features", "FP64", [-1, 20]).name
    'features'
    """

    name: str
    datatype: str
    shape: list[int]


class Inputs(Protocol):
    """What a model takes.

    >>> isinstance(MatrixInput(2).described(), list)
    True
    """

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the tensors.

        >>> MatrixInput(2).names
        ('features',)
        """

    def described(self) -> list[TensorInfo]:
        """Return the tensors.

        >>> MatrixInput(2).described()[0].shape
        [-1, 2]
        """

    def queries(self, tensors: Mapping[str, Tensor]) -> Any:
        """Return checked queries, or refuse.

        >>> MatrixInput(1).queries({"features": Tensor("features", "INT8", [1, 1], np.array([3]))})
        array([[3.]])
        """


class MatrixInput:
    """One matrix of numbers.

    >>> MatrixInput(2).queries({"features": Tensor("features", "FP64", [1, 2], np.array([0.5, 1.0]))})
    array([[0.5, 1. ]])
    """

    names: Sequence[str] = ("features",)

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def described(self) -> list[TensorInfo]:
        """Return the one tensor.

        >>> MatrixInput(2).described()
        [TensorInfo(name='features', datatype='FP64', shape=[-1, 2])]
        """
        return [TensorInfo("features", "FP64", [-1, self.columns])]

    def queries(self, tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """Return the matrix.

        >>> MatrixInput(2).queries({})
        Traceback (most recent call last):
        ...
        quorate.service.errors.Refused: bad_request
        """
        _check_names(self.names, tensors)
        tensor = tensors["features"]
        if len(tensor.shape) != 2 or tensor.shape[1] != self.columns:
            raise Refused("bad_tensor", f"input 'features' must have the shape [rows, {self.columns}]")
        return canonical_matrix(_numbers(tensor).reshape(tensor.shape))


class NamedInputs:
    """Columns of numbers, by name: a model fitted on a data frame of numbers.

    >>> columns = {name: Tensor(name, "FP64", [1], np.array([1.0])) for name in ("age", "weight")}
    >>> NamedInputs(["weight", "age"]).queries(columns)
    array([[1., 1.]])
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def described(self) -> list[TensorInfo]:
        """Return one tensor a column.

        >>> NamedInputs(["age"]).described()
        [TensorInfo(name='age', datatype='FP64', shape=[-1])]
        """
        return [TensorInfo(name, "FP64", [-1]) for name in self.names]

    def queries(self, tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """Return the columns as a matrix, in the order of the model.

        >>> NamedInputs(["age"]).queries({"age": Tensor("age", "INT8", [2], np.array([1, 2]))})
        array([[1.],
               [2.]])
        """
        _check_columns(self.names, tensors)
        return canonical_matrix(np.column_stack([_numbers(tensors[name]) for name in self.names]))


class SchemaInputs:
    """Columns of a table, encoded by its schema.

    >>> from quorate.tables import Category
    >>> inputs = SchemaInputs(Schema({"age": Number(low=0, high=100), "sex": Category(["f", "m"])}))
    >>> tensors = {"age": Tensor("age", "INT64", [1], np.array([50])), "sex": Tensor("sex", "BYTES", [1], ["m"])}
    >>> inputs.queries(tensors)
    array([[0., 0., 1.]])
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = list(schema.columns)
        self._encoder = QueryEncoder(schema)

    def described(self) -> list[TensorInfo]:
        """Return one tensor a column.

        >>> SchemaInputs(Schema({"age": Number()})).described()
        [TensorInfo(name='age', datatype='FP64', shape=[-1])]
        """
        kinds = self.schema.columns.items()
        return [TensorInfo(name, "FP64" if isinstance(kind, Number) else "BYTES", [-1]) for name, kind in kinds]

    def queries(self, tensors: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """Return the encoded columns; what the schema refuses is told by column and row, never by value.

        >>> wrong = {"age": Tensor("age", "BYTES", [1], ["old"])}
        >>> SchemaInputs(Schema({"age": Number()})).queries(wrong)
        Traceback (most recent call last):
        ...
        quorate.service.errors.Refused: invalid_input
        """
        _check_columns(self.names, tensors)
        try:
            columns = [self._encoder.encode(name, tensors[name].values) for name in self.names]
        except InvalidInput as error:
            raise Refused("invalid_input", str(error)) from None
        except (pa.ArrowException, ValueError, TypeError):
            raise Refused("invalid_input") from None
        return canonical_matrix(np.concatenate(columns, axis=1))


class FrameInputs:
    """Columns of a data frame, for learners that choose columns by name; the classifier checks the frame itself.

    >>> inputs = FrameInputs(["age"], ["number"], checked=lambda frame: frame)
    >>> inputs.queries({"age": Tensor("age", "INT8", [1], np.array([50]))})
       age
    0   50
    """

    def __init__(self, names: Sequence[str], kinds: Sequence[str], checked: Callable[[Any], Any]) -> None:
        try:
            import pandas  # noqa: PLC0415
        except ImportError:
            raise InvalidInput("this model was fitted on a data frame; serving it takes pandas: install it") from None
        self.names, self.kinds, self._checked, self._frame = list(names), list(kinds), checked, pandas.DataFrame

    def described(self) -> list[TensorInfo]:
        """Return one tensor a column.

        >>> FrameInputs(["age", "sex"], ["number", "other"], checked=lambda frame: frame).described()[1].datatype
        'BYTES'
        """
        pairs = zip(self.names, self.kinds, strict=True)
        return [TensorInfo(name, "FP64" if kind == "number" else "BYTES", [-1]) for name, kind in pairs]

    def queries(self, tensors: Mapping[str, Tensor]) -> Any:
        """Return the frame; what the classifier says about it is passed on only where it is Quorate's own text.

        >>> FrameInputs(["age"], ["number"], checked=float).queries({"age": Tensor("age", "BYTES", [1], ["old"])})
        Traceback (most recent call last):
        ...
        quorate.service.errors.Refused: invalid_input
        """
        _check_columns(self.names, tensors)
        try:
            return self._checked(self._frame({name: tensors[name].values for name in self.names}))
        except QuorateError as error:
            raise Refused("invalid_input", str(error)) from None
        except (TypeError, ValueError):
            raise Refused("invalid_input") from None


def inputs_of(classifier: Any, schema: Schema | None) -> Inputs:
    """Return what a fitted classifier takes.

    >>> class Fitted:
    ...     n_features_in_ = 3
    >>> inputs_of(Fitted(), None).described()
    [TensorInfo(name='features', datatype='FP64', shape=[-1, 3])]
    """
    if schema is not None:
        return SchemaInputs(schema)
    names = [str(name) for name in getattr(classifier, "feature_names_in_", [])]
    form = getattr(classifier, "form_", None)
    if form is not None:
        return FrameInputs(names, form.kinds, classifier.checked)
    return NamedInputs(names) if names else MatrixInput(int(classifier.n_features_in_))


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


def _numbers(tensor: Tensor) -> NDArray[np.float64]:
    if isinstance(tensor.values, list):
        raise Refused("bad_tensor", f"input {tensor.name!r} takes numbers, and BYTES are texts")
    return tensor.values.astype(np.float64)
