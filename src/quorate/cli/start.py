"""`quorate start`: some questions, a plan, and the script and commands that follow it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from quorate.cli.options import AsJson, Measures, Names, split_list
from quorate.cli.output import check_apart, check_new_folder, show
from quorate.cli.reading import TableFile, check_column_names
from quorate.cli.start_files import Job
from quorate.cli.start_models import ModelJob, find_classes
from quorate.cli.start_tables import TablesJob
from quorate.core.checks import check_choice, check_count, check_delta, check_positive
from quorate.core.errors import InvalidInput
from quorate.tables import Schema

_QUESTIONS = {  # text, and default: by the option that answers it
    "goal": ("What do you need? model: predictions, and a model that may be published. tables: numbers.", "model"),
    "label": ("Which column is the label, to be predicted?", None),
    "groups": (
        "Who is protected? Name the column that says whose row it is, or none if each row is a person.",
        "none",
    ),
    "queries": ("How many queries will be asked, by everyone together? A number, or any.", "1000"),
    "abstain": ("May a query stay without an answer where the records give no clear one? yes or no.", "no"),
    "public": ("Is there a public table of the same columns? Its file, or none.", "none"),
    "by": (
        "Numbers of which groups? Columns, separated by commas, with parts of dates such as visited:month, or none for "
        "shares of all pairs of columns and synthetic records.",
        "none",
    ),
    "total": ("Totals of which columns of numbers, by group? Names, separated by commas, or none.", "none"),
    "mean": ("Means of which columns, by group? Names, or none.", "none"),
    "median": ("Medians of which columns, by group? Names, or none.", "none"),
}
_QUESTIONS_BY_GOAL = {
    "model": ("label", "groups", "queries", "abstain", "public"),
    "tables": ("groups", "by", "total", "mean", "median"),
}


def start(
    source: TableFile,
    *,
    goal: Literal["model", "tables"] | None = None,
    measures: Measures = Measures(),
    classes: Names = (),
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
    names = records.column_names
    check_column_names(records, leave_out=source.leave_out)
    declared = None if schema is None else Schema.load(schema)
    source = _follow_schema(source, declared)
    is_asked = sys.stdin.isatty() and not json
    if is_asked:
        print(f"{records.num_rows:,} rows; the columns are {', '.join(names)}.\n")
    options = {
        "goal": goal or _implied_goal(measures.by, source.label, is_asked=is_asked),
        "label": source.label,
        "groups": source.groups,
        "queries": queries,
        "abstain": {True: "yes", False: "no", None: None}[abstain],
        "public": "none" if schema is not None and public is None else public,
        **asdict(measures),
    }
    goal = _answer("goal", options, names, is_asked=is_asked)
    answers = {
        name: _answer(name, options, names, is_asked=is_asked, number=f"{number}. ")
        for number, name in enumerate(_QUESTIONS_BY_GOAL[goal], start=1)
    }
    source = replace(source, groups=answers.pop("groups"), label=answers.get("label", source.label))
    facts: dict[str, Any] = {"records": records, "source": source, "schema": schema, "out": out}
    facts |= {"epsilon": epsilon, "delta": delta}
    if goal == "tables":
        return _finish(TablesJob(**facts, by=answers.pop("by"), measures=answers), run=run, as_json=json)
    check_apart(source.table, answers["public"])
    labels, is_declared = (list(classes), True) if classes else find_classes(records, answers["label"], declared)
    return _finish(ModelJob(**facts, **answers, classes=labels, is_declared=is_declared), run=run, as_json=json)


def _follow_schema(source: TableFile, declared: Schema | None) -> TableFile:
    """Return the table with the label and the people of a schema, unless the owner names others."""
    if declared is None:
        return source
    label = None if declared.label is None else declared.label.column
    return replace(source, label=source.label or label, groups=source.groups or declared.groups)


def _implied_goal(by: Sequence[str] | None, label: str | None, *, is_asked: bool) -> str | None:
    """Return the goal that other options imply, or "model" if nobody can be asked; None leaves the question open."""
    if by is not None:
        return "tables"
    return None if label is None and is_asked else "model"


def _finish(job: Job, *, run: bool, as_json: bool) -> int:
    """Show the plan, write the files, and run the commands if that is wanted; exit code 1 if it is not feasible."""
    is_feasible = job.feasible  # a plan that cannot be made is refused before anything is shown
    lines = job.lines() if is_feasible else []  # and one that no command can say
    if not as_json:
        job.show()
    if is_feasible:
        job.write()
    if as_json:
        show(job.as_dict(), "", as_json=True)
    elif is_feasible:
        print(f"\nWritten to {job.out}: script.py does it in Python, commands.sh on the command line. Run one of them.")
        print("\n".join(f"$ {line}" for line in lines))
    if not is_feasible:
        return 1
    return job.run() if run else 0


def _answer(name: str, options: Mapping[str, Any], columns: Sequence[str], *, is_asked: bool, number: str = "") -> Any:
    """Return the option's value, or ask on a terminal until an answer can be read, or take the default."""
    text, default = _QUESTIONS[name]
    if options[name] is not None:
        return _parse(name, str(options[name]), columns)
    if not is_asked:
        if default is None:
            raise InvalidInput(f"the column to predict must be named: --{name} COLUMN")
        return _parse(name, default, columns)
    while True:
        try:
            typed = input(f"{number}{text}{f' [{default}]' if default else ''} ").strip()
        except EOFError:
            raise InvalidInput(f"no answer was given: use --{name} on the command line") from None
        try:
            return _parse(name, typed or default or "", columns)
        except InvalidInput as error:
            print(f"  {error}")


def _parse(name: str, text: str, columns: Sequence[str]) -> Any:
    """Return an answer as a value: "none" is no column or file, and "any" no number."""
    if name in _PARSERS:
        return _PARSERS[name](text)
    is_single = name in ("label", "groups")
    named = [] if text == "none" else [text] if is_single else split_list(text)
    for column in named:
        if column not in columns and (is_single or column.rpartition(":")[0] not in columns):
            raise InvalidInput(f"there is no column {column!r}; the columns are {', '.join(columns)}")
    return next(iter(named), None) if is_single else named


def _parse_goal(text: str) -> str:
    check_choice("goal", text, ("model", "tables"))
    return text


def _parse_abstain(text: str) -> bool:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise InvalidInput("answer yes or no")
    return text.lower() in ("y", "yes")


def _parse_queries(text: str) -> int | None:
    if text == "any":
        return None
    digits = text.replace(",", "")
    if not digits.isdecimal():
        raise InvalidInput(f"a whole number is needed, or any, not {text!r}")
    return check_count("queries", int(digits))


def _parse_public(text: str) -> Path | None:
    if text == "none":
        return None
    if not Path(text).is_file():
        raise InvalidInput(f"there is no file {text}")
    return Path(text)


_PARSERS: dict[str, Callable[[str], Any]] = {  # of the questions that do not name columns
    "goal": _parse_goal,
    "abstain": _parse_abstain,
    "queries": _parse_queries,
    "public": _parse_public,
}
