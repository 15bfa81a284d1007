"""What `quorate start` leaves behind: a commented script, the same as commands, and a few rows to ask about."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.cli.reading import TableFile
from quorate.tables.results import Table, write_csv

_CLASSES_COMMENT = """\
# The classes were read from the records: which of them occur is public with the model, and its claim
# says so. Name all that may occur (--classes, classes=), whether or not they do, to keep that private.
"""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What the five answers of `quorate start` say, with what follows from the tables."""

    source: TableFile
    label: str
    classes: tuple[str, ...]
    is_declared: bool  # whether these classes were given, and not read from the records
    queries: int | None
    abstain: bool
    public: Any  # its table, or None
    public_file: Path | None
    schema: Path | None
    units: int
    unused: tuple[str, ...]  # columns that the owner leaves out, or that are named as ids are
    ids: tuple[str, ...]
    wordy: tuple[str, ...]  # columns that have too many different texts in the public table
    columns: int
    features: int

    @property
    def is_learned(self) -> bool:
        """Whether nothing public says what the columns hold."""
        return self.public is None and self.schema is None

    @property
    def file_options(self) -> dict[str, Any]:
        """How the private file is written, where its first line does not show it."""
        return {name: value for name, value in self.source.file_settings().items() if value}


@dataclass(frozen=True, kw_only=True)
class Commands:
    """The commands that follow a plan."""

    situation: Situation
    epsilon: float
    delta: float
    queries: int
    aggregator: str
    is_linear: bool
    out: Path

    def words(self) -> list[list[str]]:
        """Return the arguments of `quorate`, one list a command."""
        situation = self.situation
        options = {
            "label": situation.label,
            "classes": ",".join(situation.classes) if situation.is_declared else None,
            "read-classes": not situation.is_declared,
            "groups": situation.source.groups,
            "public": situation.public_file,
            "gaps": situation.public_file is not None,
            "schema": situation.schema,
            "leave-out": ",".join((*situation.unused, *situation.wordy)),
            **{name.replace("_", "-"): value for name, value in situation.file_options.items()},
            "epsilon": f"{self.epsilon:g}",
            "delta": f"{self.delta:g}",
            "queries": None if self.is_linear else self.queries,
            "aggregator": None if self.is_linear else self.aggregator,
            "out": self.out / "model",
        }
        fit = ["fit", "linear" if self.is_linear else "subsample", str(situation.source.table)]
        for name, value in options.items():
            fit += [f"--{name}"] if value is True else [f"--{name}", str(value)] if value else []
        return [fit, ["predict", str(self.out / "model"), str(self.out / "questions.csv")]]

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
    situation = commands.situation
    unused = {situation.label, situation.source.groups, *situation.unused, *situation.wordy}
    used = [name for name in questions.column_names if name not in unused]
    write_csv(questions.select(used), commands.out / "questions.csv")


def _shell(commands: Commands) -> str:
    fit, ask = commands.lines()
    audience = "It may be published." if commands.is_linear else "It holds its budget and is for its owner alone."
    comment = "" if commands.situation.is_declared else _CLASSES_COMMENT
    return f"""#!/bin/sh
# Made by quorate start. Run this file or script.py, not both: each fit opens a budget of its own.
{comment}set -e

# Fit the model and write it into a folder. {audience}
{fit}

# Ask it. A row that is asked again gets the same answer, and is not charged again.
{ask}
"""


def _script(commands: Commands) -> str:
    """Return the plan as Python."""
    situation = commands.situation
    columns = _BY_SCHEMA if situation.schema is not None else _BY_NAMES if situation.is_learned else _BY_PUBLIC
    parts = [columns, _LINEAR if commands.is_linear else _VOTES]
    if situation.is_learned and commands.is_linear:
        parts = [_LEARNED]
    parts[0] = ("" if situation.is_declared else _CLASSES_COMMENT) + parts[0]
    values = _script_values(situation) | {
        "folder": _literal(commands.out / ("published" if commands.is_linear else "private")),
        "questions": _literal(commands.out / "questions.csv"),
        "epsilon": f"{commands.epsilon:g}",
        "delta": f"{commands.delta:g}",
        "queries": commands.queries,
        "aggregator": _literal(commands.aggregator),
    }
    return "\n".join(part.format(**values) for part in [_READ, *parts])


def _script_values(situation: Situation) -> dict[str, Any]:
    """Return what the templates say of the tables."""
    label, groups, left_out = situation.label, situation.source.groups, [*situation.unused, *situation.wordy]
    options = "".join(f", {name}={_literal(value)}" for name, value in situation.file_options.items())
    declared = {"label": label, "classes": list(situation.classes), "groups": groups, "leave_out": left_out}
    return {
        "about": label.replace("\\", "").replace('"', ""),
        "table": f"{_literal(situation.source.table)}{options}",
        "public": _literal(situation.public_file),
        "schema": _literal(situation.schema),
        "declared": "".join(f"    {key}={_literal(value)},\n" for key, value in declared.items() if value),
        "unit": "row" if groups is None else "person",
        "class_list": _literal(list(situation.classes) if situation.is_declared else None),
        "classes": "schema.label.classes" if situation.is_declared else "None",  # read from y: the claim says so
        "leave_out": _literal(left_out),
        "unused": _literal([*left_out, label, *([groups] if groups else [])]),
        "label": _literal(label),
        "groups": "None" if groups is None else f"records[{_literal(groups)}]",
        "more": "" if situation.public is None else '    public=schema.encode(public, role="public"),\n',
    }


def _literal(value: Any) -> str:
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
