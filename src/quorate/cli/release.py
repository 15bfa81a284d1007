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

from quorate.cli.commands.fit_options import warn_of_delta
from quorate.cli.commands.release_options import Records, ReleaseOptions
from quorate.cli.output import check_apart, check_new_file, check_new_folder, check_report, show_bill, steps, write_file
from quorate.cli.release_growing import begin_growing, run_growing
from quorate.cli.release_online import ask_online, run_online
from quorate.cli.release_plan import run_plan
from quorate.cli.release_tables import (
    Subject,
    check_answers,
    check_declared,
    check_table_name,
    names_in,
    private_records,
    public_records,
    say_between,
    show_release,
    to_csv,
    write_release,
    write_synthetic,
    write_table,
)
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.models.saving import Folder, load, open_folder
from quorate.release import Columns, QueryRelease
from quorate.release.answers import parse_queries, shown_answers
from quorate.release.auto_cuts import AutoCuts
from quorate.release.domain import make_domain
from quorate.release.utility import simulate_utility
from quorate.report.release_page import write_report_of

__all__ = ["ask_published", "run_release"]


def run_release(table: Path | None, options: ReleaseOptions) -> int:
    """Release, plan, or ask a release that was published before, and print what it promises."""
    records, output, growing = options.records, options.output, options.growing.growing
    if table is not None and table.is_dir():
        return _ask_folder(table, options)
    if table is not None and growing is not None and growing.exists():
        return run_growing(growing, table, options)
    subject = _subject(records, table)
    declared = None if records.columns is None else Columns.load(records.columns)
    if options.planned.plan:
        check_report(output.report, inputs=[records.public, records.columns])
        return run_plan(subject, declared, options)
    if table is None:
        raise InvalidInput("name the table of private records, or the folder of a release to ask")
    check_apart(table, records.public)
    queries = parse_queries(options.answers.texts, subject.about)
    if options.online.online:
        return run_online(subject, table, declared, queries, options)
    if records.groups is None and records.records_per_person != 1:
        raise InvalidInput("--records-per-person says how many records of a person count: --groups says whose they are")
    settings = {**vars(options.spending), **vars(options.precision), "columns": declared}
    if growing is not None:
        return begin_growing(growing, subject, table, settings, options)
    if output.out is None:
        raise InvalidInput("--out FOLDER says where to write the release")
    check_new_folder(output.out)
    check_report(output.report, inputs=[table, records.public, records.columns])
    check_answers(options.answers)
    release = QueryRelease(subject.about, records_per_person=records.records_per_person, **settings)
    return _release(release, subject, table, queries, options)


def _release(
    release: QueryRelease, subject: Subject, table: Path, queries: Sequence[Any], options: ReleaseOptions
) -> int:
    """Fit a release, write it, and print what it promises."""
    records, answers, output = options.records, options.answers, options.output
    assert output.out is not None
    with steps(["reading", "releasing", "writing", "reporting"], quiet=output.json) as step:
        step()
        known = public_records(subject, records.public, records.groups)
        private, people = private_records(subject, table, records.groups)
        subject.check_left_out(records.groups)
        warn_of_delta(release.delta, private, people)
        auto_cuts = AutoCuts.of(subject.about, release.columns, known)
        domain = make_domain(subject.about, known, release.columns if auto_cuts is None else auto_cuts.widest)
        check_declared(domain, private)
        if queries:  # what cannot be asked is refused before anything is paid
            domain.find_sums(queries)
            if auto_cuts is not None:
                auto_cuts.check_asked(domain, queries)
        step()
        release.fit(private, known, groups=people)
        del private, people
        step()
        write_release(release, subject.names, output.out, answers.synthetic)
        step()
        told = simulate_utility(release) if answers.utility else None
        if output.report is not None:
            write_report_of(release, output.report, told)
    if told is not None and not output.json:
        print(told.summary(), file=sys.stderr)
    more = {"utility": told.as_dict()} if told is not None and output.json else {}
    return show_release(release, queries, output.out, answers.reading, more, as_json=output.json)


def _ask_folder(table: Path, options: ReleaseOptions) -> int:
    """Ask the release of a folder: one that was published, or one that pays from its budget."""
    folder, answers, output = open_folder(table), options.answers, options.output
    if folder.kind == "online release":
        return ask_online(folder, answers.texts, out=output.out, as_json=output.json)
    how: dict[str, Any] = {"synthetic": answers.synthetic, "quantiles": answers.quantiles, "reading": answers.reading}
    return ask_published(folder, answers.texts, out=output.out, as_json=output.json, **how)


def _subject(records: Records, table: Path | None) -> Subject:
    """Return what is asked."""
    if records.workload is None:
        if table is not None and not table.exists():
            raise InvalidInput(f"{table}: there is no such table, and no such release")
        raise InvalidInput(
            "--workload says what is asked: marginals:2, thresholds:COLUMN, ranges:COLUMN, hierarchy:COLUMN, "
            "expressions:FILE, boxes:COLUMN,COLUMN or halfspaces:COLUMN,COLUMN"
        )
    subject = Subject.parse(records.workload)
    subject.left_out = records.left_out
    return subject


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
        if quantiles is None:
            check_table_name(out)
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
            write_file(out, text + "\n")
        return 0
    queries = parse_queries(asked, release.subject) if asked else None
    table = release.answer(queries, **reading)
    rows = table.to_pylist()
    say_between(rows)
    shown = shown_answers(rows, release.records_)
    if out is not None:
        write_table(out, table, rows=shown)
    if as_json:
        print(json.dumps({"claim": release.claim_, "answers": rows if out is None else len(rows)}))
    elif out is None:
        print(to_csv(shown, table.column_names), end="")
    return 0
