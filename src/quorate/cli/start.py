"""`quorate start`: some questions, a plan with a picture, and the script and commands that follow it.

The plan, the script and the commands are made of public things alone: the names of the columns, the number of rows or
people, a public table or a schema, and the label set, which the claim says is public if it was not declared. No other
value of a private row decides anything here. Without a public table or a schema, the model learns its columns from the
records itself, within its own budget.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json import dumps
from pathlib import Path
from shlex import join
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate.cli.options import AsJson, split_list
from quorate.cli.output import check_apart, check_new_folder
from quorate.cli.reading import TableFile, check_column_names
from quorate.cli.start_files import Job, write_start
from quorate.cli.start_tables import QUESTIONS as TABLES_QUESTIONS
from quorate.cli.start_tables import describe_tables, parse_columns, show_tables_plan, write_tables
from quorate.core.checks import check_count, check_delta, check_positive, is_named_id
from quorate.core.errors import InvalidInput
from quorate.planner import Plan, plan
from quorate.tables import Schema, read_table
from quorate.tables.infer import TooManyTexts
from quorate.tables.learned import check_learnable
from quorate.tables.persons import person_names
from quorate.tables.values import canonical_text, distinct_labels, raw_column

_MAX_CLASSES = 50
_BAR_LETTERS = 40
_FEATURES_PER_COLUMN = 6  # about, where nothing is known of a column
_UNLIMITED = 1_000  # queries that votes are planned for, beside a model that any number may ask
_GOAL = "What do you need? model: predictions, and a model that may be published. tables: numbers to publish."
_QUESTIONS = {  # text, and default: by the option that answers it
    "label": ("Which column is the label, to be predicted?", None),
    "groups": (
        "Who is protected? Name the column that says whose row it is, or none if each row is a person.",
        "none",
    ),
    "queries": ("How many queries will be asked, by everyone together? A number, or any.", "1000"),
    "abstain": ("May a query stay without an answer where the records give no clear one? yes or no.", "no"),
    "public": ("Is there a public table of the same columns? Its file, or none.", "none"),
}


def start(
    source: TableFile,
    *,
    goal: Literal["model", "tables"] | None = None,
    by: str | None = None,
    total: str | None = None,
    mean: str | None = None,
    median: str | None = None,
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
    """Ask some questions about your table, show a plan, and write a script and the commands that follow it.

    The first question is for a model and its predictions, or for tables to publish. A question is skipped if its option
    is given. If nobody can be asked, --label or --goal tables is required, and the other questions take their
    defaults. Nothing is fitted, and nothing spent, without --run. Exit code 1 if the plan is not feasible; then nothing
    is written.

    Example: `quorate start visits.csv --label outcome --groups patient --queries 500 --public survey.csv`

    Parameters
    ----------
    goal
        What you need. model: predictions, and a model that may be published where it can be. tables: numbers by group,
        or shares of all pairs of columns and synthetic records.
    by
        With --goal tables, the columns that name groups, as quorate release takes them.
    total
        With --by, the columns whose totals to release; --mean and --median likewise.
    mean
        With --by, the columns whose means to release.
    median
        With --by, the columns whose medians to release.
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
    if schema is not None:
        source = _with_names_of(Schema.load(schema), source)
    is_terminal = sys.stdin.isatty() and not json
    if is_terminal:
        print(f"{records.num_rows:,} rows; the columns are {', '.join(records.column_names)}.\n")
    if _asks_for_tables(goal, by, source.label, is_terminal=is_terminal):
        measures = {"by": by, "total": total, "mean": mean, "median": median}
        settings: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "out": out, "schema": schema}
        return _start_tables(records, source, measures, **settings, run=run, as_json=json)
    options = {
        "label": source.label,
        "groups": source.groups,
        "queries": queries,
        "abstain": {True: "yes", False: "no", None: None}[abstain],
        "public": "none" if schema is not None and public is None else public,
    }
    answers = _ask_questions(records, options, is_terminal=is_terminal)
    check_apart(source.table, answers["public"])
    source = replace(source, label=answers["label"], groups=answers["groups"])
    job = _describe(records, source, public=answers["public"], schema=schema, classes=classes)
    job = replace(job, epsilon=epsilon, delta=delta, out=out)
    planned = _plan(job, answers["queries"], abstain=answers["abstain"])
    is_linear = _prefers_linear(planned, job, answers["queries"])
    job = replace(job, queries=planned.queries, aggregator=planned.aggregator, is_linear=is_linear)
    feasible = is_linear or planned.feasible
    _show(Console(highlight=False, quiet=json), planned, job, feasible=feasible)
    if feasible:
        write_start(job, records.column_names)
    if json:
        print(dumps(_as_dict(planned, job, feasible=feasible)))
    if not feasible:
        return 1
    return job.run() if run else 0


def _asks_for_tables(goal: str | None, by: str | None, label: str | None, *, is_terminal: bool) -> bool:
    """Return whether tables are wanted: said by --goal or --by, or on a terminal where nothing says it."""
    if goal is None and by is None and label is None and is_terminal:
        goal = _answer(_GOAL, "goal", "model", None, _parse_goal, is_terminal=True)
    return goal == "tables" or (goal is None and by is not None)


def _start_tables(
    records: Any, source: TableFile, options: Mapping[str, Any], *, run: bool, as_json: bool, **settings: Any
) -> int:
    """Ask for groups and measures, show what is expected, and write the script and the command."""
    parse = partial(parse_columns, names=records.column_names)
    parsers = dict.fromkeys(options, parse) | {"groups": partial(_parse_column, records.column_names)}
    is_terminal = sys.stdin.isatty() and not as_json
    answers = _ask_all(TABLES_QUESTIONS, {"groups": source.groups, **options}, parsers, is_terminal=is_terminal)
    job = describe_tables(records, replace(source, groups=answers["groups"]), answers, **settings)
    console = Console(highlight=False, quiet=as_json)
    if not as_json:
        show_tables_plan(console, job)
    write_tables(job)
    command = join(["quorate", *job.words()])
    console.print(
        f"\nWritten to {job.out}: script.py does it in Python, commands.sh on the command line. Run one of them."
    )
    console.print(f"$ {command}", markup=False, soft_wrap=True)
    if as_json:
        print(dumps({"goal": "tables", "units": job.units, "commands": [command], "out": str(job.out)}))
    if not run:
        return 0
    from quorate.cli.app import main

    return main(job.words())


def _parse_goal(text: str) -> str:
    if text not in ("model", "tables"):
        raise InvalidInput("answer model or tables")
    return text


def _parse_column(names: Sequence[str], text: str) -> str | None:
    """Return the name of a column, None for "none"."""
    if text != "none" and text not in names:
        raise InvalidInput(f"there is no column {text!r}; the columns are {', '.join(names)}")
    return None if text == "none" else text


def _with_names_of(schema: Schema, source: TableFile) -> TableFile:
    """Return the table with the label and the people that a schema names, unless the owner names others."""
    label = None if schema.label is None else schema.label.column
    return replace(source, label=source.label or label, groups=source.groups or schema.groups)


def _ask_questions(records: Any, options: Mapping[str, Any], *, is_terminal: bool) -> dict[str, Any]:
    """Return the answers to the five questions about a model."""
    parse_column = partial(_parse_column, records.column_names)
    parsers: dict[str, Callable[[str], Any]] = {
        "label": parse_column,
        "groups": parse_column,
        "queries": _parse_number,
        "abstain": _parse_yes,
        "public": _parse_file,
    }
    return _ask_all(_QUESTIONS, options, parsers, is_terminal=is_terminal)


def _ask_all(
    questions: Mapping[str, tuple[str, str | None]],
    options: Mapping[str, Any],
    parsers: Mapping[str, Callable[[str], Any]],
    *,
    is_terminal: bool,
) -> dict[str, Any]:
    """Return the answers to questions, from options or from the terminal."""
    return {
        name: _answer(f"{number}. {text}", name, default, options[name], parsers[name], is_terminal=is_terminal)
        for number, (name, (text, default)) in enumerate(questions.items(), start=1)
    }


def _answer(
    text: str, name: str, default: str | None, value: object, parse: Callable[[str], Any], *, is_terminal: bool
) -> Any:
    """Return the option's value, or ask on a terminal until an answer can be read, or take the default."""
    if value is not None:
        return parse(str(value))
    if not is_terminal:
        if default is None:
            raise InvalidInput(f"the column to predict must be named: --{name} COLUMN")
        return parse(default)
    while True:
        try:
            typed = input(f"{text}{f' [{default}]' if default else ''} ").strip()
        except EOFError:
            raise InvalidInput(f"no answer was given: use --{name} on the command line") from None
        try:
            return parse(typed or default or "")
        except InvalidInput as error:
            print(f"  {error}")


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


def _describe(records: Any, source: TableFile, *, public: Path | None, schema: Path | None, classes: str | None) -> Job:
    """Return the job from the answers and the tables."""
    assert source.label is not None
    label, groups, names = source.label, source.groups, records.column_names
    declared_schema = None if schema is None else Schema.load(schema)
    declared_classes = _declared_classes(declared_schema, label) if classes is None else tuple(split_list(classes))
    label_classes = _read_classes(records, label) if declared_classes is None else declared_classes
    ids = tuple(name for name in names if is_named_id(name) and name not in (label, groups))
    unused = tuple(dict.fromkeys([*split_list(source.leave_out), *ids]))
    columns = len(set(names) - {label, groups, *unused})
    public_rows = None if public is None else read_table(public, role="public")
    declared = {"label": label, "classes": label_classes, "groups": groups}
    features, wordy = _count_features(declared_schema, public_rows, columns, unused, **declared)
    return Job(
        source=source,
        label=label,
        classes=label_classes,
        is_declared=declared_classes is not None,
        open_ranges=() if declared_schema is None else declared_schema.open_ranges,
        public=public,
        public_rows=public_rows,
        schema=schema,
        units=records.num_rows if groups is None else len(person_names(raw_column(records[groups]))[1]),
        ids=ids,
        wordy=wordy,
        leave_out=(*unused, *wordy),
        columns=columns,
        features=features,
    )


def _count_features(
    schema: Schema | None, public: Any, columns: int, unused: Sequence[str], **declared: Any
) -> tuple[int, tuple[str, ...]]:
    """Return how many features the columns become, and those of a public table with too many different texts."""
    if schema is not None:
        return len(schema.feature_names), ()
    if public is None:
        return _FEATURES_PER_COLUMN * columns, ()
    wordy: tuple[str, ...] = ()
    try:
        schema = Schema.from_public(public, leave_out=unused, **declared)
    except TooManyTexts as error:
        wordy = tuple(error.counts)
        schema = Schema.from_public(public, leave_out=(*unused, *wordy), **declared)
    return len(schema.with_gaps().feature_names), wordy


def _declared_classes(schema: Schema | None, label: str) -> tuple[str, ...] | None:
    """Return the classes that a schema declares for this label, or None."""
    if schema is None or schema.label is None or schema.label.column != label:
        return None
    return tuple(map(str, schema.label.classes))


def _read_classes(records: Any, label: str) -> tuple[str, ...]:
    classes = distinct_labels(records[label])
    if not 2 <= len(classes) <= _MAX_CLASSES:
        raise InvalidInput(
            f"{label!r} is no label with 2 to {_MAX_CLASSES} values; for numbers see quorate fit linear --bounds"
        )
    return tuple(classes)


def _plan(job: Job, queries: int | None, *, abstain: bool) -> Plan:
    if columns := job.columns if job.is_learned else len(job.open_ranges):
        if job.delta == 0:
            raise InvalidInput("to learn what the columns hold needs a delta above 0: --delta, --public or --schema")
        check_learnable(job.units, columns, epsilon=job.epsilon, delta=job.delta)
    majority = "sharp_majority" if len(job.classes) == 2 else "noisy_max"
    return plan(
        records=job.units,
        epsilon=job.epsilon,
        delta=job.delta,
        queries=queries or _UNLIMITED,
        classes=len(job.classes),
        features=job.features,
        public=0 if job.public_rows is None else job.public_rows.num_rows,
        aggregator="quorum" if abstain else majority,
    )


def _prefers_linear(planned: Plan, job: Job, queries: int | None) -> bool:
    """Return whether a linear model is better than votes; it is fitted where the columns are learned, in any case."""
    errors = {method.name: method.error for method in planned.methods}
    if "linear" not in errors:
        if queries is None:
            raise InvalidInput("any number of queries needs a linear model, which needs a delta above 0: --delta")
        return False
    return job.is_learned or bool(job.open_ranges) or queries is None or errors["linear"] <= errors["votes"]


def _show(console: Console, planned: Plan, job: Job, *, feasible: bool) -> None:
    console.print("\n[bold]The plan[/bold]" + (", made from public numbers alone" if job.is_declared else ""))
    if job.is_linear:
        console.print("One linear model that may be published. It answers every query, as often as anyone likes.\n")
        losses = {method.name: method.error for method in planned.methods if not method.is_bound}
        bars = {name: (loss / max(losses.values()), f"{loss:.1%}") for name, loss in losses.items()}
        _show_bars(console, "Rows that each way is expected to miss, beyond the best linear rule:", bars)
        epsilon, delta = canonical_text(planned.epsilon), canonical_text(planned.delta)
        console.print(f"All of it together keeps epsilon = {epsilon}, delta = {delta}.")
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
    for sentence in _columns_notes(job):
        console.print(escape(sentence))
    if feasible:
        _show_commands(console, job)
    else:
        console.print(f"\n[bold]Nothing was written[/bold]: {planned.shortfall()}.")


def _columns_notes(job: Job) -> Iterator[str]:
    """Yield what becomes of the columns and the classes, and how the owner can change that."""
    if job.ids:
        yield (
            f"Not used, since their names are those of ids: {', '.join(job.ids)}. If one says whose row it is, protect "
            "that person: --groups COLUMN."
        )
    if job.is_learned:
        yield (
            f"The {job.columns} columns are learned from the records, within the same epsilon. A public table or a "
            "schema would say what they hold."
        )
    if job.open_ranges:
        yield (
            f"The schema has no bounds for {', '.join(job.open_ranges)}: their ranges are learned from the records, "
            "within the same epsilon. Declare low and high if they are public."
        )
    if job.wordy:
        yield (
            f"Left out: {', '.join(job.wordy)}. Each has too many different texts in the public table to be a "
            "column of categories. quorate fit takes them for sentences (--texts), or as a schema declares them "
            "(--schema)."
        )
    if not job.is_declared:
        yield (
            f"Read from the records, and public with the model: the classes {', '.join(job.classes)}. "
            "Name all that may occur (--classes), whether or not they do, to keep private which of them do."
        )


def _show_bars(console: Console, title: str, bars: Mapping[str, tuple[float, str]]) -> None:
    picture = Table(show_header=False, box=None, padding=(0, 1))
    for name, (share, figure) in bars.items():
        filled = round(_BAR_LETTERS * share) or int(share > 0)
        picture.add_row(name, "█" * filled + "░" * (_BAR_LETTERS - filled), figure)
    console.print(title, picture)


def _show_commands(console: Console, job: Job) -> None:
    examples = "five public rows" if job.public is not None else "five made-up rows"
    examples = "a row without values, to be filled in," if job.is_learned else examples
    console.print(
        f"\nWritten to {escape(str(job.out))}: script.py does it all in Python, commands.sh on the command line; "
        f"questions.csv holds {examples} to ask about first. Run one of the two: each opens a budget of its own."
    )
    for line in job.lines():
        console.print(f"$ {escape(line)}", soft_wrap=True)


def _as_dict(planned: Plan, job: Job, *, feasible: bool) -> dict[str, Any]:
    name = "linear" if job.is_linear else "votes"
    return {
        "method": name,
        "estimator": next(method.estimator for method in planned.methods if method.name == name),
        "feasible": feasible,
        "label": job.label,
        "classes": list(job.classes),
        "classes_declared": job.is_declared,
        "groups": job.source.groups,
        "units": job.units,
        "leave_out": list(job.leave_out),
        "learned": job.is_learned,
        "commands": job.lines() if feasible else [],
        "plan": planned.as_dict(),
    }
