"""Rows as a server takes them: the columns of an array, a data frame or a table, as tensors that can be cut."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.rows import canonical_matrix, is_frame
from quorate.tables import as_table
from quorate.tables.dates import is_temporal
from quorate.tables.read import NotANumber, is_text, numbers, refusal, shown_names, texts, whole_array

__all__ = ["Queries"]

_MATRIX = "features"  # the input of a model that was fitted on arrays


class _Column(NamedTuple):
    """One input: its values, a row each, and the name of their type in the protocol."""

    datatype: str
    values: NDArray[np.float64] | list[str | None]


class Queries:
    """Checked rows for a model, whose metadata say what it takes. A value that is missing is sent as null.

    >>> model = {"inputs": [{"name": "features", "datatype": "FP64", "shape": [-1, 2]}]}
    >>> Queries([[1, 2], [3, None], [5, 6]], model).body(1, 3, id="a")
    b'{"id": "a", "inputs": [{"name": "features", "shape": [2, 2], "datatype": "FP64", "data": [3.0, null, 5.0, 6.0]}]}'
    """

    def __init__(self, X: Any, model: Mapping[str, Any]) -> None:
        inputs = model["inputs"]
        if inputs[0]["name"] == _MATRIX and len(inputs[0]["shape"]) == 2:
            self._columns = {_MATRIX: _Column("FP64", _matrix(X, inputs[0]["shape"][1]))}
        else:
            missing = model.get("parameters", {}).get("missing_texts") or ()
            self._columns = _named(X, {one["name"]: one["datatype"] for one in inputs}, missing)
        if not len(self):
            raise InvalidInput("there must be at least 1 row to ask about")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())).values)

    def body(self, start: int, stop: int, *, id: str) -> bytes:
        """Return the request for these rows. The same rows under the same id are the same bytes."""
        inputs = []
        for name, (datatype, values) in self._columns.items():
            part = values[start:stop]
            shape = list(part.shape) if isinstance(part, np.ndarray) else [len(part)]
            data = part if isinstance(part, list) else _with_nulls(part)
            inputs.append({"name": name, "shape": shape, "datatype": datatype, "data": data})
        return json.dumps({"id": id, "inputs": inputs}, allow_nan=False).encode()


def _with_nulls(values: NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(number) else number for number in values.ravel().tolist()]


def _matrix(X: Any, width: int) -> NDArray[np.float64]:
    """Return rows of numbers for a model that knows its columns by their places."""
    if is_frame(X):
        table = as_table(X)
        columns = [_numbers(name, whole_array(table.column(name)), ()) for name in table.column_names]
        matrix = np.column_stack(columns)
    else:
        try:
            matrix = canonical_matrix(X)
        except (TypeError, ValueError):
            raise InvalidInput("rows must be numbers, in a matrix or a data frame") from None
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise InvalidInput(f"the model takes rows of {width} numbers, and the queries have the shape {matrix.shape}")
    return _finite("the queries", matrix)


def _named(X: Any, inputs: Mapping[str, str], missing: Sequence[str]) -> dict[str, _Column]:
    """Return the columns that a model knows by their names; those of a plain array are in the model's order."""
    table = _table(X, list(inputs))
    lacking = [name for name in inputs if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in inputs]
    if lacking:
        has = shown_names(table.column_names)
        raise InvalidInput(f"the queries must have the columns {shown_names(lacking)}; their columns are {has}")
    if unknown:
        raise InvalidInput(
            f"the model does not know these columns of the queries: {shown_names(unknown)}; leave them out"
        )
    return {name: _column(name, whole_array(table.column(name)), inputs[name], missing) for name in inputs}


def _table(X: Any, names: Sequence[str]) -> pa.Table:
    if is_frame(X):
        return as_table(X)
    values = np.asarray(X, dtype=object)
    if values.ndim == 1 and len(names) == 1:
        values = values[:, np.newaxis]
    if values.ndim != 2 or values.shape[1] != len(names):
        raise InvalidInput(
            f"queries without names must have one column for each of {shown_names(names)}, not shape {values.shape}"
        )
    try:
        return pa.table({name: pa.array(values[:, place].tolist()) for place, name in enumerate(names)})
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidInput("each column of the queries must hold numbers, texts, or truth values") from None


def _column(name: str, values: pa.Array, datatype: str, missing: Sequence[str]) -> _Column:
    if datatype == "BYTES":
        return _Column(datatype, _texts(values))
    return _Column("FP64", _finite(f"column {name!r}", _numbers(name, values, missing)))


def _numbers(name: str, values: pa.Array, missing: Sequence[str]) -> NDArray[np.float64]:
    try:
        return numbers(values, missing=missing)
    except NotANumber as error:
        raise refusal("query", name, "a number is expected, not a text", row=error.row) from None
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidInput(f"column {name!r} of the queries must hold numbers, not {values.type}") from None


def _texts(values: pa.Array) -> list[str | None]:
    """Return texts as they are; dates as 2024-05-31, and other values as a table would write them."""
    if is_text(values.type):
        listed: list[str | None] = values.to_pylist()
        return listed
    if is_temporal(values.type):
        return [None if value is None else value.isoformat() for value in values.to_pylist()]
    written: list[str | None] = texts(values).to_pylist()
    return written


def _finite(whose: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    if np.isinf(values).any():
        raise InvalidInput(f"all numbers of {whose} must be finite")
    return values
