"""Numbers by group: errors beside OpenDP's, heavy tails, coverage of intervals, and ten million rows.

OpenDP's Polars API runs in a Python that QUORATE_PEERS names, with the same keys and bounds. Its neighbours add or
remove records, so replacing one record is two contributions. It releases numbers of records, totals and medians; a mean
is its total over its number, which costs it nothing. It runs with Laplace and with Gaussian noise for the same epsilon
and delta, and the ratio to the better of the two counts.
"""

import json
import math
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from benchmarks.figures import Figure, data_folder, peak_bytes
from benchmarks.peers import loss_of, run_program
from quorate.release import GroupRelease
from quorate.tables import Category, Number
from quorate.tables.files import TableStream

_DELTA = 1e-6
_EPSILONS = {"epsilon1": 1.0, "epsilon01": 0.1}
_MEASURES = ("total", "mean", "median")
_FEW_MEASURES = ("total", "mean")  # without medians, and of one column
_CANDIDATES = 101  # of OpenDP's medians, evenly between the bounds

_OPENDP = """
import json, sys
import polars as pl, opendp.prelude as dp

dp.enable_features("contrib")
task = json.loads(open(sys.argv[1]).read())
frame = pl.read_parquet(task["table"])
by, bounds = task["by"], task["bounds"]
loss = {"epsilon": task["epsilon"]} if task["noise"] == "laplace" else {"rho": task["rho"]}
declared = {"invariant": "keys", "max_groups": task["groups"]} if task["public"] else {"max_groups": frame.height}
context = dp.Context.compositor(
    data=frame.lazy(), privacy_unit=dp.unit_of(contributions=2), split_evenly_over=1,
    privacy_loss=dp.loss_of(**loss, delta=task["delta"]),
    margins=[dp.polars.Margin(by=by, max_length=frame.height, **declared)],
)
def query(medians):
    measures = [dp.len().alias("records")]
    for name, (low, high) in bounds.items():
        column = pl.col(name).cast(pl.Float64).fill_nan(0.0).fill_null(0.0)
        measures.append(column.dp.sum((low, high)).alias("total " + name))
        if medians:
            steps = [low + (high - low) * step / (task["candidates"] - 1) for step in range(task["candidates"])]
            measures.append(column.dp.median(steps).alias("median " + name))
    return context.query().group_by(by).agg(*measures)
measurement = query(task["medians"]).resolve()
rows = []
for _ in range(task["releases"]):
    rows.append(measurement(frame.lazy()).collect().to_dicts())
print(json.dumps(rows), file=open(sys.argv[2], "w"))
"""


@dataclass(frozen=True)
class GroupedTable:
    """A table, the columns that name its groups, and the bounds of its measured columns."""

    name: str
    frame: pd.DataFrame
    by: tuple[str, ...]
    bounds: Mapping[str, tuple[float, float]]

    def truths(self) -> dict[tuple[str, ...], dict[str, float]]:
        """Return the exact measures of each group, with values clipped to the bounds."""
        groups = {}
        for key, part in self.frame.groupby(list(self.by), observed=True):
            numbers: dict[str, float] = {}
            for column, (low, high) in self.bounds.items():
                values = np.clip(part[column].to_numpy(dtype=np.float64), low, high)
                numbers |= {f"total {column}": values.sum(), f"mean {column}": values.mean()}
                numbers[f"median {column}"] = float(np.median(values))
            groups[tuple(str(value) for value in key)] = numbers
        return groups

    def columns(self, *, public: bool) -> dict[str, Any]:
        """Return the declarations of a release."""
        columns: dict[str, Any] = {
            name: Number(low=low, high=high, closed=True) for name, (low, high) in self.bounds.items()
        }
        if public:
            columns |= {name: Category(sorted(set(self.frame[name])), closed=True) for name in self.by}
        return columns


Answers = list[dict[tuple[str, ...], dict[str, float]]]  # of each release, by group and measure


def read_tables(*, quick: bool) -> Iterator[GroupedTable]:
    """Yield Adult, Bank and bike sharing, those whose files are there."""
    folder = data_folder()
    files = {"adult": "adult/train.csv.gz", "bank": "bank/bank-full.csv.gz", "bike": "bike/hour.csv.gz"}
    for name in [*files][: 1 if quick else 3]:
        if not (folder / files[name]).exists():
            continue
        frame = pd.read_csv(folder / files[name], skipinitialspace=True)
        if name == "adult":
            bounds = {"hours-per-week": (0.0, 100.0), "age": (0.0, 100.0), "capital-gain": (0.0, 1e5)}
            yield GroupedTable(name, frame, ("education", "sex"), bounds)
        elif name == "bank":
            yield GroupedTable(name, frame, ("job", "month"), {"balance": (-1e4, 1e5), "duration": (0.0, 5e3)})
        else:
            frame["month"] = frame["dteday"].str[:7]
            yield GroupedTable(name, frame, ("month",), {"cnt": (0.0, 1e3)})


def release_ours(table: GroupedTable, *, epsilon: float, public: bool, releases: int, medians: bool = True) -> Answers:
    """Return the answers of our releases."""
    names, answers = list(table.bounds), []
    for _ in range(releases):
        release = GroupRelease(
            table.by,
            totals=names,
            means=names,
            medians=names if medians else (),
            columns=table.columns(public=public),
            epsilon=epsilon,
            delta=_DELTA,
        )
        groups: dict[tuple[str, ...], dict[str, float]] = {}
        for row in release.fit(table.frame).answer().to_pylist():
            key = tuple(str(row[name]) for name in table.by)
            number = math.inf if row["answer"] is None else row["answer"]
            groups.setdefault(key, {})[row["measure"]] = number
        answers.append(groups)
    return answers


def release_opendp(
    table: GroupedTable, *, epsilon: float, public: bool, releases: int, noise: str, medians: bool = True
) -> Answers | None:
    """Return the answers of OpenDP's releases, None where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        task, result = Path(folder, "task.json"), Path(folder, "result.json")
        table.frame[[*table.by, *table.bounds]].to_parquet(Path(folder, "table.parquet"), index=False)
        settings: dict[str, Any] = {
            "table": str(Path(folder, "table.parquet")),
            "by": table.by,
            "bounds": dict(table.bounds),
        }
        settings |= {"epsilon": epsilon, "rho": loss_of(epsilon), "delta": _DELTA, "noise": noise, "public": public}
        settings |= {"releases": releases, "medians": medians, "candidates": _CANDIDATES, "groups": len(table.truths())}
        task.write_text(json.dumps(settings))
        arguments = ["-c", _OPENDP, str(task), str(result)]
        if run_program("opendp", "polars; import opendp.extras.polars", arguments, limit=600.0) is None:
            return None
        answers: Answers = []
        for rows in json.loads(result.read_text()):
            answers.append({tuple(str(row[name]) for name in table.by): _with_means(row, table.bounds) for row in rows})
        return answers


def _with_means(row: Mapping[str, Any], bounds: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    means = {}
    for name, (low, high) in bounds.items():
        means[f"mean {name}"] = min(max(row[f"total {name}"] / max(row["records"], 1), low), high)
    return {name: math.inf if value is None else value for name, value in row.items() if " " in name} | means


def _shared_groups(ours: Answers, theirs: Sequence[Answers]) -> set[tuple[str, ...]]:
    """Return the groups that at least half of our releases and half of a peer's have."""
    found: list[set[tuple[str, ...]]] = []
    for answers in (ours, *theirs):
        often = Counter(key for release in answers for key in release)
        found.append({key for key, times in often.items() if 2 * times >= len(answers)})
    return found[0] & (set[tuple[str, ...]]().union(*found[1:]) if theirs else found[0])


def _answered(answers: Answers, groups: set[tuple[str, ...]], name: str) -> set[tuple[str, ...]]:
    """Return the groups that have an answer in at least half of the releases."""
    often = Counter(
        key for release in answers for key in groups & release.keys() if math.isfinite(release[key].get(name, math.inf))
    )
    return {key for key in groups if 2 * often[key] >= len(answers)}


def median_error(table: GroupedTable, answers: Answers, groups: set[tuple[str, ...]], name: str) -> float:
    """Return the median absolute error of a measure over groups and releases; without an answer, half of the range."""
    truths = table.truths()
    low, high = table.bounds[name.partition(" ")[2]]
    errors = [abs(release[key][name] - truths[key][name]) for release in answers for key in groups & release.keys()]
    return (
        float(np.median([error if math.isfinite(error) else (high - low) / 2 for error in errors])) if errors else 0.0
    )


def _keys_found(table: GroupedTable, answers: Answers) -> float:
    truths = table.truths()
    return float(np.mean([sum(key in truths for key in release) for release in answers]))


def error_figures(quick: bool) -> Iterator[Figure]:
    """Measure errors of ours and of OpenDP: of each measure, the mean logarithm of ratios of its columns."""
    tables = {table.name: table for table in read_tables(quick=quick)}
    releases = 5 if quick else 20
    for name in ("adult", "bank", "bike"):
        for keys in ("public", "unknown"):
            for label, epsilon in _EPSILONS.items():
                prefix = f"numbers.{name}.{keys}.{label}"
                if name not in tables:
                    yield from ((f"{prefix}.{end}", None, "ratio") for end in (*_MEASURES, "least_answered", "keys"))
                    continue
                yield from _compare(prefix, tables[name], epsilon=epsilon, public=keys == "public", releases=releases)


def few_figures(quick: bool) -> Iterator[Figure]:
    """Measure totals and means of the first column alone, by public groups, over OpenDP's: few sums, and no medians."""
    tables = {table.name: table for table in read_tables(quick=quick)}
    for name in ("adult", "bank", "bike"):
        for label, epsilon in _EPSILONS.items():
            prefix = f"numbers.{name}.few.{label}"
            if name not in tables:
                yield from ((f"{prefix}.{end}", None, "ratio") for end in _FEW_MEASURES)
                continue
            column = next(iter(tables[name].bounds))
            table = replace(tables[name], bounds={column: tables[name].bounds[column]})
            settings = {"epsilon": epsilon, "public": True, "releases": 5 if quick else 20, "medians": False}
            yield from _compare(prefix, table, measures=_FEW_MEASURES, **settings)


def _compare(
    prefix: str, table: GroupedTable, *, measures: Sequence[str] = _MEASURES, **settings: Any
) -> Iterator[Figure]:
    ours = release_ours(table, **settings)
    peers = [release_opendp(table, noise=noise, **settings) for noise in ("laplace", "gaussian")]
    found = [answers for answers in peers if answers is not None]
    least, shared = 1.0, _shared_groups(ours, [ours])
    for measure in measures:
        logs = []
        for column, bounds in table.bounds.items():
            name = f"{measure} {column}"
            answered = _answered(ours, shared, name)  # others are refused, and say so
            least = min(least, len(answered & table.truths().keys()) / max(len(shared & table.truths().keys()), 1))
            ratios = []
            for answers in found:
                groups = answered & _shared_groups(ours, [answers])
                mine, theirs = (median_error(table, each, groups, name) for each in (ours, answers))
                print(f"{prefix} {name}: {mine:.5g} and {theirs:.5g}, {len(groups)} of {len(answered)} groups")
                ratios += [_log_ratio(mine, theirs, bounds)] * bool(groups)
            logs += [max(ratios)] if ratios else []
        yield f"{prefix}.{measure}", math.exp(float(np.mean(logs))) if logs else None, "ratio"
    if measures != _MEASURES:
        return
    yield f"{prefix}.least_answered", least, "share"
    keys = None
    if found:
        keys = _keys_found(table, ours) / max(_keys_found(table, answers) for answers in found)
    yield f"{prefix}.keys", keys, "ratio"


def _log_ratio(ours: float, theirs: float, bounds: tuple[float, float]) -> float:
    """Return the logarithm of a ratio of errors; one below a thousandth of the range counts as that."""
    least = (bounds[1] - bounds[0]) / 1000
    return math.log(min(max(ours, least), 1e9) / min(max(theirs, least), 1e9))


def tail_figures(quick: bool) -> Iterator[Figure]:
    """Measure totals of heavy-tailed amounts by 20 groups: without bounds, over the best of 12 declared bounds."""
    chance = np.random.default_rng(5)
    amounts = {"lognormal": chance.lognormal(0, 2, 50_000), "pareto": chance.pareto(1.5, 50_000) + 1}
    groups = chance.integers(0, 20, 50_000)
    releases = 4 if quick else 16
    for name, values in amounts.items():
        for label, epsilon in _EPSILONS.items():
            bounds = np.geomspace(4, values.max(), 12)
            declared = [
                _tail_error(groups, values, Number(low=0, high=high, closed=True), epsilon, releases) for high in bounds
            ]
            found = _tail_error(groups, values, Number(closed=True), epsilon, releases)
            yield f"numbers.tails.{name}.{label}.error", found, "share"
            yield f"numbers.tails.{name}.{label}.over_best_bound", found / min(declared), "ratio"


def _tail_error(groups: Any, values: Any, column: Number, epsilon: float, releases: int) -> float:
    """Return the mean over releases of the median relative error of a total."""
    truths = np.bincount(groups, weights=values)
    columns = {"group": Category([str(group) for group in range(20)], closed=True), "amount": column}
    table = {"group": groups.astype(str), "amount": values}
    errors = []
    for _ in range(releases):
        release = GroupRelease("group", totals="amount", columns=columns, epsilon=epsilon, delta=_DELTA).fit(table)
        totals = release.answer(["total amount"])["answer"].to_numpy()
        errors.append(np.median(np.abs(totals / truths - 1)))
    return float(np.mean(errors))


def coverage_figures(quick: bool) -> Iterator[Figure]:
    """Measure how often 95% intervals hold the truth, over random tables with bounds and groups that are declared."""
    chance, hits = np.random.default_rng(17), {"records": [0, 0], "total": [0, 0], "mean": [0, 0], "median": [0, 0]}
    for seed in range(12 if quick else 48):
        table = _random_table(np.random.default_rng(1000 + seed))
        truths = table.truths()
        for answers in _intervals(table, float(chance.choice([0.2, 1.0, 3.0])), releases=2 if quick else 8):
            for (key, measure), (low, high) in answers.items():
                kind = measure.split()[0]
                truth = truths[key].get(measure, table.frame["group"].eq(key[0]).sum())
                hits[kind][0] += low - 1e-9 <= truth <= high + 1e-9
                hits[kind][1] += 1
    for kind, (held, asked) in hits.items():
        yield f"numbers.coverage.{kind}", held / asked, "share"


def _random_table(random: np.random.Generator) -> GroupedTable:
    rows, groups = int(random.integers(500, 20_000)), int(random.integers(2, 40))
    shares = random.dirichlet(np.full(groups, random.choice([0.5, 5.0])))
    values = random.choice(
        [random.gamma(2.0, 50.0, rows), random.integers(0, 5, rows) * 40.0, random.normal(100, 80, rows)]
    )
    frame = pd.DataFrame(
        {"group": random.choice([f"g{group}" for group in range(groups)], rows, p=shares), "v": values}
    )
    low = float(random.choice([-200.0, 0.0]))
    return GroupedTable("random", frame, ("group",), {"v": (low, float(random.choice([150.0, 400.0])))})


def _intervals(table: GroupedTable, epsilon: float, *, releases: int) -> Iterator[dict[Any, tuple[float, float]]]:
    """Yield the ends of all intervals of some releases, by group and measure; those without an answer are left out."""
    for _ in range(releases):
        release = GroupRelease(
            table.by, totals="v", means="v", medians="v", columns=table.columns(public=True), epsilon=epsilon
        )
        rows = release.fit(table.frame).answer().to_pylist()
        yield {
            ((row["group"],), row["measure"]): (row["low"], row["high"]) for row in rows if row["answer"] is not None
        }


class Taken(NamedTuple):
    """What a release took: CPU seconds, and bytes at the most."""

    seconds: float
    peak: int


def write_visits(path: Path, rows: int) -> None:
    """Write a table of visits by 1,000 shops, a row group at a time."""
    random, writer = np.random.default_rng(0), None
    for start in range(0, rows, 2**18):
        count = min(2**18, rows - start)
        columns = {"shop": pa.array(random.integers(0, 1000, count)).cast(pa.string())}
        columns |= {name: random.gamma(2.0, 50.0, count) for name in ("cost", "stay")}
        part = pa.table(columns | {"age": random.integers(0, 100, count)})
        writer = writer or pa.parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def take_release(path: Path) -> Taken:
    """Release records, two totals, a mean and a median of 1,000 groups that nobody declared, from a stream."""
    start = time.process_time()
    columns = {"cost": Number(low=0, high=1000), "age": Number(low=0, high=120)}
    release = GroupRelease("shop", totals=["cost", "age"], means="age", medians="stay", columns=columns)
    release.fit(TableStream(path))
    return Taken(time.process_time() - start, peak_bytes())


def scale_figures(quick: bool) -> Iterator[Figure]:
    """Measure five measures of 1,000 groups: of a million and ten million rows, or with `quick` a tenth of them."""
    small, large = (10**5, 10**6) if quick else (10**6, 10**7)
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in (small, large):
            path = Path(folder, f"{rows}.parquet")
            write_visits(path, rows)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                taken.append(pool.apply(take_release, (path,)))
    few, many = taken
    yield "numbers.scale.cpu_seconds", many.seconds, "s"
    yield "numbers.scale.peak_resident", float(many.peak), "bytes"
    yield "numbers.scale.seconds_per_row.large_over_small", many.seconds / large / (few.seconds / small), "ratio"


def measure(quick: bool) -> Iterator[Figure]:
    """Yield errors beside OpenDP's, heavy tails, coverage and scale."""
    yield from scale_figures(quick)
    yield from tail_figures(quick)
    yield from coverage_figures(quick)
    yield from few_figures(quick)
    yield from error_figures(quick)
