"""Values of private columns as numbers or codes of texts, read one by one and never refused.

One person's row must not decide what another's value means, and no value may raise an error. So a value that cannot be
read counts as missing.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.arrays import without_mask
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
        given = [str(name) for name in table.columns]
        if twice := [name for name in names if given.count(name) > 1]:
            raise InvalidInput(f"column names must differ: {twice[0]!r} appears twice")
        present = _present(given, names, whose)
        columns = {name: _column(name, table.iloc[:, given.index(name)], whose) for name in present}
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
    return moments_written(texts(column), unit)


def read_texts(column: pa.Array, known: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each value among the known texts, and one past the last for any other or missing one.

    What is not among them as it is written may be as another file writes it: 1 for 1.0, or true for True.
    """
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        column = _written(read_numbers(column))
    coded = texts(column, missing=set(MISSING_TEXTS) - set(known)).dictionary_encode()
    short = _short(pa.array(known, type=pa.large_string()))
    different = pc.unique(short)
    as_written = pc.index_in(coded.dictionary, value_set=pa.array(known, type=coded.dictionary.type), skip_nulls=True)
    if len(different) == len(short):  # else it is not told which is meant
        as_written = pc.coalesce(
            as_written, pc.index_in(_short(coded.dictionary), value_set=different, skip_nulls=True)
        )
    places = pc.fill_null(as_written.take(coded.indices), len(known))
    return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)


def read_numbers(column: pa.Array) -> NDArray[np.float64]:
    """Return values as floats, and NaN where one is missing or no number."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = texts(column).dictionary_encode()
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


def _short(written: pa.Array) -> pa.Array:
    """Return texts with whole numbers and truth values as we write them."""
    plain = pc.replace_substring_regex(written, r"^([+-]?[0-9]+)\.0+$", r"\1")
    lowered = pc.utf8_lower(plain)
    return pc.if_else(pc.is_in(lowered, value_set=pa.array(["true", "false"], lowered.type)), lowered, plain)


def _written(values: NDArray[np.float64]) -> pa.Array:
    """Return numbers as texts, each as it would be written among texts."""
    known, places = np.unique(values, return_inverse=True)
    each = pa.array([_text(value) for value in known.tolist()], type=pa.large_string())
    return each.take(pa.array(places.ravel()))


def _column(name: str, values: Any, whose: str) -> pa.Array:
    """Return values in the one type that Arrow has for them; objects of several types become texts, one by one."""
    values = without_mask(values)
    kind = getattr(values, "dtype", None)
    if hasattr(kind, "categories") and hasattr(kind, "ordered"):  # of pandas
        return _coded(name, getattr(values, "cat", values), whose)
    if isinstance(values, pa.Array | pa.ChunkedArray) or not (kind is None or isinstance(kind, np.dtype)):
        try:
            return _typed(values)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):  # of one value, which the text would name
            listed = hasattr(values, "to_list")  # of a type that NumPy lacks, it takes those with a gap alone
            values = values.to_list() if listed else np.asarray(values, dtype=object)
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    array = _listed(values) if is_list else np.asarray(values)
    if array.ndim != 1:
        raise InvalidInput(f"{whose}, column {name!r}: one value a row is expected")
    if array.dtype.kind in "fiub":
        with np.errstate(all="ignore"):  # a long double beyond all floats is infinite, and nobody is warned of it
            return pa.array(array.astype(np.float64) if array.dtype.itemsize > 8 else array)
    if array.dtype.kind == "M":
        return pa.array(array.astype("datetime64[us]"))
    if array.dtype.kind not in "OUSTc":
        raise InvalidInput(
            f"{whose}, column {name!r}: values must be numbers, texts or truth values, not {array.dtype}"
        )
    return pa.array([_text(value) for value in array.astype(object)], type=pa.large_string())


def _coded(name: str, values: Any, whose: str) -> pa.Array:
    """Return the values of a pandas category as texts, each category read by itself.

    pandas looks for one type for all of them, which one private value decides: dates would be refused by their type,
    and read once a single category is a text. Arrow would take the time off datetimes if one of them is a date.
    """
    codes = np.asarray(values.codes)
    return _column(name, np.asarray(values.categories, dtype=object), whose).take(pa.array(codes, mask=codes < 0))


def _typed(values: Any) -> pa.Array:
    """Return a column that has a type which allows for missing values, such as pandas' Int64: it keeps that type.

    As a NumPy array it would not: a missing value would make floats of all others, and cut long whole numbers short.
    """
    array = pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    return whole_array(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]))


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
        plain = value.astype("datetime64[us]") if isinstance(value, np.datetime64) else value
        plain = plain.item() if isinstance(plain, np.generic) else plain
        plain = plain.real if isinstance(plain, complex) and plain.imag == 0 else plain
        plain = float(plain) if isinstance(plain, Decimal | np.floating) else plain  # a long double is its own item
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
