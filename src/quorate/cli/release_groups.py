"""`quorate release --by`: totals, means and medians of the groups of a table, and their published folder."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quorate.cli.options import split_list
from quorate.cli.output import check_new_folder, check_report, show_bill, show_rows, to_csv
from quorate.cli.release_tables import check_table_name, write_table
from quorate.core.errors import InvalidInput
from quorate.models.saving import Folder, load, save
from quorate.release import GroupRelease
from quorate.release.answers import parse_queries
from quorate.report.groups import write_groups_report
from quorate.tables.document import read_document, schema_fields
from quorate.tables.files import TableStream
from quorate.tables.schema import Schema


def make_group_release(options: Any, settings: Mapping[str, Any]) -> tuple[GroupRelease, str | None]:
    """Return the release that the options of the command describe, and the column that names people.

    Parameters
    ----------
    options
        The options of `quorate release`.
    settings
        Epsilon, delta, and how much of a person counts.
    """
    groups, records = settings["groups_per_person"] or 1, settings["records_per_person"]
    if options.sql is None:
        names = {"totals": options.total, "means": options.mean, "medians": options.median}
        query: dict[str, Any] = {"by": split_list(options.by)} | {
            name: split_list(text) for name, text in names.items()
        }
    else:
        query = GroupRelease.read_sql(options.sql)
    people = query.pop("groups", None) or options.groups
    release = GroupRelease(
        **query,
        columns=None if options.columns is None else _read_columns(options.columns),
        groups_per_person=groups,
        records_per_person=groups if records == 1 else records,
        **{name: settings[name] for name in ("epsilon", "delta", "account") if name in settings},
    )
    return release, people


def _read_columns(path: Path) -> Any:
    """Return the declarations of a file: a schema, or an object of columns."""
    document = read_document(path)
    return Schema(**schema_fields(document)) if isinstance(document.get("columns"), Mapping) else document


def release_groups(table: Path | None, options: Any, settings: Mapping[str, Any]) -> int:
    """Release numbers by group into a folder, and print them; with --plan, print the expected intervals instead."""
    release, people = make_group_release(options, settings)
    if options.plan:
        return _show_plan(release, options, is_person=people is not None)
    if table is None or options.out is None:
        raise InvalidInput("name the table of private records, and --out FOLDER for the release")
    check_new_folder(options.out)
    check_report(options.report, inputs=[table, options.columns])
    release.fit(TableStream(table, **options.file_settings()), groups=people)
    answers = release.answer()
    rows = answers.to_pylist()
    save(release, options.out, extra={"answers.csv": to_csv(rows, answers.column_names).encode()})
    if options.report is not None:
        write_groups_report(release, options.report)
    bill = {
        "claim": release.claim_,
        "privacy_unit": release.unit_,
        "groups": len(release.published_.keys),
        "folder": str(options.out),
        "notes": list(release.notes_),
        "answers": rows if options.json else [],
    }
    if not options.json:
        show_rows(rows)
        sys.stderr.writelines(f"Note: {note}.\n" for note in release.notes_)
    show_bill(f"The release in {options.out}", bill, as_json=options.json)
    return 0


def _show_plan(release: GroupRelease, options: Any, *, is_person: bool) -> int:
    """Print the expected intervals for groups of some sizes."""
    rows = release.plan(is_person=is_person).to_pylist()
    if options.json:
        print(json.dumps(rows))
        return 0
    show_rows(rows, is_result=True, limit=len(rows), title="Expected 95% intervals, as half of their widths")
    return 0


def ask_groups(folder: Folder, queries: Sequence[str], *, out: Path | None, as_json: bool) -> int:
    """Print or write the numbers of a published release, all of them or some measures.

    Parameters
    ----------
    folder
        The folder of the release.
    queries
        Names of measures, such as "total cost", or queries such as {"measure": "total cost", "region": "north"}; all
        numbers if there are none.
    out
        A .csv, .parquet or .xlsx file for the answers.
    as_json
        Whether to print JSON.
    """
    release = load(folder, kind=GroupRelease.kind)
    is_single = any(query.lstrip().startswith("{") for query in queries)
    table = release.ask(parse_queries(queries, None)) if is_single else release.answer(queries or None)
    rows = table.to_pylist()
    if out is not None:
        check_table_name(out)
        write_table(out, table)
    if as_json:
        print(json.dumps({"claim": release.claim_, "answers": rows if out is None else len(rows)}))
    elif out is None:
        sys.stdout.write(to_csv(rows, table.column_names))
    return 0
