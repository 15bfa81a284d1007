"""From a table of private records to a folder of answers that may be published: `quorate release`.

Anyone may ask the folder again, at no privacy cost. With --online the queries are asked one at a time instead, and
only those are paid for that public data and earlier answers miss.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from quorate.checks import check_count
from quorate.cli.output import check_new_file, check_new_folder, check_report, show_bill, steps
from quorate.cli.release_growing import begin_growing, run_growing
from quorate.cli.release_online import ask_online, run_online
from quorate.cli.release_plan import run_plan
from quorate.cli.release_tables import (
    Subject,
    check_declared,
    names_in,
    private_records,
    public_records,
    say_between,
    show_release,
    to_csv,
    write_release,
    write_synthetic,
)
from quorate.errors import InvalidInput
from quorate.models import Folder, load, open_folder
from quorate.release import Columns, QueryRelease
from quorate.release.domain import make_domain
from quorate.release.objective import Errors
from quorate.release.query_texts import parse_queries
from quorate.release.utility import simulate_utility
from quorate.report.release_page import write_report_of

__all__ = ["ask_published", "run_release"]


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
    utility: bool,
    quantiles: int | None,
    online: bool,
    alpha: float,
    ledger: Path | None,
    account: Path | None,
    growing: Path | None,
    update: str | None,
    updates: int | None,
    plan: bool,
    records: int | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Release, plan, or ask a release that was published before, and print what it promises."""
    asked = _asked(ask)
    if table is not None and table.is_dir():
        how: dict[str, Any] = {"synthetic": synthetic, "quantiles": quantiles, "reading": reading}
        return _ask_folder(table, asked, out=out, as_json=as_json, **how)
    if growing is not None and growing.exists() and table is not None:
        return run_growing(
            growing, table, asked, update=update, groups=groups, leave_out=leave_out, out=out, reading=reading,
            synthetic=synthetic, as_json=as_json,
        )  # fmt: skip
    subject = _subject(workload, table, leave_out)
    declared = None if columns is None else Columns.load(columns)
    if plan:
        check_report(report, inputs=[public, columns])
        planned: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "alpha": alpha}
        return run_plan(subject, public, declared, records, report=report, as_json=as_json, **planned)
    if table is None:
        raise InvalidInput("name the table of private records, or the folder of a release to ask")
    queries = parse_queries(asked, subject.about)
    if online:
        return run_online(
            subject, table, public, declared, queries, groups=groups,
            epsilon=epsilon, delta=delta, alpha=alpha, ledger=ledger, out=out, as_json=as_json,
        )  # fmt: skip
    if groups is None and records_per_person != 1:
        raise InvalidInput("--records-per-person says how many records of a person count: --groups says whose they are")
    settings: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "engine": engine, "columns": declared}
    settings |= {"error": error, "target": target, "account": account}
    if growing is not None:
        settings |= {"updates": updates, "public": public_records(subject, public, groups)}
        settings |= {"records_per_person": None if groups is None else records_per_person}
        return begin_growing(
            growing, subject, table, asked, settings,
            update=update, groups=groups, out=out, reading=reading, synthetic=synthetic, as_json=as_json,
        )  # fmt: skip
    if out is None:
        raise InvalidInput("--out FOLDER says where to write the release")
    check_new_folder(out)
    check_report(report, inputs=[table, public, columns])
    if synthetic is not None:
        check_count("synthetic", synthetic)
    return _release(
        QueryRelease(subject.about, records_per_person=records_per_person, **settings),
        subject,
        table,
        public,
        queries,
        groups=groups,
        out=out,
        reading=reading,
        synthetic=synthetic,
        utility=utility,
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
    utility: bool,
    report: Path | None,
    as_json: bool,
) -> int:
    """Fit a release, write it, and print what it promises."""
    with steps(["reading", "releasing", "writing", "reporting"], quiet=as_json) as step:
        step()
        known = public_records(subject, public, groups)
        private, people = private_records(subject, table, groups)
        domain = make_domain(subject.about, known, release.columns)
        check_declared(domain, private)
        if queries:  # what cannot be asked is refused before anything is paid
            domain.find_sums(queries)
        step()
        release.fit(private, known, groups=people)
        del private, people
        step()
        write_release(release, subject.names, out, synthetic)
        step()
        told = simulate_utility(release) if utility else None
        if report is not None:
            write_report_of(release, report, told)
    if told is not None and not as_json:
        print(told.summary(), file=sys.stderr)
    more = {"utility": told.as_dict()} if told is not None and as_json else {}
    return show_release(release, queries, out, reading, more, as_json=as_json)


def _ask_folder(table: Path, asked: Sequence[str], *, out: Path | None, as_json: bool, **how: Any) -> int:
    """Ask the release of a folder: one that was published, or one that pays from its budget."""
    folder = open_folder(table)
    if folder.kind == "online release":
        return ask_online(folder, asked, out=out, as_json=as_json)
    return ask_published(folder, asked, out=out, as_json=as_json, **how)


def _subject(workload: str | None, table: Path | None, leave_out: Sequence[str]) -> Subject:
    """Return what is asked."""
    if workload is None:
        if table is not None and not table.exists():
            raise InvalidInput(f"{table}: there is no such table, and no such release")
        raise InvalidInput(
            "--workload says what is asked: marginals:2, thresholds:COLUMN, ranges:COLUMN, hierarchy:COLUMN, "
            "expressions:FILE, boxes:COLUMN,COLUMN or halfspaces:COLUMN,COLUMN"
        )
    subject = Subject.parse(workload)
    subject.left_out = leave_out
    return subject


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


def ask_published(
    folder: Folder,
    asked: Sequence[str],
    *,
    out: Path | None,
    synthetic: int | None,
    quantiles: int | None = None,
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
        write_synthetic(release, out, synthetic, names_in(folder))
        show_bill(f"synthetic records in {out}", {"rows": synthetic, "out": str(out)}, as_json=as_json)
        return 0
    if quantiles is not None:
        text = json.dumps(release.quantiles(quantiles).to_dict())
        if out is None:
            print(text)
        else:
            out.write_text(text + "\n", encoding="utf-8")
        return 0
    queries = parse_queries(asked, release.subject) if asked else None
    table = release.answer(queries, **reading)
    rows = table.to_pylist()
    say_between(rows)
    if out is not None:
        out.write_text(to_csv(rows, table.column_names), encoding="utf-8")
    if as_json:
        print(json.dumps({"claim": release.claim_, "answers": rows if out is None else len(rows)}))
    elif out is None:
        print(to_csv(rows, table.column_names), end="")
    return 0
