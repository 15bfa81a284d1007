"""Names of people: one canonical name for whatever spelling a value has.

    value, in any of these spellings                       one name
    7, 7.0, "7", " 007 ", "+7", "7.00", Decimal("7.0")     a number without leading zeros or zeros behind the point
    "1e+05", "1.0E5", "1e5", 100000                        a float, as programs write one; also "1e-7" and ".5"
    9007199254740993, 9007199254740992.0                   the nearest 64-bit float: a library may have stored it so
    a date, a timestamp at midnight, "2024-05-31T00:00"    an ISO 8601 date; a time in UTC is kept where there is one
    UUIDs with or without hyphens, braces, in any case     32 small hexadecimal digits
    "é" in one code point or two                           Unicode's composed form (NFC)
    "Ann Lee", " Ann  Lee "                                blanks of any kind and number are one
    True, "TRUE", "true"                                   "true"
    None, NaN, a value that cannot be read                 the one unknown person

Two people who are taken for one are protected together. One who is taken for two would not be. So no value is refused
and no digit tells apart what a float of 64 bits does not: ids of 16 digits and more keep all of them behind a letter.
"""

import math
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow.compute as pc

from quorate.core.arrays import Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.tables.containers import open_column
from quorate.tables.dates import canonical_moment
from quorate.tables.reading import PLAIN_NUMBER, TRUTHS
from quorate.tables.values import canonical_text, read_texts

UNKNOWN_PERSON = ""  # the name of whoever has none: all of them are one person

_UUID = re.compile(r"\{?(?:urn:uuid:)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?")
_SHORT_FLOATS = ("float", "halffloat", "float32", "float16", "Float32")  # as Arrow, NumPy and polars name them


def _name(text: str | None) -> str:
    """Return the name of a person whose value is written so."""
    if text is None:
        return UNKNOWN_PERSON
    written = " ".join(unicodedata.normalize("NFC", text).split())
    if uuid := _UUID.fullmatch(written.lower()):
        written = "".join(uuid.groups())
    if PLAIN_NUMBER.fullmatch(written) and math.isfinite(number := float(written)):
        return canonical_text(number)
    if written.casefold() in TRUTHS:
        return written.casefold()
    return canonical_moment(written) or written


def person_names(values: Any, missing: Iterable[str] = ()) -> tuple[Integers, list[str]]:
    """Return for each value the number of its person, in the order in which they first appear, and their names.

    `values` is one value a row, in any container; texts in `missing` stand for no name.
    """
    coded = read_texts(open_column(values, name="groups"), missing).dictionary_encode()
    distinct = [*coded.dictionary.to_pylist(), None]
    seen: dict[str, int] = {}
    indices = pc.fill_null(coded.indices, len(distinct) - 1).to_numpy(zero_copy_only=False)
    order = np.unique(indices, return_index=True)
    numbers = np.zeros(len(distinct), dtype=np.int64)
    for index in order[0][np.argsort(order[1], kind="stable")].tolist():
        numbers[index] = seen.setdefault(_name(distinct[index]), len(seen))
    return numbers[indices], list(seen)


def unit_numbers(rows: int, groups: Any = None) -> tuple[Integers, int]:
    """Return the unit that each row belongs to, numbered as they first appear, and how many units there are.

    Without `groups` every row is a unit of its own. 7, "7.0", " 7 " and b"07" are one
    person. Rows without a name belong to one unknown person.
    """
    rows = check_count("rows", rows)
    if groups is None:
        return np.arange(rows), rows
    shape = np.shape(groups) if hasattr(groups, "shape") or hasattr(groups, "dtype") else (len(groups),)
    if shape != (rows,):
        raise InvalidInput(f"groups must name the person of each of the {rows} rows, not be of shape {shape}")
    units, names = person_names(groups)
    return units, len(names)


def name_persons(values: Any, missing: Iterable[str] = ()) -> list[str]:
    """Return the canonical name of the person of each row.

    >>> name_persons([0, -0.0, "-0", "00", "0.0", "-07.50", "1e+05", "{123E4567-E89B-12D3-A456-426614174000}"])
    ['0', '0', '0', '0', '0', '-7.5', '100000', '123e4567e89b12d3a456426614174000']
    """
    numbers, names = person_names(values, missing)
    return [names[number] for number in numbers.tolist()]


def lasting_names(values: Any, missing: Iterable[str] = ()) -> list[str]:
    """Return the names of people who must be recognised again in later data, which others may write.

    A column of 16- or 32-bit floats is refused, by its type alone: it has lost digits that other data may have.
    """
    check_lasting_type(values)
    return name_persons(values, missing)


def check_lasting_type(values: Any) -> None:
    """Refuse a column of names by a type that cuts whole numbers short."""
    if _stored_type(values) in _SHORT_FLOATS:
        raise InvalidInput(
            "names of people must not be 16- or 32-bit floats, which cut whole numbers short: store them as whole "
            "numbers or as texts"
        )


def _stored_type(values: Any) -> str:
    """Return the name of the type that a container stores its values in: that of its categories, if it has some."""
    if isinstance(values, memoryview):
        return str(np.asarray(values).dtype)
    kind = getattr(values, "dtype", getattr(values, "type", None))
    while True:
        inner = getattr(getattr(kind, "categories", None), "dtype", None)  # of a pandas category
        inner = getattr(kind, "value_type", None) if inner is None else inner  # of an Arrow dictionary
        inner = getattr(kind, "pyarrow_dtype", None) if inner is None else inner  # of a pandas type that Arrow stores
        if inner is None:
            return str(kind)
        kind = inner
