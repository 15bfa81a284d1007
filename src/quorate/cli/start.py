"""`quorate start`: five questions, a plan with a picture, and the script and commands that follow it.

The plan, the script and the commands are made of public things alone: the names of the columns, the number of rows or
people, a public table or a schema, and the label set, which the claim says is public if it was not declared. No other
value of a private row decides anything here. Without a public table or a schema, the model learns its columns from the
records itself, within its own budget.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate.cli.options import AsJson, split_list
from quorate.cli.output import check_apart, check_new_folder
from quorate.cli.reading import TableFile, check_column_names, classes_of_records
from quorate.cli.start_files import Commands, Situation, write_start
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
_BAR_LETTERS = 40
_FEATURES_PER_COLUMN = 6  # about, where nothing is known of a column
_UNLIMITED = 1_000  # queries that votes are planned for, beside a model that any number may ask


def start(
    source: TableFile,
    *,
    classes: str | None = None,
    queries: str | None = None,
    abstain: Annotated[bool | None, Parameter(negative="--no-abstain")] = None,
    public: Path | None = None,
    schema: Path | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    out: Path = Path("quorate-start"),
    run: bool = False,
    json: AsJson = False,
) -> int:
    """Ask five questions about your table, show a plan, and write a script and the commands that follow it.

    A question is skipped if its option is given. If nobody can be asked, --label is required, and the other questions
    take their defaults. Nothing is fitted, and nothing spent, without --run. Exit code 1 if the plan is not feasible;
    then nothing is written.

    Example: `quorate start visits.csv --label outcome --groups patient --queries 500 --public survey.csv`

    Parameters
    ----------
    classes
        All possible labels, separated by commas. By default they are read from the label column; they become public.
    queries
        How many queries will be asked in total, or any.
    abstain
        Whether a query may remain unanswered if the records give no clear answer.
    public
        A table of public records with the same columns; its label column may be missing. Without it and without a
        schema, the model learns what the columns hold from the private records, within the same epsilon.
    schema
        A JSON file that declares the columns, as `quorate look` writes one.
    epsilon
        The total privacy loss allowed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    out
        A new folder for script.py, commands.sh and questions.csv.
    run
        Run the commands at once: fit the model and ask it the first queries.
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    check_new_folder(out)
    records = source.read()
    check_column_names(records, leave_out=split_list(source.leave_out))
    replies = {
        "label": source.label,
        "groups": source.groups,
        "queries": queries,
        "abstain": {True: "yes", False: "no", None: None}[abstain],
        "public": "none" if schema is not None and public is None else public,
    }
    replies = _ask_questions(records, replies, is_terminal=sys.stdin.isatty() and not json)
    situation = _describe(records, replies, source, schema, classes)
    check_apart(source.table, situation.public_file)
    planned = _plan(situation, epsilon, delta)
    method = _choose_method(planned, situation)
    if situation.is_learned and method.name == "linear":
        check_learnable(situation.units, situation.columns, epsilon=epsilon, delta=delta)
    commands = Commands(
        situation=situation,
        epsilon=epsilon,
        delta=delta,
        queries=planned.queries,
        aggregator=planned.aggregator,
        is_linear=method.name == "linear",
        out=out,
    )
    feasible = commands.is_linear or planned.feasible
    _show(Console(highlight=False, quiet=json), planned, commands, feasible=feasible)
    if feasible:
        write_start(commands, _example_queries(situation, records.column_names, is_linear=commands.is_linear))
    if json:
        print(dumps(_as_dict(planned, method, commands, feasible=feasible)))
    if not feasible:
        return 1
    return commands.run() if run else 0


@dataclass(frozen=True)
class _Question:
    """A question of `quorate start`, the option that answers it, and the default if neither does."""

    text: str
    option: str
    default: str | None
    parse: Callable[[str], Any]

    def answer(self, value: object, *, is_terminal: bool) -> Any:
        """Return the option's value, or ask on a terminal until an answer will do, or take the default."""
        if value is not None:
            return self.parse(str(value))
        if not is_terminal:
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


def _ask_questions(records: Any, replies: Mapping[str, Any], *, is_terminal: bool) -> dict[str, Any]:
    """Return the answers to the five questions: those of options, and those that are typed."""
    names = records.column_names

    def column(text: str) -> str:
        if text not in names:
            raise InvalidInput(f"there is no column {text!r}; the columns are {', '.join(names)}")
        return text

    if is_terminal:
        print(f"{records.num_rows:,} rows; the columns are {', '.join(names)}.\n")
    questions = {
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
            _parse_number,
        ),
        "abstain": _Question(
            "4. May a query stay without an answer where the records give no clear one? yes or no.",
            "--abstain",
            "no",
            _parse_yes,
        ),
        "public": _Question(
            "5. Is there a public table of the same columns? Its file, or none.", "--public FILE", "none", _parse_file
        ),
    }
    return {name: question.answer(replies[name], is_terminal=is_terminal) for name, question in questions.items()}


def _parse_number(text: str) -> int | None:
    digits = text.replace(",", "")
    if text != "any" and not digits.isdecimal():
        raise InvalidInput(f"a whole number is needed, or any, not {text!r}")
    return None if text == "any" else check_count("queries", int(digits))


def _parse_yes(text: str) -> bool:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise InvalidInput("answer yes or no")
    return text.lower() in ("y", "yes")


def _parse_file(text: str) -> Path | None:
    if text == "none":
        return None
    if not Path(text).is_file():
        raise InvalidInput(f"there is no file {text}")
    return Path(text)


def _describe(
    records: Any, replies: Mapping[str, Any], source: TableFile, schema: Path | None, classes: str | None
) -> Situation:
    """Return what the answers say, with what follows from the tables."""
    label, groups, public_file = replies["label"], replies["groups"], replies["public"]
    label_classes = _read_classes(records, label) if classes is None else tuple(classes.split(","))
    ids = tuple(name for name in records.column_names if is_named_id(name) and name not in (label, groups))
    unused = tuple(dict.fromkeys([*split_list(source.leave_out), *ids]))
    columns = len([name for name in records.column_names if name not in (label, groups, *unused)])
    public = None if public_file is None else read_table(public_file, role="public")
    features = _FEATURES_PER_COLUMN * columns
    wordy: tuple[str, ...] = ()
    if schema is not None:
        features = len(Schema.load(schema).feature_names)
    elif public is not None:
        features, wordy = _count_features(public, unused, label=label, classes=label_classes, groups=groups)
    return Situation(
        source=replace(source, label=label, groups=groups, leave_out=None),
        label=label,
        classes=label_classes,
        is_declared=classes is not None,
        queries=replies["queries"],
        abstain=replies["abstain"],
        public=public,
        public_file=public_file,
        schema=schema,
        units=records.num_rows if groups is None else len(person_names(raw_column(records[groups]))[1]),
        unused=unused,
        ids=ids,
        wordy=wordy,
        columns=columns,
        features=features,
    )


def _count_features(public: Any, unused: Sequence[str], **declared: Any) -> tuple[int, tuple[str, ...]]:
    """Return how many features a public table becomes, and the columns that have too many different texts."""
    wordy: tuple[str, ...] = ()
    try:
        schema = Schema.from_public(public, leave_out=unused, **declared)
    except TooManyTexts as error:
        wordy = tuple(error.counts)
        schema = Schema.from_public(public, leave_out=(*unused, *wordy), **declared)
    return len(schema.with_gaps().feature_names), wordy


def _read_classes(records: Any, label: str) -> tuple[str, ...]:
    classes = classes_of_records(records, label)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise InvalidInput(
            f"{label!r} is no label with 2 to {_MOST_CLASSES} values; for numbers see quorate fit linear --bounds"
        )
    return tuple(classes)


def _plan(situation: Situation, epsilon: float, delta: float) -> Plan:
    majority = "sharp_majority" if len(situation.classes) == 2 else "noisy_max"
    return plan(
        records=situation.units,
        epsilon=epsilon,
        delta=delta,
        queries=situation.queries or _UNLIMITED,
        classes=len(situation.classes),
        features=situation.features,
        public=0 if situation.public is None else situation.public.num_rows,
        aggregator="quorum" if situation.abstain else majority,
    )


def _choose_method(planned: Plan, situation: Situation) -> Method:
    """Return the better of votes and a linear model; a linear model where nothing public says what the columns hold."""
    methods = {method.name: method for method in planned.methods if method.name in ("votes", "linear")}
    if situation.queries is None and "linear" not in methods:
        raise InvalidInput("any number of queries needs a linear model, which needs a delta above 0: --delta")
    if "linear" in methods and (situation.is_learned or situation.queries is None):
        return methods["linear"]
    return min(methods.values(), key=lambda method: method.error)


def _show(console: Console, planned: Plan, commands: Commands, *, feasible: bool) -> None:
    situation, is_linear = commands.situation, commands.is_linear
    console.print("\n[bold]The plan[/bold]" + (", made from public numbers alone" if situation.is_declared else ""))
    if is_linear:
        console.print("One linear model that may be published. It answers every query, as often as anyone likes.\n")
        losses = {method.name: method.error for method in planned.methods if not method.is_bound}
        bars = {name: (loss / max(losses.values()), f"{loss:.1%}") for name, loss in losses.items()}
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
        for sentence in planned.assumptions:
            console.print(f"Assumed: {sentence}.")
    for sentence in _columns_notes(situation, is_linear=is_linear):
        console.print(escape(sentence))
    if feasible:
        _show_commands(console, commands)
    else:
        console.print(f"\n[bold]Nothing was written[/bold]: {planned.shortfall()}.")


def _columns_notes(situation: Situation, *, is_linear: bool) -> Iterator[str]:
    """Yield what becomes of the columns and the classes, and how the owner can change that."""
    if situation.ids:
        yield (
            f"Not used: {', '.join(situation.ids)}, which name rows or people. If one says whose row it is, protect "
            "that person: --groups COLUMN."
        )
    if situation.is_learned:
        how = "learned from the records, within the same epsilon" if is_linear else "read as numbers"
        yield f"The {situation.columns} columns are {how}. A public table or a schema would say what they hold."
    if situation.wordy:
        yield (
            f"Left out: {', '.join(situation.wordy)}. Each has too many different texts in the public table to be a "
            "column of categories. quorate fit takes them for sentences (--texts), or as a schema declares them "
            "(--schema)."
        )
    spellings = {name.strip().casefold() for name in situation.classes}
    if len(spellings) < len(situation.classes):
        yield (
            f"{len(situation.classes)} classes are planned for, but some look like spellings of one: "
            f"{', '.join(situation.classes)}. Make them one in the table first."
        )
    if not situation.is_declared:
        yield (
            f"Read from the records, and public with the model: the classes {', '.join(situation.classes)}. "
            "Name all that may occur (--classes), whether or not they do, to keep private which of them do."
        )


def _show_bars(console: Console, title: str, bars: Mapping[str, tuple[float, str]]) -> None:
    picture = Table(show_header=False, box=None, padding=(0, 1))
    for name, (share, figure) in bars.items():
        filled = round(_BAR_LETTERS * share) or int(share > 0)
        picture.add_row(name, "█" * filled + "░" * (_BAR_LETTERS - filled), figure)
    console.print(title, picture)


def _example_queries(situation: Situation, names: Sequence[str], *, is_linear: bool) -> ResultTable:
    """Return queries to ask first, made of public things alone: no private row is asked about."""
    if situation.public is not None:
        return situation.public.slice(0, _EXAMPLES)
    if situation.schema is None:  # a query without any value; teachers that take all columns for numbers need some
        return make_table({name: ["" if is_linear else "0"] for name in names})
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


def _show_commands(console: Console, commands: Commands) -> None:
    examples = "five public rows" if commands.situation.public is not None else "five made-up rows"
    examples = "a row without values, to be filled in," if commands.situation.is_learned else examples
    console.print(
        f"\nWritten to {escape(str(commands.out))}: script.py does it all in Python, commands.sh on the command line; "
        f"questions.csv holds {examples} to ask about first. Run one of the two: each opens a budget of its own."
    )
    for line in commands.lines():
        console.print(f"$ {escape(line)}", soft_wrap=True)


def _as_dict(planned: Plan, method: Method, commands: Commands, *, feasible: bool) -> dict[str, Any]:
    situation = commands.situation
    return {
        "method": method.name,
        "estimator": method.estimator,
        "feasible": feasible,
        "label": situation.label,
        "classes": list(situation.classes),
        "classes_declared": situation.is_declared,
        "groups": situation.source.groups,
        "units": situation.units,
        "leave_out": [*situation.unused, *situation.wordy],
        "learned": situation.is_learned,
        "commands": commands.lines() if feasible else [],
        "plan": planned.as_dict(),
    }
