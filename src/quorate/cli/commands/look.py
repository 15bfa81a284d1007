"""`quorate look`: what a table would be read as, for its owner alone."""

from pathlib import Path

from quorate.cli.commands.file_options import FileOptions


def look(
    table: Path,
    *,
    label: str | None = None,
    groups: str | None = None,
    leave_out: str | None = None,
    files: FileOptions = FileOptions(),
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Show the owner what each column of a table would be read as, and what cannot be read. NOT PRIVATE.

    What is shown, and the schema that --out writes, come from private records without noise: do not share them. The
    schema is refused until you have checked that it lists public knowledge only, and have deleted one line.

    Example: `quorate look visits.csv --label outcome --groups patient --out schema.json`

    Parameters
    ----------
    table
        The private records: .csv, .csv.gz, .parquet, .arrow, .feather or .xlsx, or a query to a database.
    label
        The column to predict.
    groups
        The column that names the person of each row.
    leave_out
        Columns not to use, separated by commas.
    files
        How the file is written.
    out
        A file for the schema, with a comment on each line.
    json
        Print one JSON object instead of tables.
    """
    from quorate.cli.look import run_look

    options = files.settings()
    return run_look(table, label=label, groups=groups, leave_out=leave_out, out=out, as_json=json, **options)
