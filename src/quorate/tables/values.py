"""Values of one column, each read by itself: as a number, a moment, a text or a code.

`raw_column` turns an Arrow array of any type into one of five:

    int64, uint64, float64, timestamp[us] in UTC, large_string

What a value is read as depends on that value and on public rules, never on its column's type or on other rows. So 5,
5.0, "5" and Decimal("5.00") are the same number and the same text, in every container. A value that cannot be read is
missing. Nothing here raises for a value.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import singledispatch
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput
from quorate.tables.reading import MISSING_TEXTS, PLAIN_NUMBER, TRUTHS, Reading, Rules, as_reading

# What Arrow reads as Python does, of any length that it takes. The rest is read one by one.
_PLAIN_NUMBER = r"^-?[0-9]{1,100}(\.[0-9]{0,100})?$"
_TWO_READINGS = r"^-?[1-9][0-9]{0,2}\.[0-9]{3}$"  # a point before decimals, or between thousands
# A blank behind a number that came with a type, such as Decimal("1.234"): by any rules its point precedes decimals.
_TYPED = "\x1f"
_EXPONENT_LIMIT = 300  # digits of a whole number that is written out; a larger one keeps its exponent
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
_FIRST_MOMENT = -62_135_596_800 * 10**6  # microseconds: the year 1, as texts have it
_END_OF_MOMENTS = 253_402_300_800 * 10**6  # the year 10000


_IS = pa.types
_KINDS_OF_TYPES: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("number", lambda kind: _IS.is_integer(kind) or _IS.is_floating(kind) or _IS.is_decimal(kind)),
    ("number", lambda kind: _IS.is_boolean(kind) or _IS.is_time(kind) or _IS.is_duration(kind)),
    ("date", lambda kind: _IS.is_date(kind) or _IS.is_timestamp(kind)),
    ("text", lambda kind: _IS.is_string(kind) or _IS.is_large_string(kind) or _IS.is_string_view(kind)),
    ("text", lambda kind: _IS.is_binary(kind) or _IS.is_large_binary(kind) or _IS.is_fixed_size_binary(kind)),
    ("text", lambda kind: _IS.is_binary_view(kind) or _IS.is_null(kind)),
)


def is_readable(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type can be read. Lists, structs, maps and unions cannot."""
    return kind_of_type(kind) is not None


def kind_of_type(kind: pa.DataType) -> str | None:
    """Return "number", "date" or "text" for an Arrow type, or None if its values cannot be read.

    Nothing finer is ever taken from the type of a private column: not whether numbers are whole, nor a scale, a time
    zone or a dictionary.
    """
    if pa.types.is_dictionary(kind):
        return kind_of_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return kind_of_type(kind.storage_type)
    return next((name for name, is_kind in _KINDS_OF_TYPES if is_kind(kind)), None)


def raw_column(column: Any) -> pa.Array:
    """Return an Arrow array, or a chunked one, as a raw column. Its type must be readable."""
    if isinstance(column, pa.ChunkedArray):
        parts = [raw_column(chunk) for chunk in column.chunks]
        if len(parts) == 1:
            return parts[0]
        return pa.concat_arrays(parts) if parts else raw_column(pa.array([], type=column.type))
    if pa.types.is_dictionary(column.type):
        return raw_column(column.dictionary).take(column.indices)
    if isinstance(column.type, pa.UuidType):
        return object_texts(column.to_pylist())
    if isinstance(column.type, pa.BaseExtensionType):
        return raw_column(column.storage)
    kind = kind_of_type(column.type)
    if kind is None:
        raise InvalidInput(f"a column must hold numbers, texts, dates or truth values, got {column.type}")
    return {"number": _raw_numbers, "date": _raw_moments, "text": _raw_texts}[kind](column)


def _raw_numbers(column: pa.Array) -> pa.Array:
    """Return whole numbers, floats, digits of decimals, seconds of times and durations, or truth values as texts."""
    if _IS.is_boolean(column.type):
        return column.cast(pa.large_string())  # "true" and "false", which every reading takes for 1 and 0
    if _IS.is_int64(column.type) or _IS.is_uint64(column.type):
        return column
    if _IS.is_integer(column.type):
        return column.cast(pa.int64())
    if _IS.is_floating(column.type):
        return pa.array(_floats(column))  # one NaN for what is missing, and one zero
    return _decimal_texts(column) if _IS.is_decimal(column.type) else _raw_seconds(column)


def _decimal_texts(column: pa.Array) -> pa.Array:
    """Return decimals as texts with as many digits as each value has, whatever the scale of the column."""
    written = column.cast(pa.string()).cast(pa.large_string())
    plain = pc.replace_substring_regex(written, r"^(-?[0-9]+)\.0*$", r"\1")
    plain = pc.replace_substring_regex(plain, r"^(-?[0-9]+\.[0-9]*[1-9])0+$", r"\1")
    plain = pc.replace_substring_regex(plain, _TWO_READINGS, rf"\0{_TYPED}")
    odd = pc.fill_null(pc.match_substring_regex(plain, r"[^0-9.\x1f-]|^-0$"), False)
    if not pc.any(odd).as_py():
        return plain
    texts = [text if text is None else canonical_text(Decimal(text)) for text in plain.filter(odd).to_pylist()]
    return pc.replace_with_mask(plain, odd, pa.array(texts, pa.large_string()))


def _raw_moments(column: pa.Array) -> pa.Array:
    """Return dates and timestamps as microseconds since 1970 in UTC. Arrow's cast would refuse some, and name them."""
    kind = column.type
    if pa.types.is_date32(kind):
        counts, scale = column.view(pa.int32()).cast(pa.int64()), 86_400 * 10**6
    else:
        counts, scale = column.view(pa.int64()), _MICROSECONDS.get(getattr(kind, "unit", "ms"), 0)
    missing = counts.is_null().to_numpy(zero_copy_only=False)
    units = pc.fill_null(counts, 0).to_numpy()
    moments = units // 1000 if scale == 0 else units
    scale = max(scale, 1)
    beyond = missing | (moments < _FIRST_MOMENT // scale) | (moments >= _END_OF_MOMENTS // scale)
    return pa.array(np.where(beyond, 0, moments) * scale, type=pa.timestamp("us"), mask=beyond)


def _raw_seconds(column: pa.Array) -> pa.Array:
    """Return times of the day and durations as numbers of seconds, of whole microseconds."""
    kind = column.type
    counts = column.view(pa.int32() if pa.types.is_time32(kind) else pa.int64()).cast(pa.int64())
    missing = counts.is_null().to_numpy(zero_copy_only=False)
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**6}[kind.unit]
    numbers = pc.fill_null(counts, 0).to_numpy()
    seconds = (numbers // 1000 if kind.unit == "ns" else numbers).astype(np.float64) / per_second
    return pa.array(np.where(missing, np.nan, seconds))


def _raw_texts(column: pa.Array) -> pa.Array:
    """Return texts in one layout. Arrow raises for bytes that are no UTF-8, and repeats them: each is read alone."""
    if pa.types.is_binary_view(column.type) or pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        plain = column.cast(pa.large_binary())
    else:
        plain = column.cast(pa.large_string())
    try:
        texts = plain.cast(pa.large_string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in plain.cast(pa.large_binary()).to_pylist()], pa.large_string())
    return texts


def _decoded(value: bytes | None) -> str | None:
    """Return bytes as a text: as UTF-8, or else as Windows-1252, which many files are in."""
    if value is None:
        return None
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            return value.decode(encoding)
    return value.decode("latin-1")


def read_numbers(column: pa.Array, rules: Rules = MISSING_TEXTS) -> Floats:
    """Return the values of a raw column as 64-bit floats; NaN where one is missing or no number."""
    kind, reading = column.type, as_reading(rules)
    if pa.types.is_timestamp(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_large_string(kind):
        return _text_numbers(column, reading)
    numbers: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if reading.missing_numbers:
        absent = pc.is_null(read_texts(column, reading.missing_texts)).to_numpy(zero_copy_only=False)
        numbers = np.where(absent, np.nan, numbers)
    return np.asarray(numbers, dtype=np.float64)


def _text_numbers(column: pa.Array, reading: Reading) -> Floats:
    """Return texts as numbers: all at once where Arrow reads each of them as the rules do, else odd ones one by one."""
    if reading.decimal == "." and not reading.missing_numbers:
        with suppress(pa.ArrowInvalid):
            return _floats(column)
    written = read_texts(column, reading.missing_texts)
    if reading.decimal == ".":
        with suppress(pa.ArrowInvalid):
            return _floats(written)
    return _numbers_one_by_one(written, pc.ends_with(column, _TYPED), reading)


def _floats(column: pa.Array) -> Floats:
    """Return a column that Arrow can cast as floats of our own, with one NaN and one zero."""
    with np.errstate(all="ignore"):  # NumPy would warn of a NaN that is marked as a signal
        floats: Floats = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats


def _numbers_one_by_one(written: pa.Array, typed: pa.Array, reading: Reading) -> Floats:
    """Return texts as numbers: plain ones by Arrow, and each distinct other one by the rules."""
    plain = pc.match_substring_regex(written, _PLAIN_NUMBER)
    if reading.decimal == ",":
        plain = pc.and_(plain, pc.or_(typed, pc.invert(pc.match_substring_regex(written, _TWO_READINGS))))
    plain = pc.fill_null(plain, False)
    numbers = _floats(pc.if_else(plain, written, pa.scalar(None, pa.large_string())))
    rest = pc.and_(pc.invert(plain), pc.is_valid(written))
    coded = written.filter(rest).dictionary_encode()
    distinct = np.array([reading.number(text) for text in coded.dictionary.to_pylist()], dtype=np.float64)
    numbers[rest.to_numpy(zero_copy_only=False)] = distinct[coded.indices.to_numpy()]
    return numbers


def read_texts(column: pa.Array, missing: Iterable[str] = MISSING_TEXTS) -> pa.Array:
    """Return the values of a raw column as canonical texts without surrounding blanks; null where one is missing."""
    kind = column.type
    if pa.types.is_large_string(kind):
        written = pc.utf8_trim_whitespace(column)
    elif pa.types.is_float64(kind):
        written = _float_texts(column.to_numpy(zero_copy_only=False))
    elif pa.types.is_timestamp(kind):
        written = _moment_texts(column)
    else:
        written = column.cast(pa.large_string())
    absent = pc.is_in(written, value_set=pa.array(list(missing), type=pa.large_string()))
    return pc.if_else(absent, pa.scalar(None, pa.large_string()), written)


def distinct_labels(column: Any) -> list[str]:
    """Return the different canonical texts of a column of labels, one for all letter cases. Missing ones are left out.

    >>> distinct_labels(pa.array(["yes", "NO", "Yes", "", "no"]))
    ['no', 'yes']
    """
    return fold_spellings(pc.unique(pc.drop_null(read_texts(raw_column(column)))).to_pylist())


def fold_spellings(labels: Iterable[Any]) -> list[Any]:
    """Return labels sorted, and of texts that differ in letter case alone the last: in small letters, if it is there.

    Records are read in any letter case (`read_codes`), so a class needs one spelling.
    """
    spelled = {label.casefold() if isinstance(label, str) else label: label for label in sorted(labels)}
    return sorted(spelled.values())


def _float_texts(values: Floats) -> pa.Array:
    with np.errstate(invalid="ignore"):
        small = (np.floor(values) == values) & (np.abs(values) < 2.0**53)
    written = pa.array(np.where(small, values, 0.0).astype(np.int64)).cast(pa.large_string())
    rest = ~small
    if rest.any():
        distinct, indices = np.unique(values[rest], return_inverse=True)
        texts = pa.array([None if math.isnan(v) else canonical_text(v) for v in distinct.tolist()], pa.large_string())
        written = pc.replace_with_mask(written, pa.array(rest), texts.take(pa.array(indices.ravel())))
    return written


def _moment_texts(column: pa.Array) -> pa.Array:
    coded = column.dictionary_encode()
    moments = coded.dictionary.cast(pa.int64()).to_numpy().astype("datetime64[us]")
    texts = [_moment_text(str(moment)) for moment in moments]
    return pa.array(texts, pa.large_string()).take(coded.indices)


def _moment_text(written: str) -> str:
    """Return an ISO 8601 text without a time of midnight and without zeros behind the seconds."""
    day, _, clock = written.partition("T")
    clock = clock.rstrip("0").rstrip(".") if "." in clock else clock
    return day if clock in ("", "00:00:00", "00:00") else f"{day}T{clock}"


def read_codes(column: pa.Array, categories: Sequence[str], rules: Rules = MISSING_TEXTS) -> Integers:
    """Return the place of each value among the categories: -1 if it is missing, one past the last if it is another.

    A value that is not listed as it is written may be listed as another file writes it: in other letters, true for
    TRUE, 1 for 1.0. That counts if it fits one category alone. If the categories are a pair of truth values, every word
    for one of them is read so.
    """
    reading = as_reading(rules)
    coded = read_texts(column, set(reading.missing_texts) - set(categories)).dictionary_encode()
    find = _CategoryFinder(categories, reading)
    codes_of_texts = [*(find.place(text) for text in coded.dictionary.to_pylist()), -1]
    codes: NDArray[np.int64] = np.array(codes_of_texts, dtype=np.int64)
    return np.asarray(codes[pc.fill_null(coded.indices, len(codes_of_texts) - 1).to_numpy(zero_copy_only=False)])


class _CategoryFinder:
    """Finds the category that a text means."""

    def __init__(self, categories: Sequence[str], reading: Reading) -> None:
        self._truth, self._other = reading.truth, len(categories)
        self._places = {text: index for index, text in enumerate(categories)}
        self._letters, self._alike = _unique(categories, str.casefold), _unique(categories, _folded)
        truths = {self._truth_value(text): index for index, text in enumerate(categories)}
        self._truths = truths if len(categories) == 2 and set(truths) == {True, False} else {}

    def place(self, text: str) -> int:
        index = self._places.get(text, self._letters.get(text.casefold()))
        if index is None:
            folded = _folded(text)
            index = self._places.get(folded, self._alike.get(folded))
        if index is None and self._truths:
            index = self._truths.get(self._truth_value(text))
        return self._other if index is None else index

    def _truth_value(self, text: str) -> bool | None:
        return {"1": True, "0": False}.get(_folded(text), self._truth(text))


def _unique(categories: Sequence[str], fold: Callable[[str], str]) -> dict[str, int | None]:
    """Return the place of each category in another spelling, or None where two have the same."""
    indices: dict[str, int | None] = {}
    for index, text in enumerate(categories):
        indices[fold(text)] = None if fold(text) in indices else index
    return indices


def _folded(text: str) -> str:
    """Return a text as it is compared with a category that is written in another way."""
    if text.casefold() in ("true", "false"):
        return "1" if text.casefold() == "true" else "0"
    number = float(text) if PLAIN_NUMBER.fullmatch(text) else math.nan
    return canonical_text(number) if abs(number) < 2.0**53 else text.casefold()


def canonical_text(value: object) -> str:
    """Return a value as `read_texts` writes it, so that declared values match those of a table.

    >>> canonical_text(7.0), canonical_text(True), canonical_text(" a "), canonical_text(Decimal("0.10"))
    ('7', 'true', 'a', '0.1')
    """
    if isinstance(value, str):
        return str.strip(value)
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool):
        return TRUTHS[plain]
    if isinstance(plain, float | np.floating):
        number = float(plain)
        return str(int(number)) if number.is_integer() and abs(number) < 1e22 else repr(number)
    if isinstance(plain, Decimal):
        return _decimal_text(plain)
    if isinstance(plain, datetime):
        moment = plain if plain.tzinfo is None else plain.astimezone(UTC).replace(tzinfo=None)
        return _moment_text(datetime.isoformat(moment))
    return str(plain).strip()


def _decimal_text(number: Decimal) -> str:
    """Return a decimal without zeros at its end, and without the sign of zero."""
    if not number.is_finite() or abs(number.adjusted()) >= _EXPONENT_LIMIT:
        return str(number)
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def object_texts(values: Iterable[Any]) -> pa.Array:
    """Return Python objects as a raw column of texts, each read by itself; null for what is no value."""
    return pa.array([_object_text(value) for value in values], type=pa.large_string())


def _object_text(value: Any) -> str | None:
    """Return the text of one object, or None if it is missing or of a type that has none."""
    if type(value) is str and value.isascii():
        return value
    try:
        plain = _plain_object(value)
        if plain is None or plain != plain:  # a NaN, or a NaT  # noqa: PLR0124
            return None
        written = plain if isinstance(plain, str) else canonical_text(plain)
        is_typed = not isinstance(plain, str) and re.match(_TWO_READINGS, written) is not None
        written.encode("utf-8")  # raises for half a surrogate pair, which no file can hold
        return written + _TYPED if is_typed else str(written)
    except Exception:  # of somebody's type; the message may repeat the value
        return None


@singledispatch
def _plain_object(value: Any) -> Any:
    """Return an object as a text, a number, a truth value or a moment of Python, or None for any other type."""
    if hasattr(value, "to_timestamp") and hasattr(value, "ordinal"):  # a period of pandas: its first moment
        return value.to_timestamp()
    is_interval = type(value).__name__ == "Interval" and hasattr(value, "closed")  # of pandas, as pandas.cut makes them
    return str(value) if is_interval else None


@_plain_object.register(str | int | float | Decimal | date | UUID)
def _(value: Any) -> Any:
    return value


@_plain_object.register(Fraction | np.floating)  # the latter before its base class, of which item() is no float
def _(value: Any) -> float:
    return float(value)


@_plain_object.register(complex | np.complexfloating)
def _(value: Any) -> float | None:
    return float(value.real) if value.imag == 0 else None


@_plain_object.register(bytes | bytearray | memoryview)
def _(value: Any) -> str | None:
    return _decoded(bytes(value))


@_plain_object.register
def _(value: np.generic) -> Any:
    return _plain_object(value.item())


@_plain_object.register
def _(value: time) -> float:
    return value.hour * 3600.0 + value.minute * 60.0 + value.second + value.microsecond / 1e6


@_plain_object.register
def _(value: timedelta) -> float:  # of whole microseconds: as many digits as every container keeps
    return (value // timedelta(microseconds=1)) / 1e6


@_plain_object.register(np.datetime64 | np.timedelta64)
def _(value: Any) -> str | None:
    text: str | None = read_texts(raw_column(pa.array(np.array([value]).astype(f"{value.dtype.kind}8[us]"))))[0].as_py()
    return text
