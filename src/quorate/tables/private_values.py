"""What a private value is: number, date, truth value, text, sentence or missing. Each value is read alone."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.tables.containers import open_columns
from quorate.tables.dates import DateUnit, read_moments
from quorate.tables.reading import DEFAULT_READING
from quorate.tables.values import read_numbers, read_texts

__all__ = ["DATE_UNIT", "ValueKind", "count_texts", "kinds_of_values", "private_columns", "read_line"]

DATE_UNIT: DateUnit = "days"
_SENTENCE_BLANKS = 5  # a text with as many gaps between words is a sentence


class ValueKind(IntEnum):
    """What a value is, read by itself."""

    MISSING = 0
    WHOLE = 1
    FRACTION = 2
    DATE = 3
    TRUTH = 4
    TEXT = 5
    SENTENCE = 6


def private_columns(table: Any, names: Sequence[str], rows: NDArray[np.int64] | None = None) -> dict[str, pa.Array]:
    """Return raw columns of private records, or some of their rows. No value is refused."""
    columns = open_columns(table, names, whose="the private records")
    return columns if rows is None else {name: column.take(pa.array(rows)) for name, column in columns.items()}


def kinds_of_values(column: pa.Array) -> Integers:
    """Return the `ValueKind` of each value of a raw column."""
    if pa.types.is_large_string(column.type):
        coded = read_texts(column).dictionary_encode()
        distinct = np.append(_kinds_of_texts(coded.dictionary), ValueKind.MISSING)
        places = pc.fill_null(coded.indices, len(distinct) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(distinct[places], dtype=np.int64)
    if pa.types.is_timestamp(column.type):
        return np.where(np.isnan(read_moments(column, DATE_UNIT)), ValueKind.MISSING, ValueKind.DATE).astype(np.int64)
    numbers = read_numbers(column)
    kinds = _kinds_of_numbers(numbers)
    if pa.types.is_boolean(column.type):
        kinds[~np.isnan(numbers)] = ValueKind.TRUTH
    return kinds


def _kinds_of_numbers(numbers: Floats) -> Integers:
    kinds = np.where(numbers == np.floor(numbers), ValueKind.WHOLE, ValueKind.FRACTION)
    return np.where(np.isnan(numbers), ValueKind.MISSING, kinds).astype(np.int64)


def _kinds_of_texts(written: pa.Array) -> Integers:
    blanks = pc.count_substring_regex(written, r"\s+").to_numpy(zero_copy_only=False)
    kinds = np.where(blanks >= _SENTENCE_BLANKS, ValueKind.SENTENCE, ValueKind.TEXT).astype(np.int64)
    numbers, moments = read_numbers(written), read_moments(written, DATE_UNIT)
    kinds = np.where(np.isnan(moments), kinds, ValueKind.DATE)
    kinds = np.where(np.isnan(numbers), kinds, _kinds_of_numbers(numbers))
    truth = np.array([DEFAULT_READING.truth(text) is not None for text in written.to_pylist()], dtype=np.bool_)
    return np.where(truth, ValueKind.TRUTH, kinds).astype(np.int64)


def read_line(column: pa.Array, *, is_date: bool) -> Floats:
    """Return values as numbers, or dates as days since 1970; NaN for any other value."""
    return read_moments(column, DATE_UNIT) if is_date else read_numbers(column)


def count_texts(column: pa.Array) -> dict[str, int]:
    """Return how often each text occurs in a private column, and under "" how many values are missing."""
    counted = read_texts(column).value_counts()
    pairs = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    return {"" if text is None else text: int(count) for text, count in pairs}
