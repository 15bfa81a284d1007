"""What `quorate look` shows the owner of a table, and the schema that it writes."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate.cli.options import listed
from quorate.cli.output import check_new_file
from quorate.core.errors import InvalidInput
from quorate.tables import read_table
from quorate.tables.csv_files import CsvFormat, csv_header
from quorate.tables.csv_records import Irregularities
from quorate.tables.look import TableLook, look_at

_NOT_PRIVATE = "NOT PRIVATE: this shows values and counts of private records. Do not share it."


def run_look(
    table: Path,
    *,
    label: str | None,
    groups: str | None,
    leave_out: str | None,
    out: Path | None,
    as_json: bool,
    **written: Any,
) -> int:
    """Show what each column of a table would be read as, and write a schema if asked."""
    if out is not None:
        check_new_file(out, inputs=[table])
    found = Irregularities()
    records = read_table(table, role="private", found=found, **written)
    left = [] if leave_out is None else listed(leave_out)
    unknown = [name for name in (label, groups, *left) if name is not None and name not in records.column_names]
    if unknown:
        raise InvalidInput(
            f"there are no columns {', '.join(map(repr, unknown))}; the columns are "
            f"{', '.join(map(repr, records.column_names))}"
        )
    look = look_at(records, label=label, groups=groups, leave_out=left, found=found, file=_file(table, written))
    if out is not None:
        out.touch(mode=0o600)  # it lists values of private records
        out.write_text(look.schema_text(), encoding="utf-8")
    if as_json:
        print(json.dumps(look.to_dict() | {"written": None if out is None else str(out)}))
    else:
        _show(Console(), table, look, out)
    return 0


def _file(table: Path, written: dict[str, Any]) -> dict[str, Any]:
    """Return how a CSV file is written."""
    if not table.name.lower().endswith((".csv", ".csv.gz")):
        return {}
    header = csv_header(table, private=True, declared=CsvFormat(**written))
    source = "declared" if written["encoding"] else "from the first line"
    encoding = {"cp1252": "windows-1252", "iso8859-1": "latin-1"}.get(header.encoding, header.encoding)
    return {"encoding": encoding, "encoding_source": source, "separator": header.separator}


def _show(console: Console, path: Path, look: TableLook, out: Path | None) -> None:
    console.print(f"[bold]{_NOT_PRIVATE}[/bold]", soft_wrap=True)
    if look.file:
        names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
        encoding = f"encoding {look.file['encoding']} ({look.file['encoding_source']})"
        console.print(
            f"{escape(str(path))}: {encoding}, separator {names[look.file['separator']]}, {look.rows:,} records"
        )
    shown = Table("column", "read as", "values", "missing", "cannot be read", "notes")
    for column in look.columns:
        notes = [
            *(f"such as {', '.join(map(repr, column.spellings))}" for _ in column.spellings[:1]),
            *column.notes,
            *column.problems,
        ]
        counts = [f"{count:,}" for count in (column.values, column.missing, column.unreadable)]
        shown.add_row(escape(column.name), escape(column.use), *counts, escape("; ".join(notes)))
    console.print(shown)
    order = "day first" if look.reading.date_order == "dmy" else "month first"
    console.print(f"Ambiguous values: 1,234 has the decimal mark {look.reading.decimal!r}; 05/06/2024 has the {order}.")
    if look.problems:
        console.print(f"\n[bold]{len(look.problems)} problems[/bold], none of which stops a fit:")
        for problem in look.problems:
            console.print(f"- {escape(str(problem))}", soft_wrap=True)
    if out is not None:
        console.print(
            f"\nWritten to {escape(str(out))}. Check that what it lists is public, and delete the line that says so. "
            f"Then: quorate fit subsample {escape(str(path))} --schema {escape(str(out))} ...",
            soft_wrap=True,
        )
