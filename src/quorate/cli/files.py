"""`quorate look`, `export`, `datasets` and `demo`: a file as it will be read, models for other programs, examples."""

import shlex
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate.cli.options import AsJson, Trusted
from quorate.cli.output import check_new_file, check_new_folder, show, show_bill, show_step
from quorate.cli.reading import TableFile, check_column_names
from quorate.core.checks import check_count, check_delta, check_positive
from quorate.core.errors import InvalidInput
from quorate.core.progress import progress
from quorate.report import check_installed, write_report
from quorate.tables import SCHEMA_FILE
from quorate.tables import datasets as shipped
from quorate.tables.csv_files import CsvFormat, csv_header
from quorate.tables.csv_records import Irregularities
from quorate.tables.look import TableLook, look_at


def export(
    folder: Path,
    *,
    onnx: Path | None = None,
    card: Path | None = None,
    license: str = "other",
    trusted: Trusted = (),
    json: AsJson = False,
) -> int:
    """Export a published model: as an ONNX file, or with a model card for a hub. A private folder is refused.

    Example: `quorate export rule --onnx rule.onnx`

    Parameters
    ----------
    folder
        The model, as `quorate fit linear`, `student` or `semi-private`, or `quorate.save` wrote it.
    onnx
        The ONNX file to write. It takes rows of 64-bit numbers, encoded by the model's schema, which is in its
        metadata, and returns labels and probabilities. Needs quorate[onnx].
    card
        The folder to write: the model, a skops file, and a card in the format of the Hugging Face Hub that states the
        guarantee.
    license
        The license of the card, by the hub's name for it, such as cc-by-4.0.
    """
    from quorate.models.export import open_published, to_onnx, write_card
    from quorate.models.saving import load

    if onnx is None and card is None:
        raise InvalidInput("nothing to write: add --onnx FILE or --card FOLDER")
    opened, types = open_published(folder), list(trusted) or None
    if card is not None:
        check_new_folder(card)
    bill = {"kind": opened.kind, "claim": opened.manifest["claim"]}
    if onnx is not None:
        check_new_file(onnx)
        model, files = load(opened, trusted=types), opened.contents
        content = to_onnx(model, facts={"schema": files[SCHEMA_FILE].decode()} if SCHEMA_FILE in files else {})
        onnx.write_bytes(content)
        bill |= {"onnx": str(onnx), "bytes": len(content)}
    if card is not None:
        bill["card"] = str(write_card(folder, card, license=license, trusted=types) / "README.md")
    return show_bill("Exported: may be published", bill, as_json=json)


def datasets(
    name: Literal["hospital", "bank", "census", "triage"], *, out: Path | None = None, json: AsJson = False
) -> int:
    """Write a small synthetic table that ships with the package as private.csv, public.csv and new.csv.

    Example: `quorate datasets bank`

    Parameters
    ----------
    name
        Which table.
    out
        The folder to write to; by default it has the name of the table.
    """
    folder = Path(name) if out is None else out
    check_new_folder(folder)
    data = getattr(shipped, name)()
    files = [str(path) for path in data.write(folder)]
    figures = {"about": data.about, "label": data.label, "classes": list(data.classes or ()), "written": files}
    label = "" if data.label is None else f" The label is {data.label!r}: {', '.join(data.classes)}."
    text = f"{data.about[0].upper()}{data.about[1:]}{label}\nWritten: {', '.join(files)}"
    return show(figures, text, as_json=json)


def demo(
    *,
    records: int = 200_000,
    queries: int = 10_000,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Run a complete example on a generated clinic: plan, fit, ask, compare, report. Nothing private is read.

    Parameters
    ----------
    records
        How many visits the clinic has, about five for every three people. The person is the privacy unit.
    queries
        The number of queries.
    epsilon
        The total privacy loss allowed.
    delta
        The delta of (epsilon, delta)-differential privacy: far below one over the number of records.
    out
        The report, one HTML file, quorate-demo.html by default. A file of this name is replaced. Without the packages
        of the extra "report" there is none by default.
    json
        Print one JSON object, with the contents of the report, instead of tables.
    """
    check_positive("epsilon", epsilon)
    check_delta(delta)
    records, queries = check_count("records", records), check_count("queries", queries)
    out, missing = _demo_report(out)
    from quorate.report.demo import run_job  # Its imports take a second, so only this command loads them.

    console = Console(quiet=json, highlight=False)
    with progress("running the example", left="Interrupted: nothing private was read."):
        data = run_job(
            records=records, queries=queries, epsilon=epsilon, delta=delta, say=console.print, step=show_step
        )
        path = None if out is None else str(write_report(data, out))
    ending = f"No report was written: {missing}" if path is None else f"The report: {path}"
    if not json:
        show_bill("Asked, answered, paid", data.results or {}, as_json=False, is_result=True)
        console.print("True outcomes are known here because everybody is made up.\n")
    return show({"report": path, **data.as_dict()}, ending, as_json=json)


def _demo_report(out: Path | None) -> tuple[Path | None, str]:
    """Return where the report of the demo goes, or None and the reason if nobody named a file and none can be made."""
    path = out or Path("quorate-demo.html")
    check_new_file(path)
    try:
        check_installed()
    except InvalidInput as error:
        if out is not None:
            raise
        return None, str(error)
    return path, ""


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
    irregularities, unused = Irregularities(), source.leave_out
    records = source.read(irregularities)
    check_column_names(records, label=[source.label], groups=[source.groups], leave_out=unused)
    roles: dict[str, Any] = {"label": source.label, "groups": source.groups, "leave_out": unused}
    look = look_at(records, **roles, irregularities=irregularities, file=_describe_file(source))
    if out is not None:
        out.touch(mode=0o600)  # it lists values of private records
        out.write_text(look.schema_text(), encoding="utf-8")
    figures = look.to_dict() | {"written": None if out is None else str(out)}
    return show(figures, lambda: _show_look(Console(), source, look, out), as_json=json)


def _describe_file(source: TableFile) -> dict[str, Any]:
    """Return encoding and separator of a CSV file."""
    if not source.table.name.lower().endswith((".csv", ".csv.gz")):
        return {}
    header = csv_header(source.table, private=True, declared=CsvFormat(**source.file_settings()))
    encoding = {"cp1252": "windows-1252", "iso8859-1": "latin-1"}.get(header.encoding, header.encoding)
    reason = "declared" if source.encoding else "from the first line"
    return {"encoding": encoding, "encoding_source": reason, "separator": header.separator}


def _show_look(console: Console, source: TableFile, look: TableLook, out: Path | None) -> None:
    console.print(f"[bold]{_NOT_PRIVATE}[/bold]", soft_wrap=True)
    if look.file:
        names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
        encoding = f"encoding {look.file['encoding']} ({look.file['encoding_source']})"
        console.print(
            f"{escape(str(source.table))}: {encoding}, separator {names[look.file['separator']]}, {look.rows:,} records"
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
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in source.file_settings().items()]
        console.print(
            f"\nWritten to {escape(str(out))}. Check that what it lists is public, and delete the line that says so. "
            f"Then: {escape(shlex.join(['quorate', 'start', str(source.table), '--schema', str(out), *settings]))}",
            soft_wrap=True,
        )
