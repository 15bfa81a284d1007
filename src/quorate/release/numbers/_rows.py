"""Private rows in batches of raw columns, from a table in memory or a stream."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput
from quorate.release.numbers._conditions import Condition
from quorate.release.numbers._contributions import GroupSums, choose_records
from quorate.release.numbers._keys import GroupIndex
from quorate.release.numbers._layout import Layout, SummedColumn
from quorate.release.numbers._weighting import Weighting
from quorate.tables.containers import column_names, open_columns
from quorate.tables.files import TableStream
from quorate.tables.persons import person_names
from quorate.tables.reading import Reading
from quorate.tables.values import read_numbers

_BATCH = 2**18  # rows of a table in memory; exact sums of a batch stay below 2**53
_SOURCE = "the private records"


class PrivateRows:
    """Private rows that can be read several times. `groups` names the person of each row: a column, or an array."""

    def __init__(
        self, private: Any, names: Sequence[str], groups: Any, reading: Reading, where: Sequence[Condition] = ()
    ) -> None:
        self._reading, self._person_column = reading, groups if isinstance(groups, str) else None
        self._stream: TableStream | None = private if isinstance(private, TableStream) else None
        self._where = tuple(where)
        names = [*names, *(condition.column for condition in where)]
        wanted = [*dict.fromkeys([*names, *([groups] if self._person_column else [])])]
        self._names = wanted or column_names(private if self._stream is None else self._stream.header)[:1]
        self._columns = self._open(private)
        self._chosen: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None
        self.people: Integers | None = None if groups is None else self._number_people(groups)

    def _open(self, private: Any) -> dict[str, Any]:
        """Return the columns of a table in memory, none of a stream; refuse a table without these columns."""
        if self._stream is None:
            return open_columns(private, self._names, source=_SOURCE)
        open_columns(self._stream.header, self._names, source=_SOURCE)
        return {}

    @property
    def _rows_in_memory(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        if self._stream is not None:
            for table in self._stream:
                yield open_columns(table, self._names, source=_SOURCE)
            return
        for start in range(0, self._rows_in_memory, _BATCH):
            yield {name: column.slice(start, _BATCH) for name, column in self._columns.items()}

    def _number_people(self, groups: Any) -> Integers:
        """Return the number of the person of each row."""
        numbers_by_name: dict[str, int] = {}
        parts = (batch[self._person_column] for batch in self) if self._person_column else [groups]
        people = []
        for part in parts:
            numbers, names = person_names(part, self._reading.missing_texts)
            people.append(
                np.array([numbers_by_name.setdefault(name, len(numbers_by_name)) for name in names], dtype=np.int64)[
                    numbers
                ]
            )
        joined = np.concatenate(people) if people else np.zeros(0, dtype=np.int64)
        rows = self._rows_in_memory if self._stream is None else len(joined)
        if len(joined) != rows:
            raise InvalidInput(f"groups must name the person of each of the {rows} rows, got {len(joined)} names")
        return joined

    def count_units(self) -> int:
        """Return the public number of units: of all rows, also those that `where` leaves out, or of all people."""
        if self.people is not None:
            units = int(self.people.max(initial=-1)) + 1
        else:
            units = self._rows_in_memory if self._stream is None else sum(len(self._meets(batch)) for batch in self)
        if not units:
            raise InvalidInput("private must hold at least one record")
        return units

    def _meets(self, batch: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which records of a batch meet all conditions."""
        flags = np.ones(len(next(iter(batch.values()))), dtype=np.bool_)
        for condition in self._where:
            flags &= condition.is_met(batch[condition.column], self._reading)
        return flags

    def unit_values(self, names: Sequence[str]) -> list[Floats]:
        """Return the numbers of these columns, one for each unit: with groups, of the first row of each person."""
        parts = [
            [np.where(self._meets(batch), read_numbers(batch[name], self._reading), np.nan) for name in names]
            for batch in self
        ]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if self.people is None:
            return columns
        first = np.unique(self.people, return_index=True)[1]  # proof: step 2
        return [column[first] for column in columns]

    def count_records(self, index: GroupIndex, layout: Layout) -> int:
        """Return how many records of people count."""
        return int(self._choice(index, layout)[0].sum()) if self.people is not None else 0

    def sum_groups(
        self, index: GroupIndex, layout: Layout, sums: Sequence[SummedColumn], weighting: Weighting | None = None
    ) -> GroupSums:
        """Return the exact sums of the groups of all records that count."""
        exact, names = GroupSums(sums), [column.name for column in sums]
        if weighting is not None:
            names = [weighting.weight, *(column.name for column in weighting.columns)]
        for groups, values, first in self._select_batches(index, layout, names):
            exact.add(groups, values if weighting is None else weighting.values(values), first)
        exact.resize(index.declared_groups if index.is_declared else len(index.keys))
        return exact

    def count_values(
        self, index: GroupIndex, layout: Layout, published: Integers, targets: Sequence[tuple[str, Floats]]
    ) -> Integers:
        """Return how many values that count the groups with these numbers have between their points.

        A target is a column with the rising points of each group. The counts are by target, group and cell.
        """
        cells = targets[0][1].shape[1] + 1
        counts = np.zeros((len(targets), len(published) * cells), dtype=np.int64)
        rows = np.full(index.declared_groups if index.is_declared else len(index.keys), -1)
        rows[published] = np.arange(len(published))
        for groups, values, _ in self._select_batches(index, layout, [*{name: None for name, _ in targets}]):
            for target, (name, points) in enumerate(targets):
                keep = (rows[groups] >= 0) & ~np.isnan(values[name])
                own_rows, own = rows[groups[keep]], values[name][keep]
                cell = np.zeros(len(own), dtype=np.int64)
                for column in points.T:
                    cell += own >= column[own_rows]
                counts[target] += np.bincount(own_rows * cells + cell, minlength=counts.shape[1])
        return counts.reshape(len(targets), len(published), cells)

    def _select_batches(
        self, index: GroupIndex, layout: Layout, names: Sequence[str]
    ) -> Iterator[tuple[Integers, dict[str, Floats], NDArray[np.bool_] | None]]:
        """Yield groups and values of records that count, and which are the first of their person in their group."""
        start = 0
        for batch in self:
            groups = index.numbers(batch, self._reading)
            values = {name: read_numbers(batch[name], self._reading) for name in names}
            if self.people is None and not self._where:
                yield groups, values, None
                continue
            rows = slice(start, start + len(groups))
            start += len(groups)
            if self.people is None:
                chosen, first = self._meets(batch), None
            else:
                chosen, first = (flags[rows] for flags in self._choice(index, layout))
                first = first[chosen]
            yield groups[chosen], {name: column[chosen] for name, column in values.items()}, first

    def _choice(self, index: GroupIndex, layout: Layout) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which records count, and which are the first of their person in their group, once for all passes."""
        if self._chosen is None and self.people is not None:
            batches = [(index.numbers(batch, self._reading), self._meets(batch)) for batch in self]
            groups, meets = (np.concatenate(part) for part in zip(*batches, strict=True))
            limits = {"groups_per_unit": layout.groups_per_unit, "records_per_group": layout.records_per_group}
            chosen, first = np.zeros_like(meets), np.zeros_like(meets)
            chosen[meets], first[meets] = choose_records(self.people[meets], groups[meets], **limits)
            self._chosen = chosen, first
        assert self._chosen is not None
        return self._chosen
