"""The declared columns of a table, as the cells that a release counts."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import is_named_id, warn_of_id
from quorate.core.errors import Infeasible, InvalidInput
from quorate.release.queries import Possible, Rows
from quorate.release.queries.base import Whole, code_type
from quorate.release.workloads.constraints import Constraints, check_constraints, names_in
from quorate.tables import Category, Number, Reading, Schema
from quorate.tables.cells import CategoryCells, Cells, cells_of
from quorate.tables.columns import Kind
from quorate.tables.containers import column_names, is_frame, open_columns, prefix_errors
from quorate.tables.document import cells_to_document, kind_from_document, read_document
from quorate.tables.files import TableStream
from quorate.tables.infer import cuts_from_public
from quorate.tables.reading import DEFAULT_READING

BINS = 10  # cells of a column of numbers, where every gap between public values would be too many
_STEPS = 200  # different values that synthetic records have in one cell, at most
_MOST_BYTES = 2**32  # of the codes of one table


class Columns:
    """Columns in an order, each a `Number` or `Date` with cuts or a `Category`.

    A release of marginals finds the cuts of a `Number` or `Date` without cuts. Each column has a last cell for all
    other values, unless it is `closed`. `constraints` exclude records: a mapping from columns to cells that no record
    has together, or a condition that every record satisfies. Synthetic records satisfy them. `reading` has the rules
    that parse text as numbers, dates and missing values.

    >>> columns = Columns({"sex": Category(["f", "m"]), "age": Number(cuts=[18, 65])})
    >>> columns.encode({"age": [30, "?"], "sex": ["m", "x"]}).codes.tolist()
    [[1, 1], [2, 3]]
    >>> ages = {"child": Number(cuts=[10, 20, 40]), "parent": Number(cuts=[20, 40, 60])}
    >>> tied = Columns(ages, constraints=["child + 15 <= parent"])
    >>> [child], [parent] = tied.decode([[2, 1]]).values()  # both are between 20 and 40
    >>> child + 15 <= parent
    True
    """

    def __init__(
        self, kinds: Mapping[str, Kind], *, constraints: Sequence[Any] = (), reading: Reading = DEFAULT_READING
    ) -> None:
        self.kinds, self.reading = dict(kinds), reading
        self.constraints = check_constraints(constraints) if constraints else ()
        for name, kind in self.kinds.items():
            if not isinstance(name, str) or not name or not isinstance(kind, Category | Number):
                raise InvalidInput(
                    f"columns must map names to Category(...) or Number(cuts=...), not {name!r} to {kind!r}"
                )
        if not self.kinds and not self.constraints:
            raise InvalidInput("at least one column must be declared")
        if not self.uncut:
            _ = self.cells  # refuses now a column that cannot be counted

    @cached_property
    def cells(self) -> dict[str, Cells]:
        """The cells of each column; a number without cuts is refused."""
        return {name: _cells_of_column(name, kind) for name, kind in self.kinds.items()}

    @property
    def uncut(self) -> tuple[str, ...]:
        """The numbers and dates without cuts, which a release of marginals cuts for a part of its budget."""
        return tuple(name for name, kind in self.kinds.items() if isinstance(kind, Number) and kind.cuts is None)

    def with_cuts(self, cuts: Mapping[str, Sequence[float]]) -> "Columns":
        """Return the columns with these numbers cut."""
        kinds = dict(self.kinds)
        for name, values in cuts.items():
            kind: Any = kinds[name]
            kinds[name] = replace(kind, cuts=values, spans=None)
        return Columns(kinds, constraints=self.constraints, reading=self.reading)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Columns) and list(self.to_dict().items()) == list(other.to_dict().items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.uncut:
            return f"Columns({', '.join(self.names)}; not cut: {', '.join(self.uncut)})"
        return f"Columns({', '.join(f'{name}: {cells.size} codes' for name, cells in self.cells.items())})"

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Columns":
        """Return columns as a JSON object declares them: a mapping from names, or a whole schema with "columns".

        An object with "columns" may have "constraints" beside them.

        >>> Columns.from_dict({"sex": ["f", "m"], "age": {"cuts": [18, 65]}})
        Columns(sex: 3 codes, age: 4 codes)
        """
        if not isinstance(document, Mapping):
            raise InvalidInput('columns must be an object such as {"sex": ["f", "m"], "age": {"cuts": [18, 65]}}')
        if not _is_schema(document):
            return cls({name: kind_from_document(name, declared) for name, declared in document.items()})
        kinds = {name: kind_from_document(name, declared) for name, declared in document["columns"].items()}
        return cls(kinds, constraints=document.get("constraints", ()), reading=Reading.from_document(document))

    @classmethod
    def from_declaration(cls, declared: "Columns | Schema | Mapping[str, Any] | None") -> "Columns | None":
        """Return declared columns of any form: columns, a schema with its reading rules, or a JSON object."""
        if declared is None or isinstance(declared, Columns):
            return declared
        if isinstance(declared, Schema):
            return cls(declared.columns, reading=declared.reading)
        return cls.from_dict(declared)

    @classmethod
    def load(cls, path: str | Path, *, leave_out: Collection[str] = ()) -> "Columns":
        """Read columns from a JSON file: declarations of columns, or a schema whose numbers have cuts.

        Columns in `leave_out` are not read: a release without them may leave their cuts open.
        """
        document = read_document(path)
        declared = document["columns"] if _is_schema(document) else document
        for name in leave_out:
            declared.pop(name, None)
        return cls.from_dict(document)

    @classmethod
    def from_public(
        cls,
        public: Any,
        *,
        declared: "Columns | Mapping[str, Any] | None" = None,
        names: Sequence[str] | None = None,
        bins: int | None = None,
        dates: bool = True,
        codes: bool = False,
    ) -> "Columns":
        """Infer columns from *public* rows; declared columns stay unchanged. Never pass private rows.

        The categories of a text column are its public texts. A column of numbers or dates is cut between each two
        neighbouring public values, or with `bins` into this many cells with about equally many public values. Without
        `dates`, dates count as text. With `codes`, a column of at most `bins` distinct whole numbers has these as
        categories.
        """
        columns = cls.from_declaration(declared)
        declared_kinds = {} if columns is None else columns.kinds
        wanted = list(dict.fromkeys([*declared_kinds, *_public_names(public)])) if names is None else list(names)
        new = [name for name in wanted if name not in declared_kinds]
        read = open_columns(public, new, source="the public table")
        inferred = {name: cuts_from_public(name, read[name], bins=bins, dates=dates, codes=codes) for name in new}
        for name in filter(is_named_id, new if names is None else ()):
            warn_of_id(name, "is released, at the cost of all other columns")
        kinds = {name: declared_kinds.get(name) or inferred[name] for name in wanted}
        if columns is None:
            return cls(kinds)
        return cls(kinds, constraints=columns.constraints_on(kinds if names else None), reading=columns.reading)

    def constraints_on(self, names: Iterable[str] | None) -> tuple[Any, ...]:
        """Return the constraints on these columns alone; all constraints for None."""
        return self.constraints if names is None else tuple(c for c in self.constraints if names_in(c) <= set(names))

    @property
    def possible(self) -> Possible | None:
        """The possible cells, None without constraints; unsatisfiable constraints are refused."""
        return self._rules.possible if self.constraints else None

    @cached_property
    def _rules(self) -> Constraints:
        return Constraints(self.constraints, self.cells)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.kinds)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of cells of each column."""
        return tuple(cells.size for cells in self.cells.values())

    def select(self, names: Sequence[str]) -> "Columns":
        """Return some of the columns."""
        lacking = [name for name in names if name not in self.kinds]
        if lacking:
            raise InvalidInput(f"column {lacking[0]!r} is not declared; the columns are {', '.join(self.kinds)}")
        kinds = {name: self.kinds[name] for name in names}
        return Columns(kinds, constraints=self.constraints_on(names), reading=self.reading)

    def code(self, name: str, value: Any) -> int:
        """Return the cell of a requested value; an error names the column."""
        with prefix_errors(f"column {name!r}: "):
            return self.cells[name].code(value)

    def union(self, name: str, value: Any) -> Whole:
        """Return the cells of a requested value, of each of a list of values, or between the two ends of numbers.

        >>> Columns({"age": Number(cuts=[18, 40, 65])}).union("age", [18, 65]).tolist()
        [1, 2]
        """
        if not isinstance(value, list | tuple):
            return np.array([self.code(name, value)])
        cells = self.cells[name]
        if isinstance(cells, CategoryCells) or any(isinstance(text, str) and cells.unit is None for text in value):
            if not value:
                raise InvalidInput(f"column {name!r}: a list of values must not be empty")
            return np.unique([self.code(name, text) for text in value])
        with prefix_errors(f"column {name!r}: "):
            return cells.between(value)

    def name_union(self, name: str, codes: Whole) -> str:
        """Return the name of cells of a column: a range of numbers by its ends, others one by one."""
        cells = self.cells[name]
        if len(codes) == 1 or isinstance(cells, CategoryCells) or codes[-1] == cells.line or (np.diff(codes) > 1).any():
            return " or ".join(cells.name(int(code)) for code in codes)
        return cells.name_between(int(codes[0]), int(codes[-1]))

    def encode(self, table: Any) -> Rows:
        """Return the cells of each row of a table or a `TableStream`.

        No value raises; a missing column or one of another type does.
        """
        parts, count, width = list[NDArray[np.unsignedinteger[Any]]](), 0, len(self.kinds)
        for batch in table if isinstance(table, TableStream) else [table]:
            columns = open_columns(batch, self.names)
            part = np.empty((width, len(next(iter(columns.values())))), dtype=code_type(self.sizes))
            count += part.shape[1]
            if count * width * part.itemsize > _MOST_BYTES:
                raise Infeasible(f"{count} rows of {width} columns are more than fit; declare fewer columns")
            for index, (name, cells) in enumerate(self.cells.items()):
                part[index] = cells.codes(columns[name], self.reading)
            parts.append(part)
        if len(parts) == 1:
            return Rows(parts[0].T, self.sizes)
        codes = np.empty((width, count), dtype=code_type(self.sizes))
        while parts:  # the last first, so that each is dropped as soon as it is copied
            part = parts.pop()
            count -= part.shape[1]
            codes[:, count : count + part.shape[1]] = part
        return Rows(codes.T, self.sizes)

    def decode(self, codes: NDArray[np.int64]) -> dict[str, list[Any]]:
        """Return a value for each code, column by column; None for the last cell of a column.

        Numbers and dates of one cell are spread evenly over it, in an order that says nothing of other columns; those
        that constraints tie together are drawn so that they keep them.
        """
        rows = np.asarray(codes, dtype=np.int64).reshape(-1, len(self.kinds))
        values = {}
        for index, (name, cells) in enumerate(self.cells.items()):
            values[name] = self._spread(cells, rows[:, index], np.random.default_rng(index))
        if self.constraints:
            self._rules.keep(rows, values)
        return values

    @staticmethod
    def _spread(cells: Cells, codes: NDArray[np.int64], chance: np.random.Generator) -> list[Any]:
        """Return values of cells: where several rows share one, at even distances, in random order."""
        counts = np.bincount(codes, minlength=cells.size)
        steps = np.ones_like(counts) if isinstance(cells, CategoryCells) else np.clip(counts, 1, _STEPS)
        ends = np.cumsum(steps)
        table = [
            cells.centre(code, (step + 0.5) / count)
            for code, count in enumerate(steps.tolist())
            for step in range(count)
        ]
        shuffled = chance.permutation(len(codes))
        order = shuffled[np.argsort(codes[shuffled], kind="stable")]
        turns = np.empty(len(codes), dtype=np.int64)  # which of the rows of its cell each is, in random order
        turns[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
        indices = (ends - steps)[codes] + turns % steps[codes]
        values: list[Any] = np.array([*table, None], dtype=object)[indices].tolist()
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that declares the cells of these columns, without settings of learners."""
        columns = {name: cells_to_document(kind) for name, kind in self.kinds.items()}
        beside: dict[str, Any] = {"constraints": list(self.constraints)} if self.constraints else {}
        if self.reading != DEFAULT_READING:
            beside |= self.reading.to_document()
        return {"columns": columns} | beside if beside else columns

    def save(self, path: str | Path) -> None:
        """Write the columns to a JSON file that can be changed by hand."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _cells_of_column(name: str, kind: Kind) -> Cells:
    with prefix_errors(f"column {name!r}: "):
        return cells_of(kind)


def _is_schema(document: Any) -> bool:
    """Return whether an object is a schema with "columns", not a mapping from column names."""
    inner = document.get("columns") if isinstance(document, Mapping) else None
    if not isinstance(inner, Mapping) or isinstance(inner.get("kind"), str):
        return False
    return not any(isinstance(inner.get(key), list | tuple) for key in ("categories", "cuts"))


def names_of(table: Any) -> list[str]:
    """Return the column names of a table, empty where it has none."""
    return [str(name) for name in column_names(table)] if isinstance(table, Mapping) or is_frame(table) else []


def _public_names(table: Any) -> list[str]:
    names = names_of(table)
    if not names:
        raise InvalidInput("the public table must have names: a pandas or polars frame, an Arrow table or a mapping")
    return names
