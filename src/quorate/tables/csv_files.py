"""CSV files as tables of texts, whole or some megabytes at a time.

Values are separated by commas, or by semicolons or tabs if the first line is; with semicolons a number may have a comma
before its decimals.
"""

import contextlib
import csv
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from quorate.errors import InvalidInput

__all__ = ["csv_header", "read_csv", "stream_csv"]

_BLOCK = 2**22  # bytes of a file that are read together
_OPEN_QUOTE = "a quoted value must end on its own line; a quote that is left open swallows records"


def read_csv(path: Path, *, private: bool) -> pa.Table:
    """Read a CSV file as texts. Of `private` records no line is named that is wrong."""
    names, separator = csv_header(path, private=private)
    try:
        with _opened(path) as file:
            table = pyarrow.csv.read_csv(file, **_options(names, separator))
    except pa.ArrowInvalid as error:
        raise _refused(path, names, separator, error, private=private) from None
    _check_quotes(path)
    return _checked(path, table, names, separator)


def stream_csv(path: Path, *, private: bool) -> Iterator[pa.Table]:
    """Yield a CSV file as texts, some megabytes of it at a time. What is wrong may show at its end."""
    names, separator = csv_header(path, private=private)
    try:
        with _opened(path) as file, pyarrow.csv.open_csv(file, **_options(names, separator, block=_BLOCK)) as batches:
            for batch in batches:
                yield _checked(path, pa.Table.from_batches([batch]), names, separator)
    except pa.ArrowInvalid as error:
        raise _refused(path, names, separator, error, private=private) from None
    _check_quotes(path)


def csv_header(path: Path, *, private: bool) -> tuple[list[str], str]:
    """Return the names in the first line, and what separates them: a comma, or else a semicolon or a tab."""
    names, separator = _header(path)
    if private and any(_is_number(name) for name in names):
        raise InvalidInput(f"{path}: the first line must name the columns, and has a number in it")
    return names, separator


def _refused(path: Path, names: list[str], separator: str, error: Exception, *, private: bool) -> InvalidInput:
    if "UTF8" in str(error):
        return InvalidInput(f"{path}: texts must be encoded as UTF-8")
    return _malformed(path, names, separator, private=private)


def _checked(path: Path, table: pa.Table, names: list[str], separator: str) -> pa.Table:
    if _spans_lines(table):
        raise InvalidInput(f"{path}: {_OPEN_QUOTE}")
    if separator == ";":  # as spreadsheets write where 1,5 is a number: value by value, whatever other rows hold
        table = pa.table([_with_points(column) for column in table.columns], names=names)
    return table.rename_columns([name.strip() for name in names])


def _with_points(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers that have a comma before their decimals with a point there; other texts stay as they are."""
    return pyarrow.compute.replace_substring_regex(column, r"^(\s*[+-]?\d+),(\d+\s*)$", r"\1.\2")


def _check_quotes(path: Path) -> None:
    """Refuse a file with an odd number of quotes: every quoted value has an even one."""
    with _opened(path) as file:
        quotes: int = sum(block.count(b'"') for block in iter(lambda: file.read(2**20), b""))
    if quotes % 2 == 1:
        raise InvalidInput(f"{path}: {_OPEN_QUOTE}")


def _spans_lines(table: pa.Table) -> bool:
    """Return whether a value holds a line break: what was meant as records may have become one value."""
    return any(
        pyarrow.compute.any(pyarrow.compute.match_substring_regex(column, "[\r\n]")).as_py() for column in table.columns
    )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _header(path: Path) -> tuple[list[str], str]:
    """Return the names in the first line, and what separates them: a comma, or else a semicolon or a tab."""
    with _as_text(path) as file:
        try:
            line = next((line for line in file if line.strip("\r\n")), "")
        except UnicodeDecodeError:
            raise InvalidInput(f"{path}: texts must be encoded as UTF-8") from None
    if not line:
        raise InvalidInput(f"{path}: the file is empty; its first line must name the columns")
    if line.count('"') % 2 == 1:  # Arrow would read on, know other names, and guess a type from the values
        raise InvalidInput(f"{path}: the names of all columns must stand on the first line, each without a line break")
    for separator in (",", ";", "\t"):
        names = next(csv.reader([line], delimiter=separator))
        if len(names) > 1:
            return names, separator
    return next(csv.reader([line])), ","


def _as_text(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _opened(path: Path) -> Any:
    return pa.input_stream(path, compression="gzip" if path.name.lower().endswith(".gz") else None)


def _options(
    names: list[str],
    separator: str,
    *,
    threads: bool = True,
    block: int | None = None,
    at_wrong_line: Callable[[pyarrow.csv.InvalidRow], str] | None = None,
) -> dict[str, Any]:
    return {
        "read_options": pyarrow.csv.ReadOptions(use_threads=threads, block_size=block),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=separator,
            newlines_in_values=True,
            ignore_empty_lines=len(names) > 1,  # in a single column an empty line is a missing value
            invalid_row_handler=at_wrong_line,
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    }


def _malformed(path: Path, names: list[str], separator: str, *, private: bool) -> InvalidInput:
    """Read once more, line after line, to say which line is wrong. Of private records not even that is said."""
    expected = f"each line must have {len(names)} values, as many as the first line has names"
    if private:
        return InvalidInput(f"{path}: {expected}, and not all do; is a quote left open?")
    wrong: list[pyarrow.csv.InvalidRow] = []

    def note(line: pyarrow.csv.InvalidRow) -> str:
        wrong.append(line)
        return "error"

    with contextlib.suppress(pa.ArrowInvalid), _opened(path) as file:
        pyarrow.csv.read_csv(file, **_options(names, separator, threads=False, at_wrong_line=note))
    if not wrong or wrong[0].number is None:
        return InvalidInput(f"{path}: {expected}, and not all do; is a quote left open?")
    return InvalidInput(f"{path}: {expected}, but line {wrong[0].number} has {wrong[0].actual_columns}")
