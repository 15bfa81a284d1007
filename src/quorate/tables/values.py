"""Values of columns: whose they are, and how one is read as a text or a number, whatever the other rows hold."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.errors import InvalidInput

__all__ = [
    "MISSING_TEXTS",
    "NotANumber",
    "Role",
    "canonical_text",
    "check_role",
    "check_type",
    "coded",
    "is_readable",
    "is_text",
    "numbers",
    "refusal",
    "shown_names",
    "subject",
    "texts",
    "whole_array",
]

Role = Literal["private", "public", "query"]

_SUBJECTS = {"private": "the private records", "public": "the public table", "query": "the queries"}


def check_role(role: object) -> Role:
    """Return `role` if it is one."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"role must be 'private', 'public' or 'query', not {role!r}")


def subject(role: Role) -> str:
    """Return how an error calls these rows."""
    return _SUBJECTS[role]


def refusal(role: Role, column: str, problem: str, *, row: int) -> InvalidInput:
    """Return the error for a value of a column. A private row is never named: neither its number nor its value."""
    place = "" if role == "private" else f", row {row + 1} (the first such row, counted from 1)"
    return InvalidInput(f"{subject(role)}, column {column!r}{place}: {problem}")


MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # "?" is a category like any other unless told

_EXACT = 2.0**53  # whole numbers below it are told apart by a 64-bit float


class NotANumber(Exception):
    """A text in this row is not a number. The caller decides how much of that an error may say."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row = row


def is_readable(kind: pa.DataType) -> bool:
    """Say whether values of this Arrow type can be read: numbers, texts, truth values, and dictionaries of them."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return numeric or pa.types.is_boolean(kind) or pa.types.is_null(kind) or is_text(kind)


def check_type(whose: str, column: str, kind: pa.DataType) -> None:
    """Refuse a column of a type that cannot be read."""
    if not is_readable(kind):
        raise InvalidInput(
            f"{whose}, column {column!r}: values must be numbers, texts or truth values, not {kind}; dates must be "
            "declared as such"
        )


def shown_names(names: Sequence[Any]) -> str:
    """Return names of columns for an error, the first 20 of them."""
    return ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")


def whole_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, with dictionaries and views turned into plain values."""
    if pa.types.is_dictionary(column.type):
        plain = column.type.value_type
        parts = [_plain(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
        column = pa.chunked_array(parts, type=pa.large_string() if _is_textual(plain) else plain)
    column = _plain(column)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def texts(column: pa.Array, *, missing: Iterable[str] = ()) -> pa.Array:
    """Return values as texts without blanks around them, and null where a value is missing.

    A whole number is written as one whatever its type: 5 and 5.0 are the same text.
    """
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        written = _written(column.cast(pa.float64()))
    elif is_text(column.type):
        written = pc.utf8_trim_whitespace(column)
    else:
        written = column.cast(pa.large_string())
    values = pa.array(list(missing), type=written.type)
    return pc.if_else(pc.is_in(written, value_set=values), pa.scalar(None, written.type), written)


def numbers(column: pa.Array, *, missing: Iterable[str] = ()) -> NDArray[np.float64]:
    """Return values as 64-bit floats, and NaN where a value is missing. A text that is no number is `NotANumber`."""
    if is_text(column.type):
        column = _parsed(texts(column, missing=missing))
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    plain: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return plain


def coded(
    values: pa.Array, known: Sequence[str], missing: Iterable[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the place of each value among the known texts (-1: not there), and which values are missing."""
    written = texts(values, missing=set(missing) - set(known))
    places = pc.index_in(written, value_set=pa.array(known, type=written.type), skip_nulls=True)
    codes = pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, pc.is_null(written).to_numpy(zero_copy_only=False)


def canonical_text(value: object) -> str:
    """Return how `texts` would write a value, so that what a schema declares meets what a table holds."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    return str(value).strip()


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_textual(kind: pa.DataType) -> bool:
    return is_text(kind) or bool(pa.types.is_null(kind))


def _plain(column: Any) -> Any:
    """Return texts in the one layout that all functions of Arrow know; other values as they are."""
    return column.cast(pa.large_string()) if _is_textual(column.type) else column


def _written(column: pa.Array) -> pa.Array:
    plain = column.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        whole = (np.floor(plain) == plain) & (np.abs(plain) < _EXACT)
    integers = pa.array(np.where(whole, plain, 0.0).astype(np.int64)).cast(pa.large_string())
    decimals = pa.array(plain, mask=np.isnan(plain)).cast(pa.large_string())
    return pc.if_else(pa.array(whole), integers, decimals)


def _parsed(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        raise NotANumber(_first_wrong(column)) from None


def _first_wrong(column: pa.Array) -> int:
    """Return the first row whose text is no number, knowing that there is one: by halving."""
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            column.slice(start, middle - start).cast(pa.float64())
        except pa.ArrowInvalid:
            stop = middle
        else:
            start = middle
    return start
