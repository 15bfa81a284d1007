"""Tables that are read a batch of rows at a time: files, folders and patterns of files, datasets of Arrow."""

import csv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet

from quorate.errors import InvalidInput
from quorate.tables.csv_files import csv_header, stream_csv
from quorate.tables.read import SUFFIXES, check_names

__all__ = ["TableStream", "is_folder_or_pattern", "table_files"]

_ROWS = 2**16  # read together
_IN_PARTS: dict[str, Any] = {"pre_buffer": False, "buffer_size": 2**20}  # else a Parquet file is kept in memory


def table_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files that paths name: each a file, a folder of files, or a pattern such as data/*.parquet.

    Files of a folder or a pattern are taken in the order of their names; a folder's other files are passed over.
    """
    files: list[Path] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        given = Path(path)
        if given.is_dir():
            named = sorted(one for one in given.iterdir() if one.is_file() and _suffix(one) is not None)
        elif is_folder_or_pattern(given):
            named = sorted(given.parent.glob(given.name))
        else:
            named = [given]
        if not named:
            raise InvalidInput(f"{given}: there is no table; the suffix must be one of {', '.join(SUFFIXES)}")
        files += named
    for file in files:
        if _suffix(file) is None:
            raise InvalidInput(f"{file}: the suffix must be one of {', '.join(SUFFIXES)}")
        if not file.is_file():
            raise InvalidInput(f"{file}: there is no such file")
    if len({file.resolve() for file in files}) < len(files):
        raise InvalidInput("a file is named twice: its records would be dealt twice")
    return files


def is_folder_or_pattern(path: Path) -> bool:
    """Return whether a path names any number of files."""
    return path.is_dir() or (not path.is_file() and any(mark in path.name for mark in "*?["))


class TableStream:
    """Private records in batches, in the order in which they stand. Only names and types of columns are looked at.

    `source` is what `table_files` takes, or a `pyarrow.dataset.Dataset`, whose types must be public: of CSV files, name
    them, or Arrow looks at records to guess them. All files have the columns of the first, in any order.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for day in ("monday", "tuesday"):
    ...         pyarrow.parquet.write_table(pa.table({"age": [39, 50]}), Path(folder, f"{day}.parquet"))
    ...     [batch.num_rows for batch in TableStream(folder)]
    [2, 2]
    """

    def __init__(self, source: Any) -> None:
        self._dataset = source if hasattr(source, "to_batches") else None
        self._files = [] if self._dataset is not None else table_files(source)
        self.header: pa.Table = check_names(self._header())

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows, some ten thousand at a time."""
        for table in self._batches():
            yield from (table.slice(start, _ROWS) for start in range(0, table.num_rows, _ROWS))

    def _batches(self) -> Iterator[pa.Table]:
        if self._dataset is not None:
            options: dict[str, Any] = {"batch_size": _ROWS, "batch_readahead": 1, "fragment_readahead": 1}
            if getattr(getattr(self._dataset, "format", None), "default_extname", "") == "parquet":
                scanned = pyarrow.dataset.ParquetFragmentScanOptions(use_buffered_stream=True, **_IN_PARTS)
                options["fragment_scan_options"] = scanned
            with _readable(None):
                yield from (pa.Table.from_batches([batch]) for batch in self._dataset.to_batches(**options))
        names = set(self.header.column_names)
        for file in self._files:
            for table in _batches(file):
                if set(table.column_names) != names:
                    raise InvalidInput(f"{file}: its columns are not those of {self._files[0].name}")
                yield table

    def _header(self) -> pa.Table:
        """Return a table without rows."""
        if self._dataset is not None:
            return _without_index(self._dataset.schema.empty_table())
        first = self._files[0]
        if _suffix(first) in (".csv", ".csv.gz"):
            names = [name.strip() for name in csv_header(first, private=True)[0]]
            return pa.schema([(name, pa.string()) for name in names]).empty_table() if names else pa.table({})
        with _readable(first):
            if _suffix(first) == ".parquet":
                return _without_index(pyarrow.parquet.read_schema(first).empty_table())
            with pa.memory_map(str(first)) as file:
                return _without_index(pyarrow.ipc.open_file(file).schema.empty_table())


def _batches(file: Path) -> Iterator[pa.Table]:
    suffix = _suffix(file)
    with _readable(file):
        if suffix in (".csv", ".csv.gz"):
            yield from stream_csv(file, private=True)
        elif suffix == ".parquet":
            with pyarrow.parquet.ParquetFile(file, **_IN_PARTS) as opened:
                for batch in opened.iter_batches(batch_size=_ROWS):
                    yield _without_index(pa.Table.from_batches([batch]))
        else:
            with pa.OSFile(str(file)) as opened:
                reader = pyarrow.ipc.open_file(opened)
                for place in range(reader.num_record_batches):
                    yield _without_index(pa.Table.from_batches([reader.get_batch(place)]))


@contextmanager
def _readable(file: Path | None) -> Iterator[None]:
    """Say that a file cannot be read, and nothing else: the text of these errors may hold values of private rows."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error):
        if file is None:
            raise InvalidInput("the dataset cannot be read: a file may be damaged, or not of its types") from None
        raise InvalidInput(f"{file}: not a readable {_suffix(file)} file; it may be damaged or misnamed") from None


def _suffix(path: Path) -> str | None:
    return next((known for known in SUFFIXES if path.name.lower().endswith(known)), None)


def _without_index(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
