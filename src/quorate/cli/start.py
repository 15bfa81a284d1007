"""Five questions, a plan with a picture, and the script and commands that follow it: `quorate start`.

The plan, the script and the commands are made of public things alone: the names of the columns, the number of rows or
people, a public table or a schema, and the label set, which the claim says is public if it was not declared. No other
value of a private row decides anything here. Without a public table or a schema, the model learns its columns from the
records itself, within its own budget.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate.cli.commands.file_options import FileOptions
from quorate.cli.output import check_apart, check_new_folder
from quorate.cli.reading import classes_of_records
from quorate.cli.start_files import Commands, write_start
from quorate.core.checks import check_count, check_delta, check_positive, is_named_id
from quorate.core.errors import InvalidInput
from quorate.planner import Method, Plan, plan
from quorate.tables import Category, Date, Schema, Text, read_table
from quorate.tables.columns import Kind
from quorate.tables.dates import date_of
from quorate.tables.infer import TooManyTexts
from quorate.tables.learned import check_learnable
from quorate.tables.persons import person_names
from quorate.tables.results import Table as ResultTable
from quorate.tables.results import make_table
from quorate.tables.values import raw_column

_MOST_CLASSES = 50
_EXAMPLES = 5  # queries to ask first
_WIDTH = 40  # characters of a bar
_COLUMN_FEATURES = 6  # that a column of a table becomes, about, where nothing is known of it
_ANY = 1_000  # queries that votes are planned for, beside a model that any number may ask


@dataclass(frozen=True, kw_only=True)
class _Situation:
    """What the five answers say, with what follows from the tables."""

    label: str
    classes: tuple[str, ...]
    declared: bool  # whether these classes were given, and not read from the records
    groups: str | None
    queries: int | None
    abstain: bool
    public: Any  # its table, or None
    units: int
    schema: Path | None
    leave_out: tuple[str, ...]  # columns that have too many different texts in the public table
    ids: tuple[str, ...]  # columns that are named as numbers of rows or persons are
    columns: int
    features: int

    @property
    def is_learned(self) -> bool:
        """Whether nothing public says what the columns hold."""
        return self.public is None and self.schema is None


def run_start(
    table: Path,
    given: Mapping[str, Any],
    *,
    public: Path | None,
    schema: Path | None,
    files: FileOptions,
    epsilon: float,
    delta: float,
    out: Path,
    run: bool,
    as_json: bool,
) -> int:
    """Ask, plan, show and write. Return 1 where the plan is not feasible: then nothing is written."""
    check_positive("epsilon", epsilon)
    check_delta(delta)
    check_new_folder(out)
    records = read_table(table, role="private", **files.settings())
    situation, public = _situation(records, given, public, schema, speaks=sys.stdin.isatty() and not as_json)
    check_apart(table, public)
    planned = _plan(situation, epsilon, delta)
    road = _chosen(planned, situation)
    if situation.is_learned and road.name == "linear":
        check_learnable(situation.units, situation.columns, epsilon=epsilon, delta=delta)
    commands = Commands(
        table=table,
        public=public,
        label=situation.label,
        classes=situation.classes,
        declared=situation.declared,
        groups=situation.groups,
        schema=schema,
        files=files,
        leave_out=(*situation.ids, *situation.leave_out),
        epsilon=epsilon,
        delta=delta,
        queries=planned.queries,
        aggregator=planned.aggregator,
        linear=road.name == "linear",
        out=out,
    )
    feasible = road.name == "linear" or planned.feasible
    if not as_json:
        _show(Console(highlight=False), planned, road, situation, feasible=feasible)
    if feasible:
        write_start(commands, _example_queries(situation, records.column_names, linear=commands.linear))
    if as_json:
        print(json.dumps(_as_dict(planned, road, situation, commands, feasible=feasible)))
    elif feasible:
        _show_written(Console(highlight=False), commands, situation)
    return commands.run() if run and feasible else 0 if feasible else 1


@dataclass(frozen=True)
class _Question:
    """A question of `quorate start`, the option that answers it, and what is taken if neither does."""

    text: str
    option: str
    default: str | None
    parse: Callable[[str], Any]

    def answer(self, value: object, *, speaks: bool) -> Any:
        """Return the option's value, or ask on a terminal until an answer will do, or take the default."""
        if value is not None:
            return self.parse(str(value))
        if not speaks:
            if self.default is None:
                raise InvalidInput(f"{self.text} Answer with {self.option}")
            return self.parse(self.default)
        while True:
            try:
                typed = input(f"{self.text}{f' [{self.default}]' if self.default else ''} ").strip()
            except EOFError:
                raise InvalidInput(f"no answer was given: use {self.option} on the command line") from None
            try:
                return self.parse(typed or self.default or "")
            except InvalidInput as error:
                print(f"  {error}")


def _questions(names: Sequence[str]) -> dict[str, _Question]:
    """Return the five questions about a table of these columns."""

    def column(text: str) -> str:
        if text not in names:
            raise InvalidInput(f"there is no column {text!r}; the columns are {', '.join(names)}")
        return text

    return {
        "label": _Question("1. Which column is the label, to be predicted?", "--label COLUMN", None, column),
        "groups": _Question(
            "2. Who is protected? Name the column that says whose row it is, or none if each row is a person.",
            "--groups COLUMN",
            "none",
            lambda text: None if text == "none" else column(text),
        ),
        "queries": _Question(
            "3. How many queries will be asked, by everyone together? A number, or any.",
            "--queries NUMBER",
            "1000",
            lambda text: None if text == "any" else check_count("queries", _whole(text)),
        ),
        "abstain": _Question(
            "4. May a query stay without an answer where the records give no clear one? yes or no.",
            "--abstain",
            "no",
            _yes,
        ),
        "public": _Question(
            "5. Is there a public table of the same columns? Its file, or none.",
            "--public FILE",
            "none",
            lambda text: None if text == "none" else _existing(text),
        ),
    }


def _situation(
    records: Any, given: Mapping[str, Any], public: Path | None, schema: Path | None, *, speaks: bool
) -> tuple[_Situation, Path | None]:
    """Return the situation that options and answers describe, and the file of the public table."""
    names = records.column_names
    if speaks:
        print(f"{records.num_rows:,} rows; the columns are {', '.join(names)}.\n")
    options = dict(given) | {
        "abstain": {True: "yes", False: "no", None: None}[given["abstain"]],
        "public": "none" if schema is not None and public is None else public,
    }
    answers = {name: asked.answer(options[name], speaks=speaks) for name, asked in _questions(names).items()}
    label, groups, public = answers["label"], answers["groups"], answers.pop("public")
    classes = _classes(records, label) if given["classes"] is None else tuple(given["classes"].split(","))
    known = None if public is None else read_table(public, role="public")
    ids = tuple(name for name in names if is_named_id(name) and name not in (label, groups))
    columns = len([name for name in names if name not in (label, groups, *ids)])
    features = _COLUMN_FEATURES * columns
    left_out: tuple[str, ...] = ()
    if schema is not None:
        features = len(Schema.load(schema).feature_names)
    elif known is not None:
        features, left_out = _public_features(known, ids, label=label, classes=classes, groups=groups)
    situation = _Situation(
        **answers,
        classes=classes,
        declared=given["classes"] is not None,
        public=known,
        schema=schema,
        units=records.num_rows if groups is None else len(person_names(raw_column(records[groups]))[1]),
        leave_out=left_out,
        ids=ids,
        columns=columns,
        features=features,
    )
    return situation, public


def _public_features(known: Any, ids: tuple[str, ...], **declared: Any) -> tuple[int, tuple[str, ...]]:
    """Return how many features a public table becomes, and the columns that have too many different texts."""
    left_out: tuple[str, ...] = ()
    try:
        described = Schema.from_public(known, leave_out=ids, **declared)
    except TooManyTexts as error:
        left_out = tuple(error.counts)
        described = Schema.from_public(known, leave_out=(*ids, *left_out), **declared)
    return len(described.with_gaps().feature_names), left_out


def _whole(text: str) -> int:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        raise InvalidInput(f"a whole number is needed, or any, not {text!r}") from None


def _yes(text: str) -> bool:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise InvalidInput("answer yes or no")
    return text.lower() in ("y", "yes")


def _existing(text: str) -> Path:
    if not Path(text).is_file():
        raise InvalidInput(f"there is no file {text}")
    return Path(text)


def _classes(records: Any, label: str) -> tuple[str, ...]:
    classes = classes_of_records(records, label)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise InvalidInput(
            f"{label!r} is no label with 2 to {_MOST_CLASSES} values; for numbers see quorate fit linear --bounds"
        )
    return tuple(classes)


def _plan(situation: _Situation, epsilon: float, delta: float) -> Plan:
    whole = "sharp_majority" if len(situation.classes) == 2 else "noisy_max"
    return plan(
        records=situation.units,
        epsilon=epsilon,
        delta=delta,
        queries=_ANY if situation.queries is None else situation.queries,
        classes=len(situation.classes),
        features=situation.features,
        public=0 if situation.public is None else situation.public.num_rows,
        aggregator="quorum" if situation.abstain else whole,
    )


def _chosen(planned: Plan, situation: _Situation) -> Method:
    """Return the better of votes and a linear model; a linear model where nothing public says what the columns hold."""
    open_roads = {road.name: road for road in planned.methods if road.name in ("votes", "linear")}
    if situation.is_learned and "linear" in open_roads:
        return open_roads["linear"]
    if situation.queries is None:
        if "linear" not in open_roads:
            raise InvalidInput("any number of queries needs a linear model, which needs a delta above 0: --delta")
        return open_roads["linear"]
    return min(open_roads.values(), key=lambda road: road.error)


def _show(console: Console, planned: Plan, road: Method, situation: _Situation, *, feasible: bool) -> None:
    console.print("\n[bold]The plan[/bold]" + (", made from public numbers alone" if situation.declared else ""))
    if road.name == "linear":
        console.print("One linear model that may be published. It answers every query, as often as anyone likes.\n")
        losses = {one.name: one.error for one in planned.methods if not one.is_bound}
        most = max(losses.values())
        bars = {name: (loss / most, f"{loss:.1%}") for name, loss in losses.items()}
        _show_bars(console, "Rows that each way is expected to miss, beyond the best linear rule:", bars)
        console.print(f"All of it together keeps epsilon = {planned.epsilon:g}, delta = {planned.delta:g}.")
    else:
        console.print(planned.summary().split(" This falls short")[0] + "\n")
        shares = {
            "the teachers' plurality": planned.right,
            "another label, by noise": planned.answered - planned.right,
            "no answer": 1 - planned.answered,
        }
        bars = {name: (share, f"{share:.1%}") for name, share in shares.items()}
        _show_bars(console, f"What {planned.queries:,} queries get:", bars)
    for sentence in planned.assumptions if road.name != "linear" else ():
        console.print(f"Assumed: {sentence}.")
    if situation.ids:
        console.print(
            f"Not used: {escape(', '.join(situation.ids))}, which name rows or people. If one says whose row it is, "
            "protect that person: --groups COLUMN."
        )
    if situation.is_learned:
        how = "learned from the records, within the same epsilon" if road.name == "linear" else "read as numbers"
        console.print(
            f"The {situation.columns} columns are {how}. A public table or a schema would say what they hold."
        )
    if situation.leave_out:
        console.print(
            f"Left out: {escape(', '.join(situation.leave_out))}. Each has too many different texts in the public "
            "table to be a column of categories. quorate fit takes them for sentences (--texts), or as a schema "
            "declares them (--schema)."
        )
    if not situation.declared:
        console.print(
            f"Read from the records, and public with the model: the classes {escape(', '.join(situation.classes))}. "
            "Name all that may occur (--classes), whether or not they do, to keep private which of them do."
        )
    if not feasible:
        console.print(f"\n[bold]Nothing was written[/bold]: {planned.shortfall()}.")


def _show_bars(console: Console, title: str, bars: Mapping[str, tuple[float, str]]) -> None:
    picture = Table(show_header=False, box=None, padding=(0, 1))
    for name, (share, figure) in bars.items():
        filled = round(_WIDTH * share) or int(share > 0)
        picture.add_row(name, "█" * filled + "░" * (_WIDTH - filled), figure)
    console.print(title, picture)


def _example_queries(situation: _Situation, names: Sequence[str], *, linear: bool) -> ResultTable:
    """Return queries to ask first, made of public things alone: no private row is asked about."""
    if situation.public is not None:
        return situation.public.slice(0, _EXAMPLES)
    if situation.schema is None:  # a query without any value; teachers that take all columns for numbers need some
        return make_table({name: ["" if linear else "0"] for name in names})
    columns = Schema.load(situation.schema).columns
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


def _show_written(console: Console, commands: Commands, situation: _Situation) -> None:
    examples = "five public rows" if situation.public is not None else "five made-up rows"
    examples = "a row without values, to be filled in," if situation.is_learned else examples
    console.print(
        f"\nWritten to {escape(str(commands.out))}: script.py does it all in Python, commands.sh on the command line; "
        f"questions.csv holds {examples} to ask about first. Run one of the two: each opens a budget of its own."
    )
    for line in commands.lines():
        console.print(f"$ {escape(line)}", soft_wrap=True)


def _as_dict(
    planned: Plan, road: Method, situation: _Situation, commands: Commands, *, feasible: bool
) -> dict[str, Any]:
    return {
        "road": road.name,
        "estimator": road.estimator,
        "feasible": feasible,
        "label": situation.label,
        "classes": list(situation.classes),
        "classes_declared": situation.declared,
        "groups": situation.groups,
        "units": situation.units,
        "leave_out": [*situation.ids, *situation.leave_out],
        "learned": situation.is_learned,
        "commands": commands.lines() if feasible else [],
        "plan": planned.as_dict(),
    }
