"""Rows as a server takes them: the columns of an array, a data frame or a table, as tensors that can be cut."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput
from quorate.tables.containers import is_frame, open_column, open_matrix, open_table, shown_names
from quorate.tables.frames import read_column
from quorate.tables.values import read_texts

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
        opened = open_table(X, whose="the queries")
        matrix = np.column_stack(
            [read_column(name, opened.columns[name], "number", "query") for name in opened.columns]
        )
    else:
        matrix = _plain_matrix(X)
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise InvalidInput(f"the model takes rows of {width} numbers, and the queries have the shape {matrix.shape}")
    return _finite("the queries", matrix)


def _plain_matrix(X: Any) -> NDArray[np.float64]:
    try:
        return open_matrix(X) if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64) + 0.0
    except (TypeError, ValueError):
        raise InvalidInput("rows must be numbers, in a matrix or a data frame") from None


def _named(X: Any, inputs: Mapping[str, str], missing: Sequence[str]) -> dict[str, _Column]:
    """Return the columns that a model knows by their names; those of a plain array are in the model's order."""
    columns = _opened(X, list(inputs))
    lacking = [name for name in inputs if name not in columns]
    unknown = [name for name in columns if name not in inputs]
    if lacking:
        has = shown_names(list(columns))
        raise InvalidInput(f"the queries must have the columns {shown_names(lacking)}; their columns are {has}")
    if unknown:
        raise InvalidInput(
            f"the model does not know these columns of the queries: {shown_names(unknown)}; leave them out"
        )
    return {name: _column(name, columns[name], inputs[name], missing) for name in inputs}


def _opened(X: Any, names: Sequence[str]) -> dict[str, pa.Array]:
    if is_frame(X):
        opened = open_table(X, whose="the queries")
        return {str(name): column for name, column in opened.columns.items()}
    values = np.asarray(X, dtype=object)
    if values.ndim == 1 and len(names) == 1:
        values = values[:, np.newaxis]
    if values.ndim != 2 or values.shape[1] != len(names):
        raise InvalidInput(
            f"queries without names must have one column for each of {shown_names(names)}, not shape {values.shape}"
        )
    return {name: open_column(values[:, place].tolist(), name=name) for place, name in enumerate(names)}


def _column(name: str, values: pa.Array, datatype: str, missing: Sequence[str]) -> _Column:
    if datatype == "BYTES":
        plain = values if pa.types.is_large_string(values.type) else read_texts(values, ())
        return _Column(datatype, plain.to_pylist())
    numbers = read_column(name, values, "number", "query", missing)
    return _Column("FP64", _finite(f"column {name!r}", numbers))


def _finite(whose: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    if np.isinf(values).any():
        raise InvalidInput(f"all numbers of {whose} must be finite")
    return values
