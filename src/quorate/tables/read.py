"""Tables from files, by suffix, and from whatever speaks Arrow: pandas and polars frames, record batches.

A CSV file is read as texts: what they mean is for the schema to say. So the type of a column does not depend on the
values of all rows, and a row means the same in any file.
"""

import contextlib
import csv
import gzip
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from quorate.errors import InvalidInput
from quorate.rows import FrameForm
from quorate.tables.columns import (
    MISSING_TEXTS,
    NotANumber,
    Role,
    check_role,
    numbers,
    refusal,
    shown_names,
    texts,
    whole_array,
)

__all__ = ["SUFFIXES", "as_table", "check_names", "frame_of", "read_table"]


def as_table(frame: Any) -> pa.Table:
    """Return a frame as an Arrow table, through the Arrow PyCapsule interface. The index of a pandas frame is left out.

    >>> as_table(pa.record_batch({"age": [39, 50]})).column_names
    ['age']
    >>> as_table([[39], [50]])
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: a table must be a pandas or polars frame or an Arrow table, ... not list
    """
    if isinstance(frame, pa.Table):
        return check_names(frame)
    if isinstance(frame, pa.RecordBatch):
        return check_names(pa.Table.from_batches([frame]))
    if not hasattr(frame, "__arrow_c_stream__"):
        raise InvalidInput(
            "a table must be a pandas or polars frame or an Arrow table, with __arrow_c_stream__, "
            f"not {type(frame).__name__}"
        )
    if hasattr(frame, "iloc"):  # pandas, which would complain in its own words
        _check_names([str(name) for name in frame.columns])
    try:
        table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # The text of the error may hold a value of a private row, so only its column is passed on.
        raise InvalidInput(
            f"{_failed_column(error)} must hold values of one type: numbers, or texts, or truth values"
        ) from None
    return check_names(_without_index(table))


def check_names(table: pa.Table) -> pa.Table:
    """Return the table if its columns have names and no name appears twice."""
    _check_names(table.column_names)
    return table


def _check_names(names: list[str]) -> None:
    if not names:
        raise InvalidInput("a table must have at least 1 column")
    for place, name in enumerate(names):
        if not str(name).strip():
            raise InvalidInput(
                f"column {place + 1} has no name; if it is the index of a pandas frame, write it with index=False"
            )
        if name in names[:place]:
            raise InvalidInput(f"column names must differ: {name!r} appears twice")


def _failed_column(error: BaseException) -> str:
    words = "Conversion failed for column "
    for text in error.args:
        if isinstance(text, str) and text.startswith(words):
            return f"column {text.removeprefix(words).rpartition(' with type ')[0]!r}"
    return "each column"


def _without_index(table: pa.Table) -> pa.Table:
    described = table.schema.pandas_metadata
    if not described:
        return table
    index = [name for name in described.get("index_columns", []) if isinstance(name, str)]
    return table.drop_columns([name for name in index if name in table.column_names])


def frame_of(table: pa.Table, form: FrameForm) -> Any:
    """Return a table of queries as a data frame like the one that a model was fitted on; the model checks the rest.

    A CSV file holds texts alone: a column that held numbers is read as numbers, and a missing value is one there.
    """
    lacking = [name for name in form.columns if name not in table.column_names]
    if lacking:
        raise InvalidInput(
            f"the queries must have the columns {shown_names(lacking)}; their columns are "
            f"{shown_names(table.column_names)}"
        )
    columns = {}
    for name, kind in zip(form.columns, form.kinds, strict=True):
        values = whole_array(table.column(name))
        if kind == "number":
            try:
                columns[name] = numbers(_truths_as_numbers(values), missing=MISSING_TEXTS)
            except NotANumber as error:
                raise refusal("query", name, "a number is expected, not a text", row=error.row) from None
        else:
            columns[name] = (texts(values, missing=MISSING_TEXTS) if _is_text(values) else values).to_pylist()
    return importlib.import_module(form.library).DataFrame(columns)


def _is_text(values: pa.Array) -> bool:
    return bool(pa.types.is_large_string(values.type))  # as `whole_array` leaves texts


def _truths_as_numbers(values: pa.Array) -> pa.Array:
    """Return texts with 1 and 0 in place of true and false, as a file has them where a frame had truth values."""
    if not _is_text(values):
        return values
    lowered = pyarrow.compute.utf8_lower(pyarrow.compute.utf8_trim_whitespace(values))
    for word, digit in (("true", "1"), ("false", "0")):
        values = pyarrow.compute.if_else(pyarrow.compute.equal(lowered, word), digit, values)
    return values


SUFFIXES = (".csv", ".csv.gz", ".parquet", ".arrow", ".feather")


def read_table(path: str | Path, *, role: Role = "query") -> pa.Table:
    r"""Read a CSV, gzipped CSV, Parquet, Arrow or Feather file. `role="private"` keeps line numbers out of errors.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "people.csv").write_text("age,sex\n39,f\n")
    ...     read_table(Path(folder, "people.csv")).to_pylist()  # texts, until a schema says what they mean
    [{'age': '39', 'sex': 'f'}]
    """
    role, path = check_role(role), Path(path)
    readers: dict[str, Callable[[Path, Role], pa.Table]] = dict.fromkeys((".csv", ".csv.gz"), _read_csv)
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


def _read_csv(path: Path, role: Role) -> pa.Table:
    names = _header(path)
    if role == "private" and any(_is_number(name) for name in names):
        raise InvalidInput(f"{path}: the first line must name the columns, and has a number in it")
    try:
        table = _parse(path, names, threads=True)
        if table.num_columns == 1:  # an empty line is a missing value there, not a line to skip
            table = _parse(path, names, threads=True, skip_empty=False)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise InvalidInput(f"{path}: texts must be encoded as UTF-8") from None
        raise _malformed(path, names, role) from None
    if _quote_left_open(path) or _spans_lines(table):
        raise InvalidInput(
            f"{path}: a quoted value must end on its own line; a quote that is left open swallows records"
        )
    return table.rename_columns([name.strip() for name in names])


def _quote_left_open(path: Path) -> bool:
    """Return whether the file has an odd number of quotes: every quoted value has an even one."""
    compression = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(path, compression=compression) as file:
        quotes: int = sum(block.count(b'"') for block in iter(lambda: file.read(2**20), b""))
    return quotes % 2 == 1


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


def _header(path: Path) -> list[str]:
    with _opened(path) as file:
        try:
            names = next((line for line in csv.reader(file) if line), [])
        except UnicodeDecodeError:
            raise InvalidInput(f"{path}: texts must be encoded as UTF-8") from None
    if not names:
        raise InvalidInput(f"{path}: the file is empty; its first line must name the columns")
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and separator in names[0]:
            raise InvalidInput(f"{path}: values must be separated by commas; the first line has {called}")
    return names


def _opened(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _parse(
    path: Path,
    names: list[str],
    *,
    threads: bool,
    skip_empty: bool = True,
    at_wrong_line: Callable[[pyarrow.csv.InvalidRow], str] | None = None,
) -> pa.Table:
    compression = "gzip" if path.name.lower().endswith(".gz") else None
    with pa.input_stream(path, compression=compression) as stream:
        return pyarrow.csv.read_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(use_threads=threads),
            parse_options=pyarrow.csv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=skip_empty, invalid_row_handler=at_wrong_line
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )


def _malformed(path: Path, names: list[str], role: Role) -> InvalidInput:
    """Read once more, line after line, to say which line is wrong. Of private records not even that is said."""
    expected = f"each line must have {len(names)} values, as many as the first line has names"
    if role == "private":
        return InvalidInput(f"{path}: {expected}, and not all do; is a quote left open?")
    wrong: list[pyarrow.csv.InvalidRow] = []

    def note(line: pyarrow.csv.InvalidRow) -> str:
        wrong.append(line)
        return "error"

    with contextlib.suppress(pa.ArrowInvalid):
        _parse(path, names, threads=False, at_wrong_line=note)
    if not wrong or wrong[0].number is None:
        return InvalidInput(f"{path}: {expected}, and not all do; is a quote left open?")
    return InvalidInput(f"{path}: {expected}, but line {wrong[0].number} has {wrong[0].actual_columns}")
