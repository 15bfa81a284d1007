"""All problems of a private table at once, for its owner alone.

No problem causes a refusal of the table: an unreadable value counts as missing. The counts have no privacy guarantee,
so only commands on the records show them, to the owner.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from quorate.tables.columns import Date, Text, unknown_values, unreadable_values
from quorate.tables.containers import as_table
from quorate.tables.csv_records import Irregularities
from quorate.tables.schema import Schema
from quorate.tables.values import raw_column, read_texts

OWNER_ALONE = "For the owner alone: these counts come from private records without noise. Do not share them."


@dataclass(frozen=True)
class Problem:
    """A problem of a column or of the file: how many values or records have it, and what to do."""

    column: str | None
    count: int
    problem: str
    advice: str

    def __str__(self) -> str:
        subject = "" if self.column is None else f"column {self.column!r}: "
        return f"{subject}{self.problem}: {self.count:,}. {self.advice}"

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as JSON has it."""
        return {"column": self.column, "count": self.count, "what": self.problem, "advice": self.advice}


def find_problems(schema: Schema, table: Any, irregularities: Irregularities | None = None) -> list[Problem]:
    """Return all problems that a table has by a schema; `irregularities` are those of its file.

    >>> import pyarrow as pa
    >>> from quorate.tables import Number
    >>> for problem in find_problems(Schema({"age": Number()}), pa.table({"age": ["39", "old", ""]})):
    ...     print(problem)
    column 'age': missing values: 1. Mark them: --gaps, or "missing": "indicator" in the schema.
    column 'age': values that are no numbers, and count as missing: 1. See how they are written: quorate look.
    """
    table = as_table(table)
    problems = [] if irregularities is None else file_problems(irregularities)
    for name in (name for name in schema.columns if name in table.column_names):
        problems += _column_problems(schema, name, raw_column(table.column(name)))
    if schema.label is not None and schema.label.column in table.column_names:
        without = int((schema.label_codes(table) < 0).sum())
        advice = "List all classes: --classes, or in the schema."
        problems.append(Problem(schema.label.column, without, "labels that are missing or none of the classes", advice))
    if schema.groups is not None and schema.groups in table.column_names:
        names = read_texts(raw_column(table.column(schema.groups)), schema.reading.missing_texts)
        advice = "All of them count as one person. Leave the rows out, or name the people."
        problems.append(Problem(schema.groups, names.null_count, "rows that name no person", advice))
    return [problem for problem in problems if problem.count]


def add_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems of several parts of a table as one list, each with its total count."""
    totals: dict[Problem, int] = {}
    for problem in problems:
        key = replace(problem, count=0)
        totals[key] = totals.get(key, 0) + problem.count
    return [replace(problem, count=count) for problem, count in totals.items()]


def _column_problems(schema: Schema, name: str, values: Any) -> list[Problem]:
    kind, reading = schema.columns[name], schema.reading
    is_marked = isinstance(kind, Text) or kind.missing == "indicator"
    gaps = 0 if is_marked else read_texts(values, reading.missing_texts).null_count
    unreadable, unknown = (count(kind, values, reading).sum() for count in (unreadable_values, unknown_values))
    kinds = "dates" if isinstance(kind, Date) else "numbers"
    problems = [
        (gaps, "missing values", 'Mark them: --gaps, or "missing": "indicator" in the schema.'),
        (unreadable, f"values that are no {kinds}, and count as missing", "See how they are written: quorate look."),
        (unknown, "values that are none of the categories", "List those that are known in public, in the schema."),
    ]
    return [Problem(name, int(count), problem, advice) for count, problem, advice in problems]


def file_problems(irregularities: Irregularities) -> list[Problem]:
    """Return the problems of a CSV file's records."""
    problems = [
        (irregularities.short, "records with too few values", "The others are missing. Write an empty one for each."),
        (irregularities.long, "records with too many values", "All are missing. Quote values that hold separators."),
        (irregularities.headers, "records that repeat the first line", "All values are missing. Remove the lines."),
        (
            irregularities.undecoded,
            "values that are no UTF-8, and are read as Windows-1252",
            "Name another encoding: --encoding.",
        ),
    ]
    return [Problem(None, *problem) for problem in problems if problem[0]]
