"""`quorate look`: a preview of a table for its owner alone, and the schema that it writes."""

from json import dumps
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate.cli.options import AsJson, split_list
from quorate.cli.output import check_new_file
from quorate.cli.reading import TableFile, check_column_names
from quorate.tables.csv_files import CsvFormat, csv_header
from quorate.tables.csv_records import Irregularities
from quorate.tables.look import TableLook, look_at

_NOT_PRIVATE = "NOT PRIVATE: this shows values and counts of private records. Do not share it."


def look(source: TableFile, *, out: Path | None = None, json: AsJson = False) -> int:
    """Show the owner what each column of a table would be read as, and what cannot be read. NOT PRIVATE.

    What is shown, and the schema that --out writes, come from private records without noise: do not share them. The
    schema is refused until you have checked that it lists public knowledge only, and have deleted one line.

    Example: `quorate look visits.csv --label outcome --groups patient --out schema.json`

    Parameters
    ----------
    out
        A file for the schema, with a comment on each line.
    """
    if out is not None:
        check_new_file(out, inputs=[source.table])
    irregularities, unused = Irregularities(), split_list(source.leave_out)
    records = source.read(irregularities)
    check_column_names(records, label=[source.label], groups=[source.groups], leave_out=unused)
    roles: dict[str, Any] = {"label": source.label, "groups": source.groups, "leave_out": unused}
    look = look_at(records, **roles, irregularities=irregularities, file=_describe_file(source))
    if out is not None:
        out.touch(mode=0o600)  # it lists values of private records
        out.write_text(look.schema_text(), encoding="utf-8")
    if json:
        print(dumps(look.to_dict() | {"written": None if out is None else str(out)}))
    else:
        _show(Console(), source.table, look, out)
    return 0


def _describe_file(source: TableFile) -> dict[str, Any]:
    """Return encoding and separator of a CSV file."""
    if not source.table.name.lower().endswith((".csv", ".csv.gz")):
        return {}
    header = csv_header(source.table, private=True, declared=CsvFormat(**source.file_settings()))
    encoding = {"cp1252": "windows-1252", "iso8859-1": "latin-1"}.get(header.encoding, header.encoding)
    reason = "declared" if source.encoding else "from the first line"
    return {"encoding": encoding, "encoding_source": reason, "separator": header.separator}


def _show(console: Console, path: Path, look: TableLook, out: Path | None) -> None:
    console.print(f"[bold]{_NOT_PRIVATE}[/bold]", soft_wrap=True)
    if look.file:
        names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
        encoding = f"encoding {look.file['encoding']} ({look.file['encoding_source']})"
        console.print(
            f"{escape(str(path))}: {encoding}, separator {names[look.file['separator']]}, {look.rows:,} records"
        )
    table = Table("column", "read as", "values", "missing", "cannot be read", "notes")
    for column in look.columns:
        notes = [
            *(f"such as {', '.join(map(repr, column.spellings))}" for _ in column.spellings[:1]),
            *column.notes,
            *column.problems,
        ]
        counts = [f"{count:,}" for count in (column.values, column.missing, column.unreadable)]
        table.add_row(escape(column.name), escape(column.use), *counts, escape("; ".join(notes)))
    console.print(table)
    order = "day first" if look.reading.date_order == "dmy" else "month first"
    console.print(f"Ambiguous values: 1,234 has the decimal mark {look.reading.decimal!r}; 05/06/2024 has the {order}.")
    if look.problems:
        console.print(f"\n[bold]Problems: {len(look.problems)}[/bold]. None stops a fit:")
        for problem in look.problems:
            console.print(f"- {escape(str(problem))}", soft_wrap=True)
    if out is not None:
        console.print(
            f"\nWritten to {escape(str(out))}. Check that what it lists is public, and delete the line that says so. "
            f"Then: quorate start {escape(str(path))} --schema {escape(str(out))}",
            soft_wrap=True,
        )
