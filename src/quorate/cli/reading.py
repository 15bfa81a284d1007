"""The tables of a command: private records, public records, and the schema by which both become numbers."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Group, Parameter

from quorate.cli.options import Names, split_list
from quorate.cli.output import check_apart
from quorate.core.checks import is_named_id
from quorate.core.errors import InvalidInput
from quorate.tables import MISSING_TEXTS, Category, Label, Reading, Schema, read_table
from quorate.tables.containers import open_columns, shown_names
from quorate.tables.csv_records import Irregularities
from quorate.tables.look import OWNER_ALONE, Problem, find_problems
from quorate.tables.results import make_table
from quorate.tables.values import distinct_labels, read_numbers

_GROUP = Group("Tables", sort_key=1)
_MOST_LINES = 8  # of problems that are alike but for the column
_FILES = Parameter(group=Group("Files", sort_key=8))


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How a private file is written, where its first line does not show it.

    Parameters
    ----------
    encoding
        The encoding of CSV files, such as windows-1252. By default the first line of each shows it.
    separator
        What separates values of the private CSV file: a comma, a semicolon, a tab or a bar. By default its first line
        shows it.
    skip_last
        How many lines at the end of the private file are no records, such as a line of totals.
    """

    encoding: Annotated[str | None, _FILES] = None
    separator: Annotated[str | None, _FILES] = None
    skip_last: Annotated[int, _FILES] = 0

    def file_settings(self) -> dict[str, Any]:
        """Return what the owner has said of the private file, as `read_table` and `TableStream` take it."""
        settings = {"encoding": self.encoding, "separator": self.separator, "skip_last": self.skip_last}
        return {name: value for name, value in settings.items() if value}


@dataclass(frozen=True)
class _PrivateTable:
    """The argument of commands that read private records; a base of its own, so that it comes before the options.

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow, .feather or .xlsx, or a query to a database
        ("duckdb:clinic.db?query=SELECT ...", "postgresql://host/clinic?query=SELECT ...").
    """

    table: Path


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class TableFile(FileOptions, _PrivateTable):
    """A private table, and what its owner says of its file and its columns.

    Parameters
    ----------
    label
        The column to predict. A schema may name it instead.
    groups
        The column that names the person of each row. The person, not the row, is then protected.
    leave_out
        Columns not to use, separated by commas.
    """

    label: str | None = None
    groups: str | None = None
    leave_out: Names = ()

    def read(self, irregularities: Irregularities | None = None) -> Any:
        """Read the private table, and count its irregular lines."""
        return read_table(self.table, role="private", irregularities=irregularities, **self.file_settings())


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class Tables(TableFile):
    """A private table, and the classes, the public table or the schema by which it becomes numbers.

    Parameters
    ----------
    classes
        All possible labels, separated by commas. Read from the public table or the schema if these have them.
    read_classes
        Read the labels from the private records, instead of --classes. Which labels occur is then public, and the claim
        says so.
    public
        A table of public records with the same columns, which determines how they are encoded.
    schema
        A JSON file that says how each column is encoded, as `quorate look` writes one.
    texts
        Columns of sentences, separated by commas: their words are counted in the 256 buckets of a public hash.
    missing_texts
        Texts that mean a missing value, separated by commas, such as "?". An empty text, NA and NaN always do.
    gaps
        Values may be missing in any column: each column gets an indicator column. Otherwise a query with a missing
        value is refused, unless the public table has some in that column or the schema allows it.
    """

    classes: Names = ()
    read_classes: bool = False
    public: Path | None = None
    schema: Path | None = None
    texts: Names = ()
    missing_texts: Names = ()
    gaps: bool = False


@dataclass
class Data:
    """Records with the schema that encodes them, and their labels; `classes` is None where y shows them.

    `schema` is None for rows of a model that was saved without one.
    """

    records: Any
    public: Any
    schema: Any
    label: str
    y: Any
    classes: list[Any] | None = None

    @cached_property
    def X(self) -> Any:  # noqa: N802  as scikit-learn
        """The encoded private records."""
        return self.schema.encode(self.records)

    @cached_property
    def points(self) -> Any:
        """The encoded public records, or None."""
        return None if self.public is None else self.schema.encode(self.public, role="public")

    @cached_property
    def units(self) -> Any:
        """The person of each record, or None."""
        return self.schema.units(self.records)

    @property
    def public_labels(self) -> Any:
        """The labels, or the numbers to predict, of the public table; None where it has none."""
        if self.public is None or self.label not in self.public.column_names:
            return None
        if self.schema.label is None:
            return target_column(self.public, self.label)
        return self.schema.labels(self.public, role="public")


def read_data(
    tables: Tables, *, number: bool = False, several: bool = False, leave_ids: bool = False, is_learned: bool = False
) -> Data:
    """Read the private and the public table, and encode the label: classes, a number, or several flags.

    With `leave_ids`, columns that are named as ids are left out. `is_learned` says that the model learns what the other
    columns hold: until then no value of them is wrong.
    """
    names = split_list(tables.label)
    are_flags = several and not number and len(names) > 1
    _check_label_options(tables, names, number=number, are_flags=are_flags)
    targets = names if number or are_flags else []
    records, public, schema = _read_features(tables, targets=targets, leave_ids=leave_ids, is_learned=is_learned)
    if number:
        _check_public_numbers(public, names[0])
        return Data(records, public, schema, names[0], target_column(records, names[0]))
    if are_flags:
        return Data(records, public, schema, tables.label or "", _read_flags(tables, records, schema, names))
    label = check_label(schema)
    classes = None if tables.read_classes else list(label.classes)
    return Data(records, public, schema, label.column, schema.labels(records), classes)


def _check_label_options(tables: Tables, names: Sequence[str], *, number: bool, are_flags: bool) -> None:
    """Refuse classes for a number to predict, and classes read from the records for several flags."""
    if number and (len(names) != 1 or tables.classes or tables.read_classes):
        raise InvalidInput("a number to predict takes one --label, a column of numbers, and no classes")
    if are_flags and tables.read_classes:
        raise InvalidInput("--read-classes takes one --label that is a class")


def _read_flags(tables: Tables, records: Any, schema: Schema, names: Sequence[str]) -> Any:
    """Return columns of 0 and 1, or of two declared classes, as a table of 0 and 1."""
    values = list(tables.classes or ("0", "1"))
    if len(values) != 2:
        raise InvalidInput(f"several labels take two --classes, the second for a label that is set, got {len(values)}")
    flags = {name: schema.with_label(name, values).label_codes(records) == 1 for name in names}
    return make_table({name: column.astype(np.int64) for name, column in flags.items()})


def check_label(schema: Schema) -> Label:
    """Return the label of a schema, or say that it must be named."""
    if schema.label is None:
        raise InvalidInput("name the column with the label: --label COLUMN, or in the schema")
    return schema.label


def target_column(records: Any, name: str) -> Any:
    """Return a column of numbers to predict, each read by itself: a text that is no number is nan."""
    return read_numbers(open_columns(records, [name], source="the private records")[name])


def _check_public_numbers(public: Any, name: str) -> None:
    """Refuse a target whose public column, if there is one, has no number."""
    if public is not None and name in public.column_names:
        values = read_numbers(open_columns(public, [name], source="the public table")[name])
        if values.size and np.isnan(values).all():
            raise InvalidInput(
                f"--bounds and --largest take a label that is a number, but column {name!r} has no numbers in the "
                "public table: leave both out for a label of classes"
            )


def _read_features(
    tables: Tables, *, targets: Sequence[str] = (), leave_ids: bool = False, is_learned: bool
) -> tuple[Any, Any, Schema]:
    """Read both tables, warn the owner of problems in the records, and return the schema without the targets."""
    irregularities = Irregularities()
    records = tables.read(irregularities)
    if leave_ids and tables.schema is None:
        used = {tables.label, tables.groups, *tables.leave_out, *targets}
        ids = [name for name in records.column_names if is_named_id(name) and name not in used]
        tables = replace(tables, leave_out=(*tables.leave_out, *ids))
    public, schema = describe_columns(tables, records, targets=targets)
    problems = find_problems(schema, records, irregularities)
    if is_learned:
        problems = [problem for problem in problems if problem.column not in schema.columns]
    show_problems(problems)
    return records, public, schema


def show_problems(problems: Sequence[Problem]) -> None:
    """Tell the owner all problems of the records at once, on standard error."""
    if problems:
        print(
            "\n".join([f"quorate: {OWNER_ALONE}", *(f"  {line}" for line in _problem_lines(problems))]), file=sys.stderr
        )


def show_learned_problems(schema: Schema, records: Any) -> None:
    """Tell the owner which numbers and dates of the columns that a model has learned cannot be read."""
    problems = find_problems(schema, records)
    show_problems([problem for problem in problems if not isinstance(schema.columns[str(problem.column)], Category)])


def _problem_lines(problems: Sequence[Problem]) -> Iterator[str]:
    """Yield a line for each problem; one line for all columns of a wide table that have the same problem."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem.problem, problem.advice), []).append(problem)
    for (text, advice), same in alike.items():
        if len(same) <= _MOST_LINES:
            yield from map(str, same)
        else:
            names = shown_names([problem.column for problem in same])
            yield f"{len(same)} columns ({names}): {text}: {sum(problem.count for problem in same):,}. {advice}"


def describe_columns(tables: Tables, records: Any, *, targets: Sequence[str] = ()) -> tuple[Any, Schema]:
    """Read the public table, and return it with the schema: written, or of public rows, or of the header alone.

    `targets` are columns to predict that are not classes of one label; the schema leaves them out.
    """
    label = None if targets else tables.label
    texts, missing = list(tables.texts), list(tables.missing_texts)
    check_column_names(
        records, label=[label, *targets], groups=[tables.groups], leave_out=tables.leave_out, texts=texts
    )
    check_apart(tables.table, tables.public)
    public = None if tables.public is None else read_table(tables.public, role="public", encoding=tables.encoding)
    left_out = list(dict.fromkeys([*tables.leave_out, *targets]))
    classes = None if targets else _declared_classes(tables, records)
    if tables.schema is None:
        rows, make = (records, Schema.numbers) if public is None else (public, Schema.from_public)
        reading = Reading(missing_texts=(*MISSING_TEXTS, *missing))
        columns: dict[str, Any] = {"leave_out": left_out, "texts": texts, "reading": reading}
        schema = make(rows, label=label, classes=classes, groups=tables.groups, **columns)
    else:
        schema = Schema.load(tables.schema).without(left_out).with_texts(texts).with_missing_texts(missing)
        schema = schema if tables.groups is None else schema.with_groups(tables.groups)
        schema = _with_label(schema, label, classes)
    return public, schema.with_gaps() if tables.gaps else schema


def _with_label(schema: Schema, label: str | None, classes: Sequence[str] | None) -> Schema:
    if label is None and classes is None:
        return schema
    column = label if label is not None else schema.label.column if schema.label is not None else None
    if column is None:
        raise InvalidInput("--classes needs a label: add --label COLUMN")
    return schema.with_label(column, classes)


def _declared_classes(tables: Tables, records: Any) -> list[str] | None:
    if not tables.read_classes:
        return list(tables.classes) or None
    if tables.classes or tables.label is None:
        raise InvalidInput("--read-classes reads the labels of --label COLUMN; it takes no --classes")
    return distinct_labels(records[tables.label])


def check_column_names(records: Any, **options: Sequence[str | None]) -> None:
    """Refuse options that name columns which are not there, all at once: names are public."""
    wrong = [
        f"--{option.replace('_', '-')} names {name!r}, and there is no such column"
        for option, names in options.items()
        for name in names
        if name and name not in records.column_names
    ]
    if wrong:
        columns = ", ".join(repr(column) for column in records.column_names)
        raise InvalidInput(f"{'; '.join(wrong)}; the columns are {columns}")


def charge_and_fit(model: Any, account: Path | None, *records: Any, **options: Any) -> Any:
    """Charge the account, if any, then fit a model."""
    warn_of_delta(getattr(model, "delta", 0.0), records[0], options.get("groups"))
    if account is None:
        return model.fit(*records, **options)
    from quorate.models.account import Account

    with closing(Account(account)) as opened:
        return opened.fit(model, *records, **options)


def warn_of_delta(delta: float, rows: Any, groups: Any) -> None:
    """Warn of a delta that is too large for the public number of units to protect each of them."""
    units = len(rows) if groups is None else len(set(groups))
    if 0 < delta < 1 and delta * units >= 1:
        warnings.warn(
            f"delta = {delta:g} is not below one over the number of units, {units:,}: a method that publishes whole "
            "records of some of them would satisfy it. Choose one far below",
            UserWarning,
            stacklevel=2,
        )
