"""Dask and Ray, four workers on this machine, against the same table fitted here: ballots, killed workers, the driver.

A process of its own drives each cluster, and never has the table. All records have one mark, a number that nothing else
has; afterwards the memory of that process, and of Dask's scheduler in it, is searched for it. What Ray shares between
the processes of a machine is left out: other machines have it not.

What a federation loses against one table: Adult, by occupation, at twenty sites.

There are fifteen occupations; the largest sites are halved until there are twenty. Nothing about it is random to a
teacher: each knows one occupation. So the teachers leave out the columns of occupations, which are constant at a site,
and have a constant column in place of a free intercept: the regularisation keeps the level of one occupation from being
taken for that of all. All settings were compared on splits of the training file. Accuracies are averages over the
noise, by its law: drawn once for each query, they would scatter by a tenth of a point.
"""

import csv
import gzip
import importlib.util
import math
import multiprocessing
import os
import signal
import struct
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from benchmarks.data import read_adult
from benchmarks.figures import Figure, data_folder
from quorate.compute.ensemble import Ensemble, deal_units
from quorate.compute.ensemble.clusters import ClusterTable
from quorate.compute.ensemble.dealing import Dealer
from quorate.compute.ensemble.sources import SpilledRows, spill_rows
from quorate.core.arrays import Floats, Integers
from quorate.core.estimator_calls import CALL
from quorate.core.mechanisms import DistributedMax, NoisyMax
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.models.predictors import PrivateClassifier
from quorate.models.predictors._subsample import Encoding
from quorate.tables import Label, Number, Schema
from quorate.tables.files import TableStream
from quorate.tables.persons import unit_numbers

EngineName = Literal["dask", "ray"]
_PACKAGES: dict[EngineName, str] = {"dask": "distributed", "ray": "ray"}
_CLASSES = np.array(["ill", "well"])
_FILES = 3
_QUERIES = 200
_CLUSTER_UNITS = {  # and their units
    "ballots_equal_to_local": "share",
    "ballots_equal_after_kills": "share",
    "charged_over_due": "ratio",
    "rows_seen_by_driver": "rows",
}


class Mortal(DecisionTreeClassifier):  # type: ignore[misc]
    """A tree whose process is killed in `fit` or in `predict`, where a file says so, and once: any but the driver."""

    def __init__(self, *, folder: str = "", driver: int = 0, max_depth: int = 3) -> None:
        super().__init__(max_depth=max_depth)
        self.folder, self.driver = folder, driver

    def call_rows(self) -> int:
        """Return that it answers row by row."""
        return CALL

    def fit(self, X: Any, y: Any) -> "Mortal":
        """Fit a tree, or die."""
        self._die("fit")
        super().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """Ask the tree, or die."""
        self._die("predict")
        return super().predict(X)

    def _die(self, when: str) -> None:
        if os.getpid() == self.driver:
            return
        try:
            Path(self.folder, when).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class Marked(NamedTuple):
    """A table of marked records in a folder, and the key of its deal."""

    folder: Path
    key: bytes
    teachers: int

    @classmethod
    def written(cls, folder: Path, *, rows: int, teachers: int) -> tuple["Marked", bytes]:
        """Write the table, in several files of several row groups each; return it and the mark of its records."""
        mark = 1.0 + int.from_bytes(os.urandom(6), "big") * 2.0**-52
        random = np.random.default_rng(0)
        X = random.normal(size=(rows, 3))
        y = np.where(X[:, 0] + random.normal(size=rows) > 0, "well", "ill")
        columns = {f"x{index}": X[:, index] for index in range(3)} | {"mark": np.full(rows, mark), "y": y}
        size = -(-rows // _FILES)
        for index in range(_FILES):
            part = pa.table(columns).slice(index * size, size)
            pyarrow.parquet.write_table(part, folder / f"{index}.parquet", row_group_size=size // 3)
        return cls(folder, os.urandom(32), teachers), struct.pack("<d", mark)

    @staticmethod
    def schema() -> Schema:
        """Return how the columns are read."""
        return Schema({name: Number() for name in ("x0", "x1", "x2", "mark")}, label=Label("y", _CLASSES.tolist()))

    def local_votes(self, estimator: Any, queries: Floats) -> Integers:
        """Return the ballots of the same teachers, fitted in this process."""
        stream, rows = TableStream(self.folder), SpilledRows(4, memory=10**9, dealer=Dealer(self.key))
        with closing(spill_rows(stream, Encoding(self.schema(), _CLASSES), rows)):
            ensemble = rows.ensemble(teachers=self.teachers, held_out=0, estimator=estimator, classes=2)[0]
            return ensemble.electorate.votes(queries)

    def fitted(self, engine: Any, estimator: Any) -> PrivateClassifier:
        """Return a classifier whose teachers are fitted on a cluster."""
        settings: dict[str, Any] = {"epsilon": 4.0, "queries": 4 * _QUERIES, "aggregator": "noisy_max"}
        classifier = PrivateClassifier(estimator, teachers=self.teachers, **settings)
        return classifier.fit_table(ClusterTable(self.folder, engine, dealer=Dealer(self.key)), self.schema())

    def queries(self) -> Floats:
        """Return queries; their mark is another."""
        return np.random.default_rng(1).normal(size=(2 * _QUERIES, 4))


class Seen(NamedTuple):
    """What came of one run on a cluster."""

    first: Integers  # votes after the fit
    second: Integers  # and after more was asked
    spent: float
    marks: int  # in the memory of the driver


def _start_cluster(name: EngineName, workers: int) -> str:
    """Return what `cluster=` takes for so many workers on this machine."""
    if name == "dask":
        return f"local:{workers}"
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ |= quiet | {"RAY_worker_niceness": "0"}  # Ray's workers would wait for all others of a busy machine
    settings = {"include_dashboard": False, "log_to_driver": False}
    importlib.import_module("ray").init(address="local", num_cpus=workers, **settings)
    return name


def _drive(pipe: Any, name: EngineName, workers: int, table: Marked, kills: bool) -> None:
    """Fit on a cluster and ask, in a process that never has the table."""
    queries = table.queries()
    estimator: Any = LogisticRegression()
    if kills:
        estimator = Mortal(folder=str(table.folder), driver=os.getpid())
        Path(table.folder, "fit").touch()
    classifier = table.fitted(_start_cluster(name, workers), estimator)
    electorate = classifier.session_.answerer.ensemble.electorate
    first = electorate.votes(queries)
    classifier.predict(queries[:_QUERIES])
    if kills:
        Path(table.folder, "predict").touch()
    classifier.predict(queries[_QUERIES:])
    pipe.send((first, electorate.votes(queries), classifier.spent_epsilon()))
    pipe.recv()  # until this process was searched
    classifier.session_.close()


def driven(name: EngineName, workers: int, table: Marked, mark: bytes, *, kills: bool) -> Seen:
    """Drive a cluster from another process, and search its memory."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_drive, args=(there, name, workers, table, kills))
    process.start()
    there.close()
    try:
        first, second, spent = here.recv()
        seen = Seen(first, second, spent, marks_in(process.pid or 0, mark))
        here.send(None)
        return seen
    finally:
        process.join()


def marks_in(process: int, mark: bytes) -> int:
    """Return how often the mark of records is in the memory of a process, in what it does not share with others."""
    count = 0
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            if rights not in ("rw-p", "rwxp"):
                continue
            start, stop = (int(edge, 16) for edge in span.split("-"))
            try:
                memory.seek(start)
                count += memory.read(stop - start).count(mark)
            except (OSError, ValueError, OverflowError):  # a page that is gone, or not the process's own
                continue
    return count


def cluster_figures(quick: bool) -> Iterator[Figure]:
    """Measure both engines with four workers: None where one is not installed."""
    for name, package in _PACKAGES.items():
        values: list[float | None] = [None] * len(_CLUSTER_UNITS)
        if importlib.util.find_spec(package) is not None:
            with tempfile.TemporaryDirectory() as folder:
                rows, teachers = (10_000, 400) if quick else (200_000, 4000)
                values = list(_measure_cluster(name, *Marked.written(Path(folder), rows=rows, teachers=teachers)))
        for (figure, unit), value in zip(_CLUSTER_UNITS.items(), values, strict=True):
            yield f"scale.cluster.{name}.{figure}", value, unit


def _measure_cluster(name: EngineName, table: Marked, mark: bytes) -> Iterator[float]:
    queries = table.queries()
    runs = {kills: driven(name, 4, table, mark, kills=kills) for kills in (False, True)}
    expected = {
        kills: table.local_votes(Mortal() if kills else LogisticRegression(), queries) for kills in (False, True)
    }
    assert not {"fit", "predict"} & {path.name for path in table.folder.iterdir()}, "nobody was killed"
    yield float((runs[False].first == expected[False]).all(axis=1).mean())
    agreement = [(votes == expected[True]).all(axis=1).mean() for votes in (runs[True].first, runs[True].second)]
    yield float(min(agreement))
    yield runs[True].spent / runs[False].spent
    yield float(sum(run.marks for run in runs.values()))


_SITES, _CORRUPT = 20, 5
_SITE_QUERIES = 100
_ROWS = 60  # of a teacher at a site
_OCCUPATIONS = [8, 9]  # columns of Adult
_TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "classes": 2, "queries": _SITE_QUERIES}
_SITE_FIGURES = ("pooled_percent", "sites_percent", "loss_points", "noise_from_sites_percent")


def site_figures(quick: bool) -> Iterator[Figure]:
    """Yield the accuracy of one table and of twenty sites, and the difference: None where there is no data."""
    folder = data_folder() / "adult"
    values: list[float | None] = [None] * len(_SITE_FIGURES)
    if (folder / "train.csv.gz").exists():
        measured = [_accuracies(folder, repeat) for repeat in range(4 if quick else 12)]
        pooled, sites, noise = (100 * float(np.mean(column)) for column in zip(*measured, strict=True))
        values = [pooled, sites, pooled - sites, noise]
    for name, value in zip(_SITE_FIGURES, values, strict=True):
        yield f"scale.sites.adult.{name}", value, "points" if name == "loss_points" else "%"


def site_numbers(occupations: list[str], repeat: int) -> Integers:
    """Return the site of each record: one for each occupation, and the largest halved until there are twenty."""
    names, numbers = np.unique(occupations, return_inverse=True)
    chance = np.random.default_rng(repeat)
    for new in range(len(names), _SITES):
        largest = np.flatnonzero(numbers == np.bincount(numbers).argmax())
        numbers[chance.permutation(largest)[: largest.size // 2]] = new
    return numbers


def _accuracies(folder: Path, repeat: int) -> tuple[float, float, float]:
    """Return how often one table, twenty sites, and twenty sites with noise of their own are right."""
    from quorate import PrivateClassifier

    X, y = read_adult(folder / "train.csv.gz")
    queries, truth = read_adult(folder / "test.csv.gz")
    with gzip.open(folder / "train.csv.gz", "rt", newline="") as file:
        occupations = [row["occupation"] for row in csv.DictReader(file, skipinitialspace=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pooled = PrivateClassifier(**_TERMS | {"classes": [0, 1]}, aggregator="noisy_max").fit(X, y)
    assert isinstance(pooled.mechanism_, NoisyMax)
    one = pooled.session_.answerer.ensemble.electorate.votes(queries)
    sites = _site_votes(_columns(X), y, site_numbers(occupations, repeat), _columns(queries))
    teachers = sum(int(votes[0].sum()) for votes in sites)
    shared = DistributedMax.calibrate(**_TERMS, teachers=teachers, sites=_SITES, corrupt=_CORRUPT)
    total, plain = np.sum(sites, axis=0), NoisyMax.calibrate(**_TERMS, teachers=teachers)
    return (
        expected_accuracy(one, truth, deviation=pooled.mechanism_.scale),
        expected_accuracy(total, truth, deviation=plain.scale),
        expected_accuracy(total, truth, deviation=shared.deviation),
    )


def expected_accuracy(votes: Integers, truth: Integers, *, deviation: float) -> float:
    """Return how often the winner of two noisy counts is right, on average over the noise: class 0 where they tie."""
    radius = math.ceil(10 * deviation)
    noise = gaussian_pmf(deviation, radius)
    at_least = np.convolve(noise, noise)[::-1].cumsum()[::-1]  # of the difference of two noises, from -2 radius on
    needed = 1 - (votes[:, 1] - votes[:, 0]) + 2 * radius
    ones = at_least[np.clip(needed, 0, at_least.size - 1)]
    return float(np.where(truth == 1, ones, 1 - ones).mean())


def _columns(X: Floats) -> Floats:
    return np.hstack([np.delete(X, _OCCUPATIONS, axis=1), np.ones((len(X), 1))])


def _site_votes(X: Floats, y: Integers, numbers: Integers, asked: Floats) -> list[Integers]:
    """Return the ballots of the teachers of each site."""
    from sklearn.linear_model import LogisticRegression

    votes = []
    for site in range(_SITES):
        rows = np.flatnonzero(numbers == site)
        units, count = unit_numbers(rows.size, None)
        deal, _ = deal_units(units, count, teachers=max(1, rows.size // _ROWS))
        fitted = Ensemble.fit(
            X[rows], y[rows], deal, estimator=LogisticRegression(C=4.0, fit_intercept=False), classes=2
        ).electorate
        votes.append(fitted.votes(asked))
    return votes
