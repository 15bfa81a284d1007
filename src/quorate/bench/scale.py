"""A table larger than memory against the same table in memory, and counting against the bare product.

The table is generated: logistic labels, 20 columns of doubles, in one Parquet file. Each way of fitting runs in a
process of its own, on one thread of linear algebra, and says how much memory it took. Times are CPU seconds.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from quorate.bench.figures import Figure, peak_bytes
from quorate.bench.learners import counting_figures
from quorate.models.predictors import PrivateClassifier
from quorate.tables import Label, Number, Schema, read_table

__all__ = ["Taken", "scale_figures", "taken_in_memory", "taken_streamed", "write_table"]

_COLUMNS = 20
_ROWS = 2**18  # of a row group
_CHUNK = 100  # rows of a teacher
_MEMORY = 10**9


class Taken(NamedTuple):
    """What a fit took: CPU seconds, and bytes at the most."""

    seconds: float
    peak: int


def _schema() -> Schema:
    return Schema({f"x{place}": Number() for place in range(_COLUMNS)}, label=Label("y", [0, 1]))


def write_table(path: Path, rows: int) -> None:
    """Write a table of so many rows, a row group at a time."""
    random = np.random.default_rng(0)
    slope = random.normal(size=_COLUMNS)
    writer = None
    for start in range(0, rows, _ROWS):
        X = random.normal(size=(min(_ROWS, rows - start), _COLUMNS))
        y = (random.random(len(X)) < 1 / (1 + np.exp(-X @ slope))).astype(np.int64)
        part = pa.table({f"x{place}": X[:, place] for place in range(_COLUMNS)} | {"y": y})
        writer = writer or pa.parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def taken_streamed(path: Path, rows: int) -> Taken:
    """Fit while the table is read, with a gigabyte at the most."""
    return _taken(lambda made: made.fit_table(path, _schema(), memory=_MEMORY), rows)


def taken_in_memory(path: Path, rows: int) -> Taken:
    """Read the table, encode it and fit."""

    def fit(made: PrivateClassifier) -> PrivateClassifier:
        table, schema = read_table(path, role="private"), _schema()
        return made.fit(schema.encode(table), schema.labels(table))

    return _taken(fit, rows)


def _taken(fit: Callable[[PrivateClassifier], PrivateClassifier], rows: int) -> Taken:
    from threadpoolctl import threadpool_limits

    made = PrivateClassifier(teachers=rows // _CHUNK, queries=1000, classes=[0, 1])
    start = time.process_time()
    with threadpool_limits(limits=1):
        fit(made)
    return Taken(time.process_time() - start, peak_bytes())


def _apart(measure: Callable[[Path, int], Taken], path: Path, rows: int) -> Taken:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (path, rows))


def scale_figures(quick: bool) -> Iterator[Figure]:
    """Measure streams of a million and of ten million rows, or with `quick` of fewer, and counting."""
    small, large = (10**5, 4 * 10**5) if quick else (10**6, 10**7)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "small.parquet"), Path(folder, "large.parquet")
        write_table(first, small)
        write_table(second, large)
        few, many = _apart(taken_streamed, first, small), _apart(taken_streamed, second, large)
        whole = _apart(taken_in_memory, second, large)
    yield "scale.stream.peak_resident", float(many.peak), "bytes"
    yield "scale.in_memory.peak_resident", float(whole.peak), "bytes"
    yield "scale.stream.seconds_over_in_memory", many.seconds / whole.seconds, "ratio"
    yield "scale.stream.seconds_per_row.large_over_small", many.seconds / large / (few.seconds / small), "ratio"
    for classes, name in ((2, "two"), (10, "ten")):
        teachers = 2000 if quick or classes > 2 else 10_000
        counting = counting_figures(teachers=teachers, queries=20_000, classes=classes)
        yield f"scale.counting_share_of_bare_product.{name}_classes", counting.speed_share, "ratio"
