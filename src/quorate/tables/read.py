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

from quorate.errors import InvalidInput
from quorate.tables.containers import check_names
from quorate.tables.csv_files import read_csv
from quorate.tables.values import is_readable

__all__ = ["SUFFIXES", "Role", "check_role", "check_type", "read_table", "refusal", "subject"]

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
        raise InvalidInput(
            f"{whose}, column {column!r}: values must be numbers, texts, dates or truth values, got {kind}"
        )


SUFFIXES = (".csv", ".csv.gz", ".parquet", ".arrow", ".feather")


def read_table(path: str | Path, *, role: Role = "query") -> pa.Table:
    r"""Read a CSV, gzipped CSV, Parquet, Arrow or Feather file.

    `role="private"` keeps line numbers out of errors.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "people.csv").write_text("age,sex\n39,f\n")
    ...     read_table(Path(folder, "people.csv")).to_pylist()  # texts, until a schema says what they mean
    [{'age': '39', 'sex': 'f'}]
    """
    role, path = check_role(role), Path(path)
    readers: dict[str, Callable[[Path, Role], pa.Table]] = dict.fromkeys(
        (".csv", ".csv.gz"), lambda file, role: read_csv(file, private=role == "private")
    )
    readers[".parquet"] = lambda file, _: pyarrow.parquet.read_table(file, partitioning=None)
    readers[".arrow"] = readers[".feather"] = lambda file, _: pyarrow.feather.read_table(file)
    suffix = next((known for known in SUFFIXES if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise InvalidInput(f"{path}: the suffix must be one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    try:
        table = readers[suffix](path, role)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error):
        # The text of these errors may hold values of private rows.
        raise InvalidInput(f"{path}: not a readable {suffix} file; it may be damaged or misnamed") from None
    try:
        check_names(table)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if table.num_rows == 0:
        raise InvalidInput(f"{path}: the table has no rows")
    indices = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(indices)
