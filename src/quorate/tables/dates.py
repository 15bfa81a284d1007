"""Dates and times as numbers: how many days, or other units, after the beginning of 1970, in UTC.

A text is a date as ISO 8601 writes it: 2024-05-31, 2024-05-31 08:30, 2024-05-31T08:30:00.5+02:00. One without an offset
is in UTC. Each value is read by itself, to the microsecond: if one moment has nanoseconds, pandas writes them of all.
"""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.arrays import Floats
from quorate.errors import InvalidInput
from quorate.tables.values import MISSING_TEXTS, canonical_text, read_texts

__all__ = [
    "DateUnit",
    "canonical_moment",
    "check_unit",
    "date_of",
    "declared_moment",
    "moment_of",
    "read_moment",
    "read_moments",
]

DateUnit = Literal["seconds", "minutes", "hours", "days", "weeks"]

_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0}
_WRITTEN = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?( ?(Z|[+-]\d\d:?\d\d))?)?", re.ASCII)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def check_unit(unit: object) -> DateUnit:
    """Return `unit` if dates can be counted in it."""
    for known in get_args(DateUnit):
        if unit == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"unit must be one of {', '.join(_SECONDS)}, not {unit!r}")


def read_moment(text: str, unit: DateUnit) -> float:
    """Return how many units after the beginning of 1970 a text names, or NaN where it is no date."""
    moment = _parsed(text)
    return math.nan if moment is None else (moment - _BEGINNING) / timedelta(seconds=_SECONDS[unit])


def _parsed(text: str) -> datetime | None:
    if not _WRITTEN.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" Z", "Z").replace(" +", "+"))
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the 31st of February, or a day before the first
        return None


def read_moments(column: pa.Array, unit: DateUnit, missing: Iterable[str] = MISSING_TEXTS) -> Floats:
    """Return the values of a raw column as numbers of units since 1970; NaN where one is missing or no date."""
    if pa.types.is_timestamp(column.type):
        moments = pc.fill_null(column.cast(pa.int64()), 0).to_numpy().astype(np.float64)
        moments[pc.is_null(column).to_numpy(zero_copy_only=False)] = np.nan
        return np.asarray(moments / (1e6 * _SECONDS[unit]))
    if not pa.types.is_large_string(column.type):  # numbers are no dates
        return np.full(len(column), np.nan)
    coded = read_texts(column, missing).dictionary_encode()
    each = np.array([*(read_moment(text, unit) for text in coded.dictionary.to_pylist()), np.nan])
    return np.asarray(each[pc.fill_null(coded.indices, len(each) - 1).to_numpy(zero_copy_only=False)])


def canonical_moment(text: str) -> str | None:
    """Return a date, or a date with a time, in one spelling and in UTC; None where a text is neither.

    >>> canonical_moment("2024-05-31 00:00"), canonical_moment("2024-05-31T08:30+02:00"), canonical_moment("May")
    ('2024-05-31', '2024-05-31T06:30:00', None)
    """
    moment = _parsed(text)
    return None if moment is None else canonical_text(moment)


def declared_moment(value: object, unit: DateUnit) -> object:
    """Return a date of a declaration as a number of units; what is no text, as it is."""
    if isinstance(value, str):
        read = read_moment(value.strip(), unit)
        if math.isnan(read):
            raise InvalidInput(f"a date is written as 2024-05-31 or 2024-05-31T08:30, not {value!r}")
        return read
    return value


def moment_of(value: float, unit: DateUnit) -> datetime | None:
    """Return the moment that a number of units names, in UTC, or None where no calendar of ours has it."""
    try:
        return (_BEGINNING + timedelta(seconds=value * _SECONDS[unit])).replace(tzinfo=None)
    except OverflowError:
        return None


def date_of(value: float, unit: DateUnit) -> str | float:
    """Return a number of units as the date that it names, or as it is where no date of ours says it exactly."""
    moment = moment_of(value, unit)
    if moment is None:
        return value
    text = moment.isoformat().removesuffix("T00:00:00")
    return text if read_moment(text, unit) == value else value
