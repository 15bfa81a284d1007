"""Tables that are read a batch of rows at a time: files, folders and patterns of files, queries, datasets of Arrow.

Each row has a place: the number of its file, and of the row in it. So it has the same place whoever reads it, and in
whichever company.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet

from quorate.core.errors import InvalidInput
from quorate.tables.containers import check_names
from quorate.tables.csv_files import FOUND, CsvFormat, csv_header, stream_csv, without_last
from quorate.tables.excel import excel_header, stream_excel
from quorate.tables.queries import is_query, query_header, stream_query
from quorate.tables.read import SUFFIXES

__all__ = ["TablePart", "TableStream", "is_folder_or_pattern", "table_files", "table_header", "table_parts"]

_ROWS = 2**16  # read together
_CSV = (".csv", ".csv.gz")
_QUERY = "query"  # in place of a suffix
_IN_PARTS: dict[str, Any] = {"pre_buffer": False, "buffer_size": 2**20}  # else a Parquet file is kept in memory
_FILE = 2**40  # places of a file
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)")  # a path has lost one of the slashes

_TWICE = "a file is named twice: its records would be dealt twice"

File = Path | str  # the latter is an address


def table_files(paths: str | Path | Iterable[str | Path]) -> list[File]:
    """Return the files that paths name: each a file, a folder of files, or a pattern such as data/*.parquet.

    Files of a folder or a pattern are taken in the order of their names; a folder's other files are passed over. An
    address such as s3://bucket/visits names Parquet files that pyarrow can reach. That of a query names its rows.
    """
    files: list[File] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        named = _named_files(path)
        if not named:
            raise InvalidInput(f"{path}: there is no table; the suffix must be one of {', '.join(SUFFIXES)}")
        files += named
    for file in files:
        if _suffix(file) is None:
            raise InvalidInput(f"{file}: the suffix must be one of {', '.join(SUFFIXES)}")
        if isinstance(file, Path) and not file.is_file():
            raise InvalidInput(f"{file}: there is no such file")
    if len(set(map(_identity, files))) < len(files):
        raise InvalidInput(_TWICE)
    return files


def _check_fragments(dataset: Any) -> None:
    """Refuse a dataset that has a file, or a row group of one, twice. Tables in memory have no name to tell them by."""
    files: dict[Any, list[Any]] = {}
    with _readable(None):
        for fragment in dataset.get_fragments():
            if (path := getattr(fragment, "path", None)) is not None:
                kind = fragment.filesystem.type_name
                file = _identity(Path(path)) if kind == "local" else (kind, path)
                files.setdefault(file, []).append(fragment)
        for same in (found for found in files.values() if len(found) > 1):
            groups = [getattr(group, "id", None) for one in same for group in getattr(one, "row_groups", [None])]
            if len(set(groups)) < len(groups):
                raise InvalidInput(_TWICE)


def _identity(file: File) -> Any:
    """Return what tells a file from others, however it is named: by a link, or as an address of this machine."""
    if isinstance(file, str) and not file.startswith("file:"):
        return file
    with _readable(file):
        told = Path(_reached(file)[1] if isinstance(file, str) else file).stat()
    return told.st_dev, told.st_ino


def _named_files(given: str | Path) -> Sequence[File]:
    if is_query(given):
        return [str(given)]
    return _addresses(given) if _is_address(given) else _paths(Path(given))


def _paths(given: Path) -> list[Path]:
    if given.is_dir():
        return sorted(one for one in given.iterdir() if one.is_file() and _suffix(one) is not None)
    return sorted(given.parent.glob(given.name)) if is_folder_or_pattern(given) else [given]


def _addresses(given: str | Path) -> list[str]:
    """Return the addresses of the Parquet files at an address: of one, of all in a folder, or of those of a pattern."""
    whole, _, pattern = str(given).rpartition("/")
    if not any(mark in pattern for mark in "*?["):
        whole, pattern = str(given), ""
    system, path, prefix = _reached(whole)
    try:
        if not pattern and system.get_file_info(path).is_file:
            found = [path]
        else:
            listed = system.get_file_info(pyarrow.fs.FileSelector(path))
            found = sorted(one.path for one in listed if one.is_file and fnmatch(one.base_name, pattern or "*.parquet"))
    except (OSError, pa.ArrowException):
        raise InvalidInput(f"{prefix}{path}: there is no such file or folder, or it cannot be reached") from None
    if any(not one.lower().endswith(".parquet") for one in found):
        raise InvalidInput(f"{prefix}{path}: only Parquet files can be read from an address")
    return [prefix + one for one in found]


def _is_address(path: str | Path) -> bool:
    return _URL.fullmatch(str(path)) is not None


def _reached(address: str) -> tuple[Any, str, str]:
    """Return the file system of an address, the path in it, and what stands before that."""
    found = _URL.fullmatch(address)
    assert found is not None
    scheme, rest = found.groups()
    prefix = f"{scheme}://"
    try:
        system, path = pyarrow.fs.FileSystem.from_uri(prefix + ("/" if scheme == "file" else "") + rest)
    except (OSError, pa.ArrowException):
        raise InvalidInput(f"{scheme}://...: pyarrow knows no such address, or cannot reach it") from None
    return system, path, prefix


def is_folder_or_pattern(path: Path) -> bool:
    """Return whether a path names any number of files, here or at an address."""
    if is_query(path):
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

    def batches(self, names: Iterable[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows, some ten thousand at a time, each time with the place of the first."""
        if self.stamp != _stamp(self.file):
            raise InvalidInput(f"{self.file}: the file has changed since the table was dealt; fit again")
        place, wanted = self.number * _FILE + self.first, set(names)
        for table in _batches(self.file, self.group, self.declared):
            if set(table.column_names) != wanted:
                raise InvalidInput(f"{self.file}: its columns are not those of the first file")
            yield place, table
            place += table.num_rows


def table_parts(files: Iterable[File]) -> list[TablePart]:
    """Return the parts of a table's files. Of a Parquet file its footer is read."""
    parts: list[TablePart] = []
    for number, file in enumerate(files):
        if _suffix(file) == _QUERY:
            raise InvalidInput("a cluster reads files, and no query: its rows may come in another order each time")
        whole = TablePart(file, number, stamp=_stamp(file))
        if _suffix(file) != ".parquet":
            parts.append(whole)
            continue
        first = 0
        with _readable(file), _parquet(file) as opened:
            for group in range(opened.num_row_groups):
                parts.append(replace(whole, first=first, group=group))
                first += opened.metadata.row_group(group).num_rows
    return parts


def table_header(file: File, declared: CsvFormat = FOUND) -> pa.Table:
    """Return a table without rows that has the columns of a file."""
    if _suffix(file) == _QUERY:
        return check_names(query_header(str(file)))
    if _suffix(file) in (*_CSV, ".xlsx"):
        is_csv, path = _suffix(file) in _CSV, Path(file)
        names = csv_header(path, private=True, declared=declared).names if is_csv else excel_header(path)
        return check_names(pa.schema([(name, pa.large_string()) for name in names]).empty_table())
    with _readable(file):
        if _suffix(file) == ".parquet":
            with _parquet(file) as opened:
                return check_names(_without_index(opened.schema_arrow.empty_table()))
        with pa.memory_map(str(file)) as mapped:
            return check_names(_without_index(pyarrow.ipc.open_file(mapped).schema.empty_table()))


class TableStream:
    """Private records in batches, in the order in which they stand. Only names and types of columns are looked at.

    `source` is what `table_files` takes, or a `pyarrow.dataset.Dataset`, whose types must be public: of CSV files, name
    them, or Arrow looks at records to guess them. All files have the columns of the first, in any order. `encoding`,
    `separator` and `skip_last` say how CSV files are written, as for `read_table`.

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
        self._dataset = source if hasattr(source, "to_batches") else None
        self._files = [] if self._dataset is not None else table_files(source)
        if self._dataset is None:
            self.header = table_header(self._files[0], self._declared)
        else:
            _check_fragments(self._dataset)
            self.header = check_names(_without_index(self._dataset.schema.empty_table()))

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows, some ten thousand at a time."""
        return (table for _, table in self.placed())

    def placed(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows, some ten thousand at a time, each time with the place of the first."""
        for place, table in self._batches():
            yield from ((place + start, table.slice(start, _ROWS)) for start in range(0, table.num_rows, _ROWS))

    def _batches(self) -> Iterator[tuple[int, pa.Table]]:
        if self._dataset is not None:
            options: dict[str, Any] = {"batch_size": _ROWS, "batch_readahead": 1, "fragment_readahead": 1}
            if getattr(getattr(self._dataset, "format", None), "default_extname", "") == "parquet":
                scanned = pyarrow.dataset.ParquetFragmentScanOptions(use_buffered_stream=True, **_IN_PARTS)
                options["fragment_scan_options"] = scanned
            place = 0
            with _readable(None):
                for batch in self._dataset.to_batches(**options):
                    yield place, pa.Table.from_batches([batch])
                    place += batch.num_rows
        for number, file in enumerate(self._files):
            part = TablePart(file, number, stamp=_stamp(file), declared=self._declared)
            yield from part.batches(self.header.column_names)


def _batches(file: File, group: int | None, declared: CsvFormat) -> Iterator[pa.Table]:
    """Yield the rows of a file, or of one row group of it."""
    suffix = _suffix(file)
    with _readable(file):
        if suffix == _QUERY:
            yield from stream_query(str(file))
        elif suffix in _CSV:
            yield from stream_csv(Path(file), private=True, declared=declared)
        elif suffix == ".xlsx":
            yield from without_last(stream_excel(Path(file)), declared.skip_last)
        elif suffix == ".parquet":
            with _parquet(file) as opened:
                chosen = None if group is None else [group]
                for batch in opened.iter_batches(batch_size=_ROWS, row_groups=chosen):
                    yield _without_index(pa.Table.from_batches([batch]))
        else:
            with pa.OSFile(str(file)) as read:
                reader = pyarrow.ipc.open_file(read)
                for place in range(reader.num_record_batches):
                    yield _without_index(pa.Table.from_batches([reader.get_batch(place)]))


def _parquet(file: File) -> Any:
    if isinstance(file, Path):
        return pyarrow.parquet.ParquetFile(file, **_IN_PARTS)
    system, path, _ = _reached(file)
    return pyarrow.parquet.ParquetFile(system.open_input_file(path), **_IN_PARTS)


def _stamp(file: File) -> tuple[int, int]:
    if _suffix(file) == _QUERY:
        return 0, 0
    with _readable(file):
        if isinstance(file, Path):
            told = file.stat()
            return told.st_size, told.st_mtime_ns
        system, path, _ = _reached(file)
        found = system.get_file_info(path)
        return int(found.size or 0), int(found.mtime_ns or 0)


@contextmanager
def _readable(file: File | None) -> Iterator[None]:
    """Say that a file cannot be read, and nothing else: the text of these errors may hold values of private rows."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error):
        if file is None:
            raise InvalidInput("the dataset cannot be read: a file may be damaged, or not of its types") from None
        raise InvalidInput(f"{file}: not a readable {_suffix(file)} file; it may be damaged or misnamed") from None


def _suffix(path: File) -> str | None:
    if is_query(path):
        return _QUERY
    return next((known for known in SUFFIXES if str(path).lower().endswith(known)), None)


def _without_index(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
