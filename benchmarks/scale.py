"""A table larger than memory against the same table in memory, and counting against the bare product.

The table is generated: logistic labels, 20 columns of doubles, in one Parquet file. Each way of fitting runs in a
process of its own, on one thread of linear algebra, and says how much memory it took. Times are CPU seconds.

How fast the gate reads files, as a share of pyarrow's speed, and how much memory a stream of a long file takes.

Both read the same file of ten columns of numbers into one matrix of 64-bit floats: pyarrow by its own types and casts,
the gate by `read_table` and `Schema.encode`, value by value as for private records. Times are CPU seconds, the least of
several runs that take turns.

What a GPU makes of fitting and counting. Without one, the figures are absent.

Kernels are timed with their data on the GPU; beside them stands what a caller waits for, from arrays in memory on. The
data are generated. `python -m benchmarks scale` has these figures among its own.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.figures import Figure, peak_bytes
from benchmarks.learners import counting_figures
from benchmarks.scale_distributed import cluster_figures, site_figures
from quorate.compute.learners._batched import BatchedLogistic
from quorate.compute.learners._gpu import TwoClassChunks, fit_on_gpu, on_gpus
from quorate.compute.learners.backends import choose_backend
from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import Deal, Matrix
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.models.predictors import PrivateClassifier
from quorate.tables import Label, Number, Schema, read_table
from quorate.tables.files import TableStream

_COLUMNS = 20
_ROWS = 2**18  # of a row group
_CHUNK = 100  # rows of a teacher
_MEMORY = 10**9


class Taken(NamedTuple):
    """What a fit took: CPU seconds, and bytes at the most."""

    seconds: float
    peak: int


def _schema() -> Schema:
    return Schema({f"x{index}": Number() for index in range(_COLUMNS)}, label=Label("y", [0, 1]))


def write_table(path: Path, rows: int) -> None:
    """Write a table of so many rows, a row group at a time."""
    random = np.random.default_rng(0)
    slope = random.normal(size=_COLUMNS)
    writer = None
    for start in range(0, rows, _ROWS):
        X = random.normal(size=(min(_ROWS, rows - start), _COLUMNS))
        y = (random.random(len(X)) < 1 / (1 + np.exp(-X @ slope))).astype(np.int64)
        part = pa.table({f"x{index}": X[:, index] for index in range(_COLUMNS)} | {"y": y})
        writer = writer or pa.parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def taken_streamed(path: Path, rows: int) -> Taken:
    """Fit while the table is read, with a gigabyte at the most."""
    return _measure_fit(lambda classifier: classifier.fit_table(path, _schema(), memory=_MEMORY), rows)


def taken_in_memory(path: Path, rows: int) -> Taken:
    """Read the table, encode it and fit."""

    def fit(classifier: PrivateClassifier) -> PrivateClassifier:
        table, schema = read_table(path, role="private"), _schema()
        return classifier.fit(schema.encode(table), schema.labels(table))

    return _measure_fit(fit, rows)


def _measure_fit(fit: Callable[[PrivateClassifier], PrivateClassifier], rows: int) -> Taken:
    from threadpoolctl import threadpool_limits

    classifier = PrivateClassifier(teachers=rows // _CHUNK, queries=1000, classes=[0, 1])
    start = time.process_time()
    with threadpool_limits(limits=1):
        fit(classifier)
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
        in_memory = _apart(taken_in_memory, second, large)
    yield "scale.stream.peak_resident", float(many.peak), "bytes"
    yield "scale.in_memory.peak_resident", float(in_memory.peak), "bytes"
    yield "scale.stream.seconds_over_in_memory", many.seconds / in_memory.seconds, "ratio"
    yield "scale.stream.seconds_per_row.large_over_small", many.seconds / large / (few.seconds / small), "ratio"
    for classes, name in ((2, "two"), (10, "ten")):
        teachers = 2000 if quick or classes > 2 else 10_000
        counting = counting_figures(teachers=teachers, queries=20_000, classes=classes)
        yield f"scale.counting_share_of_bare_product.{name}_classes", counting.speed_share, "ratio"


_READ_COLUMNS = 10
_RUNS = 5
_PART = 2**18  # rows written together
_SCHEMA = Schema({f"x{place}": Number() for place in range(_READ_COLUMNS)})


def write_numbers(path: Path, rows: int, *, digits: int | None = None) -> None:
    """Write normal numbers, with so many digits behind the point or with all of them."""
    random, writer = np.random.default_rng(0), None
    make: Any = pyarrow.csv.CSVWriter if path.suffix == ".csv" else pyarrow.parquet.ParquetWriter
    for start in range(0, rows, _PART):
        X = random.normal(size=(min(_PART, rows - start), _READ_COLUMNS))
        X = X if digits is None else X.round(digits)
        part = pa.table({f"x{index}": X[:, index] for index in range(_READ_COLUMNS)})
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
    seconds = [(_cpu_seconds(_by_pyarrow, path), _cpu_seconds(_by_gate, path)) for _ in range(runs)]
    return min(first for first, _ in seconds) / min(second for _, second in seconds)


def _cpu_seconds(read: Callable[[Path], Any], path: Path) -> float:
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


_TEACHER_ROWS, _FEATURES = 50, 20
_GPU_UNITS = {  # and their units
    "scale.gpu.fit.teachers_per_second": "1/s",
    "scale.gpu.fit.teachers_per_second_from_memory": "1/s",
    "scale.gpu.fit.ballots_equal_to_scikit_learn": "share",
    "scale.gpu.fit.largest_difference_of_scores": "score",
    "scale.gpu.count.ballots_per_second": "1/s",
    "scale.gpu.count.ballots_per_second_from_memory": "1/s",
    "scale.gpu.count.ballots_per_second.ten_classes": "1/s",
    "scale.gpu.count.scores_per_second.ten_classes": "1/s",
    "scale.gpu.predict.seconds_over_kernel": "ratio",
}


def gpu_figures(quick: bool) -> Iterator[Figure]:
    """Measure 100,000 teachers and 10^6 queries on a GPU, or with `quick` a tenth of both."""
    try:
        there = choose_backend("cuda").fused
    except InvalidInput:
        there = False
    values = _measure_gpu(10_000 if quick else 100_000, 100_000 if quick else 10**6) if there else iter([None] * 9)
    for (name, unit), value in zip(_GPU_UNITS.items(), values, strict=True):
        yield name, value, unit


def _measure_gpu(teachers: int, queries: int) -> Iterator[float]:
    random = np.random.default_rng(0)
    X, slope = random.normal(size=(teachers * _TEACHER_ROWS, _FEATURES)), random.normal(size=_FEATURES)
    y = (random.random(len(X)) < 1 / (1 + np.exp(-X @ slope))).astype(np.int64)
    y[::_TEACHER_ROWS], y[1::_TEACHER_ROWS] = 0, 1  # scikit-learn needs both classes in every chunk
    yield from _fitting(X, y, teachers)
    points = random.normal(size=(queries, _FEATURES))
    binary = LinearTeachers(random.normal(size=(teachers, 1, _FEATURES + 1)), classes=2)
    binary.device = "cuda"
    kernel = _kernel_seconds(binary, points)
    yield teachers * queries / kernel
    yield teachers * queries / _gpu_seconds(lambda: binary.votes(points))
    few = points[: queries // 10]
    ten = LinearTeachers(random.normal(size=(teachers, 10, _FEATURES + 1)), classes=10)
    rate = teachers * len(few) / _kernel_seconds(ten, few)
    yield rate
    yield 10 * rate
    clear = points + 2 * np.sign(points @ slope)[:, np.newaxis] * slope  # a run ends at its last no-quorum
    yield _predict_seconds(X, y, teachers, clear) / kernel


def _fitting(X: Matrix, y: Integers, teachers: int) -> Iterator[float]:
    import torch
    from sklearn.linear_model import LogisticRegression

    order, sizes = np.arange(len(X)), np.full(teachers, _TEACHER_ROWS)
    features, labels, rows = (torch.from_numpy(part).to("cuda") for part in (X, y, order))
    upper, weights = np.ones(teachers, dtype=np.int64), np.ones((teachers, 2))
    chunks = TwoClassChunks(features, labels, rows, order[::_TEACHER_ROWS], sizes, upper, weights)
    yield teachers / _gpu_seconds(lambda: fit_on_gpu(chunks, intercept=True))
    deal = Deal(order, sizes)
    yield teachers / _gpu_seconds(lambda: BatchedLogistic().fit(X, y, deal, classes=2, device="cuda"))
    fitted = fit_on_gpu(chunks, intercept=True)[:300]
    parts = [slice(start, start + _TEACHER_ROWS) for start in range(0, 300 * _TEACHER_ROWS, _TEACHER_ROWS)]
    models = [LogisticRegression(tol=1e-10, max_iter=10_000).fit(X[part], y[part]) for part in parts]
    queries = np.random.default_rng(1).normal(size=(1000, _FEATURES))
    expected = np.stack([model.decision_function(queries) for model in models], axis=1)
    scores = queries @ fitted[:, :-1].T + fitted[:, -1]
    yield float(((scores > 0) == (expected > 0)).mean())
    yield float(np.abs(scores - expected).max())


def _kernel_seconds(teachers: LinearTeachers, queries: Matrix) -> float:
    """Return how long counting takes with the queries on the GPU, rounded already."""
    placed = on_gpus(teachers)
    sent = placed.send(queries)
    return _gpu_seconds(lambda: placed.count(sent, len(queries)))


def _predict_seconds(X: Matrix, y: Integers, teachers: int, queries: Matrix) -> float:
    """Return how long `PrivateClassifier.predict` takes: its ballots, noise, budget, and memory of answers.

    It is the least time of three batches, which differ: what was asked before is only looked up.
    """
    from quorate.models.predictors import PrivateClassifier

    settings: dict[str, Any] = {"teachers": teachers, "queries": 4 * len(queries), "no_quorums": 1000}
    settings |= {"aggregator": "quorum", "disagreement": 1e-4, "classes": [0, 1], "device": "cuda"}
    classifier = PrivateClassifier(epsilon=4.0, **settings)
    classifier.fit(X, y, one_scale=True).predict(1.1 * queries[:9000])  # which compiles the kernel
    times = []
    for scale in (1.0, 1.01, 1.02):
        batch = scale * queries
        start = time.perf_counter()
        answers = classifier.predict(batch)
        times.append(time.perf_counter() - start)
        assert answers.answered.mean() > 0.99
    return min(times)


def _gpu_seconds(work: Callable[[], Any]) -> float:
    """Return the least time of three runs, after one that compiles."""
    import torch

    times = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of streams, readers, GPUs, clusters and sites."""
    yield from scale_figures(quick)
    yield from reading_figures(quick)
    yield from gpu_figures(quick)
    yield from cluster_figures(quick)
    yield from site_figures(quick)
