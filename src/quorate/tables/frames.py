"""Tables from whatever speaks Arrow: pandas and polars frames, record batches, other libraries."""

from typing import Any

import pyarrow as pa

from quorate.errors import InvalidInput

__all__ = ["as_table", "check_names"]


def as_table(frame: Any) -> pa.Table:
    """Return a frame as an Arrow table, through the Arrow PyCapsule interface. The index of a pandas frame is left out.

    >>> as_table(pa.record_batch({"age": [39, 50]})).column_names
    ['age']
    >>> as_table([[39], [50]])
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: a table must be a pandas or polars frame or an Arrow table, ... not list
    """
    if isinstance(frame, pa.Table):
        return check_names(frame)
    if isinstance(frame, pa.RecordBatch):
        return check_names(pa.Table.from_batches([frame]))
    if not hasattr(frame, "__arrow_c_stream__"):
        raise InvalidInput(
            "a table must be a pandas or polars frame or an Arrow table, with __arrow_c_stream__, "
            f"not {type(frame).__name__}"
        )
    if hasattr(frame, "iloc"):  # pandas, which would complain in its own words
        _check_names([str(name) for name in frame.columns])
    try:
        table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # The text of the error may hold a value of a private row, so only its column is passed on.
        raise InvalidInput(
            f"{_failed_column(error)} must hold values of one type: numbers, or texts, or truth values"
        ) from None
    return check_names(_without_index(table))


def check_names(table: pa.Table) -> pa.Table:
    """Return the table if its columns have names and no name appears twice."""
    _check_names(table.column_names)
    return table


def _check_names(names: list[str]) -> None:
    if not names:
        raise InvalidInput("a table must have at least 1 column")
    for place, name in enumerate(names):
        if not str(name).strip():
            raise InvalidInput(
                f"column {place + 1} has no name; if it is the index of a pandas frame, write it with index=False"
            )
        if name in names[:place]:
            raise InvalidInput(f"column names must differ: {name!r} appears twice")


def _failed_column(error: BaseException) -> str:
    words = "Conversion failed for column "
    for text in error.args:
        if isinstance(text, str) and text.startswith(words):
            return f"column {text.removeprefix(words).rpartition(' with type ')[0]!r}"
    return "each column"


def _without_index(table: pa.Table) -> pa.Table:
    described = table.schema.pandas_metadata
    if not described:
        return table
    index = [name for name in described.get("index_columns", []) if isinstance(name, str)]
    return table.drop_columns([name for name in index if name in table.column_names])
