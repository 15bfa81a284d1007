"""Values of private columns as numbers or codes of texts, read one by one and never refused.

One person's row must not decide what another's value means, and no value may raise an error. So a value that cannot be
read counts as missing.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.tables.dates import DateUnit, is_temporal, moments_of, moments_written
from quorate.tables.read import (
    MISSING_TEXTS,
    as_table,
    canonical_text,
    check_type,
    is_text,
    shown_names,
    texts,
    whole_array,
)

__all__ = ["read_columns", "read_moments", "read_numbers", "read_texts"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE | re.ASCII)


def read_columns(
    table: Any, names: Sequence[str], *, whose: str = "the table", dates: Collection[str] = ()
) -> dict[str, pa.Array]:
    """Return some columns of a frame, of a matrix with just these columns, or of a mapping from names to values.

    Only those named in `dates` may be of a type of dates.
    """
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or table.shape[1] != len(names):
            raise InvalidInput(
                f"{whose}, given as an array, must have one column for each of {shown_names(names)}, not shape "
                f"{table.shape}"
            )
        return {name: _column(name, table[:, place], whose) for place, name in enumerate(names)}
    if isinstance(table, Mapping):
        columns = {name: _column(name, table[name], whose) for name in _present(table, names, whose)}
        return _checked(columns, whose, dates)
    if hasattr(table, "iloc"):  # a pandas frame, whose columns of objects Arrow would refuse by their values
        columns = {name: _series(name, table[name], whose) for name in _present(list(table.columns), names, whose)}
        return _checked(columns, whose, dates)
    given = as_table(table)
    for name in _present(given.column_names, names, whose):
        _check_type(whose, name, given.schema.field(name).type, dates)
    return {name: whole_array(given.column(name)) for name in names}


def read_moments(column: pa.Array, unit: DateUnit) -> NDArray[np.float64]:
    """Return dates as numbers of units, and NaN where one is missing or no date."""
    if is_temporal(column.type):
        return moments_of(column, unit)
    if not is_text(column.type):  # numbers are no dates
        return np.full(len(column), np.nan)
    return moments_written(_texts(column), unit)


def read_texts(column: pa.Array, known: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each value among the known texts, and one past the last for any other or missing one."""
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        column = _written(read_numbers(column))
    written = _texts(column, missing=set(MISSING_TEXTS) - set(known))
    places = pc.index_in(written, value_set=pa.array(known, type=written.type), skip_nulls=True)
    return np.asarray(pc.fill_null(places, len(known)).to_numpy(zero_copy_only=False), dtype=np.int64)


def read_numbers(column: pa.Array) -> NDArray[np.float64]:
    """Return values as floats, and NaN where one is missing or no number."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = _texts(column).dictionary_encode()
        each = np.array([*(_number(text) for text in coded.dictionary.to_pylist()), np.nan])
        places = pc.fill_null(coded.indices, len(each) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(each[places])
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    return np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _number(text: str) -> float:
    if text in ("true", "false"):  # as a truth value among other objects is written
        return float(text == "true")
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def _written(values: NDArray[np.float64]) -> pa.Array:
    """Return numbers as texts, each as it would be written among texts."""
    known, places = np.unique(values, return_inverse=True)
    each = pa.array([_text(value) for value in known.tolist()], type=pa.large_string())
    return each.take(pa.array(places.ravel()))


def _texts(column: pa.Array, missing: Iterable[str] = ()) -> pa.Array:
    """Return values as texts; bytes that are no text, which a file may hold, are missing."""
    try:
        return texts(column, missing=missing)
    except pa.ArrowInvalid:
        plain = [_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]
        return texts(pa.array(plain, type=pa.large_string()), missing=missing)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _series(name: str, series: Any, whose: str) -> pa.Array:
    """Return a column of a pandas frame."""
    if getattr(series, "ndim", 1) != 1:
        raise InvalidInput(f"column names must differ: {series.columns[0]!r} appears twice")
    if series.dtype == object or series.dtype.kind in "fiub":
        return _column(name, series.to_numpy(), whose)
    try:
        return pa.array(series)
    except (pa.ArrowException, TypeError, ValueError):  # one value that Arrow refuses, and its text would say which
        return _column(name, series.astype(object).to_numpy(), whose)


def _column(name: str, values: Any, whose: str) -> pa.Array:
    """Return values in the one type that Arrow has for them; objects of several types become texts, one by one."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    array = _listed(values) if is_list else np.asarray(values)
    if array.ndim != 1:
        raise InvalidInput(f"{whose}, column {name!r}: one value a row is expected")
    if array.dtype.kind in "fiub":
        return pa.array(array.astype(np.float64) if array.dtype.itemsize > 8 else array)
    if array.dtype.kind == "M":
        return pa.array(array.astype("datetime64[us]"))
    if array.dtype.kind not in "OUS":
        raise InvalidInput(
            f"{whose}, column {name!r}: values must be numbers, texts or truth values, not {array.dtype}"
        )
    return pa.array([_text(value) for value in array.astype(object)], type=pa.large_string())


def _listed(values: Sequence[Any]) -> NDArray[Any]:
    """Return a list as an array: numbers where all are of one type, else objects.

    Left to itself numpy would look for one type for all: then a 2 in it would turn every True into 1.
    """
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {bool, int, float}:
        plain = np.array(values)
        if plain.dtype.kind in ("f" if kinds == {float} else "iub"):  # whole numbers may be too large for one type
            return plain
    return np.fromiter(values, dtype=object, count=len(values))


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        plain = value.item() if isinstance(value, np.generic) else value
        plain = float(plain) if isinstance(plain, Decimal) else plain
        plain = plain.isoformat() if isinstance(plain, date) else plain
        text = canonical_text(plain) if isinstance(plain, str | int | float) else None
        return text if text is None or text.isascii() or text.encode("utf-8") else None  # half a surrogate pair raises
    except (ArithmeticError, TypeError, ValueError):
        return None


def _check_type(whose: str, name: str, kind: pa.DataType, dates: Collection[str]) -> None:
    if not (name in dates and is_temporal(kind)):
        check_type(whose, name, kind)


def _checked(columns: dict[str, pa.Array], whose: str, dates: Collection[str]) -> dict[str, pa.Array]:
    for name, column in columns.items():
        _check_type(whose, name, column.type, dates)
    if len({len(column) for column in columns.values()}) > 1:
        raise InvalidInput(f"{whose} must have columns of one length")
    return {name: whole_array(pa.chunked_array([column])) for name, column in columns.items()}


def _present(columns: Any, names: Sequence[str], whose: str) -> Sequence[str]:
    lacking = [name for name in names if name not in columns]
    if lacking:
        raise InvalidInput(
            f"{whose} must have the columns {shown_names(lacking)}; its columns are {shown_names(list(columns))}"
        )
    return names
