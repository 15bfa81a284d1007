"""Five questions, a plan with a picture, and the script and commands that follow it: `quorate start`.

The owner of the records sits at this terminal, so what is shown may follow from them: their number, and the labels that
occur, and which columns hold numbers. What the plan takes from the records becomes public with the model, and is named.
The rest of it is made from public numbers alone.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate.checks import check_count, check_delta, check_positive, is_named_id
from quorate.cli.fit import classes_of_records
from quorate.cli.output import check_apart, check_new_folder
from quorate.cli.start_files import Commands, write_start
from quorate.errors import InvalidInput
from quorate.planner import PrivatePlan, plan
from quorate.planner.roads import Road
from quorate.tables import Schema, read_table
from quorate.tables.infer import TooManyTexts

__all__ = ["run_start"]

_MOST_CLASSES = 50
_WIDTH = 40  # characters of a bar
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
    public: pa.Table | None
    units: int
    leave_out: tuple[str, ...]  # columns of texts that nothing public says how to encode, or of too many
    ids: tuple[str, ...]  # columns that are named as numbers of rows or persons are
    gaps: bool  # whether a column in use has a missing value
    features: int


def run_start(
    table: Path,
    given: Mapping[str, Any],
    *,
    public: Path | None,
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
    records = read_table(table, role="private")
    ask = _Asker(speaks=sys.stdin.isatty() and not as_json)
    situation, public = _situation(records, given, public, ask)
    check_apart(table, public)
    planned = _plan(situation, epsilon, delta)
    road = _chosen(planned, situation)
    commands = Commands(
        table=table,
        public=public,
        label=situation.label,
        classes=situation.classes,
        declared=situation.declared,
        groups=situation.groups,
        leave_out=(*situation.ids, *situation.leave_out),
        texts=bool(situation.leave_out) and situation.public is None,
        gaps=situation.gaps,
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
        questions = records if situation.public is None else situation.public
        write_start(commands, questions)
    if as_json:
        print(json.dumps(_as_dict(planned, road, situation, commands, feasible=feasible)))
    elif feasible:
        _show_written(Console(highlight=False), commands, private_questions=situation.public is None)
    return commands.run() if run and feasible else 0 if feasible else 1


class _Asker:
    """Asks on a terminal until an answer will do; takes the default where there is none."""

    def __init__(self, *, speaks: bool) -> None:
        self.speaks = speaks

    def __call__(self, question: str, option: str, given: Any, default: Any, check: Callable[[str], Any]) -> Any:
        if given is not None:
            return check(str(given))
        if not self.speaks:
            if default is None:
                raise InvalidInput(f"{question} Answer with {option}")
            return check(default)
        while True:
            try:
                said = input(f"{question}{f' [{default}]' if default else ''} ").strip() or default or ""
            except EOFError:
                raise InvalidInput(f"no answer was given: use {option} on the command line") from None
            try:
                return check(said)
            except InvalidInput as error:
                print(f"  {error}")


def _situation(
    records: pa.Table, given: Mapping[str, Any], public: Path | None, ask: _Asker
) -> tuple[_Situation, Path | None]:
    names = ", ".join(records.column_names)

    def column(text: str) -> str:
        if text not in records.column_names:
            raise InvalidInput(f"there is no column {text!r}; the columns are {names}")
        return text

    if ask.speaks:
        print(f"{records.num_rows:,} rows; the columns are {names}.\n")
    label = ask("1. Which column is the label, to be predicted?", "--label COLUMN", given["label"], None, column)
    groups = ask(
        "2. Who is protected? Name the column that says whose row it is, or none if each row is a person.",
        "--groups COLUMN",
        given["groups"],
        "none",
        lambda text: None if text == "none" else column(text),
    )
    queries = ask(
        "3. How many queries will be asked, by everyone together? A number, or any.",
        "--queries NUMBER",
        given["queries"],
        "1000",
        lambda text: None if text == "any" else check_count("queries", _whole(text)),
    )
    abstain = ask(
        "4. May a query stay without an answer where the records give no clear one? yes or no.",
        "--abstain",
        {True: "yes", False: "no", None: None}[given["abstain"]],
        "no",
        _yes,
    )
    public = ask(
        "5. Is there a public table of the same columns? Its file, or none.",
        "--public FILE",
        public,
        "none",
        lambda text: None if text == "none" else _existing(text),
    )
    if queries is None and public is None:
        raise InvalidInput(
            "any number of queries needs a published model, which needs a public table: --public FILE. Or give the "
            "number (--queries), or see quorate fit everlasting, which answers without end by one simple rule"
        )
    classes = _classes(records, label) if given["classes"] is None else tuple(given["classes"].split(","))
    known = None if public is None else read_table(public, role="public")
    ids = tuple(name for name in records.column_names if is_named_id(name) and name not in (label, groups))
    left_out: tuple[str, ...] = ()
    declared = {"label": label, "classes": classes, "groups": groups}
    try:
        schema = _schema(records, known, leave_out=(*ids, *left_out), **declared)
    except TooManyTexts as error:
        left_out = tuple(error.counts)
        schema = _schema(records, known, leave_out=(*ids, *left_out), **declared)
    gaps = True
    units = records.num_rows if groups is None else int(pc.count_distinct(records[groups]).as_py())
    situation = _Situation(
        label=label,
        classes=classes,
        declared=given["classes"] is not None,
        groups=groups,
        queries=queries,
        abstain=abstain,
        public=known,
        units=units,
        leave_out=left_out,
        ids=ids,
        gaps=gaps,
        features=len((schema.with_gaps() if gaps else schema).feature_names),
    )
    return situation, public


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


def _classes(records: pa.Table, label: str) -> tuple[str, ...]:
    found = classes_of_records(records, label)
    if not 2 <= len(found) <= _MOST_CLASSES:
        raise InvalidInput(
            f"{label!r} is no label with 2 to {_MOST_CLASSES} values; for numbers see quorate fit linear --bounds"
        )
    return tuple(found)


def _schema(records: pa.Table, public: pa.Table | None, **declared: Any) -> Schema:
    return Schema.numbers(records, **declared) if public is None else Schema.from_public(public, **declared)


def _plan(situation: _Situation, epsilon: float, delta: float) -> PrivatePlan:
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


def _chosen(planned: PrivatePlan, situation: _Situation) -> Road:
    """Return the better of votes and, where public rows show the columns, a linear model."""
    open_roads = {road.name: road for road in planned.roads if road.name in ("votes", "linear")}
    if situation.public is None:
        return open_roads["votes"]
    if situation.queries is None:
        if "linear" not in open_roads:
            raise InvalidInput("any number of queries needs a linear model, which needs a delta above 0: --delta")
        return open_roads["linear"]
    return min(open_roads.values(), key=lambda road: road.loss)


def _show(console: Console, planned: PrivatePlan, road: Road, situation: _Situation, *, feasible: bool) -> None:
    texts_read = situation.leave_out and situation.public is None
    read = texts_read or situation.gaps or not situation.declared  # from the records, as is said below
    console.print("\n[bold]The plan[/bold]" + ("" if read else ", made from public numbers alone"))
    if road.name == "linear":
        console.print("One linear model that may be published. It answers every query, as often as anyone likes.\n")
        losses = {one.name: one.loss for one in planned.roads if not one.bound}
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
    if situation.gaps:
        console.print(
            "Values are missing in the records: gaps are marked in every column (--gaps). That there are some is "
            "public with the model, unless you fit with --gaps whether or not there are."
        )
    if situation.leave_out:
        why = (
            "Without public rows nothing says which texts a column may hold; declare them in a schema (--schema) to "
            "use them. That they hold texts is public with the model."
        )
        if situation.public is not None:
            why = (
                "Each has too many different texts in the public table to be a column of categories. quorate fit takes "
                "them for sentences (--texts), or as a schema declares them (--schema)."
            )
        console.print(f"Left out: {escape(', '.join(situation.leave_out))}. {why}")
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


def _show_written(console: Console, commands: Commands, *, private_questions: bool) -> None:
    whose = "private" if private_questions else "public"
    console.print(
        f"\nWritten to {escape(str(commands.out))}: script.py does it all in Python, commands.sh on the command line; "
        f"questions.csv holds five {whose} rows to ask about first. Run one of the two: each opens a budget of its own."
    )
    for line in commands.lines():
        console.print(f"$ {escape(line)}", soft_wrap=True)


def _as_dict(
    planned: PrivatePlan, road: Road, situation: _Situation, commands: Commands, *, feasible: bool
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
        "gaps": situation.gaps,
        "commands": commands.lines() if feasible else [],
        "plan": planned.as_dict(),
    }
