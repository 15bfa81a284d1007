"""Read tables from files, by suffix, and from Arrow objects, and their values as texts or numbers, one by one.

A CSV file is read as texts, which the schema interprets. So the type of a column does not depend on the values of all
rows, and a row means the same in any file (`csv_files`).
"""

import csv
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.tables.csv_files import read_csv

__all__ = [
    "MISSING_TEXTS",
    "SUFFIXES",
    "NotANumber",
    "Role",
    "as_table",
    "canonical_text",
    "check_names",
    "check_role",
    "check_type",
    "coded",
    "is_readable",
    "is_text",
    "lasting_person_text",
    "numbers",
    "person_text",
    "read_table",
    "refusal",
    "shown_names",
    "subject",
    "texts",
    "whole_array",
]

Role = Literal["private", "public", "query"]

_SUBJECTS = {"private": "the private records", "public": "the public table", "query": "the queries"}


def check_role(role: object) -> Role:
    """Return `role` if it is valid."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"role must be 'private', 'public' or 'query', not {role!r}")


def subject(role: Role) -> str:
    """Return the name of these rows in an error."""
    return _SUBJECTS[role]


def refusal(role: Role, column: str, problem: str, *, row: int) -> InvalidInput:
    """Return the error for a value of a column. A private row is never named: neither its number nor its value."""
    place = "" if role == "private" else f", row {row + 1} (the first such row, counted from 1)"
    return InvalidInput(f"{subject(role)}, column {column!r}{place}: {problem}")


MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # "?" is a category like any other unless told

_EXACT = 2.0**53  # whole numbers below it are told apart by a 64-bit float
_NUMPY_NUMBERS = (np.number, np.bool_)
_WHOLE = re.compile(r"\+?(-?)0*(\d+)(\.0*)?", re.ASCII)
_POWER = re.compile(r"[+-]?\d((\.\d*)?[eE]\+\d{2}|\.\d*[eE]\d{1,2})", re.ASCII)  # 1e+05, 1.0E5; 5e20 may be an id
_CUT_SHORT = (16, "9007199254740992")  # digits from which on a float may stand for another whole number


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
    """Return a column as one array, with dictionaries and views turned into plain values, and no text but in UTF-8."""
    if pa.types.is_dictionary(column.type):
        plain = column.type.value_type
        parts = [_plain(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
        column = pa.chunked_array(parts, type=pa.large_string() if _is_textual(plain) else plain)
    column = _plain(column)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def texts(column: pa.Array, *, missing: Iterable[str] = ()) -> pa.Array:
    """Return values as texts without surrounding blanks, and null for missing values.

    A whole number is written without decimals, whatever its type: 5 and 5.0 are the same text.
    """
    if pa.types.is_floating(column.type):
        written = _written(column.cast(pa.float64()))
    elif pa.types.is_decimal(column.type):
        each = column.dictionary_encode()
        known = [None if value is None else canonical_text(value) for value in each.dictionary.to_pylist()]
        written = pa.array(known, pa.large_string()).take(each.indices)
    elif is_text(column.type):
        written = pyarrow.compute.utf8_trim_whitespace(column)
    else:
        written = column.cast(pa.large_string())
    values = pa.array(list(missing), type=written.type)
    return pyarrow.compute.if_else(
        pyarrow.compute.is_in(written, value_set=values), pa.scalar(None, written.type), written
    )


def numbers(column: pa.Array, *, missing: Iterable[str] = ()) -> NDArray[np.float64]:
    """Return values as 64-bit floats, NaN for missing values. A text that is not a number raises `NotANumber`."""
    if is_text(column.type):
        column = _parsed(texts(column, missing=missing))
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    plain: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return plain


def coded(
    values: pa.Array, known: Sequence[str], missing: Iterable[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the index of each value among the known texts (-1: unknown), and which values are missing."""
    written = texts(values, missing=set(missing) - set(known))
    places = pyarrow.compute.index_in(written, value_set=pa.array(known, type=written.type), skip_nulls=True)
    codes = pyarrow.compute.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, pyarrow.compute.is_null(written).to_numpy(zero_copy_only=False)


def canonical_text(value: object) -> str:
    """Return a value as `texts` writes it, so that declared values match those of a table."""
    if isinstance(value, str):
        return str.strip(value)
    value = value.item() if isinstance(value, _NUMPY_NUMBERS) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    if isinstance(value, Decimal) and value.is_finite():
        written = f"{value:f}"
        return written.rstrip("0").rstrip(".") if "." in written else written
    return str(value).strip()


def person_text(name: object) -> str:
    """Return the identity of a person as a text: 7, 7.0, "7.0" and " 007 " are one person.

    Files write one number in several ways: with decimals if another value is missing, with leading zeros if another has
    a letter, and R writes 100000 as 1e+05. A letter with an accent can be written in two ways. Two people who are taken
    for one are protected together; one who is taken for two would not be.

    >>> {person_text(name) for name in (0, -0.0, "-0", "00")}, person_text("-07.0"), person_text("1e+05")
    ({'0'}, '-7', '100000')
    """
    plain = name.decode(errors="surrogateescape") if isinstance(name, bytes) else name  # as SAS files have them
    written = unicodedata.normalize("NFC", canonical_text(plain))
    if _POWER.fullmatch(written) and (power := Fraction(written)).denominator == 1:
        return str(power.numerator)
    whole = _WHOLE.fullmatch(written)
    if whole is None:
        return written
    sign, digits = whole[1], whole[2]
    return digits if digits == "0" else sign + digits


def lasting_person_text(name: object) -> str:
    """Return `person_text` of a name that must be recognised again in later data, which others may write.

    A value that others may write differently is refused: a date, bytes, a pair, or a number that was a float and may
    have lost digits. 7.50 has: as a text it is a different name from 7.5.
    """
    plain = name.item() if isinstance(name, (np.str_, *_NUMPY_NUMBERS)) else name
    if not isinstance(plain, str | int | float | Decimal | UUID) or isinstance(name, np.timedelta64):
        raise InvalidInput("names of people are texts or numbers: give others, such as dates, bytes or pairs, as texts")
    exact = 2.0 ** (np.finfo(name.dtype).nmant + 1) if isinstance(name, np.floating) else _EXACT
    written, form = canonical_text(plain), person_text(plain)
    if isinstance(plain, float):
        lost = not plain.is_integer() or abs(plain) >= exact
    elif isinstance(plain, Decimal):
        lost = "." in written
    else:  # a text that a float was written as
        digits = form.removeprefix("-")
        lost = _is_of_float(written) and (len(digits), digits) >= _CUT_SHORT
    if lost:
        raise InvalidInput(
            "a name is a float that may have lost digits, or that is not a whole number: give names as whole numbers, "
            "or as texts with all their digits"
        )
    return form


def _is_of_float(written: str) -> bool:
    """Return whether this is a whole number that is written as floats are."""
    whole = _WHOLE.fullmatch(written)
    return bool(_POWER.fullmatch(written)) if whole is None else whole[3] is not None


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type are texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_textual(kind: pa.DataType) -> bool:
    return is_text(kind) or bool(pa.types.is_null(kind))


def _plain(column: Any) -> Any:
    """Return texts in the one layout that all functions of Arrow know; other values as they are.

    A file may hold bytes that are no text. They are missing: whoever reads them would raise, and repeat them.
    """
    if not _is_textual(column.type):
        return column
    plain = column.cast(pa.large_string())
    try:
        plain.validate(full=True)
    except pa.ArrowInvalid:
        read = pa.array([_decoded(value) for value in plain.cast(pa.large_binary()).to_pylist()], pa.large_string())
        return pa.chunked_array([read]) if isinstance(plain, pa.ChunkedArray) else read
    return plain


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _written(column: pa.Array) -> pa.Array:
    plain = column.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        whole = (np.floor(plain) == plain) & (np.abs(plain) < _EXACT)
    integers = pa.array(np.where(whole, plain, 0.0).astype(np.int64)).cast(pa.large_string())
    decimals = pa.array(plain, mask=np.isnan(plain)).cast(pa.large_string())
    return pyarrow.compute.if_else(pa.array(whole), integers, decimals)


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


def as_table(frame: Any) -> pa.Table:
    """Return a frame as an Arrow table, through the Arrow PyCapsule interface.

    The index of a pandas frame is left out.

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
        with warnings.catch_warnings():  # what pandas and Arrow say of each other is nothing that our users can change
            warnings.simplefilter("ignore", DeprecationWarning)
            table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # The text of the error may hold a value of a private row, so only its column is passed on.
        raise InvalidInput(
            f"{_failed_column(error)} must hold values of one type: numbers, or texts, or truth values. A column of "
            "pandas that mixes them becomes texts by .astype(str)"
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


SUFFIXES = (".csv", ".csv.gz", ".parquet", ".arrow", ".feather")


def read_table(path: str | Path, *, role: Role = "query") -> pa.Table:
    r"""Read a CSV, gzipped CSV, Parquet, Arrow or Feather file.

    `role="private"` keeps line numbers out of errors.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "people.csv").write_text("age,sex\n39,f\n")
    ...     read_table(Path(folder, "people.csv")).to_pylist()  # texts, until a schema says what they mean
    [{'age': '39', 'sex': 'f'}]
    """
    role, path = check_role(role), Path(path)
    readers: dict[str, Callable[[Path, Role], pa.Table]] = dict.fromkeys(
        (".csv", ".csv.gz"), lambda file, role: read_csv(file, private=role == "private")
    )
    readers[".parquet"] = lambda file, _: pyarrow.parquet.read_table(file, partitioning=None)
    readers[".arrow"] = readers[".feather"] = lambda file, _: pyarrow.feather.read_table(file)
    suffix = next((known for known in SUFFIXES if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise InvalidInput(f"{path}: the suffix must be one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    try:
        table = readers[suffix](path, role)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error):
        # The text of these errors may hold values of private rows.
        raise InvalidInput(f"{path}: not a readable {suffix} file; it may be damaged or misnamed") from None
    try:
        check_names(table)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if table.num_rows == 0:
        raise InvalidInput(f"{path}: the table has no rows")
    indices = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(indices)
