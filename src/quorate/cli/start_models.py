"""`quorate start` for a model: one linear model that may be published, or votes on each query, by the plan.

The plan and all that is written is made of the names of the columns, the number of rows or people, a public table or a
schema, and the label set, which the claim says is public if it was not declared. No other value of a private row
decides anything here. Without a public table or a schema, the model learns its columns within its own budget.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from quorate.cli.output import show_plan, show_rows
from quorate.cli.start_files import Job, literal, to_lines
from quorate.core.errors import InvalidInput
from quorate.planner import Plan, plan
from quorate.tables import Category, Date, Embedded, Schema, Text, read_table
from quorate.tables.columns import Kind
from quorate.tables.dates import date_of
from quorate.tables.infer import TooManyTexts
from quorate.tables.learned import check_learnable
from quorate.tables.results import Table, make_table, write_csv
from quorate.tables.values import distinct_labels

_MAX_CLASSES = 50
_FEATURES_PER_COLUMN = 6  # about, where nothing is known of a column
_UNLIMITED = 1_000  # queries that votes are planned for, beside a model that any number may ask
_EXAMPLES = 5  # queries to ask first
_FEWEST_TESTED_UNITS = 200  # A quarter of them is enough for a test.


@dataclass(frozen=True, kw_only=True)
class ModelJob(Job):
    """What is to be predicted, for how many queries (None for any number), and what is public of the table."""

    label: str
    classes: list[str]
    is_declared: bool  # whether these classes were given, and not read from the records
    public: Path | None
    queries: int | None
    abstain: bool

    @cached_property
    def public_rows(self) -> Any:
        """The public table, or None."""
        return None if self.public is None else read_table(self.public, role="public")

    @property
    def is_learned(self) -> bool:
        """Whether nothing public says what the columns hold."""
        return self.public is None and self.schema is None

    @property
    def open_ranges(self) -> list[str]:
        """The columns of numbers to which the schema gives no range."""
        return [] if self.declared is None else list(self.declared.open_ranges)

    @property
    def columns(self) -> int:
        """The number of columns that are used."""
        return len(set(self.records.column_names) - {self.label, self.source.groups, *self._unused})

    @property
    def _unused(self) -> list[str]:
        return list(dict.fromkeys([*self.source.leave_out, *self.ids]))

    @cached_property
    def wordy(self) -> list[str]:
        """The columns that have too many different texts in the public table."""
        try:
            self._read_public()
        except TooManyTexts as error:
            return list(error.counts)
        return []

    @property
    def left_out(self) -> list[str]:
        """The columns that are not used: ids, those with too many texts, and those that the owner leaves out."""
        return [*self._unused, *self.wordy]

    def _read_public(self, *wordy: str) -> Schema | None:
        if self.declared is not None or self.public_rows is None:
            return self.declared
        named: dict[str, Any] = {"label": self.label, "classes": self.classes, "groups": self.source.groups}
        return Schema.from_public(self.public_rows, leave_out=[*self._unused, *wordy], **named).with_gaps()

    @cached_property
    def plan(self) -> Plan:
        """The plan for votes, with a comparison of methods."""
        if learned := self.columns if self.is_learned else len(self.open_ranges):
            if self.delta == 0:
                raise InvalidInput("to learn what the columns hold needs a delta above 0: --delta, --public, --schema")
            check_learnable(self.units, learned, epsilon=self.epsilon, delta=self.delta)
        schema = self._read_public(*self.wordy)
        majority = "sharp_majority" if len(self.classes) == 2 else "noisy_max"
        return plan(
            records=self.units,
            epsilon=self.epsilon,
            delta=self.delta,
            queries=self.queries or _UNLIMITED,
            classes=len(self.classes),
            features=_FEATURES_PER_COLUMN * self.columns if schema is None else len(schema.feature_names),
            public=0 if self.public_rows is None else self.public_rows.num_rows,
            aggregator="quorum" if self.abstain else majority,
        )

    @cached_property
    def is_linear(self) -> bool:
        """Whether a linear model is better than votes; it is fitted where columns are learned, in any case."""
        errors = {method.name: method.error for method in self.plan.methods}
        if "linear" not in errors:
            if self.queries is None:
                raise InvalidInput("any number of queries needs a linear model, which needs a delta above 0: --delta")
            return False
        is_needed = self.is_learned or bool(self.open_ranges) or self.queries is None
        return is_needed or errors["linear"] <= errors["votes"]

    @property
    def feasible(self) -> bool:
        """Whether a model of this kind is expected to be good enough."""
        return self.is_linear or self.plan.feasible

    def show(self) -> None:
        """Print the plan, and what becomes of the columns and the classes."""
        print_line = Console(highlight=False, markup=False).print
        print_line("\nThe plan" + (", made from public numbers alone" if self.is_declared else ""))
        if self.is_linear:
            print_line("One linear model that may be published. It answers every query, as often as anyone likes.")
            losses = [row | {"expected loss": f"{row['expected loss']:.1%}"} for row in self.forecast()]
            show_rows(losses, is_result=True, title="Rows missed beyond the best linear rule")
            print_line(self.guarantee)
        else:
            show_plan(self.plan, as_json=False)
        for sentence in self.notes():
            print_line(sentence)

    def forecast(self) -> list[dict[str, Any]]:
        """Return the rows that each method is expected to miss beyond the best linear rule, as a share."""
        return [
            {"method": method.name, "estimator": method.estimator, "expected loss": method.error}
            for method in self.plan.methods
            if not method.is_bound
        ]

    def notes(self) -> Iterator[str]:
        """Yield what becomes of the columns and the classes, and how the owner can change that."""
        if self.ids:
            yield (
                f"Not used, since their names are those of ids: {', '.join(self.ids)}. If one says whose row it is, "
                "protect that person: --groups COLUMN."
            )
        if self.is_learned:
            yield (
                f"The {self.columns} columns are learned from the records, within the same epsilon. A public table or "
                "a schema would say what they hold."
            )
        if self.open_ranges:
            yield (
                f"The schema has no bounds for {', '.join(self.open_ranges)}: their ranges are learned from the "
                "records, within the same epsilon. Declare low and high if they are public."
            )
        if self.wordy:
            yield (
                f"Left out: {', '.join(self.wordy)}. Each has too many different texts in the public table to be a "
                "column of categories. quorate fit takes them for sentences (--texts), or as a schema declares them "
                "(--schema)."
            )
        if not self.is_declared:
            yield (
                f"Read from the records, and public with the model: the classes {', '.join(self.classes)}. "
                "Name all that may occur (--classes), whether or not they do, to keep private which of them do."
            )
        for short, long in _initials(self.classes):
            yield f"{short} and {long} are two classes. If they mean the same, write one of them in the table first."
        if not self.feasible:
            yield f"Nothing was written: {self.shortfall()}."

    def shortfall(self) -> str:
        """Return what the plan of votes misses, and what would do."""
        return self.plan.shortfall()

    def _test_share(self) -> str | None:
        return "0" if self.is_linear and self.units < _FEWEST_TESTED_UNITS else None

    def steps(self) -> dict[str, list[str]]:
        """Return the commands that fit the model and ask it."""
        settings = {
            "label": self.label,
            "classes": self.classes if self.is_declared else None,
            "read_classes": not self.is_declared,
            "groups": self.source.groups,
            "public": self.public,
            "gaps": self.public is not None and not self.is_linear,
            "schema": self.schema,
            "leave_out": self.left_out,
            "queries": None if self.is_linear else self.plan.queries,
            "aggregator": None if self.is_linear else self.plan.aggregator,
            "test_share": self._test_share(),
            "out": self.out / "model",
            "report": self.page,
        }
        audience = "Anybody may have the folder." if self.is_linear else "It holds its budget: for its owner alone."
        source = "" if self.is_declared else f"{_CLASSES_COMMENT}\n# "
        return {
            f"{source}Fit the model, and write it into a folder. {audience}": self.words(
                "fit tested" if self.is_linear else "fit subsample", settings
            ),
            "Ask it. A row that is asked again gets the same answer, and is not charged again.": [
                *("predict", str(self.out / "model"), str(self.out / "questions.csv"))
            ],
        }

    def write(self) -> None:
        """Write the script, the commands, and the queries to ask first, without columns that are not used."""
        super().write()
        unused, queries = {self.label, self.source.groups, *self.left_out}, self._example_queries()
        used = [name for name in queries.column_names if name not in unused]
        write_csv(queries.select(used), self.out / "questions.csv")

    def _example_queries(self) -> Table:
        """Return example queries from public values alone; no query copies a private row."""
        if self.public_rows is not None:
            return self.public_rows.slice(0, _EXAMPLES)
        if self.declared is None:
            return make_table({name: [""] for name in self.records.column_names})
        columns = self.declared.columns.items()
        return make_table({name: [_example(kind, row) for row in range(_EXAMPLES)] for name, kind in columns})

    def script(self) -> str:
        """Return the plan as Python."""
        values = self.budget | {
            "about": self.label.replace("\\", "").replace('"', ""),
            "reading": self.reading,
            "comment": "" if self.is_declared else f"# {_CLASSES_COMMENT}\n",
            "unit": "row" if self.source.groups is None else "person",
            "questions": literal(self.out / "questions.csv"),
            "folder": literal(self.out / ("published" if self.is_linear else "private")),
            "label": literal(self.label),
        }
        if self.is_linear:
            classes = self.classes if self.is_declared else None
            lines = {"classes": classes, "groups": self.source.groups, "public": self.public}
            settings = to_lines(lines | {"leave_out": self.left_out})
            settings += "" if self.schema is None else f"    schema=Schema.load({literal(self.schema)}),\n"
            settings += "    test_share=0,\n" if self._test_share() else ""
            return (_READ + _LINEAR).format(**values, arguments=settings)
        return (_READ + _VOTES).format(
            **values,
            schema=self._schema_script(),
            classes="schema.label.classes" if self.is_declared else "None",  # read from y: the claim says so
            more="" if self.public is None else '    public=schema.encode(public, role="public"),\n',
            queries=self.plan.queries,
            aggregator=literal(self.plan.aggregator),
        )

    def _schema_script(self) -> str:
        """Return the lines of Python that say how columns become numbers."""
        groups = self.source.groups
        if self.public is not None:
            named = {"label": self.label, "classes": self.classes, "groups": groups, "leave_out": self.left_out}
            schema = f"Schema.from_public(\n    public,\n{to_lines(named)}).with_gaps()  # values may be missing"
            return f'public = read_table({literal(self.public)}, role="public")\nschema = {schema}'
        classes = literal(self.classes if self.is_declared else None)
        schema = f"Schema.load({literal(self.schema)}).without({literal(self.left_out)})"
        schema += f".with_label({literal(self.label)}, {classes})"
        return f"schema = {schema}" + ("" if groups is None else f".with_groups({literal(groups)})")

    def as_dict(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        name = "linear" if self.is_linear else "votes"
        return {
            "method": name,
            "estimator": next(method.estimator for method in self.plan.methods if method.name == name),
            "feasible": self.feasible,
            "label": self.label,
            "classes": self.classes,
            "classes_declared": self.is_declared,
            "groups": self.source.groups,
            "units": self.units,
            "leave_out": self.left_out,
            "learned": self.is_learned,
            "commands": self.lines() if self.feasible else [],
            "plan": self.plan.as_dict(),
        }


def find_classes(records: Any, label: str, schema: Schema | None) -> tuple[list[str], bool]:
    """Return the classes that a schema declares for this label, or those of the records; and whether it does."""
    if schema is not None and schema.label is not None and schema.label.column == label:
        return list(map(str, schema.label.classes)), True
    classes = distinct_labels(records[label])
    if not 2 <= len(classes) <= _MAX_CLASSES:
        raise InvalidInput(
            f"{label!r} is no label with 2 to {_MAX_CLASSES} values; for numbers see quorate fit linear --bounds"
        )
    return classes, False


def _initials(classes: list[str]) -> list[tuple[str, str]]:
    """Return the classes of one letter, each with a longer one that begins with it.

    >>> _initials(["Y", "no", "yes"])
    [('Y', 'yes')]
    """
    texts = [(short, long) for short in classes for long in classes if len(short) == 1 < len(long)]
    return [(s, text) for s, text in texts if s.isalpha() and text.casefold().startswith(s.casefold())]


def _example(kind: Kind, row: int) -> str:
    """Return a value of a declared column: one category after the other, or numbers from one end to the other."""
    if isinstance(kind, Category):
        return kind.categories[row % len(kind.categories)]
    if isinstance(kind, Text | Embedded):
        return "a note"
    low, high = (0.0, 1.0) if kind.cuts is None else (kind.cuts[0], kind.cuts[-1])
    if kind.low is not None and kind.high is not None:
        low, high = kind.low, kind.high
    elif kind.centre is not None and kind.spread is not None:
        low, high = kind.centre - kind.spread, kind.centre + kind.spread
    value = low + (high - low) * row / (_EXAMPLES - 1)
    return str(date_of(float(round(value)), kind.unit)) if isinstance(kind, Date) else f"{value:g}"


_CLASSES_COMMENT = """\
The classes were read from the records: which of them occur is public with the model, and its claim
# says so. Name all that may occur (--classes, classes=), whether or not they do, to keep that private."""
_READ = '''"""Private answers about {about}. Made by quorate start; change what you like."""

import quorate as qr
from quorate.tables import SCHEMA_FILE, Schema, read_table

# The private records. Nothing of them leaves but what is paid for below.
records = {reading}

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
