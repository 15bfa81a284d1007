"""What `quorate start` leaves behind: a commented script, the same as commands, and a few rows to ask about."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from quorate.cli.commands.file_options import FileOptions
from quorate.tables.results import Table, write_csv


@dataclass(frozen=True, kw_only=True)
class Commands:
    """The commands that follow a plan."""

    table: Path
    public: Path | None
    label: str
    classes: tuple[str, ...]
    declared: bool
    groups: str | None
    schema: Path | None
    files: FileOptions
    leave_out: tuple[str, ...]
    epsilon: float
    delta: float
    queries: int
    aggregator: str
    linear: bool
    out: Path

    def words(self) -> list[list[str]]:
        """Return the arguments of `quorate`, one list a command."""
        fit = ["fit", "linear" if self.linear else "subsample", str(self.table), "--label", self.label]
        fit += ["--classes", ",".join(self.classes)] if self.declared else ["--read-classes"]
        fit += [] if self.groups is None else ["--groups", self.groups]
        fit += [] if self.public is None else ["--public", str(self.public), "--gaps"]
        fit += [] if self.schema is None else ["--schema", str(self.schema)]
        fit += ["--leave-out", ",".join(self.leave_out)] if self.leave_out else []
        for name, value in self.files.declared().items():
            fit += [f"--{name.replace('_', '-')}", str(value)]
        fit += ["--epsilon", f"{self.epsilon:g}", "--delta", f"{self.delta:g}"]
        fit += [] if self.linear else ["--queries", str(self.queries), "--aggregator", self.aggregator]
        fit += ["--out", str(self.out / "model")]
        ask = ["predict", str(self.out / "model"), str(self.out / "questions.csv")]
        return [fit, ask]

    def lines(self) -> list[str]:
        """Return the commands as they are typed."""
        return [shlex.join(["quorate", *words]) for words in self.words()]

    def run(self) -> int:
        """Run the commands one after the other until one is refused."""
        from quorate.cli.app import main

        for words in self.words():
            if code := main(words):
                return code
        return 0


def write_start(commands: Commands, questions: Table) -> None:
    """Write the folder, with these questions, without columns that are not used."""
    commands.out.mkdir(parents=True, exist_ok=True)
    (commands.out / "script.py").write_text(_script(commands), encoding="utf-8")
    (commands.out / "commands.sh").write_text(_shell(commands), encoding="utf-8")
    unused = {commands.label, commands.groups, *commands.leave_out}
    left = [name for name in questions.column_names if name not in unused]
    write_csv(questions.select(left), commands.out / "questions.csv")


_READ_CLASSES = """# The classes were read from the records: which of them occur is public with the model, and its claim
# says so. Name all that may occur (--classes, classes=), whether or not they do, to keep that private.
"""


def _read_from_records(commands: Commands) -> str:
    """Return, as a comment, what of the commands was read from private records."""
    return "" if commands.declared else _READ_CLASSES


def _shell(commands: Commands) -> str:
    fit, ask = commands.lines()
    kept = "It may be published." if commands.linear else "It holds its budget and is for its owner alone."
    return f"""#!/bin/sh
# Made by quorate start. Run this file or script.py, not both: each fit opens a budget of its own.
{_read_from_records(commands)}set -e

# Fit the model and write it into a folder. {kept}
{fit}

# Ask it. A row that is asked again gets the same answer, and is not charged again.
{ask}
"""


def _script(commands: Commands) -> str:
    """Return the plan as Python. Texts are written as JSON writes them, which Python reads alike."""

    def literal(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)  # two surrogates for one letter would stay two in Python

    declared = {"label": commands.label, "classes": commands.classes, "groups": commands.groups}
    declared["leave_out"] = commands.leave_out or None
    values = {
        "about": commands.label.replace("\\", "").replace('"', ""),
        "table": "".join(
            [literal(str(commands.table))]
            + [f", {name}={literal(value)}" for name, value in commands.files.declared().items()]
        ),
        "public": literal(str(commands.public)),
        "declared": "".join(f"    {key}={literal(value)},\n" for key, value in declared.items() if value),
        "unit": "row" if commands.groups is None else "person",
        "folder": literal(str(commands.out / ("published" if commands.linear else "private"))),
        "questions": literal(str(commands.out / "questions.csv")),
        "epsilon": f"{commands.epsilon:g}",
        "delta": f"{commands.delta:g}",
        "queries": commands.queries,
        "aggregator": literal(commands.aggregator),
        "class_list": literal(list(commands.classes)) if commands.declared else "None",
        "leave_out": literal(list(commands.leave_out)),
        "classes": "schema.label.classes" if commands.declared else "None",  # read from y: the claim says so
        "schema": literal(str(commands.schema)),
        "unused": literal([*commands.leave_out, commands.label, *([commands.groups] if commands.groups else [])]),
        "label": literal(commands.label),
        "groups": "None" if commands.groups is None else f"records[{literal(commands.groups)}]",
        "more": "" if commands.public is None else '    public=schema.encode(public, role="public"),\n',
    }
    by_table = commands.public is None and commands.schema is None
    known = _BY_SCHEMA if commands.schema is not None else _BY_NAMES if by_table else _BY_PUBLIC
    parts = [_READ, _read_from_records(commands) + known, _LINEAR if commands.linear else _VOTES]
    if by_table and commands.linear:
        parts = [_READ, _read_from_records(commands) + _LEARNED]
    return "\n".join(part.format(**values) for part in parts)


_READ = '''"""Private answers about {about}. Made by quorate start; change what you like."""

import quorate as qr
from quorate.tables import SCHEMA_FILE, Schema, read_table

# The private records. Nothing of them leaves but what is paid for below.
records = read_table({table}, role="private")
'''
_BY_NAMES = """# All columns in use are read as numbers; what is none counts as missing.
schema = Schema.numbers(
    records,
{declared})
"""
_BY_PUBLIC = """# How columns become numbers is learned from public rows, never from private ones.
public = read_table({public}, role="public")
schema = Schema.from_public(
    public,
{declared}).with_gaps()  # values may be missing in any column: another says where
"""
_BY_SCHEMA = """# How columns become numbers is declared.
schema = Schema.load({schema}).without({leave_out}).with_label({label}, {class_list})
"""
_LEARNED = """# Nothing is known of the columns: kinds, categories and ranges are learned with noise, within the same
# epsilon. All of it together is (epsilon, delta)-differentially private for each {unit}.
features = records.drop_columns({unused})
model = qr.PrivateLogisticRegression(epsilon={epsilon}, delta={delta}, classes={class_list}, columns="learned")
model.fit(features, records[{label}].to_pylist(), groups={groups})
print(model.claim_)

# A folder that anybody may read. Asking the model costs nothing.
qr.save(model, {folder})
questions = read_table({questions}, role="query")
print(model.predict(questions))
print(model.predict_proba(questions).round(3))  # one column a class, in the order of model.classes_
"""
_LINEAR = """# A linear model from a few noisy sums: (epsilon, delta)-differentially private for each {unit}.
model = qr.PrivateLogisticRegression(epsilon={epsilon}, delta={delta}, classes={classes})
model.fit(
    schema.encode(records),
    schema.labels(records),
    groups=schema.units(records),
{more})
print(model.claim_)

# A folder that anybody may read. Asking the model costs nothing.
qr.save(model, {folder}, extra={{SCHEMA_FILE: schema.to_json().encode()}})
questions = schema.encode(read_table({questions}, role="query"), role="query")
print(model.predict(questions))
print(model.predict_proba(questions).round(3))  # one column a class, in the order of model.classes_
"""
_VOTES = """# Teachers on disjoint parts of the records. All answers together are (epsilon, delta)-differentially
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
