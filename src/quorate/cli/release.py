"""From a table of private records to a folder of answers that may be published: `quorate release`.

Anyone may ask the folder again, at no privacy cost. With --online the queries are asked one at a time instead, and
only those are paid for that public data and earlier answers miss.
"""

import csv
import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from quorate.checks import check_count
from quorate.cli.output import check_new_file, check_new_folder, check_report, readable, show_bill, steps
from quorate.concepts import Boxes, Concept, Halfspaces
from quorate.errors import BudgetSpent, InvalidInput
from quorate.models import Folder, load, open_folder, save
from quorate.planner.release import ReleasePlan, plan_release
from quorate.release import Columns, OnlineRelease, QueryRelease, Workload
from quorate.release.domain import Domain, make_domain
from quorate.release.objective import Errors
from quorate.release.query_texts import parse_queries
from quorate.report.release_page import release_bill, write_report_of
from quorate.tables import Number, Schema, read_table
from quorate.tables.lenient import read_columns, read_numbers
from quorate.tables.read import shown_names

__all__ = ["COLUMNS_FILE", "SYNTHETIC_FILE", "Subject", "ask_online", "ask_published", "run_release"]

COLUMNS_FILE = "columns.json"  # beside a release about a class of hypotheses: the columns that its points have
SYNTHETIC_FILE = "synthetic.csv"
_SHOWN = 20  # answers printed for people
_MOVED = 5  # of those that are answered at another cut


class Subject:
    """What `--workload` says: a workload of tables, or boxes or halfspaces over columns of numbers."""

    def __init__(self, about: Workload | Concept, names: tuple[str, ...] = ()) -> None:
        self.about, self.names = about, names
        self.left_out: Sequence[str] = ()  # columns of the tables that are not read

    @classmethod
    def parse(cls, text: str) -> "Subject":
        """Return the subject that one word says."""
        kind, _, rest = text.partition(":")
        if kind not in ("boxes", "halfspaces"):
            try:
                return cls(Workload.parse(text))
            except InvalidInput as error:
                raise InvalidInput(f"{error}; or boxes:COLUMN,... or halfspaces:COLUMN,COLUMN") from None
        names = tuple(name.strip() for name in rest.split(",") if name.strip())
        if not names or len(set(names)) != len(names):
            raise InvalidInput(f"{kind} are over different columns of numbers: {kind}:COLUMN,COLUMN, not {text!r}")
        return cls(Boxes(len(names)) if kind == "boxes" else Halfspaces(len(names)), names)

    def records(self, table: pa.Table) -> Any:
        """Return a table as the release takes it: its columns, or those of points, with NaN for non-numbers."""
        if not self.names:
            return table.drop_columns([name for name in self.left_out if name in table.column_names])
        return np.stack([read_numbers(column) for column in read_columns(table, self.names).values()], axis=1)

    def public(self, table: pa.Table | None) -> Any:
        """Return public records; those of a class must be numbers, and an error may say which is not."""
        return None if table is None else self.records(table)


def run_release(
    table: Path | None,
    *,
    public: Path | None,
    columns: Path | None,
    groups: str | None,
    records_per_person: int,
    leave_out: Sequence[str],
    workload: str | None,
    epsilon: float,
    delta: float,
    engine: str,
    error: Errors,
    target: str | None,
    out: Path | None,
    ask: Sequence[str],
    reading: Mapping[str, Any],
    synthetic: int | None,
    online: bool,
    alpha: float,
    ledger: Path | None,
    plan: bool,
    records: int | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Release, plan, or ask a release that was published before, and print what it promises."""
    asked = _asked(ask)
    if table is not None and table.is_dir():
        folder = open_folder(table)
        if folder.kind == "online release":
            return ask_online(folder, asked, out=out, as_json=as_json)
        return ask_published(folder, asked, out=out, synthetic=synthetic, reading=reading, as_json=as_json)
    if workload is None:
        if table is not None and not table.exists():
            raise InvalidInput(f"{table}: there is no such table, and no such release")
        raise InvalidInput(
            "--workload says what is asked: marginals:2, thresholds:COLUMN, ranges:COLUMN, expressions:FILE, "
            "boxes:COLUMN,COLUMN or halfspaces:COLUMN,COLUMN"
        )
    subject = Subject.parse(workload)
    subject.left_out = leave_out
    declared = None if columns is None else Columns.load(columns)
    if plan:
        check_report(report, inputs=[public, columns])
        planned = _planned(subject, public, declared, records, epsilon=epsilon, delta=delta, alpha=alpha)
        return _show_planned(planned, report, as_json=as_json)
    if table is None:
        raise InvalidInput("name the table of private records, or the folder of a release to ask")
    queries = parse_queries(asked, subject.about)
    if online:
        return _online(
            subject, table, public, declared, queries, groups=groups,
            epsilon=epsilon, delta=delta, alpha=alpha, ledger=ledger, out=out, as_json=as_json,
        )  # fmt: skip
    if out is None:
        raise InvalidInput("--out FOLDER says where to write the release")
    check_new_folder(out)
    check_report(report, inputs=[table, public, columns])
    if synthetic is not None:
        check_count("synthetic", synthetic)
    if groups is None and records_per_person != 1:
        raise InvalidInput("--records-per-person says how many records of a person count: --groups says whose they are")
    release = QueryRelease(
        subject.about,
        epsilon=epsilon,
        delta=delta,
        engine=engine,
        columns=declared,
        records_per_person=records_per_person,
        error=error,
        target=target,
    )
    return _release(
        release,
        subject,
        table,
        public,
        queries,
        groups=groups,
        out=out,
        reading=reading,
        synthetic=synthetic,
        report=report,
        as_json=as_json,
    )


def _release(
    release: QueryRelease,
    subject: Subject,
    table: Path,
    public: Path | None,
    queries: Sequence[Any],
    *,
    groups: str | None,
    out: Path,
    reading: Mapping[str, Any],
    synthetic: int | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Fit a release, write it, and print what it promises."""
    with steps(["reading", "releasing", "writing", "reporting"], quiet=as_json) as step:
        step()
        known = _public(subject, public, groups)
        private, people = _private(subject, table, groups)
        domain = make_domain(subject.about, known, release.columns)
        if unread := domain.unread(private):
            raise InvalidInput(
                f"the private table has columns that are neither declared (--columns) nor public: "
                f"{shown_names(unread)}; declare them, or leave them out (--leave-out {','.join(unread)})"
            )
        if queries:  # what cannot be asked is refused before anything is paid
            domain.find_sums(queries)
        step()
        release.fit(private, known, groups=people)
        del private, people
        step()
        _write(release, subject, out, synthetic)
        step()
        answers = release.answer(queries, **reading).to_pylist() if queries else []
        _say_nearest(release.domain_, queries)
        if report is not None:
            write_report_of(release, known, report)
    bill = {**release_bill(release), "folder": str(out), "answers": answers}
    if not as_json:
        _show(answers)
    show_bill(f"release in {out}", bill, as_json=as_json)
    return 0


def _private(subject: Subject, path: Path, groups: str | None) -> tuple[Any, Any]:
    """Return the private records, and whose they are where a column says so."""
    table = read_table(path, role="private")
    if groups is None:
        return subject.records(table), None
    if groups not in table.column_names:
        raise InvalidInput(f"--groups names {groups!r}, and the private table has no such column")
    people = Schema({"": Number()}, groups=groups).units(table)  # as `quorate fit` reads them: a name is never missing
    return subject.records(table.drop_columns(groups)), people


def _public(subject: Subject, path: Path | None, groups: str | None) -> Any:
    """Return the public records; names of people are no column to release."""
    if path is None:
        return None
    table = read_table(path, role="public")
    return subject.public(table.drop_columns(groups) if groups in table.column_names else table)


def _asked(ask: Sequence[str]) -> list[str]:
    """Return the queries: each --ask is one, or the name of a file with one a line."""
    asked: list[str] = []
    for text in ask:
        if text.endswith(".txt") and Path(text).is_file():
            lines = Path(text).read_text(encoding="utf-8").splitlines()
            asked.extend(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
        else:
            asked.append(text)
    return asked


def _write(release: QueryRelease, subject: Subject, out: Path, synthetic: int | None) -> None:
    names = json.dumps({"columns": list(subject.names)}).encode()
    release.publish(out, extra={COLUMNS_FILE: names} if subject.names else None)
    if synthetic is not None:
        _write_synthetic(release, out / SYNTHETIC_FILE, synthetic, subject.names)


def _write_synthetic(release: QueryRelease, path: Path, rows: int, names: Sequence[str]) -> None:
    records = release.synthetic(rows)
    if not isinstance(records, pa.Table):
        known = names or [f"x{place + 1}" for place in range(records.shape[1])]
        records = pa.table({name: records[:, place] for place, name in enumerate(known)})
    path.write_text(_csv(records.to_pylist(), records.column_names, full=True), encoding="utf-8")


def _csv(rows: Sequence[dict[str, Any]], names: Sequence[str], *, full: bool = False) -> str:
    """Return rows as CSV, numbers with the digits that people read, or with all of them."""

    def shown(value: Any) -> Any:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return value if full else readable(value)

    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([shown(row[name]) for name in names] for row in rows)
    return file.getvalue()


def ask_published(
    folder: Folder,
    asked: Sequence[str],
    *,
    out: Path | None,
    synthetic: int | None,
    reading: Mapping[str, Any] = MappingProxyType({}),
    as_json: bool,
) -> int:
    """Answer from a folder that was published before. Nothing is spent."""
    release = load(folder, kind="query release")
    if out is not None:
        check_new_file(out, inputs=[folder.path / "manifest.json"])
    if synthetic is not None:
        check_count("synthetic", synthetic)
        if out is None:
            raise InvalidInput("--out FILE.csv says where to write the synthetic records")
        _write_synthetic(release, out, synthetic, _names(folder))
        show_bill(f"synthetic records in {out}", {"rows": synthetic, "out": str(out)}, as_json=as_json)
        return 0
    queries = parse_queries(asked, release.subject) if asked else None
    table = release.answer(queries, **reading)
    _say_nearest(release.domain_, queries)
    rows = table.to_pylist()
    if out is not None:
        out.write_text(_csv(rows, table.column_names), encoding="utf-8")
    if as_json:
        print(json.dumps({"claim": release.claim_, "answers": rows if out is None else len(rows)}))
    elif out is None:
        print(_csv(rows, table.column_names), end="")
    return 0


def _names(folder: Folder) -> list[str]:
    """Return the names of the columns; the first release wrote them beside what its manifest lists."""
    try:
        first = "access" not in folder.manifest
        text = (folder.path / COLUMNS_FILE).read_bytes() if first else folder.contents[COLUMNS_FILE]
        return [str(name) for name in json.loads(text)["columns"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _planned(
    subject: Subject,
    public: Path | None,
    columns: Columns | None,
    records: int | None,
    *,
    epsilon: float,
    delta: float,
    alpha: float,
) -> ReleasePlan:
    """Plan from public numbers."""
    if records is None:
        raise InvalidInput("--plan reads no private record: --records says how many there are")
    known = 0 if public is None else subject.public(read_table(public, role="public"))
    return plan_release(
        subject.about, records=records, public=known, epsilon=epsilon, delta=delta, alpha=alpha, columns=columns
    )


def _show_planned(planned: ReleasePlan, report: Path | None, *, as_json: bool) -> int:
    """Print a plan, and write its page; exit code 1 where alpha is out of reach."""
    if report is not None:
        from quorate.report.plan_page import write_plan_report

        write_plan_report(planned, report)
    if as_json:
        print(json.dumps(planned.as_dict()))
    else:
        _show_plan(planned)
    return 0 if planned.feasible else 1


def _show_plan(planned: ReleasePlan) -> None:
    console = Console()
    console.print(planned.summary())
    table = Table("engine", "expected largest error", title="Expected", caption="* chosen by auto")
    for place, outlook in enumerate(planned.engines):
        table.add_row(outlook.engine + (" *" if place == 0 else ""), f"{outlook.error:.4g}")
    table.add_row("public records alone, if a fair sample", f"{planned.public_alone:.4g}")
    console.print(table)
    for sentence in planned.published:
        console.print(f"Beside it, as published: {sentence}.")
    if not planned.feasible:
        console.print(
            f"[bold]Not feasible[/bold]: {planned.error + planned.cover:.3g} is above alpha = {planned.alpha:g}."
        )


def _online(
    subject: Subject,
    table: Path,
    public: Path | None,
    columns: Columns | None,
    queries: Sequence[Any],
    *,
    groups: str | None,
    epsilon: float,
    delta: float,
    alpha: float,
    ledger: Path | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Ask queries one at a time, and keep the model in a folder or its budget in a ledger."""
    if not queries and out is None:
        raise InvalidInput("--online answers the queries of the same command: --ask QUERY or --ask FILE.txt")
    if public is None:
        raise InvalidInput("--online starts from public records: --public TABLE")
    if (ledger is None) == (out is None):
        raise InvalidInput(
            "--online keeps its budget in a folder, so that a later command goes on with it: --out FOLDER keeps the "
            "model too, and --ledger FOLDER the budget alone, for a command that reads the records again"
        )
    if out is not None:
        check_new_folder(out)
    known = _public(subject, public, groups)
    release = OnlineRelease(subject.about, epsilon=epsilon, delta=delta, alpha=alpha, columns=columns, ledger=ledger)
    make_domain(subject.about, known, columns).find(queries)  # what cannot be asked is refused before it is paid
    private, people = _private(subject, table, groups)
    release.fit(private, known, groups=people)
    if out is not None:
        save(release, out)
    return _told(release, queries, {} if out is None else {"folder": str(out)}, as_json=as_json)


def ask_online(folder: Folder, asked: Sequence[str], *, out: Path | None, caller: str = "", as_json: bool) -> int:
    """Ask an online release in a folder, which pays from its budget; exit code 1 where that could not pay for all."""
    if out is not None:
        check_new_file(out, inputs=[folder.path / "manifest.json"])
    release = load(folder, kind="online release")
    try:
        queries = parse_queries(asked, release.subject)
        release.domain_.find(queries)
    except InvalidInput:
        release.close()
        raise
    return _told(release, queries, {}, out=out, caller=caller, as_json=as_json)


def _told(
    release: OnlineRelease,
    queries: Sequence[Any],
    more: dict[str, Any],
    *,
    out: Path | None = None,
    caller: str = "",
    as_json: bool,
) -> int:
    """Ask, let go of the ledger, and print the answers and the bill."""
    try:
        told = release.ask(queries, caller=caller)
    except BudgetSpent:
        told = []
    finally:
        release.close()
    _say_nearest(release.domain_, queries)
    answers: list[dict[str, Any]] = [
        {"query": answer.query, "answer": answer.answer, "error": answer.error, "paid": answer.paid}
        for answer in told
        if not answer.refused
    ]
    refused = len(queries) - len(answers)
    bill = more | {
        "claim": release.claim_,
        "privacy_unit": release.unit_,
        "epsilon": release.budget_.epsilon,
        "delta": release.budget_.delta,
        "alpha": release.alpha_,
        "opening_epsilon": release.opening_epsilon_,
        "asked": len(queries),
        "paid": sum(answer["paid"] for answer in answers),
        "refused": refused,
        "answers": answers,
    }
    if out is not None:
        out.write_text(_csv(answers, ("query", "answer", "error", "paid")), encoding="utf-8")
    elif not as_json:
        _show(answers)
    show_bill("online release", bill, as_json=as_json)
    return 1 if refused else 0


def _say_nearest(domain: Domain, queries: Sequence[Any] | None) -> None:
    """Say which queries are answered at other cuts than they were asked at."""
    named = domain.describe(_firsts(domain, queries), queries) if queries else []
    moved = [name for name in named if "asked" in name]
    for name in moved[:_MOVED]:
        print(f"quorate: {name['asked']} is answered at the nearest cut: {name['query']}", file=sys.stderr)
    if len(moved) > _MOVED:
        print(f"quorate: and {len(moved) - _MOVED} more at the nearest cut", file=sys.stderr)


def _firsts(domain: Domain, queries: Sequence[Any]) -> Any:
    """Return a number for each query: of one that is a sum, that of the first part."""
    numbers, starts = domain.find_sums(queries)
    return numbers[starts]


def _show(answers: Sequence[dict[str, Any]]) -> None:
    if not answers:
        return
    table = Table(*answers[0])
    for row in answers[:_SHOWN]:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    console = Console(stderr=True)
    console.print(table)
    if len(answers) > _SHOWN:
        console.print(f"and {len(answers) - _SHOWN} more")
