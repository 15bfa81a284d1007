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
from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.tables.read import NotANumber, texts

__all__ = [
    "DateUnit",
    "check_unit",
    "date_of",
    "declared_moment",
    "is_temporal",
    "moment_of",
    "moments_of",
    "moments_written",
    "read_dates",
    "read_moment",
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


def is_temporal(kind: pa.DataType) -> bool:
    """Return whether values of this Arrow type are dates, or dates with times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def read_moment(text: str, unit: DateUnit) -> float:
    """Return how many units after the beginning of 1970 a text names, or nan where it is no date."""
    if not _WRITTEN.fullmatch(text):
        return math.nan
    try:
        moment = datetime.fromisoformat(text.replace(" Z", "Z").replace(" +", "+"))
    except ValueError:  # the 31st of February
        return math.nan
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _BEGINNING) / timedelta(seconds=_SECONDS[unit])


def read_dates(column: pa.Array, unit: DateUnit, *, missing: Iterable[str] = ()) -> NDArray[np.float64]:
    """Return dates as numbers of units, and NaN where one is missing. What is no date is `NotANumber`."""
    if is_temporal(column.type):
        return moments_of(column, unit)
    if not (pa.types.is_large_string(column.type) or pa.types.is_string(column.type) or pa.types.is_null(column.type)):
        raise NotANumber(int(pc.is_valid(column).to_numpy(zero_copy_only=False).argmax()))
    written = texts(column, missing=missing)
    read = moments_written(written, unit)
    wrong = np.isnan(read) & pc.is_valid(written).to_numpy(zero_copy_only=False)
    if wrong.any():
        raise NotANumber(int(wrong.argmax()))
    return read


def moments_written(written: pa.Array, unit: DateUnit) -> NDArray[np.float64]:
    """Return texts as numbers of units, and NaN where one is missing or no date."""
    coded = written.dictionary_encode()
    each = np.array([*(read_moment(text, unit) for text in coded.dictionary.to_pylist()), np.nan])
    return np.asarray(each[pc.fill_null(coded.indices, len(each) - 1).to_numpy(zero_copy_only=False)])


def moments_of(column: pa.Array, unit: DateUnit) -> NDArray[np.float64]:
    """Return a column of an Arrow type of dates as numbers of units, and NaN where one is missing."""
    return _microseconds(column) / (1e6 * _SECONDS[unit])


def _microseconds(column: pa.Array) -> NDArray[np.float64]:
    """Return dates as microseconds since 1970. No value is refused: Arrow's own cast would, and repeat it."""
    days = pa.types.is_date32(column.type)
    counts = pc.fill_null(column.cast(pa.int32()) if days else column.cast(pa.int64()), 0).to_numpy()
    kind = "day" if days else "ms" if pa.types.is_date64(column.type) else column.type.unit
    whole = counts // 1000 if kind == "ns" else counts
    scale = {"day": 86400e6, "s": 1e6, "ms": 1e3}.get(kind, 1.0)
    return np.where(pc.is_null(column).to_numpy(zero_copy_only=False), np.nan, whole.astype(np.float64) * scale)


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
