"""What commands print and write, how they show that they are at work, and what they check before they write."""

import csv
import io
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from quorate.cli.options import Names
from quorate.core.errors import InvalidInput
from quorate.core.progress import LINE
from quorate.planner import Plan
from quorate.report import check_installed
from quorate.tables import read_table

_SHOWN_ROWS = 20
_LEAST_WIDTH = 10  # The least width of a column with longer texts.
_TITLE_WIDTH = 76  # up to which a title is not broken
_PLURALS = {"score": "scores", "set": "sets", "low": "lows", "high": "highs"}
_SHOWN = {
    "epsilon_spent": "epsilon spent so far, ex post",  # it depends on the answers: core/privacy/PROOF.md, step 8
    "expected_right": "expected to have the teachers' plurality label",
    "schema_share": "share of epsilon for the columns",
    "takes_percent": "takes at most",
}


def show(figures: Any, text: str | Callable[[], object], *, as_json: bool) -> int:
    """Print figures as JSON, or a text for people, which may be printed by a function; return exit code 0."""
    if as_json:
        print(json.dumps(figures))
    elif isinstance(text, str):
        print(text)
    else:
        text()
    return 0


def show_bill(title: str, bill: Mapping[str, Any], *, as_json: bool, is_result: bool = False) -> int:
    """Print figures as JSON or as a table for people; return exit code 0.

    The table goes to standard error, beside what the command wrote, or to standard output where it is the result.
    """
    return show(bill, partial(_show_table, title, bill, is_result=is_result), as_json=as_json)


def _show_table(title: str, bill: Mapping[str, Any], *, is_result: bool) -> None:
    table = Table(title=escape(title), show_header=False, min_width=min(len(title), _TITLE_WIDTH))
    for name, value in bill.items():
        if value is not None and not isinstance(value, dict | list):
            unit = "%" if name.endswith("_percent") else ""
            label = _SHOWN.get(name, name.removesuffix("_percent").replace("_", " "))
            table.add_row(label, escape(_as_text(value) + unit))
    Console(stderr=not is_result).print(table)


def show_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    is_result: bool = False,
    title: str | None = None,
) -> None:
    """Show rows as a table for people: the first ones on standard error or, if they are the result, all of them."""
    if not rows:
        return
    limit = len(rows) if is_result else _SHOWN_ROWS
    cells = [[_as_text(value) for value in row.values()] for row in rows[:limit]]
    widths = [min(_LEAST_WIDTH, max(map(len, column))) for column in zip(*cells, strict=True)]
    columns = [
        Column(name, min_width=width, justify="right" if isinstance(value, int | float) else "left")
        for (name, value), width in zip(rows[0].items(), widths, strict=True)
    ]
    table = Table(*columns, title=title)
    for row in cells:
        table.add_row(*map(escape, row))
    console = Console(stderr=not is_result)
    console.print(table)
    if len(rows) > limit:
        console.print(f"and {len(rows) - limit} more")


def show_plan(plan: Plan, *, as_json: bool, forecast: Sequence[Mapping[str, Any]] = ()) -> int:
    """Print a plan, with a forecast if it has one; return exit code 1 where it is not feasible."""
    show(plan.as_dict(), partial(_print_plan, plan, forecast), as_json=as_json)
    return int(not plan.feasible)


def _print_plan(plan: Plan, forecast: Sequence[Mapping[str, Any]]) -> None:
    print_text = Console().print
    print_text(plan.summary())
    for title, rows in [*plan.tables(), ("Forecast", forecast)]:
        show_rows(rows, is_result=True, title=title)
    for sentence in plan.remarks():
        print_text(sentence)


def _as_text(value: Any) -> str:
    """Return a value as people read it: numbers with four digits or commas, yes and no."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show_line(text: str, figures: Mapping[str, Any], *, as_json: bool) -> int:
    """Print figures as one JSON object, or a sentence for people; return exit code 0."""
    return show(figures, lambda: print(f"quorate: {text}", file=sys.stderr), as_json=as_json)


@contextmanager
def redirect_output() -> Iterator[None]:
    """Redirect standard output to standard error, also for other threads and for child processes.

    Standard output is for the result of a command. Ray prints there from its own thread.
    """
    sys.stdout.flush()
    with redirect_stdout(sys.stderr), ExitStack() as stack:
        with suppress(OSError):  # of a stream that is closed
            ours = os.dup(1)
            stack.callback(os.close, ours)
            os.dup2(2, 1)
            stack.callback(os.dup2, ours, 1)
        yield


def show_step(description: str, share: float | None = None) -> None:
    """Name the step under way in the line of progress; the calls that take long count within it."""
    line = LINE.get()
    if line is not None:
        line.begin(description if share is None else f"{description} {share:.0%}", None)


def check_apart(private: Path, public: Path | None) -> None:
    """Refuse the private table as the public one, whose rows are not protected."""
    if public is not None and private.is_file() and public.is_file() and private.samefile(public):
        raise InvalidInput(
            f"--public is the private table, {private}: public rows are not protected, so no row would be. Give rows "
            "that everybody may see, or none"
        )


def check_report(path: Path | None, *, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse an unwritable path of a requested report before the work for it begins."""
    if path is not None:
        check_new_file(path, inputs=inputs)
        check_installed()


def check_new_file(path: Path, *, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a file that could not be written, or that is read, before anything is done for it."""
    if path.is_dir():
        raise InvalidInput(f"{path} cannot be written: it is a folder")
    if any(read is not None and read.resolve() == path.resolve() for read in inputs):
        raise InvalidInput(f"{path} cannot be written: it is an input of this command")
    if not path.parent.is_dir():
        raise InvalidInput(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInput(f"{path} cannot be written: permission denied")


def check_new_folder(folder: Path) -> None:
    """Refuse a folder for a model that could not be made, or that holds something, before anything is done for it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(
            f"{folder} exists and is not an empty folder: what is there is never overwritten; choose another"
        )
    near = folder
    while not near.exists() and near != near.parent:
        near = near.parent
    if not near.is_dir() or not os.access(near, os.W_OK):
        raise InvalidInput(f"{folder} cannot be made: {near} is not a folder that can be written to")


@dataclass(frozen=True)
class RowIds:
    """The names of the rows of the queries: their numbers, from 1, or a column of theirs."""

    name: str
    values: Sequence[Any]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """How queries are read, and where their answers go.

    Parameters
    ----------
    out
        The CSV file for the answers. Without it they are printed.
    row_id
        A column of the queries that names each row, such as an id. The answers show it instead of the row number, and
        the model does not see it, unless it was fitted on it.
    leave_out
        Columns of the queries that the model does not know, separated by commas: they are not read.
    json
        Print one JSON object, with the answers if there is no --out.
    """

    out: Path | None = None
    row_id: str | None = None
    leave_out: Names = ()
    json: bool = False

    def read(self, queries: Path) -> tuple[Any, RowIds]:
        """Return the table of queries, and the names of its rows."""
        if self.out is not None:
            check_new_file(self.out, inputs=[queries])
        table = read_table(queries, role="query")
        names = [("--leave-out", name) for name in self.leave_out]
        for option, name in [*names, *([("--row-id", self.row_id)] if self.row_id else [])]:
            if name not in table.column_names:
                raise InvalidInput(f"{option} names {name!r}, and the queries have no such column")
        if self.row_id is None:
            return table, RowIds("row", range(1, len(table) + 1))
        return table, RowIds(self.row_id, table[self.row_id].to_pylist())

    def select(self, table: Any, columns: Collection[str]) -> Any:
        """Return what a model that takes these columns reads of the queries: the column of ids, if it is one."""
        unread = set(self.leave_out)
        if self.row_id is not None:
            unread = unread - {self.row_id} if self.row_id in columns else unread | {self.row_id}
        return table.drop_columns(sorted(unread))


@dataclass
class Replies:
    """The answers to a table of queries, with their outcomes, columns beside them, and figures for the bill."""

    labels: Sequence[Any]
    outcomes: Sequence[str]
    beside: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def bill(self) -> dict[str, Any]:
        """How many queries had each outcome, with the figures."""
        counts = Counter(self.outcomes)
        outcomes = {name: counts[name] for name in ("answered", "no_quorum", "refused")}
        return {"queries": len(self.labels)} | outcomes | self.figures


def show_answers(replies: Replies, row_ids: RowIds, options: QueryOptions, *, scored: Sequence[Any] = ()) -> None:
    """Write or print the answers, and print the bill. The scores of a query become a column for each scored class."""
    bill = replies.bill
    if options.json and options.out is None:
        plain = [label.item() if hasattr(label, "item") else label for label in replies.labels]
        bill |= {"answers": plain, "outcomes": list(replies.outcomes)}
        bill |= {_PLURALS.get(name, name): list(values) for name, values in replies.beside.items()}
    else:
        write_or_print(_answers_as_csv(replies, row_ids, scored), options.out)
    figures = {name: value for name, value in bill.items() if value or name in ("queries", "answered")}
    show_bill("The bill", bill if options.json else figures, as_json=options.json)


def _answers_as_csv(replies: Replies, row_ids: RowIds, scored: Sequence[Any]) -> str:
    """Return a line for each query, in their order; sets and several labels are JSON lists."""
    columns = {row_ids.name: row_ids.values, "answer": replies.labels, "outcome": replies.outcomes, **replies.beside}
    if "score" in columns:
        scores = [row or [""] * len(scored) for row in columns.pop("score")]
        columns |= {f"score_{name}": [row[position] for row in scores] for position, name in enumerate(scored)}
    rows = zip(*columns.values(), strict=True)
    return to_csv([dict(zip(columns, row, strict=True)) for row in rows], list(columns))


def write_or_print(text: str, path: Path | None) -> None:
    """Write a text to a file, or to standard output where none is named; labels of others command no terminal."""
    if path is None:
        visible = (sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
        sys.stdout.write("".join(visible) if sys.stdout.isatty() else text)
    else:
        write_file(path, text)


def to_csv(rows: Iterable[Mapping[str, Any]], names: Sequence[str], *, full: bool = False) -> str:
    """Return rows as CSV, numbers with six digits or, if `full`, with all of them; lists are JSON."""

    def format_cell(value: Any) -> Any:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if isinstance(value, list):
            return json.dumps(value)
        return f"{value:.6g}" if isinstance(value, float) and not full else value

    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([format_cell(row[name]) for name in names] for row in rows)
    return file.getvalue()


def write_file(path: Path, content: str | bytes) -> None:
    """Write the answers completely or not at all; a repeated call gets the same answers."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise InvalidInput(
            f"{path} could not be written: {error.strerror}; ask again with another file: what was answered is free"
        ) from None


def report_refusals(bill: dict[str, Any], on_no_quorum: str, *, why: str = "the budget cannot pay for them") -> int:
    """Return the exit code: 1 if a query was refused, or if one found no quorum where that is to count."""
    problem = None
    if bill["refused"]:
        problem = f"{bill['refused']} of {bill['queries']} queries were refused: {why}"
    elif on_no_quorum == "raise" and bill["no_quorum"]:
        problem = f"{bill['no_quorum']} of {bill['queries']} queries found no quorum; they were paid for"
    if problem is not None:
        print(f"quorate: {problem}", file=sys.stderr)
    return int(problem is not None)
