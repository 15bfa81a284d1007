"""How fast the gate reads files, as a share of pyarrow's speed, and how much memory a stream of a long file takes.

Both read the same file of ten columns of numbers into one matrix of 64-bit floats: pyarrow by its own types and casts,
the gate by `read_table` and `Schema.encode`, value by value as for private records. Times are CPU seconds, the least of
several runs that take turns.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from quorate.bench.figures import Figure, peak_bytes
from quorate.tables import Number, Schema, read_table
from quorate.tables.stream import TableStream

__all__ = ["reading_figures", "speed_share", "write_numbers"]

_COLUMNS = 10
_RUNS = 5
_PART = 2**18  # rows written together
_SCHEMA = Schema({f"x{place}": Number() for place in range(_COLUMNS)})


def write_numbers(path: Path, rows: int, *, digits: int | None = None) -> None:
    """Write normal numbers, with so many digits behind the point or with all of them."""
    random, writer = np.random.default_rng(0), None
    make: Any = pyarrow.csv.CSVWriter if path.suffix == ".csv" else pyarrow.parquet.ParquetWriter
    for start in range(0, rows, _PART):
        X = random.normal(size=(min(_PART, rows - start), _COLUMNS))
        X = X if digits is None else X.round(digits)
        part = pa.table({f"x{place}": X[:, place] for place in range(_COLUMNS)})
        writer = writer or make(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def _by_pyarrow(path: Path) -> Any:
    read = pyarrow.csv.read_csv if path.suffix == ".csv" else pyarrow.parquet.read_table
    return np.column_stack([column.to_numpy() for column in read(path).columns])


def _by_gate(path: Path) -> Any:
    return _SCHEMA.encode(read_table(path, role="private"))


def speed_share(path: Path, runs: int = _RUNS) -> float:
    """Return the speed of the gate as a share of pyarrow's, and check that both read the same numbers."""
    if not np.array_equal(_by_pyarrow(path), _by_gate(path)):
        raise AssertionError("the gate and pyarrow read different numbers")
    seconds = [(_seconds(_by_pyarrow, path), _seconds(_by_gate, path)) for _ in range(runs)]
    return min(first for first, _ in seconds) / min(second for _, second in seconds)


def _seconds(read: Callable[[Path], Any], path: Path) -> float:
    start = time.process_time()
    read(path)
    return time.process_time() - start


def _peak_of_stream(path: Path) -> int:
    """Return the most memory that a process takes to read a file as a stream, and to encode it."""
    for batch in TableStream(path):
        _SCHEMA.encode(batch)
    return peak_bytes()


def reading_figures(quick: bool) -> Iterator[Figure]:
    """Measure files of a million rows, or with `quick` of fewer, and streams of ten times as many."""
    small, large = (10**5, 4 * 10**5) if quick else (10**6, 10**7)
    with tempfile.TemporaryDirectory() as folder:
        for suffix, digits, name in ((".csv", None, "csv"), (".csv", 3, "csv_short"), (".parquet", None, "parquet")):
            path = Path(folder, f"{name}{suffix}")
            write_numbers(path, small, digits=digits)
            yield f"scale.read.{name}.speed_share_of_pyarrow", speed_share(path), "ratio"
        for suffix in (".csv", ".parquet"):
            long = Path(folder, f"long{suffix}")
            write_numbers(long, large, digits=3)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                peak = pool.apply(_peak_of_stream, (long,))
            yield f"scale.read.{suffix[1:]}.stream.peak_resident", float(peak), "bytes"
            long.unlink()
