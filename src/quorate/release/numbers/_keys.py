"""The columns that name groups: declared cells, parts of dates, or texts that nobody declared."""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible, InvalidInput
from quorate.tables.cells import OTHER, cells_of
from quorate.tables.columns import Category, Date, Kind, Number
from quorate.tables.dates import declared_moment, read_moment, read_moments
from quorate.tables.reading import Reading
from quorate.tables.values import read_texts

DatePart = Literal["day", "week", "month", "quarter", "year"]
_PARTS: tuple[str, ...] = get_args(DatePart)
_LONGER = {"day": _PARTS[1:], "month": ("quarter", "year"), "quarter": ("year",)}
_DAYS = np.datetime64("1970-01-01", "D")
_FIRST_DAY, _LAST_DAY = -141_427, 2_932_896  # 1582-10-15 and 9999-12-31: other dates have no period
MOST_GROUPS = 2**22  # declared groups of one release


def period_names(days: NDArray[np.int64], part: DatePart) -> list[str]:
    """Return the names of the periods in which days since 1970 lie.

    >>> period_names(np.array([19_782]), "month"), period_names(np.array([19_782]), "week")
    (['2024-02'], ['2024-W09'])
    """
    dates = _DAYS + days
    if part == "week":
        calendars = [date.isocalendar() for date in dates.astype(object).tolist()]
        return [f"{calendar.year}-W{calendar.week:02d}" for calendar in calendars]
    if part == "quarter":
        months = dates.astype("datetime64[M]").astype(np.int64)
        return [f"{1970 + month // 12}-Q{month % 12 // 3 + 1}" for month in months.tolist()]
    return [str(date) for date in dates.astype(f"datetime64[{part[0].upper()}]")]


@dataclass(frozen=True)
class KeyColumn:
    """One of the columns that name groups; `values` are its public values with "other", None if nobody declared them.

    `name` is as the caller wrote it: a column, or a column of dates with a part, such as "visited:month".
    """

    name: str
    column: str
    part: DatePart | None = None
    kind: Kind | None = None
    values: tuple[str, ...] | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, name: object, kinds: Mapping[str, Kind]) -> "KeyColumn":
        """Return the key column of this name, with its declaration if there is one."""
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"by must be names of columns, got {name!r}")
        column, _, ending = name.rpartition(":")
        if not column or name in kinds or ending not in _PARTS:
            column, ending = name, ""
        part, kind = cast("DatePart | None", ending or None), kinds.get(column)
        if part is None and isinstance(kind, Date):
            raise InvalidInput(f"by: column {column!r} holds dates; name a part, such as {column}:month")
        values = _declared_values(kind) if part is None else _declared_periods(column, kind, part)
        return cls(name, column, part, kind, values)

    def codes(self, column: Any, reading: Reading) -> tuple[Integers, Sequence[str | None]]:
        """Return a code for each value of a raw column, and the text of each code; None for a missing value."""
        if self.part is not None:
            return self._period_codes(read_moments(column, "days", reading))
        if self.values is not None:
            assert isinstance(self.kind, Category | Number)
            return cells_of(self.kind).codes(column, reading), self.values
        coded = read_texts(column, reading.missing_texts).dictionary_encode()
        texts = [*coded.dictionary.to_pylist(), None]
        return coded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False).astype(np.int64), texts

    def _period_codes(self, moments: NDArray[np.float64]) -> tuple[Integers, Sequence[str | None]]:
        """Return the code of the period of each moment; of declared periods, the last code is for all other values."""
        assert self.part is not None
        with np.errstate(invalid="ignore"):
            is_date = (moments >= _FIRST_DAY) & (moments < _LAST_DAY)
        days, indices = np.unique(np.where(is_date, np.floor(moments), _LAST_DAY).astype(np.int64), return_inverse=True)
        pairs = zip(days.tolist(), period_names(days, self.part), strict=True)
        names: list[str | None] = [None if day == _LAST_DAY else name for day, name in pairs]
        texts = list(dict.fromkeys(names)) if self.values is None else list(self.values)
        index = {text: code for code, text in enumerate(texts)}
        codes = np.array([index.get(name, len(texts) - 1) for name in names], dtype=np.int64)
        return codes[indices.ravel()], texts


def _declared_values(kind: Kind | None) -> tuple[str, ...] | None:
    """Return the names of the cells of a category or of a number with cuts, None for other columns."""
    if isinstance(kind, Category) or (isinstance(kind, Number) and kind.cuts is not None):
        cells = cells_of(kind)
        return tuple(cells.name(code) for code in range(cells.size))
    return None


def _declared_periods(column: str, kind: Kind | None, part: DatePart) -> tuple[str, ...] | None:
    """Return the periods between the declared bounds of a date, with "other"; None without bounds."""
    if not isinstance(kind, Date) or kind.low is None or kind.high is None:
        return None
    units_per_day = cast("float", declared_moment("1970-01-02", kind.unit))
    low, high = math.floor(kind.low / units_per_day), math.floor(kind.high / units_per_day)
    if not _FIRST_DAY <= low <= high < _LAST_DAY:
        raise InvalidInput(f"by: column {column!r} must have bounds within the years 1583 to 9999")
    return (*dict.fromkeys(period_names(np.arange(low, high + 1), part)), OTHER)


Parents = Mapping[str, Mapping[str, str]]  # by key column: the parent of each category, as `Category` declares it


def merge_keys(
    keys: Sequence[str], by: Sequence[str], coarser: Sequence[str], parents: Parents
) -> tuple[list[str], Integers]:
    """Return the keys of coarser groups, and the place of the coarser group of each key.

    Parameters
    ----------
    keys
        The keys of groups.
    by
        The key columns.
    coarser
        Some of them, or longer parts of their dates, or levels of their hierarchies.
    parents
        The declared hierarchies.

    >>> merge_keys(['["a", "2024-02"]', '["a", "2024-03"]'], ["region", "day:month"], ["day:quarter"], {})[0]
    ['["2024-Q1"]']
    >>> merge_keys(['["a"]', '["b"]'], ["region"], ["region:1"], {"region": {"a": "north", "b": "north"}})[0]
    ['["north"]']
    """
    sources = [_source_of(by, name, parents) for name in coarser]
    rows = [[shorten(texts[position]) for position, shorten in sources] for texts in map(key_texts, keys)]
    numbers = {key: position for position, key in enumerate(dict.fromkeys(map(make_key, rows)))}
    return list(numbers), np.array([numbers[make_key(row)] for row in rows], dtype=np.int64)


def _source_of(by: Sequence[str], name: str, parents: Parents) -> tuple[int, Callable[[str | None], str | None]]:
    """Return the place of a key column, and the function from its texts to coarser ones."""
    column, _, level = name.rpartition(":")
    for position, key in enumerate(by):
        own_column, _, own_part = key.rpartition(":")
        if key == name:
            return position, lambda text: text
        if column and own_column == column and level in _LONGER.get(own_part, ()):
            return position, partial(_lengthen_period, part=cast("DatePart", level))
        if key == column and level in _levels_above(parents.get(key, {})):
            return position, partial(_climb, parents=parents[key], steps=int(level))
    raise InvalidInput(
        f"by must name columns of the release ({', '.join(by)}), longer parts of dates, or levels of a declared "
        f"hierarchy such as region:1, got {name!r}"
    )


def _levels_above(parents: Mapping[str, str]) -> list[str]:
    """Return the names of the levels above the categories: "1" for the parents."""
    height, nodes = 0, set(parents)
    while nodes := {parents[node] for node in nodes if node in parents}:
        height += 1
    return [str(level) for level in range(1, height + 1)]


def _climb(text: str | None, *, parents: Mapping[str, str], steps: int) -> str | None:
    """Return the node this many levels above a category; other values stay as they are."""
    for _ in range(steps):
        text = text if text is None else parents.get(text, text)
    return text


def _lengthen_period(text: str | None, *, part: DatePart) -> str | None:
    if text is None or text == OTHER:
        return text
    year, _, quarter = text.partition("-Q")
    day = np.datetime64(f"{year}-{3 * int(quarter) - 2:02d}" if quarter else text, "D")
    return period_names(np.array([(day - _DAYS).astype(np.int64)]), part)[0]


class GroupIndex:
    """Numbers for the groups of rows: all declared groups in order, or groups as they first occur.

    The number of an undeclared group depends on other rows; nothing that is released depends on it.
    """

    def __init__(self, columns: Sequence[KeyColumn]) -> None:
        self.columns = tuple(columns)
        self.is_declared = all(column.values is not None for column in columns)
        self._sizes = [len(column.values or ()) for column in columns]
        self._numbers: dict[str, int] = {}
        if self.is_declared and math.prod(self._sizes) > MOST_GROUPS:
            raise Infeasible(f"by declares {math.prod(self._sizes):,} groups, above {MOST_GROUPS:,}; use fewer columns")

    @property
    def parents(self) -> dict[str, Mapping[str, str]]:
        """The declared hierarchies of the columns."""
        kinds = {column.name: column.kind for column in self.columns}
        return {name: kind.parents for name, kind in kinds.items() if isinstance(kind, Category) and kind.parents}

    @property
    def declared_groups(self) -> int:
        """The number of declared groups."""
        return math.prod(self._sizes)

    def numbers(self, columns: Mapping[str, Any], reading: Reading) -> Integers:
        """Return the number of the group of each row."""
        coded = [column.codes(columns[column.column], reading) for column in self.columns]
        if not coded:  # one group of all rows
            return np.zeros(len(next(iter(columns.values()))), dtype=np.int64)
        if self.is_declared:
            return np.ravel_multi_index([codes for codes, _ in coded], self._sizes).astype(np.int64)
        flat = np.zeros_like(coded[0][0])
        for codes, texts in coded:  # fewer than 2**62 combinations, since those of a batch are numbered anew
            _, first, flat = np.unique(flat * len(texts) + codes, return_index=True, return_inverse=True)
            flat = flat.ravel()
        keys = (make_key([texts[codes[row]] for codes, texts in coded]) for row in first.tolist())
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        return np.array(numbers, dtype=np.int64)[flat]

    @property
    def keys(self) -> list[str]:
        """The keys of groups in the order of their numbers."""
        if not self.is_declared:
            return list(self._numbers)
        return [make_key(texts) for texts in itertools.product(*(column.values or () for column in self.columns))]


def make_key(texts: Sequence[str | None]) -> str:
    """Return the key of a group: its texts as a JSON list."""
    return json.dumps(list(texts), ensure_ascii=False)


def key_texts(key: str) -> list[str | None]:
    """Return the texts of a key, one for each column of `by`.

    >>> key_texts('["north", null]')
    ['north', None]
    """
    texts: list[str | None] = json.loads(key)
    return texts


def find_whole_dates(keys: Sequence[str], columns: Sequence[KeyColumn]) -> list[str]:
    """Return the undeclared columns of which most published texts are dates, though no part of them was named."""
    texts = [key_texts(key) for key in keys]
    found = []
    for position, column in enumerate(columns):
        present = [text for row in texts if (text := row[position]) is not None]
        dates = sum(math.isfinite(read_moment(text, "days")) for text in present)
        found += [column.name] * (column.part is None and column.values is None and 2 * dates > len(present))
    return found
