"""The public description of a table: its columns, their kinds, the label and the privacy unit."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from quorate.core.checks import set_validated
from quorate.core.errors import InvalidInput
from quorate.core.rows import in_blocks
from quorate.tables.columns import (
    Category,
    Date,
    Kind,
    Label,
    Number,
    Sentences,
    Text,
    encode_features,
    feature_names,
    unknown_values,
    unscaled,
)
from quorate.tables.containers import Role, as_table, check_columns, column_names, prefix_errors, shown_names
from quorate.tables.dates import date_of
from quorate.tables.document import parse_document, read_document, schema_fields, schema_to_document
from quorate.tables.frames import ColumnKind
from quorate.tables.infer import check_spelled, classes_from_public, kinds_from_names, kinds_from_public
from quorate.tables.learned import LearnedFacts, learn_private_table
from quorate.tables.persons import check_lasting_type, name_persons, person_names
from quorate.tables.reading import DEFAULT_READING, Reading, check_texts
from quorate.tables.values import raw_column

SCHEMA_FILE = "schema.json"  # in the folder of a model: how its queries are encoded

_BLOCK = 2**16  # rows encoded together: beyond the table and the matrix, memory is bounded


@dataclass(frozen=True)
class Schema:
    """The rules by which a table becomes numbers.

    The numbers of a row depend only on the schema and that row.

    columns
        The kind of each feature column, in the order of the features.
    label
        The column with the label, and all its classes.
    groups
        The column that names the person (or other privacy unit) of each row.
    leave_out
        Columns that may be present but are not used.
    reading
        The rules by which texts are read as numbers, dates, truth values and missing ones.
    learned
        The claim and the noisy marginals of a schema that was learned from private rows (`from_private`).

    >>> from quorate.tables import Category, Number
    >>> schema = Schema({"age": Number(low=0, high=100), "sex": Category(["f", "m"])})
    >>> schema.encode(pa.table({"sex": ["m", "f"], "age": [50, 100]}), role="query").tolist()
    [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """

    columns: Mapping[str, Kind]
    label: Label | None = None
    groups: str | None = None
    leave_out: Sequence[str] = ()
    reading: Reading = field(default=DEFAULT_READING, repr=False)
    learned: LearnedFacts | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        set_validated(self, columns=dict(self.columns), leave_out=check_texts("leave_out", self.leave_out))
        if not isinstance(self.reading, Reading):
            raise InvalidInput(f"reading must be a Reading, got {self.reading!r}")
        for name, kind in self.columns.items():
            if not isinstance(name, str) or not isinstance(kind, Number | Category | Sentences):
                raise InvalidInput(
                    "columns must map names to Number(...), Date(...), Category(...), Text(...) or Embedded(...), not "
                    f"{name!r} to {kind!r}"
                )
        if not self.columns:
            raise InvalidInput("a schema must have at least 1 column to encode")
        if self.groups is not None and not isinstance(self.groups, str):
            raise InvalidInput(f"groups must be a column name, not {self.groups!r}")
        uses = [*self.columns, *self.leave_out, *self._special()]
        for name in uses:
            if uses.count(name) > 1:
                raise InvalidInput(f"column {name!r} has two uses; it can be a feature, the label, groups or left out")

    @classmethod
    def from_public(
        cls,
        table: Any,
        *,
        label: str | None = None,
        classes: Sequence[Any] | None = None,
        groups: str | None = None,
        leave_out: Sequence[str] = (),
        texts: Sequence[str] = (),
        reading: Reading = DEFAULT_READING,
    ) -> "Schema":
        """Return a schema learned from a table of *public* rows.

        Never pass private records: nothing is charged.

        A column of numbers or dates gets its mean as centre and its standard deviation as spread, a column of texts its
        distinct texts as categories, and one with missing values an indicator. `texts` names columns of sentences
        (`Text`). The label and the groups need not be present; classes that are not given are read from the label. A
        column that looks like a person's identification number is used, with a warning.

        >>> public = pa.table({"age": [30, 50], "sex": ["f", "m"], "income": ["low", "high"]})
        >>> Schema.from_public(public, label="income").feature_names
        ['age', 'sex=f', 'sex=m']
        """
        table = as_table(table)
        if label is not None and classes is None:
            classes = classes_from_public(table, label, missing=reading.missing_texts)
        without = _unused(table.column_names, label=label, groups=groups, leave_out=leave_out)
        kinds = kinds_from_public(table, without=without, reading=reading, sentences=check_texts("texts", texts))
        return cls(kinds, _label(label, classes), groups, leave_out, reading=reading)

    def kinds_of(self, names: Sequence[Any]) -> list[ColumnKind]:
        """Return the kinds of the named columns: numbers, dates or texts."""
        if unknown := [name for name in names if str(name) not in self.columns]:
            raise InvalidInput(f"the schema does not declare the columns {shown_names(unknown)}")
        kinds = [self.columns[str(name)] for name in names]
        return ["date" if isinstance(k, Date) else "number" if isinstance(k, Number) else "text" for k in kinds]

    @classmethod
    def from_private(
        cls,
        table: Any,
        *,
        epsilon: float,
        delta: float,
        label: str | None = None,
        classes: Sequence[Any] | None = None,
        groups: str | None = None,
        leave_out: Sequence[str] = (),
        texts: Sequence[str] = (),
        declared: Mapping[str, Kind] | None = None,
        reading: Reading = DEFAULT_READING,
    ) -> "Schema":
        """Return a schema learned from *private* rows with noise, (epsilon, delta)-differentially private.

        Only the table is needed. Noisy counts find the kinds of columns, the categories of texts, the ranges and cuts
        of numbers and dates, and the share of missing values. A category is found if it has about five noise deviations
        of units; all other texts form one. `learned` has the claim and the noisy marginals, and is saved with the
        schema.

        Parameters
        ----------
        table
            A frame, an Arrow table, or a mapping from names to values.
        epsilon, delta
            The guarantee of the schema. Three tenths of delta pay for texts that a single unit holds.
        label, classes
            The column with the label, and all its classes. They are declared, not learned.
        groups
            The column that names the person of each row. A person then counts by its first row alone.
        leave_out
            Columns that are not used.
        texts
            Columns that are declared to be sentences.
        declared
            Kinds of columns that are known in public, such as {"age": Number(low=0, high=100)}: nothing is paid for
            them.
        reading
            The public rules by which texts are read, such as Reading(decimal=",").

        >>> from random import Random
        >>> draw = Random(0)
        >>> ages = [draw.gauss(40, 10) for _ in range(20_000)]
        >>> table = {"age": ages, "sex": ["f" if age > 38 else "m" for age in ages]}
        >>> schema = Schema.from_private(table, epsilon=1.0, delta=1e-6)
        >>> schema.columns["sex"].categories, any(35 < cut < 45 for cut in schema.columns["age"].cuts)
        (('f', 'm'), True)
        >>> schema.learned.claim
        '(1, 1e-06)-differentially private under replacement of one row; the names of the columns and the number of
        units are public'
        """
        declared_label = _label(label, classes)
        names = [str(name) for name in column_names(table)]
        without = _unused(names, label=label, groups=groups, leave_out=leave_out)
        kinds = dict(declared or {})
        learned, facts = learn_private_table(
            table,
            [name for name in names if name not in without and name not in kinds],
            epsilon=epsilon,
            delta=delta,
            groups=groups,
            sentences=check_texts("texts", texts),
            reading=reading,
        )
        kinds |= learned.kinds
        return cls(
            {name: kinds[name] for name in names if name in kinds and name not in without},
            declared_label,
            groups,
            tuple(dict.fromkeys([*leave_out, *learned.hidden])),
            reading=reading,
            learned=facts,
        )

    @classmethod
    def numbers(
        cls,
        table: Any,
        *,
        label: str | None = None,
        classes: Sequence[Any] | None = None,
        groups: str | None = None,
        leave_out: Sequence[str] = (),
        texts: Sequence[str] = (),
        reading: Reading = DEFAULT_READING,
    ) -> "Schema":
        """Return a schema for tables of numbers without centring or scaling.

        Only the names of the table's columns are used, so it may be the private table. `texts` names columns of
        sentences (`Text`). All other columns are declared as numbers: a private non-number counts as missing.
        """
        names = as_table(table).column_names
        without = _unused(names, label=label, groups=groups, leave_out=leave_out)
        kinds = kinds_from_names(names, without=without, sentences=check_texts("texts", texts))
        return cls(kinds, _label(label, classes), groups, leave_out, reading=reading)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Schema":
        """Return the schema that a JSON object describes."""
        return cls(**schema_fields(document))

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that describes this schema."""
        return schema_to_document(self)

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a schema from a JSON file."""
        return cls._from_file(read_document(path), path)

    @classmethod
    def from_bytes(cls, content: bytes, path: str | Path) -> "Schema":
        """Read a schema from the content of a JSON file; `path` is only for errors."""
        return cls._from_file(parse_document(content, path), path)

    @classmethod
    def _from_file(cls, document: Mapping[str, Any], path: str | Path) -> "Schema":
        with prefix_errors(f"{path}: "):
            return cls.from_document(document)

    def to_json(self) -> str:
        """Return the schema as the text of a JSON file."""
        return json.dumps(self.to_document(), indent=2, ensure_ascii=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the schema to a JSON file that can be read and edited by hand."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def with_label(self, column: str, classes: Sequence[Any] | None = None) -> "Schema":
        """Return the same schema with another label, which is then not a feature. Declared classes are kept."""
        if classes is None:
            if self.label is None or self.label.column != column:
                raise InvalidInput(
                    f"the classes of the label {column!r} must be declared (classes=..., --classes, or in the schema)"
                )
            return self
        return replace(self, **self._without(column), label=Label(column, classes))

    def with_groups(self, column: str) -> "Schema":
        """Return the same schema with this column as the privacy unit, which is then not a feature."""
        return replace(self, **self._without(column), groups=column)

    def with_missing_texts(self, texts: Sequence[str]) -> "Schema":
        """Return the same schema with more texts that mean a missing value."""
        return self.with_reading(missing_texts=(*self.reading.missing_texts, *check_texts("missing_texts", texts)))

    def with_reading(self, **rules: Any) -> "Schema":
        """Return the same schema with other rules for reading texts.

        >>> from quorate.tables import Number
        >>> Schema({"pay": Number()}).with_reading(decimal=",").encode(pa.table({"pay": ["1,234", "1.234"]})).tolist()
        [[1.234], [1234.0]]
        """
        return replace(self, reading=replace(self.reading, **rules))

    def with_gaps(self) -> "Schema":
        """Return the same schema with an indicator for every column: any value but a sentence may then be missing."""
        marked = {
            name: kind if isinstance(kind, Sentences) else replace(kind, missing="indicator")
            for name, kind in self.columns.items()
        }
        return replace(self, columns=marked)

    def with_texts(self, columns: Sequence[str]) -> "Schema":
        """Return the same schema with these columns read as sentences."""
        return replace(self, columns=dict(self.columns) | {name: Text() for name in check_texts("texts", columns)})

    def without(self, columns: Sequence[str]) -> "Schema":
        """Return the same schema with these columns left out: they may be present but are not used."""
        unused = check_texts("leave_out", columns)
        return replace(
            self,
            columns={name: kind for name, kind in self.columns.items() if name not in unused},
            leave_out=tuple(dict.fromkeys([*self.leave_out, *unused])),
        )

    def with_kinds(self, kinds: Mapping[str, Kind], *, learned: LearnedFacts | None = None) -> "Schema":
        """Return the same schema with other kinds of some of its columns, and the facts of those that were learned."""
        return replace(self, columns=dict(self.columns) | dict(kinds), learned=learned)

    @property
    def open_ranges(self) -> tuple[str, ...]:
        """The columns of numbers of which no range is declared: no bounds, no cuts, no centre and spread."""
        return tuple(
            name
            for name, kind in self.columns.items()
            if isinstance(kind, Number) and kind.cuts is None and (kind.low, kind.centre) == (None, None)
        )

    @property
    def one_scale(self) -> bool:
        """Whether all encoded columns have about the same scale: categories do, and numbers that the schema scales."""
        return all(
            not isinstance(kind, Number) or (kind.centre, kind.low) != (None, None) for kind in self.columns.values()
        )

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        return [feature for name, kind in self.columns.items() for feature in feature_names(kind, name)]

    def condition(self, feature: int, cut: float) -> str:
        """Return the condition "this encoded column is at or above a cut" in the table's own columns and units.

        >>> from quorate.tables import Category, Number
        >>> schema = Schema({"age": Number(low=0, high=100), "sex": Category(["f", "m"])})
        >>> schema.condition(0, 0.5), schema.condition(2, 0.5)
        ('age >= 75', 'sex is m')
        """
        for name, kind in self.columns.items():
            features = feature_names(kind, name)
            if feature >= len(features):
                feature -= len(features)
            elif features[feature] == name and isinstance(kind, Number):
                value = unscaled(kind, cut)
                return f"{name} >= {date_of(round(value), kind.unit) if isinstance(kind, Date) else f'{value:.6g}'}"
            else:
                return features[feature].replace("=", " is ", 1) if 0 < cut <= 1 else f"{features[feature]} >= {cut:g}"
        raise InvalidInput(f"the schema encodes {len(self.feature_names)} columns")

    def encode(self, table: Any, *, role: Role = "private") -> NDArray[np.float64]:
        """Return one row of numbers for each row of the table.

        `role` says what the rows are. For a query or a public table, an error names the column and the first row; for
        private records it names the column and nothing else.
        """
        table = as_table(table)
        self._check_columns(table, role)
        widths = [len(feature_names(kind, name)) for name, kind in self.columns.items()]
        encoded = np.empty((table.num_rows, sum(widths)))
        offsets = np.cumsum([0, *widths])
        used = table.select(list(self.columns))

        def fill(rows: slice) -> None:
            block = used.slice(rows.start, rows.stop - rows.start)
            for index, (name, kind) in enumerate(self.columns.items()):
                values = raw_column(block.column(name))
                features = encode_features(kind, values, name, role=role, rules=self.reading, start=rows.start)
                encoded[rows, offsets[index] : offsets[index + 1]] = features

        in_blocks(fill, table.num_rows, block=_BLOCK)
        return encoded

    def refusing_unknown(self) -> "Schema":
        """Return a copy of the schema that refuses queries with an undeclared category."""
        changed = {
            name: replace(kind, unknown="refuse") for name, kind in self.columns.items() if isinstance(kind, Category)
        }
        return replace(self, columns=dict(self.columns) | changed)

    def count_unknown(self, table: Any) -> dict[str, int]:
        """Return how many queries have an undeclared category, by column; columns without any are left out.

        >>> from quorate.tables import Category
        >>> Schema({"sex": Category(["f", "m"])}).count_unknown(pa.table({"sex": ["m", "x", "y"]}))
        {'sex': 2}
        """
        table = as_table(table)
        self._check_columns(table, "query")
        counts = {
            name: int(unknown_values(kind, raw_column(table.column(name)), self.reading).sum())
            for name, kind in self.columns.items()
        }
        return {name: count for name, count in counts.items() if count}

    def label_codes(self, table: Any, *, role: Role = "private") -> NDArray[np.int64]:
        """Return the place of each label among the declared classes; -1 for a private one that is not among them."""
        if self.label is None:
            raise InvalidInput("the schema has no label: declare its column and classes")
        column = self._special_column(as_table(table), self.label.column, role)
        return self.label.codes(column, role=role, rules=self.reading)

    def labels(self, table: Any, *, role: Role = "private") -> NDArray[Any]:
        """Return the label of each row, one of the declared classes: whole numbers if all are, else texts.

        A private label that is missing, or not among the classes, is None.
        """
        codes = self.label_codes(table, role=role)
        assert self.label is not None
        classes = np.asarray(self.label.classes)
        return classes[codes] if (codes >= 0).all() else np.array([*classes.tolist(), None], dtype=object)[codes]

    def units(self, table: Any, *, role: Role = "private") -> NDArray[np.int64] | None:
        """Return a number for each row, the same for rows of one person, or None if the schema has no groups.

        `quorate.tables.persons` says which names are one person. Rows without a name belong to one person, the unknown.
        """
        if self.groups is None:
            return None
        column = self._special_column(as_table(table), self.groups, role)
        return person_names(column, self.reading.missing_texts)[0]

    def people(self, table: Any, *, role: Role = "private", lasting: bool = False) -> list[str] | None:
        """Return the canonical name of the person of each row, or None if the schema has no groups.

        Names that must be recognised again in later data are `lasting`: they are refused in a column of floats of less
        than 64 bits, which has lost digits.
        """
        if self.groups is None:
            return None
        column = self._special_column(as_table(table), self.groups, role)
        if lasting:
            check_lasting_type(table[self.groups])
        return name_persons(column, self.reading.missing_texts)

    def _special(self) -> list[str]:
        return [*([self.label.column] if self.label else []), *([self.groups] if self.groups else [])]

    def _without(self, column: str) -> dict[str, Any]:
        return {
            "columns": {name: kind for name, kind in self.columns.items() if name != column},
            "leave_out": tuple(name for name in self.leave_out if name != column),
        }

    def _special_column(self, table: pa.Table, name: str, role: Role) -> pa.Array:
        check_columns(table, [name], role)
        return raw_column(table.column(name))

    def _check_columns(self, table: pa.Table, role: Role) -> None:
        check_columns(table, list(self.columns), role, unused=[*self.leave_out, *self._special()])


def _label(column: str | None, classes: Sequence[Any] | None) -> Label | None:
    """Return a label with declared classes."""
    if column is not None and classes is None:
        raise InvalidInput(
            f"the classes of the label {column!r} must be declared (classes=..., --classes): they are not taken from "
            "private records"
        )
    return None if column is None else Label(column, classes or ())


def _unused(names: Sequence[str], *, label: str | None, groups: str | None, leave_out: Sequence[str]) -> set[str]:
    """Return the columns that are no features; a label or groups spelled in other letters are refused."""
    check_spelled(names, label=label, groups=groups)
    return {*check_texts("leave_out", leave_out), *(name for name in (label, groups) if name)}
