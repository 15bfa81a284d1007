"""Names of people: one canonical name for whatever spelling a value has.

    value, in any of these spellings                       one name
    7, 7.0, "7", " 007 ", "+7", "7.00", Decimal("7.0")     a number without leading zeros or zeros behind the point
    "1e+05", "1.0E5", 100000                               as statistics programs write a float
    a date, a timestamp at midnight, "2024-05-31T00:00"    an ISO 8601 date; a time in UTC is kept where there is one
    UUIDs with or without hyphens, braces, in any case     32 small hexadecimal digits
    "é" in one code point or two                           Unicode's composed form (NFC)
    None, NaN, a value that cannot be read                 the one unknown person

Two people who are taken for one are protected together. One who is taken for two would not be.
"""

import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.tables.containers import open_column
from quorate.tables.dates import canonical_moment
from quorate.tables.values import canonical_text, object_texts, raw_column, read_numbers, read_texts

__all__ = [
    "UNKNOWN_PERSON",
    "check_lasting_names",
    "lasting_person_name",
    "name_persons",
    "person_name",
    "person_names",
]

UNKNOWN_PERSON = ""  # the name of whoever has none: all of them are one person

_DECIMAL = re.compile(r"\+?(-?)0*(\d+)(?:\.(\d*?)0*)?", re.ASCII)
_POWER = re.compile(r"[+-]?\d((\.\d*)?[eE]\+\d{2}|\.\d*[eE]\d{1,2})", re.ASCII)  # 1e+05, 1.0E5; 5e20 may be an id
_UUID = re.compile(r"\{?(?:urn:uuid:)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?")
_LOST = (
    "a name is a float that may have lost digits, or that is not a whole number: give names as whole numbers, or as "
    "texts with all their digits"
)
_EXACT = 2.0**53  # whole numbers below it are told apart by a 64-bit float


def person_name(value: object) -> str:
    """Return the canonical name of a person.

    >>> {person_name(name) for name in (0, -0.0, "-0", "00", "0.0")}, person_name("-07.50"), person_name("1e+05")
    ({'0'}, '-7.5', '100000')
    >>> person_name("{123E4567-E89B-12D3-A456-426614174000}")
    '123e4567e89b12d3a456426614174000'
    """
    return _name(object_texts([value])[0].as_py())


def _name(text: str | None) -> str:
    """Return the name of a person whose value is written so."""
    if text is None:
        return UNKNOWN_PERSON
    written = unicodedata.normalize("NFC", text).strip()
    if _POWER.fullmatch(written) and (power := Fraction(written)).denominator == 1:
        return str(power.numerator)
    if number := _DECIMAL.fullmatch(written):
        sign, digits, decimals = number[1], number[2], number[3] or ""
        plain = f"{digits}.{decimals}" if decimals else digits
        return plain if plain == "0" else sign + plain
    if known := _UUID.fullmatch(written.lower()):
        return "".join(known.groups())
    return canonical_moment(written) or written


def person_names(values: Any, missing: Iterable[str] = ()) -> tuple[Integers, list[str]]:
    """Return for each value the number of its person, in the order in which they first appear, and their names.

    `values` is one value a row, in any container, or a raw column; texts in `missing` stand for no name.
    """
    column = values if isinstance(values, pa.Array) else open_column(values, name="groups")
    coded = read_texts(column, missing).dictionary_encode()
    distinct = [*coded.dictionary.to_pylist(), None]
    seen: dict[str, int] = {}
    places = pc.fill_null(coded.indices, len(distinct) - 1).to_numpy(zero_copy_only=False)
    order = np.unique(places, return_index=True)
    numbers = np.zeros(len(distinct), dtype=np.int64)
    for place in order[0][np.argsort(order[1], kind="stable")].tolist():
        numbers[place] = seen.setdefault(_name(distinct[place]), len(seen))
    return numbers[places], list(seen)


def name_persons(values: Any, missing: Iterable[str] = ()) -> list[str]:
    """Return the canonical name of the person of each row."""
    numbers, names = person_names(values, missing)
    return [names[number] for number in numbers.tolist()]


def lasting_person_name(value: object) -> str:
    """Return the name of a person who must be recognised again in later data, which others may write.

    A number that may have lost digits is refused: a float that is not whole or has 16 digits, or a text that one was
    written as. So is a pair, or anything else that is neither a text, a number nor a UUID. None or NaN is the unknown
    person.
    """
    if _is_missing(value):
        return UNKNOWN_PERSON
    plain = value.item() if isinstance(value, np.generic) and not isinstance(value, np.datetime64) else value
    if not isinstance(plain, str | int | float | Decimal | UUID) or isinstance(value, np.timedelta64):
        raise InvalidInput("names of people must be texts or numbers; write dates, bytes or pairs as texts")
    exact = 2.0 ** (np.finfo(value.dtype).nmant + 1) if isinstance(value, np.floating) else _EXACT
    name = person_name(plain)
    if isinstance(plain, float):
        lost = not plain.is_integer() or abs(plain) >= exact
    elif isinstance(plain, Decimal):
        lost = "." in name
    else:
        written = canonical_text(plain)
        lost = bool(_POWER.fullmatch(written) or re.fullmatch(r"[+-]?\d+\.0*", written)) and _is_long(name)
    if lost:
        raise InvalidInput(_LOST)
    return name


def check_lasting_names(column: Any) -> None:
    """Refuse an Arrow column in which a name may have lost digits, as `lasting_person_name` does."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind):
        exact = {16: 2.0**11, 32: 2.0**24}.get(kind.bit_width, _EXACT)
        numbers = read_numbers(raw_column(column))
        with np.errstate(invalid="ignore"):
            lost = np.isfinite(numbers) & ((np.floor(numbers) != numbers) | (np.abs(numbers) >= exact))
    elif pa.types.is_decimal(kind):
        lost = np.array(["." in (text or "") for text in raw_column(column).to_pylist()])
    else:
        for name in raw_column(column).unique().to_pylist():
            lasting_person_name(name)
        return
    if lost.any():
        raise InvalidInput(_LOST)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, or differs from itself: a NaN, or what a data frame has in its place."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124
    except TypeError:  # pandas' NA does not say
        return True
    except ValueError:  # an array
        return False


def _is_long(name: str) -> bool:
    """Return whether a whole number has so many digits that a float may stand for another one."""
    digits = name.removeprefix("-")
    return (len(digits), digits) >= (16, "9007199254740992")
