"""Files, folders, addresses and queries as tables: whole (`read_table`), or a batch of rows at a time (`TableStream`).

    .csv, .csv.gz              texts, which a schema interprets (`csv_files`)
    .parquet .arrow .feather   as they are, without the index of a pandas frame
    .xlsx                      the first sheet, whose first row that is not empty names the columns; each cell is read
                               by itself, as what it shows or, of a formula, as the value that was saved with it; an
                               empty row before the last is a record without values
    s3://bucket/visits         Parquet files that pyarrow can reach
    duckdb:clinic.db?query=SELECT * FROM visits
    duckdb:?query=SELECT * FROM 'visits/*.parquet'
    postgresql://reader@host/clinic?query=SELECT * FROM visits

Each row of a query's result must be made from one record: a query that aggregates, ranks or joins records makes rows
that depend on several. Errors repeat neither a value nor the text of a library's error, which may contain one. Each row
of a stream has a place, the number of its file and of the row in it, which is the same for every reader.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.feather
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet

from quorate.core.checks import check_choice
from quorate.core.errors import InvalidInput
from quorate.tables._sources import DATABASE, open_excel, open_query
from quorate.tables.containers import Role, as_table, check_names, foreign, prefix_errors, shown_names
from quorate.tables.csv_files import FOUND, CsvFormat, csv_header, empty_texts, stream_csv
from quorate.tables.csv_records import Irregularities

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".arrow", ".feather", ".xlsx")

_ROWS = 2**16  # read together
_CSV = (".csv", ".csv.gz")
_QUERY = "query"  # in place of a suffix
_IN_PARTS: dict[str, Any] = {"pre_buffer": False, "buffer_size": 2**20}  # else a Parquet file is kept in memory
_PLACES_PER_FILE = 2**40
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)")  # a path has lost one of the slashes
_TWICE = "a file is named twice: its records would be dealt twice"

File = Path | str  # the latter is an address


def read_table(
    path: str | Path,
    *,
    role: Role,
    encoding: str | None = None,
    separator: str | None = None,
    skip_last: int = 0,
    irregularities: Irregularities | None = None,
) -> pa.Table:
    r"""Read a CSV, gzipped CSV, Parquet, Arrow, Feather or Excel file, or the rows of a query to a database.

    path
        The file, or an address such as `duckdb:clinic.db?query=SELECT * FROM visits`.
    role
        The role of the rows: "private", "public" or "query". Private records are never refused.
    encoding, separator
        The encoding and the separator of a CSV file. By default its first line shows them.
    skip_last
        The number of records to skip at the end of a CSV or Excel file, such as a line of totals.
    irregularities
        Counts the irregular records of a CSV file, for the owner.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "people.csv").write_text("age,sex\n39,f\n")
    ...     table = read_table(Path(folder, "people.csv"), role="private")
    >>> table.to_pylist()  # texts, until a schema says what they mean
    [{'age': '39', 'sex': 'f'}]
    """
    check_choice("role", role, get_args(Role))
    declared = CsvFormat(encoding, separator, skip_last)
    file = str(path) if _is_query(path) else Path(path)
    _check_file(file)
    with _readable(file):
        if _suffix(file) == ".parquet":
            table = _check_table(file, pyarrow.parquet.read_table(file, partitioning=None))
        elif _suffix(file) in (".arrow", ".feather"):
            table = _check_table(file, pyarrow.feather.read_table(file))
        else:
            header = table_header(file, declared, private=role == "private")
            table = pa.concat_tables(
                [header, *_batches(file, None, declared, private=role == "private", irregularities=irregularities)]
            )
    if table.num_rows == 0:
        raise InvalidInput(f"{_display_name(file)}: the table has no rows")
    return as_table(table)


def table_files(paths: str | Path | Iterable[str | Path]) -> list[File]:
    """Return the files that paths name: each a file, a folder of files, or a pattern such as data/*.parquet.

    Files of a folder or a pattern are taken in the order of their names; a folder's other files are passed over. An
    address such as s3://bucket/visits names Parquet files that pyarrow can reach. That of a query names its rows.
    """
    files: list[File] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        matching = _files_at(path)
        if not matching:
            raise InvalidInput(f"{path}: there is no table; the suffix must be one of {', '.join(SUFFIXES)}")
        files += matching
    for file in files:
        _check_file(file)
    if len(set(map(_identity, files))) < len(files):
        raise InvalidInput(_TWICE)
    return files


def _is_query(source: str | Path) -> bool:
    """Return whether this is the address of a database with a query."""
    return DATABASE.fullmatch(str(source)) is not None


def is_folder_or_pattern(path: Path) -> bool:
    """Return whether a path names any number of files, here or at an address."""
    if _is_query(path):
        return False
    return path.is_dir() or _is_address(path) or (not path.is_file() and any(mark in path.name for mark in "*?["))


@dataclass(frozen=True)
class TablePart:
    """A file of a table, or a row group of a Parquet file: what can be read by itself, wherever the file is reached.

    `number` is that of the file, and `first` that of its first row in the file. `stamp` is the size of the file and
    when it was last changed. A file that has changed since is refused: its rows would be dealt anew.
    """

    file: File
    number: int
    first: int = 0
    group: int | None = None
    stamp: tuple[int, int] = (0, 0)
    declared: CsvFormat = FOUND

    def batches(
        self, names: Iterable[str], irregularities: Irregularities | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows, some ten thousand at a time, each time with the place of the first."""
        if self.stamp != _stamp(self.file):
            raise InvalidInput(f"{self.file}: the file has changed since the table was dealt; fit again")
        index, wanted = self.number * _PLACES_PER_FILE + self.first, set(names)
        with _readable(self.file):
            for table in _batches(self.file, self.group, self.declared, private=True, irregularities=irregularities):
                if set(table.column_names) != wanted:
                    raise InvalidInput(f"{self.file}: its columns are not those of the first file")
                yield index, table
                index += table.num_rows


def table_parts(files: Iterable[File]) -> list[TablePart]:
    """Return the parts of a table's files. Of a Parquet file its footer is read."""
    parts: list[TablePart] = []
    for number, file in enumerate(files):
        if _suffix(file) == _QUERY:
            raise InvalidInput("a cluster reads files, and no query: its rows may come in another order each time")
        part = TablePart(file, number, stamp=_stamp(file))
        if _suffix(file) != ".parquet":
            parts.append(part)
            continue
        first = 0
        with _readable(file), _parquet(file) as opened:
            for group in range(opened.num_row_groups):
                parts.append(replace(part, first=first, group=group))
                first += opened.metadata.row_group(group).num_rows
    return parts


class TableStream:
    """Private records in batches, in the order in which they stand. Only names and types of columns are looked at.

    `source` is what `table_files` takes, or a `pyarrow.dataset.Dataset`. CSV files of a dataset are read as texts, like
    any others: Arrow would look at records to guess their types, or refuse a value of another type. All files have the
    columns of the first, in any order. `encoding`, `separator` and `skip_last` say how CSV files are written, as for
    `read_table`. `irregularities` counts the irregular records of what has been read, for the owner.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day in ("monday", "tuesday"):
    ...         pyarrow.parquet.write_table(pa.table({"age": [39, 50]}), Path(folder, f"{day}.parquet"))
    ...     [batch.num_rows for batch in TableStream(folder)]
    [2, 2]
    """

    def __init__(
        self, source: Any, *, encoding: str | None = None, separator: str | None = None, skip_last: int = 0
    ) -> None:
        self._declared = CsvFormat(encoding, separator, skip_last)
        self.irregularities = Irregularities()
        self.observe: Callable[[pa.Table], None] | None = None  # sees each batch, for the owner's report
        self._dataset = source if hasattr(source, "to_batches") else None
        if self._dataset is not None:
            _check_fragments(self._dataset)
            if separator_of_csv := _csv_separator(self._dataset):
                self._dataset = None
                self._declared = CsvFormat(encoding, separator or separator_of_csv, skip_last)
            else:
                _check_types(source)
        self._files = [] if self._dataset is not None else table_files(getattr(source, "files", source))
        if self._dataset is None:
            self.header = table_header(self._files[0], self._declared)
            if hasattr(source, "schema") and set(self.header.column_names) != set(source.schema.names):
                raise InvalidInput("the first lines of a dataset's CSV files must name its columns")
        else:
            self.header = _check_table("the dataset", self._dataset.schema.empty_table())

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows, some ten thousand at a time."""
        return (table for _, table in self.placed())

    def read(self, names: Iterable[str]) -> pa.Table:
        """Return all rows of those of these columns that there are, in memory."""
        present = [name for name in names if name in self.header.column_names]
        return pa.concat_tables([self.header.select(present), *(batch.select(present) for batch in self)])

    def placed(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows, some ten thousand at a time, each time with the place of the first."""
        self.irregularities = Irregularities()
        for index, table in self._batches():
            if self.observe is not None:
                self.observe(table)
            yield from ((index + start, table.slice(start, _ROWS)) for start in range(0, table.num_rows, _ROWS))

    def _batches(self) -> Iterator[tuple[int, pa.Table]]:
        if self._dataset is not None:
            options: dict[str, Any] = {"batch_size": _ROWS, "batch_readahead": 1, "fragment_readahead": 1}
            if getattr(getattr(self._dataset, "format", None), "default_extname", "") == "parquet":
                scan_options = importlib.import_module("pyarrow.dataset").ParquetFragmentScanOptions  # loads pandas
                options["fragment_scan_options"] = scan_options(use_buffered_stream=True, **_IN_PARTS)
            index = 0
            with _readable(None):
                for batch in self._dataset.to_batches(**options):
                    yield index, pa.Table.from_batches([batch])
                    index += batch.num_rows
        for number, file in enumerate(self._files):
            part = TablePart(file, number, stamp=_stamp(file), declared=self._declared)
            yield from part.batches(self.header.column_names, self.irregularities)


def _csv_separator(dataset: Any) -> str | None:
    """Return what separates values in the CSV files of a dataset, or None if it has none; refuse others of texts."""
    kinds = {getattr(getattr(part, "format", None), "default_extname", None) for part in dataset.get_fragments()}
    if not kinds & {"csv", "json"}:
        return None
    is_plain = kinds == {"csv"} and hasattr(dataset, "files") and dataset.filesystem.type_name == "local"
    if not is_plain:
        raise InvalidInput(
            "a dataset of CSV or JSON files has types that values decide: give CSV files of this machine by path, "
            "or write the records as Parquet"
        )
    return str(dataset.format.parse_options.delimiter)


def table_header(file: File, declared: CsvFormat = FOUND, *, private: bool = True) -> pa.Table:
    """Return a table without rows that has the columns of a file."""
    suffix = _suffix(file)
    with _readable(file):
        if suffix in (_QUERY, ".xlsx"):
            with open_query(str(file)) if suffix == _QUERY else open_excel(Path(file)) as (header, _):
                return _check_table(file, header)
        if suffix in _CSV:
            return empty_texts(csv_header(Path(file), private=private, declared=declared).names)
        if suffix == ".parquet":
            with _parquet(file) as opened:
                return _check_table(file, opened.schema_arrow.empty_table())
        with pa.memory_map(str(file)) as mapped:
            return _check_table(file, pyarrow.ipc.open_file(mapped).schema.empty_table())


def _batches(
    file: File, group: int | None, declared: CsvFormat, *, private: bool, irregularities: Irregularities | None
) -> Iterator[pa.Table]:
    """Yield the rows of a file, or of one row group of it."""
    suffix = _suffix(file)
    if suffix == _QUERY:
        with open_query(str(file)) as (_, batches):
            yield from batches
    elif suffix in _CSV:
        tables = stream_csv(Path(file), private=private, declared=declared, irregularities=irregularities)
        yield from _without_last(tables, declared.skip_last)
    elif suffix == ".xlsx":
        with open_excel(Path(file)) as (_, batches):
            yield from _without_last(batches, declared.skip_last)
    elif suffix == ".parquet":
        with _parquet(file) as opened:
            chosen = None if group is None else [group]
            for batch in opened.iter_batches(batch_size=_ROWS, row_groups=chosen):
                yield _without_index(pa.Table.from_batches([batch]))
    else:
        with pa.OSFile(str(file)) as source:
            reader = pyarrow.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield _without_index(pa.Table.from_batches([reader.get_batch(index)]))


def _without_last(tables: Iterator[pa.Table], count: int) -> Iterator[pa.Table]:
    """Yield tables without the last records of them all."""
    waiting: pa.Table | None = None
    for table in tables:
        waiting = table if waiting is None or count == 0 else pa.concat_tables([waiting, table])
        if waiting.num_rows > count:
            yield waiting.slice(0, waiting.num_rows - count)
            waiting = waiting.slice(waiting.num_rows - count).combine_chunks() if count else None


def _files_at(path: str | Path) -> Sequence[File]:
    """Return the files that a path, a folder, a pattern or an address names."""
    if _is_query(path):
        return [str(path)]
    if _is_address(path):
        return _addresses(str(path))
    path = Path(path)
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file() and _suffix(file) is not None)
    return sorted(path.parent.glob(path.name)) if is_folder_or_pattern(path) else [path]


def _addresses(address: str) -> list[str]:
    """Return the addresses of the Parquet files at an address: of one, of all in a folder, or of those of a pattern."""
    folder, _, pattern = address.rpartition("/")
    if not any(mark in pattern for mark in "*?["):
        folder, pattern = address, ""
    system, path, prefix = _reached(folder)
    try:
        paths = _paths_in(system, path, pattern)
    except (OSError, pa.ArrowException):
        raise InvalidInput(f"{prefix}{path}: there is no such file or folder, or it cannot be reached") from None
    if any(not path.lower().endswith(".parquet") for path in paths):
        raise InvalidInput(f"{prefix}{path}: only Parquet files can be read from an address")
    return [prefix + path for path in paths]


def _paths_in(system: Any, path: str, pattern: str) -> list[str]:
    """Return the path itself if it is a file, or else the files in a folder that a pattern names."""
    if not pattern and system.get_file_info(path).is_file:
        return [path]
    listed = system.get_file_info(pyarrow.fs.FileSelector(path))
    return sorted(file.path for file in listed if file.is_file and fnmatch(file.base_name, pattern or "*.parquet"))


def _is_address(path: str | Path) -> bool:
    return _URL.fullmatch(str(path)) is not None


def _reached(address: str) -> tuple[Any, str, str]:
    """Return the file system of an address, the path in it, and what stands before that."""
    match = _URL.fullmatch(address)
    assert match is not None
    scheme, rest = match.groups()
    prefix = f"{scheme}://"
    try:
        system, path = pyarrow.fs.FileSystem.from_uri(prefix + ("/" if scheme == "file" else "") + rest)
    except (OSError, pa.ArrowException):
        raise InvalidInput(f"{scheme}://...: pyarrow knows no such address, or cannot reach it") from None
    return system, path, prefix


def _parquet(file: File) -> Any:
    if isinstance(file, Path):
        return pyarrow.parquet.ParquetFile(file, **_IN_PARTS)
    system, path, _ = _reached(file)
    return pyarrow.parquet.ParquetFile(system.open_input_file(path), **_IN_PARTS)


def _check_file(file: File) -> None:
    if _suffix(file) is None:
        raise InvalidInput(f"{file}: the suffix must be one of {', '.join(SUFFIXES)}")
    if isinstance(file, Path) and not file.is_file():
        raise InvalidInput(f"{file}: there is no such file")


def _check_fragments(dataset: Any) -> None:
    """Refuse a dataset that has a file, or a row group of one, twice. Tables in memory have no name to tell them by."""
    files: dict[Any, list[Any]] = {}
    with _readable(None):
        for fragment in dataset.get_fragments():
            if (path := getattr(fragment, "path", None)) is not None:
                kind = fragment.filesystem.type_name
                file = _identity(Path(path)) if kind == "local" else (kind, path)
                files.setdefault(file, []).append(fragment)
        for fragments in files.values():
            groups = [getattr(group, "id", None) for part in fragments for group in getattr(part, "row_groups", [None])]
            if len(fragments) > 1 and len(set(groups)) < len(groups):
                raise InvalidInput(_TWICE)


def _check_types(dataset: Any) -> None:
    """Refuse a dataset whose files have columns of other types than it has: Arrow would cast, and fail by one value."""
    with _readable(None):
        types = {(field.name, field.type) for part in dataset.get_fragments() for field in part.physical_schema}
    cast = sorted(
        {name for name, kind in types if name in dataset.schema.names and dataset.schema.field(name).type != kind}
    )
    if cast:
        raise InvalidInput(
            f"the files of the dataset have columns of different types: {shown_names(cast)}; give the files by path, "
            "which are read by their own types each"
        )


def _identity(file: File) -> Any:
    """Return what tells a file from others, however it is named: by a link, or as an address of this machine."""
    if isinstance(file, str) and not file.startswith("file:"):
        return file
    with _readable(file):
        status = Path(_reached(file)[1] if isinstance(file, str) else file).stat()
    return status.st_dev, status.st_ino


def _stamp(file: File) -> tuple[int, int]:
    if _suffix(file) == _QUERY:
        return 0, 0
    with _readable(file):
        if isinstance(file, Path):
            status = file.stat()
            return status.st_size, status.st_mtime_ns
        system, path, _ = _reached(file)
        info = system.get_file_info(path)
        return int(info.size or 0), int(info.mtime_ns or 0)


@contextmanager
def _readable(file: File | None) -> Iterator[None]:
    """Say that a file cannot be read, and nothing else: the text of these errors may hold values of private rows."""
    problem = "the dataset cannot be read: it has a filter, or a file is damaged or not of its types"
    if file is not None:
        problem = f"{_display_name(file)}: not a readable {_suffix(file)} file; it may be damaged or misnamed"
    with foreign(problem):
        yield


def _suffix(path: File) -> str | None:
    if _is_query(path):
        return _QUERY
    return next((suffix for suffix in SUFFIXES if str(path).lower().endswith(suffix)), None)


def _display_name(file: File) -> str:
    """Return the name of a file in an error; the address of a query may hold a password."""
    return "the query" if _is_query(file) else str(file)


def _check_table(file: File, table: pa.Table) -> pa.Table:
    """Return a table whose columns have different names, without the index of a pandas frame."""
    with prefix_errors(f"{_display_name(file)}: "):
        return _without_index(check_names(table))


def _without_index(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
