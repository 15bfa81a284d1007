"""Dates and times as numbers: how many days, or other units, after the beginning of 1970, in UTC.

These texts are dates, each also with a time behind it (08:30, 08:30:00.5, 8:30 PM) and with Z or an offset from UTC:

    2024-05-31, 2024/05/31                 as ISO 8601 orders it
    31.05.2024                             the day first
    31/05/2024, 05-31-2024                 by `Reading.date_order` where both orders are dates
    31 May 2024, 31-May-2024, May 31, 2024 months in English, German or French, in full or cut to three letters or more
    20240531                               if `Reading.compact_dates` says so

A time without an offset is in UTC. A year has four digits. Each value is read by itself, to the microsecond: if one
moment has nanoseconds, pandas writes them of all.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Literal, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_choice
from quorate.core.errors import InvalidInput
from quorate.tables.reading import DEFAULT_READING, MISSING_TEXTS, Reading, Rules, as_reading
from quorate.tables.values import canonical_text, read_texts

DateUnit = Literal["seconds", "minutes", "hours", "days", "weeks"]

_SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0}
_WRITTEN = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?( ?(Z|[+-]\d\d(:?\d\d)?))?)?", re.ASCII)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = (  # what Arrow reads as Python does; the rest is read one by one
    r"^(1[6-9]|2[0-9])[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?)?$"
)
_DATE_AND_TIME = re.compile(
    r"(?P<date>.+?)"
    r"((T|,? +)(?P<clock>\d{1,2}:\d\d(:\d\d([.,]\d{1,9})?)?)( ?(?P<half>[AaPp]\.?[Mm]\.?))?"
    r"( ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d))?)?",
    re.ASCII,
)
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})", re.ASCII)
_DAY_OR_MONTH_FIRST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})", re.ASCII)
_MONTH_NAMED = re.compile(
    r"(?P<day>[0-9]{1,2})(st|nd|rd|th|\.)?[ -]*(?P<name>[^\W\d_]{3,12})\.?,?[ -]*(?P<year>[0-9]{4})"
    r"|(?P<named>[^\W\d_]{3,12})\.? *(?P<after>[0-9]{1,2})(st|nd|rd|th)?,? +(?P<year_after>[0-9]{4})"
)
_COMPACT = re.compile(r"\d{8}", re.ASCII)
_LONGEST = 60  # characters of a date with a time
_MONTHS = (  # without accents
    ("january", "januar", "janner", "janvier"),
    ("february", "februar", "fevrier"),
    ("march", "marz", "mrz", "mars"),
    ("april", "avril"),
    ("may", "mai"),
    ("june", "juni", "juin"),
    ("july", "juli", "juillet"),
    ("august", "aout"),
    ("september", "septembre"),
    ("october", "oktober", "octobre"),
    ("november", "novembre"),
    ("december", "dezember", "decembre"),
)


def check_unit(unit: object) -> DateUnit:
    """Return `unit` if dates can be counted in it."""
    check_choice("unit", unit, get_args(DateUnit))
    return cast("DateUnit", unit)


def read_moment(text: str, unit: DateUnit, reading: Reading = DEFAULT_READING) -> float:
    """Return how many units after the beginning of 1970 a text names, or NaN where it is no date."""
    moment = _iso_moment(text) or _other_moment(text, reading)
    if moment is None:
        return math.nan
    return float(_in_units(np.array([(moment - _BEGINNING) // timedelta(microseconds=1)]), unit)[0])


def read_moments(column: pa.Array, unit: DateUnit, rules: Rules = MISSING_TEXTS) -> Floats:
    """Return the values of a raw column as numbers of units since 1970; NaN where one is missing or no date."""
    reading = as_reading(rules)
    if pa.types.is_timestamp(column.type):
        return _with_gaps(column, unit)
    is_text = pa.types.is_large_string(column.type)
    if not is_text and not reading.compact_dates:
        return np.full(len(column), np.nan)  # numbers are no dates
    written = read_texts(column, reading.missing_texts)
    plain = pc.fill_null(pc.match_substring_regex(written, _PLAIN), False)
    moments = _with_gaps(pc.if_else(plain, written, pa.scalar(None, pa.large_string())).cast(pa.timestamp("us")), unit)
    rest = pc.and_(pc.invert(plain), pc.is_valid(written))
    coded = written.filter(rest).dictionary_encode()
    distinct = np.array([read_moment(text, unit, reading) for text in coded.dictionary.to_pylist()], dtype=np.float64)
    moments[rest.to_numpy(zero_copy_only=False)] = distinct[coded.indices.to_numpy()]
    return moments


def _with_gaps(moments: pa.Array, unit: DateUnit) -> Floats:
    counts = _in_units(pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(), unit)
    counts[pc.is_null(moments).to_numpy(zero_copy_only=False)] = np.nan
    return counts


def _in_units(microseconds: Integers, unit: DateUnit) -> Floats:
    return np.asarray(microseconds.astype(np.float64) / (1e6 * _SECONDS[unit]))


def _iso_moment(text: str) -> datetime | None:
    if not _WRITTEN.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" Z", "Z").replace(" +", "+"))
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the 31st of February, or a day before the first
        return None


def _other_moment(text: str, reading: Reading) -> datetime | None:
    """Return the moment that a text names in another way than ISO 8601, or None."""
    match = _DATE_AND_TIME.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    for day in _days(match["date"], reading):
        try:
            zone = _zone(match["zone"])
            clock = _clock(match["clock"], match["half"])
            return (datetime.combine(day, time(tzinfo=zone)) + clock).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    return None


def _days(text: str, reading: Reading) -> Iterator[date]:
    """Yield the days that a text can mean, the declared one first."""
    for year, month, day in _date_parts(text, reading):
        with suppress(ValueError):
            yield date(int(year), int(month), int(day))


def _date_parts(text: str, reading: Reading) -> list[tuple[str, str, str]]:
    """Return the years, months and days that a text can mean, the declared order first."""
    if match := _YEAR_FIRST.fullmatch(text):
        orders = [(match[1], match[3], match[4])]
    elif match := _DAY_OR_MONTH_FIRST.fullmatch(text):
        first, mark, second, year = match.groups()
        orders = [(year, second, first)]
        if mark != ".":
            orders.append((year, first, second))
            orders = orders if reading.date_order == "dmy" else orders[::-1]
    elif match := _MONTH_NAMED.fullmatch(text):
        number = _month(match["name"] or match["named"])
        year, day = match["year"] or match["year_after"], match["day"] or match["after"]
        orders = [] if number is None else [(year, str(number), day)]
    else:
        is_compact = reading.compact_dates and _COMPACT.fullmatch(text)
        orders = [(text[:4], text[4:6], text[6:])] if is_compact else []
    return orders


def _month(name: str) -> int | None:
    """Return the number of a month whose name begins so in one language; ma may be March or May."""
    plain = "".join(
        character
        for character in unicodedata.normalize("NFD", name.casefold())
        if unicodedata.category(character) != "Mn"
    )
    numbers = {number for number, names in enumerate(_MONTHS, 1) for full in names if full.startswith(plain)}
    return numbers.pop() if len(plain) >= 3 and len(numbers) == 1 else None


def _clock(text: str | None, half: str | None) -> timedelta:
    """Return the time that has passed since midnight."""
    if text is None:
        return timedelta()
    hours, minutes, *rest = text.replace(",", ".").split(":")
    hour, seconds = int(hours), (rest[0] if rest else "0")
    if half is not None:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + (12 if half[0] in "pP" else 0)
    second, _, decimals = seconds.partition(".")
    clock = time(hour, int(minutes), int(second), int(decimals[:6].ljust(6, "0")))
    return datetime.combine(date.min, clock) - datetime.min


def _zone(text: str | None) -> timezone:
    if text is None or text[0] not in "+-":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 23 or minutes > 59:
        raise ValueError
    return timezone(timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1))


def canonical_moment(text: str) -> str | None:
    """Return a date, or a date with a time, in one spelling and in UTC; None where a text is neither.

    >>> canonical_moment("2024-05-31 00:00"), canonical_moment("2024-05-31T08:30+02:00"), canonical_moment("May")
    ('2024-05-31', '2024-05-31T06:30:00', None)
    """
    moment = _iso_moment(text)
    return None if moment is None else canonical_text(moment)


def declared_moment(value: object, unit: DateUnit) -> object:
    """Parse a declared date to a number of units; return non-strings unchanged."""
    if isinstance(value, str):
        if _iso_moment(value.strip()) is None:
            raise InvalidInput(f"a date is written as 2024-05-31 or 2024-05-31T08:30, not {value!r}")
        return read_moment(value.strip(), unit)
    return value


def moment_of(value: float, unit: DateUnit) -> datetime | None:
    """Return the moment that a number of units names, in UTC, or None where no calendar of ours has it."""
    try:
        return (_BEGINNING + timedelta(seconds=value * _SECONDS[unit])).replace(tzinfo=None)
    except OverflowError:
        return None


def date_of(value: float, unit: DateUnit) -> str | float:
    """Format a number of units as a date; return it unchanged if no supported date is exact."""
    moment = moment_of(value, unit)
    if moment is None:
        return value
    text = moment.isoformat().removesuffix("T00:00:00")
    return text if read_moment(text, unit) == value else value
