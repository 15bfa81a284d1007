"""What `quorate start` leaves behind: a commented script, the same as commands, and a few rows to ask about."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.cli.reading import TableFile
from quorate.tables import Category, Date, Schema, Text
from quorate.tables.columns import Kind
from quorate.tables.dates import date_of
from quorate.tables.results import Table, make_table, write_csv
from quorate.tables.values import canonical_text

_EXAMPLES = 5  # queries to ask first
_FEWEST_TESTED_UNITS = 200  # A quarter of them is enough for a test.
_CLASSES_COMMENT = """\
# The classes were read from the records: which of them occur is public with the model, and its claim
# says so. Name all that may occur (--classes, classes=), whether or not they do, to keep that private.
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The answers to `quorate start`, the facts of the tables, and the method of the plan."""

    source: TableFile
    label: str
    classes: tuple[str, ...]
    is_declared: bool  # whether these classes were given, and not read from the records
    public: Path | None
    public_rows: Any  # its table, or None
    schema: Path | None
    units: int
    ids: tuple[str, ...]  # columns that are named as ids are
    wordy: tuple[str, ...]  # columns that have too many different texts in the public table
    leave_out: tuple[str, ...]  # these, and those that the owner leaves out
    columns: int
    features: int
    open_ranges: tuple[str, ...] = ()  # columns of numbers to which the schema gives no range
    epsilon: float = 1.0
    delta: float = 0.0
    queries: int = 0
    aggregator: str = ""
    is_linear: bool = False
    out: Path = Path()

    @property
    def is_learned(self) -> bool:
        """Whether nothing public says what the columns hold."""
        return self.public is None and self.schema is None

    @property
    def is_too_small_to_test(self) -> bool:
        """Whether a model of so few units is not tested."""
        return self.units < _FEWEST_TESTED_UNITS

    def words(self) -> list[list[str]]:
        """Return the arguments of `quorate`, one list a command."""
        options = {
            "label": self.label,
            "classes": ",".join(self.classes) if self.is_declared else None,
            "read-classes": not self.is_declared,
            "groups": self.source.groups,
            "public": self.public,
            "gaps": self.public is not None and not self.is_linear,
            "schema": self.schema,
            "leave-out": ",".join(self.leave_out),
            **{name.replace("_", "-"): value for name, value in self.source.file_settings().items()},
            "epsilon": canonical_text(self.epsilon),
            "delta": canonical_text(self.delta),
            "queries": None if self.is_linear else self.queries,
            "aggregator": None if self.is_linear else self.aggregator,
            "test-share": "0" if self.is_linear and self.is_too_small_to_test else None,
            "out": self.out / "model",
        }
        fit = ["fit", "tested" if self.is_linear else "subsample", str(self.source.table)]
        for name, value in options.items():
            fit += [f"--{name}"] if value is True else [f"--{name}", str(value)] if value else []
        return [fit, ["predict", str(self.out / "model"), str(self.out / "questions.csv")]]

    def lines(self) -> list[str]:
        """Return the shell commands."""
        return [shlex.join(["quorate", *words]) for words in self.words()]

    def run(self) -> int:
        """Run the commands one after the other until one is refused."""
        from quorate.cli.app import main

        for words in self.words():
            if code := main(words):
                return code
        return 0


def write_start(job: Job, names: Sequence[str]) -> None:
    """Write the folder: the script, the commands, and the queries to ask first, without columns that are not used."""
    job.out.mkdir(parents=True, exist_ok=True)
    (job.out / "script.py").write_text(_script(job), encoding="utf-8")
    (job.out / "commands.sh").write_text(_shell(job), encoding="utf-8")
    unused, queries = {job.label, job.source.groups, *job.leave_out}, _example_queries(job, names)
    write_csv(queries.select([name for name in queries.column_names if name not in unused]), job.out / "questions.csv")


def _example_queries(job: Job, names: Sequence[str]) -> Table:
    """Return example queries from public values alone; no query copies a private row."""
    if job.public_rows is not None:
        return job.public_rows.slice(0, _EXAMPLES)
    if job.schema is None:
        return make_table({name: [""] for name in names})
    columns = Schema.load(job.schema).columns
    return make_table({name: [_example(kind, row) for row in range(_EXAMPLES)] for name, kind in columns.items()})


def _example(kind: Kind, row: int) -> str:
    """Return a value of a declared column: one category after the other, or numbers from one end to the other."""
    if isinstance(kind, Category):
        return kind.categories[row % len(kind.categories)]
    if isinstance(kind, Text):
        return "a note"
    low, high = (0.0, 1.0) if kind.cuts is None else (kind.cuts[0], kind.cuts[-1])
    if kind.low is not None and kind.high is not None:
        low, high = kind.low, kind.high
    elif kind.centre is not None and kind.spread is not None:
        low, high = kind.centre - kind.spread, kind.centre + kind.spread
    value = low + (high - low) * row / (_EXAMPLES - 1)
    return str(date_of(float(round(value)), kind.unit)) if isinstance(kind, Date) else f"{value:g}"


def _shell(job: Job) -> str:
    fit, ask = job.lines()
    audience = "It may be published." if job.is_linear else "It holds its budget and is for its owner alone."
    return f"""#!/bin/sh
# Made by quorate start. Run this file or script.py, not both: each fit opens a budget of its own.
{"" if job.is_declared else _CLASSES_COMMENT}set -e

# Fit the model{" and test it" if job.is_linear else ""}, and write it into a folder. {audience}
{fit}

# Ask it. A row that is asked again gets the same answer, and is not charged again.
{ask}
"""


def _script(job: Job) -> str:
    """Return the plan as Python."""
    file_options = "".join(f", {name}={literal(value)}" for name, value in job.source.file_settings().items())
    values = {
        "about": job.label.replace("\\", "").replace('"', ""),
        "table": f"{literal(job.source.table)}{file_options}",
        "comment": "" if job.is_declared else _CLASSES_COMMENT,
        "unit": "row" if job.source.groups is None else "person",
        "epsilon": canonical_text(job.epsilon),
        "delta": canonical_text(job.delta),
        "questions": literal(job.out / "questions.csv"),
    }
    values |= _linear_values(job) if job.is_linear else _votes_values(job)
    return (_READ + (_LINEAR if job.is_linear else _VOTES)).format(**values)


def _linear_values(job: Job) -> dict[str, Any]:
    arguments = {
        "classes": literal(list(job.classes)) if job.is_declared else None,
        "groups": literal(job.source.groups),
        "public": literal(job.public),
        "schema": f"Schema.load({literal(job.schema)})" if job.schema is not None else None,
        "leave_out": literal(list(job.leave_out)) if job.leave_out else None,
        "test_share": "0" if job.is_too_small_to_test else None,
    }
    lines = [f"    {name}={text},\n" for name, text in arguments.items() if text not in (None, "None")]
    return {"label": literal(job.label), "arguments": "".join(lines), "folder": literal(job.out / "published")}


def _votes_values(job: Job) -> dict[str, Any]:
    label, groups, left_out = job.label, job.source.groups, list(job.leave_out)
    if job.public is not None:
        declared = {"label": label, "classes": list(job.classes), "groups": groups, "leave_out": left_out}
        lines = "".join(f"    {name}={literal(value)},\n" for name, value in declared.items() if value)
        schema = f"Schema.from_public(\n    public,\n{lines}).with_gaps()  # values may be missing in any column"
        schema = f'public = read_table({literal(job.public)}, role="public")\nschema = {schema}'
    else:
        classes = literal(list(job.classes) if job.is_declared else None)
        schema = f"schema = Schema.load({literal(job.schema)}).without({literal(left_out)})"
        schema += f".with_label({literal(label)}, {classes})"
        schema += "" if groups is None else f".with_groups({literal(groups)})"
    return {
        "schema": schema,
        "classes": "schema.label.classes" if job.is_declared else "None",  # read from y: the claim says so
        "more": "" if job.public is None else '    public=schema.encode(public, role="public"),\n',
        "queries": job.queries,
        "aggregator": literal(job.aggregator),
        "folder": literal(job.out / "private"),
    }


def literal(value: Any) -> str:
    """Return a text, a list of texts or a number as Python. JSON writes them as Python does."""
    if value is None:
        return "None"
    value = str(value) if isinstance(value, Path) else value
    return json.dumps(value, ensure_ascii=False)  # two surrogates for one letter would stay two in Python


_READ = '''"""Private answers about {about}. Made by quorate start; change what you like."""

import quorate as qr
from quorate.tables import SCHEMA_FILE, Schema, read_table

# The private records. Nothing of them leaves but what is paid for below.
records = read_table({table}, role="private")

{comment}'''
_LINEAR = """# A linear model from a few noisy sums, and a test of it on records that it was not fitted on: together
# they are (epsilon, delta)-differentially private for each {unit}.
fitted = qr.fit(
    records,
    {label},
    epsilon={epsilon},
    delta={delta},
{arguments})
print(fitted.summary())

# A folder that anybody may read. Asking the model costs nothing.
fitted.save({folder})
questions = read_table({questions}, role="query")
print(fitted.predict(questions))
print(fitted.predict_proba(questions).round(3))  # one column a class, in the order of model.classes_
"""
_VOTES = """# How columns become numbers is public: it is never learned from private rows.
{schema}

# Teachers on disjoint parts of the records. All answers together are (epsilon, delta)-differentially
# private for each {unit}. The budget is planned for this many queries.
clf = qr.PrivateClassifier(
    epsilon={epsilon},
    delta={delta},
    queries={queries},
    aggregator={aggregator},
    classes={classes},
)
clf.fit(
    schema.encode(records),
    schema.labels(records),
    groups=schema.units(records),
    one_scale=schema.one_scale,
{more})
print(clf.claim_)

# The folder keeps the model and its budget, so that a restart cannot spend twice. It is for its owner alone.
qr.save(clf, {folder}, extra={{SCHEMA_FILE: schema.to_json().encode()}})
questions = schema.encode(read_table({questions}, role="query"), role="query")
answers = clf.predict(questions)
print(answers.labels)  # None where the teachers do not agree
print(f"epsilon spent so far: {{clf.spent_epsilon():.3g}} of {epsilon}")
"""
