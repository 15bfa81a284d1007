"""Read tables from files, by suffix, and say whose rows they are in an error.

A CSV file is read as texts, which the schema interprets. So the type of a column does not depend on the values of all
rows, and a row means the same in any file (`csv_files`).
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from quorate.core.errors import InvalidInput
from quorate.tables.containers import check_names
from quorate.tables.csv_files import CsvFormat, read_csv
from quorate.tables.csv_records import Irregularities
from quorate.tables.excel import excel_header, stream_excel
from quorate.tables.queries import is_query, query_header, stream_query
from quorate.tables.values import is_readable

__all__ = ["SUFFIXES", "Role", "check_role", "check_type", "read_table", "refusal", "subject", "type_problem"]

Role = Literal["private", "public", "query"]

_SUBJECTS = {"private": "the private records", "public": "the public table", "query": "the queries"}


def check_role(role: object) -> Role:
    """Return `role` if it is valid."""
    for known in get_args(Role):
        if role == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"role must be 'private', 'public' or 'query', not {role!r}")


def subject(role: Role) -> str:
    """Return the name of these rows in an error."""
    return _SUBJECTS[role]


def refusal(role: Role, column: str, problem: str, *, row: int) -> InvalidInput:
    """Return the error for a value of a column. A private row is never named: neither its number nor its value."""
    place = "" if role == "private" else f", row {row + 1} (the first such row, counted from 1)"
    return InvalidInput(f"{subject(role)}, column {column!r}{place}: {problem}")


def check_type(whose: str, column: str, kind: pa.DataType) -> None:
    """Refuse a column of a type that cannot be read."""
    if not is_readable(kind):
        raise InvalidInput(type_problem(whose, column, kind))


def type_problem(whose: str, column: str, kind: pa.DataType) -> str:
    """Return what is wrong with a column of a type that cannot be read."""
    return f"{whose}, column {column!r}: values must be numbers, texts, dates or truth values, got {kind}"


SUFFIXES = (".csv", ".csv.gz", ".parquet", ".arrow", ".feather", ".xlsx")


def read_table(
    path: str | Path,
    *,
    role: Role = "query",
    encoding: str | None = None,
    separator: str | None = None,
    skip_last: int = 0,
    found: Irregularities | None = None,
) -> pa.Table:
    r"""Read a CSV, gzipped CSV, Parquet, Arrow, Feather or Excel file, or the rows of a query to a database.

    path
        The file, or an address such as `duckdb:clinic.db?query=SELECT * FROM visits` (`quorate.tables.queries`).
    role
        Whose rows these are. No private record is refused, whatever it holds.
    encoding, separator
        Those of a CSV file. By default its first line shows them.
    skip_last
        How many records at the end of a CSV or Excel file are none, such as a line of totals.
    found
        Counts the irregular records of a CSV file, for the owner.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "people.csv").write_text("age,sex\n39,f\n")
    ...     read_table(Path(folder, "people.csv")).to_pylist()  # texts, until a schema says what they mean
    [{'age': '39', 'sex': 'f'}]
    """
    role, declared = check_role(role), CsvFormat(encoding, separator, skip_last)
    if is_query(path):
        table = pa.concat_tables([query_header(str(path)), *stream_query(str(path))])
        return _checked("the query", table)
    path = Path(path)
    suffix = next((known for known in SUFFIXES if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise InvalidInput(f"{path}: the suffix must be one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    try:
        if suffix in (".csv", ".csv.gz"):
            table = read_csv(path, private=role == "private", declared=declared, found=found)
        else:
            table = _readers[suffix](path)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error):
        # The text of these errors may hold values of private rows.
        raise InvalidInput(f"{path}: not a readable {suffix} file; it may be damaged or misnamed") from None
    if suffix == ".xlsx":
        table = table.slice(0, max(table.num_rows - skip_last, 0))
    return _checked(str(path), table)


def _read_excel(path: Path) -> pa.Table:
    names = excel_header(path)
    return pa.concat_tables([pa.schema([(n, pa.large_string()) for n in names]).empty_table(), *stream_excel(path)])


_readers: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": lambda file: pyarrow.parquet.read_table(file, partitioning=None),
    ".arrow": pyarrow.feather.read_table,
    ".feather": pyarrow.feather.read_table,
    ".xlsx": _read_excel,
}


def _checked(whose: str, table: pa.Table) -> pa.Table:
    """Return a table that has names and rows, without the index of a pandas frame."""
    try:
        check_names(table)
    except InvalidInput as error:
        raise InvalidInput(f"{whose}: {error}") from None
    if table.num_rows == 0:
        raise InvalidInput(f"{whose}: the table has no rows")
    indices = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(indices)
