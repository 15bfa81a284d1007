"""What the owner of a table sees before a fit: the inferred kind of each column, and all problems of its values.

None of it has a privacy guarantee, so only commands on the records show it, to the owner. No problem causes a refusal:
an unreadable value counts as missing. The values of private records decide the kinds and categories of the schema that
is written here, so it is refused until its owner has checked it and removed one line.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.core.checks import is_named_id
from quorate.tables.columns import (
    Category,
    Date,
    Kind,
    Label,
    Number,
    Sentences,
    Text,
    unknown_values,
    unreadable_values,
)
from quorate.tables.containers import as_table
from quorate.tables.csv_records import Irregularities
from quorate.tables.document import UNCHECKED, kind_to_document
from quorate.tables.infer import MOST_CATEGORIES
from quorate.tables.learned import ValueKind, kinds_of_values
from quorate.tables.reading import Reading
from quorate.tables.schema import Schema
from quorate.tables.values import raw_column, read_texts

_MOSTLY = 0.9  # of the values that are given: so many make a column of numbers or dates
_MOST_CLASSES = 100
_NO_UNIT = "none"
_SHOWN = 5  # distinct spellings
_SENTENCE = 3.0  # words of a value, on average
_ANY_DATE = Date(low=-25567.0, high=47846.0, missing="indicator")  # 1900 to 2100, for every table: it tells nothing
_MARKS = {"?", "-", "--", ".", "*", "unknown", "none", "missing", "n.a.", "k.a.", "#n/a"}
_TOTALS = re.compile(r"(grand |sub)?total|sum|summe|gesamt|insgesamt|somme", re.IGNORECASE)
_SLASHES = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-]\d{4}\b.*", re.ASCII)
_NUMBER_AND_WORD = re.compile(r"[+-]?\d[\d.,]*\s*(?P<word>[^\W\d].{0,19})?", re.ASCII)
_COMMA_DECIMALS = r"^[^,]*[0-9],([0-9]{1,2}|[0-9]{4,})([^0-9.,].*)?$"
_POINT_DECIMALS = r"^[^.]*[0-9]\.([0-9]{1,2}|[0-9]{4,})([^0-9.,].*)?$"


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
        problems += _schema_problems(schema, name, raw_column(table.column(name)))
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


def _schema_problems(schema: Schema, name: str, values: Any) -> list[Problem]:
    kind, reading = schema.columns[name], schema.reading
    is_marked = isinstance(kind, Sentences) or kind.missing == "indicator"
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


@dataclass(frozen=True)
class ColumnLook:
    """What is seen of one column. `kind` is None for one that is not used, and `use` says why."""

    name: str
    kind: Kind | None
    use: str
    values: int
    missing: int
    unreadable: int = 0
    spellings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "name": self.name,
            "use": self.use,
            "values": self.values,
            "missing": self.missing,
            "unreadable": self.unreadable,
            "spellings": list(self.spellings),
            "notes": [*self.notes, *self.problems],
            "schema": None if self.kind is None else kind_to_document(self.kind),
        }

    def comment(self) -> str:
        """Return it as one line."""
        parts = [f"{self.use}: {self.values:,} values, {self.missing:,} missing"]
        if self.unreadable:
            parts.append(f"{self.unreadable:,} cannot be read, such as {', '.join(map(_json, self.spellings))}")
        return "; ".join([*parts, *self.notes, *self.problems])


@dataclass(frozen=True)
class TableLook:
    """The preview of a table: its columns, the rules by which they are read, and its problems."""

    rows: int
    columns: tuple[ColumnLook, ...]
    reading: Reading
    problems: tuple[Problem, ...]
    label: Label | None = None
    groups: str | None = None
    file: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "private": False,
            "file": dict(self.file),
            "rows": self.rows,
            "columns": [column.to_dict() for column in self.columns],
            "reading": self.reading.to_document().get("reading", {}),
            "problems": [problem.to_dict() for problem in self.problems],
        }

    def schema_text(self) -> str:
        """Return a schema with a comment on each line. It is refused until the owner has checked it."""
        special = {self.groups, None if self.label is None else self.label.column}
        used = [
            f"    // {column.comment()}\n    {_json(column.name)}: {_json(kind_to_document(column.kind))}"
            for column in self.columns
            if column.kind is not None
        ]
        unused = [column for column in self.columns if column.kind is None and column.name not in special]
        rules = {"decimal": self.reading.decimal, "date_order": self.reading.date_order}
        rules |= self.reading.to_document().get("reading", {})
        lines = [
            "{",
            "  // Written by quorate look from private records, without noise. Do not share this file.",
            "  // Check that all kinds and categories are public knowledge. Then delete the next line.",
            f'  "{UNCHECKED}": true,',
            '  "columns": {',
            ",\n".join(used),
            "  },",
            *self._special_lines(),
            *(f"  // {_json(column.name)} is {column.comment()}" for column in unused),
            f'  "leave_out": {_json([column.name for column in unused])},',
            "  // Texts that mean a missing value in any column.",
            f'  "missing_texts": {_json(list(self.reading.missing_texts))},',
            "  // How 1,234 and 05/06/2024 are read, and other rules that are not defaults.",
            f'  "reading": {_json(rules)}',
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _special_lines(self) -> Iterator[str]:
        if self.label is not None:
            label = {"column": self.label.column, "classes": list(self.label.classes)}
            yield "  // All classes that may occur, whether or not they do."
            yield f'  "label": {_json(label)},'
        if self.groups is not None:
            yield "  // The column that names the person of each row."
            yield f'  "groups": {_json(self.groups)},'


def look_at(
    table: Any,
    *,
    label: str | None = None,
    groups: str | None = None,
    leave_out: Collection[str] = (),
    irregularities: Irregularities | None = None,
    file: Mapping[str, Any] | None = None,
) -> TableLook:
    """Return a preview of a table and its inferred kinds. The result is for the owner alone."""
    table = as_table(table)
    raw = {name: raw_column(table.column(name)) for name in table.column_names}
    texts = {name: read_texts(values, ()) for name, values in raw.items()}
    reading = _suggested_reading(texts)
    columns = [
        _look_at_column(name, values, reading, use=_declared_use(name, label, groups, leave_out))
        for name, values in raw.items()
    ]
    problems = [*([] if irregularities is None else file_problems(irregularities)), *_last_record_problem(texts)]
    for column in columns:
        problems += _column_problems(column)
    classes = None if label is None else _classes(texts[label], reading)
    if label is not None and classes is None:
        distinct, advice = (
            pc.count_distinct(texts[label]).as_py(),
            "Name a column of 2 to 100 classes, or fit numbers: ",
        )
        problem = "different values, too many or too few for classes"
        problems.append(Problem(label, distinct, problem, f"{advice}quorate fit linear --bounds."))
    declared = None if label is None or classes is None else Label(label, classes)
    return TableLook(table.num_rows, tuple(columns), reading, tuple(problems), declared, groups, file or {})


def _declared_use(name: str, label: str | None, groups: str | None, leave_out: Collection[str]) -> str | None:
    if name == label:
        return "label"
    if name == groups:
        return "groups"
    return "left out" if name in leave_out else None


def _look_at_column(name: str, values: pa.Array, reading: Reading, *, use: str | None) -> ColumnLook:
    written = read_texts(values, reading.missing_texts)
    missing = written.null_count
    look = ColumnLook(name, None, use or "", len(written) - missing, missing)
    if use is None:
        look = _with_suggested_use(look, values, written, reading)
    if look.kind is None:
        return look
    counts = Counter(written.filter(pa.array(unreadable_values(look.kind, values, reading))).to_pylist())
    spellings = tuple(text for text, _ in counts.most_common(_SHOWN))
    return replace(look, unreadable=sum(counts.values()), spellings=spellings)


def _with_suggested_use(look: ColumnLook, values: pa.Array, written: pa.Array, reading: Reading) -> ColumnLook:
    """Return the look with the kind that most values of the column have; with none for a column that is not used."""
    present = look.values
    if present == 0:
        return replace(look, use="left out, no value")
    if is_named_id(look.name):
        return replace(look, use="left out, named like an id", notes=("if it names people, use --groups",))
    spelled = Counter(written.drop_null().to_pylist())
    counts = np.bincount(kinds_of_values(values, reading), minlength=len(ValueKind))
    if counts[ValueKind.TRUTH] >= _MOSTLY * present:
        return replace(look, kind=Category(_truth_pair(spelled, reading), missing="indicator"), use="category")
    if counts[ValueKind.WHOLE] + counts[ValueKind.FRACTION] >= _MOSTLY * present:
        notes, problems = ("declare low and high from public knowledge",), _unit_problems(spelled, reading)
        return replace(look, kind=Number(missing="indicator"), use="number", notes=notes, problems=problems)
    if counts[ValueKind.DATE] >= _MOSTLY * present:
        return replace(look, kind=_ANY_DATE, use="date", notes=("declare narrower bounds if they are public",))
    return _with_use_of_texts(look, spelled)


def _with_use_of_texts(look: ColumnLook, spelled: Mapping[str, int]) -> ColumnLook:
    present, categories = look.values, _folded_categories(spelled)
    if len(categories) <= MOST_CATEGORIES and 2 * len(categories) <= present:
        marks = [text for text in categories if text.casefold() in _MARKS]
        problems = tuple(f"{mark!r} may mean missing, and is a category" for mark in marks)
        kind, notes = Category(categories, missing="indicator"), _undeclared_unit(spelled, present)
        return replace(look, kind=kind, use="category", notes=notes, problems=problems)
    if sum(len(text.split()) * count for text, count in spelled.items()) >= _SENTENCE * present:
        return replace(look, kind=Text(), use="text")
    notes = _undeclared_unit(spelled, present) or ("declare it to use it",)
    return replace(look, use=f"left out, {len(spelled):,} different texts", notes=notes)


def _truth_pair(spelled: Mapping[str, int], reading: Reading) -> list[str]:
    """Return the most frequent words for false and true, in small letters."""
    words = {False: Counter[str](no=0), True: Counter[str](yes=0)}
    for text, count in spelled.items():
        truth = reading.truth(text)
        if truth is not None:
            words[truth][text.casefold()] += count
    return [counts.most_common(1)[0][0] for counts in words.values()]


def _unit_problems(spelled: Mapping[str, int], reading: Reading) -> tuple[str, ...]:
    """Return a problem if numbers of a column have different units."""
    units: Counter[str] = Counter()
    for text, count in spelled.items():
        if np.isfinite(reading.number(text)):
            units[reading.unit_of(text) or _NO_UNIT] += count
    if len(set(units) - {_NO_UNIT}) < 2:
        return ()
    listed = ", ".join(f"{unit} {count:,}" for unit, count in units.most_common())
    return (f"units differ ({listed}) and are dropped",)


def _undeclared_unit(spelled: Mapping[str, int], present: int) -> tuple[str, ...]:
    """Return a note if the values are numbers, some of them before the same word, which is not a declared unit."""
    words: Counter[str] = Counter()
    for text, count in spelled.items():
        match = _NUMBER_AND_WORD.fullmatch(text)
        if match is not None:
            words[match["word"] or _NO_UNIT] += count
    plain = words.pop(_NO_UNIT, 0)
    [(unit, count)] = words.most_common(1) or [(_NO_UNIT, 0)]
    if count == 0 or plain + count < _MOSTLY * present:
        return ()
    return (f"a number, if {unit!r} is a unit that multiplies nothing: list it in units under reading",)


def _folded_categories(spelled: Mapping[str, int]) -> list[str]:
    """Return texts in their most frequent spelling, those alike but for letter case as one."""
    alike: dict[str, Counter[str]] = {}
    for text, count in spelled.items():
        alike.setdefault(text.casefold(), Counter())[text] += count
    return sorted(counts.most_common(1)[0][0] for counts in alike.values())


def _suggested_reading(texts: Mapping[str, pa.Array]) -> Reading:
    """Return the rules that the values suggest: whether a comma precedes decimals, and a month the day."""
    commas, points = (
        sum(pc.sum(pc.match_substring_regex(column, pattern)).as_py() or 0 for column in texts.values())
        for pattern in (_COMMA_DECIMALS, _POINT_DECIMALS)
    )
    days_first = months_first = 0
    for column in texts.values():
        for text in pc.unique(column).to_pylist():
            match = None if text is None else _SLASHES.fullmatch(text)
            if match is not None:
                days_first += int(match[1]) > 12 >= int(match[2])
                months_first += int(match[2]) > 12 >= int(match[1])
    return Reading(decimal="," if commas > points else ".", date_order="mdy" if months_first > days_first else "dmy")


def _classes(column: pa.Array, reading: Reading) -> list[str] | None:
    spelled = Counter(text for text in column.drop_null().to_pylist() if text not in reading.missing_texts)
    is_pair = bool(spelled) and all(reading.truth(text) is not None for text in spelled)
    classes = _truth_pair(spelled, reading) if is_pair else _folded_categories(spelled)
    return classes if 2 <= len(classes) <= _MOST_CLASSES else None


def _column_problems(column: ColumnLook) -> Iterator[Problem]:
    if column.unreadable:
        listed = ", ".join(map(repr, column.spellings))
        problem = f"values that cannot be read as a {column.use}, and count as missing, such as {listed}"
        yield Problem(column.name, column.unreadable, problem, "Change the file, or the rules under reading.")
    for problem in column.problems:
        yield Problem(column.name, column.values, problem, "Change the file or the schema.")


def _last_record_problem(texts: Mapping[str, pa.Array]) -> Iterator[Problem]:
    last = [column[-1].as_py() for column in texts.values() if len(column)]
    if any(text is not None and _TOTALS.fullmatch(text.rstrip(": ")) for text in last):
        yield Problem(None, 1, "records at the end that look like totals", "Leave them out: --skip-last 1.")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
