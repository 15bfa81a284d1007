"""Query release: its error on UCI Adult, its synthetic records, and the price of a good start online.

Nothing is tuned to Adult: the trust in public records is what a sample of the same population deserves, and is
halved until large cells lie as near to their noisy answers as it foresees; the rule was chosen on simulated
populations. The noise is that of the best strategy for the workload. All of it is in `quorate.release.engines`.

Releases of marginals without public records: mean errors on Adult, coverage, bands, many columns.

The mean error of a marginal is its total variation distance. Simulated tables have known structure: columns that are
independent, that follow from each other, that have many rare codes, and answers of a survey to yes-or-no questions.

Tables that grow: the error of 24 monthly updates over that of a single release with the whole budget.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.data import adult_columns, adult_split, mean_distance
from benchmarks.figures import Figure, data_folder, peak_bytes
from benchmarks.peers import peer_figures
from benchmarks.release_covers import cover_figures
from benchmarks.release_learning import learning_figures, learning_peer_figures, tail_figures
from quorate.core.arrays import Floats, Integers
from quorate.core.privacy import Budget
from quorate.models.concepts import Boxes, Halfspaces, Threshold, Thresholds
from quorate.release import Columns, GrowingRelease, OnlineRelease, QueryRelease, Workload
from quorate.release._running_sums import best_running_sums
from quorate.release.engines import ENGINES, Released, choose_engine
from quorate.release.queries import Marginals, Queries, Rows

_EPSILONS = {"epsilon1": 1.0, "epsilon01": 0.1}
_DELTA = 1e-6
_SEEDS, _REPEATS = 3, 5
_MANY_REPEATS = 9  # of the 7 columns, which are quick: a median of nine is above its bar by chance in 4 runs of 100
_PARTS = ("near", "shifted", "far")


def _run(
    queries: Queries, private: Rows, public: Rows, *, engine: str, epsilon: float
) -> tuple[float, float, Released]:
    """Return the largest error, the seconds of the fit and the release of one run with system noise."""
    start = time.perf_counter()
    chosen = choose_engine(
        queries, records=private.records, epsilon=epsilon, delta=_DELTA, public=public, engine=engine
    )
    budget = Budget(epsilon=epsilon, delta=_DELTA, slack=0.0)
    released = chosen.run(queries, private, public=public, budget=budget)
    seconds = time.perf_counter() - start
    truth = queries.answers(private) / private.records
    answers = released.answers if released.answers is not None else np.zeros(queries.count)
    return float(np.abs(answers - truth).max()), seconds, released


def adult_figures(quick: bool) -> Iterator[Figure]:
    """Measure the largest error over all marginals and the slowest fit: medians of releases of three splits.

    Each split is released nine times, with `quick` once. The 15 columns come in fixed parts: five releases, or one, of
    the same records; their errors with public records are compared with those without. A single release is above the
    median by up to a fifth: noise is never seeded.
    The far public part must be refuted in every run: that figure is the share of the runs in which it was.
    """
    folder = data_folder() / "adult_release"
    if not folder.exists():
        yield from ((name, None, unit) for name, unit in _names())
        return
    seconds = list[float]()
    yield from _adult7_figures(folder, quick, seconds)
    yield from _adult15_figures(folder, 1 if quick else _REPEATS, seconds)
    yield "release.adult.fit_seconds.slowest", max(seconds), "s"


def _adult7_figures(folder: Path, quick: bool, seconds: list[float]) -> Iterator[Figure]:
    """Yield the errors of 7 columns, and add the seconds of the fits to a list."""
    splits = [adult_split(folder, seed) for seed in range(_SEEDS)] * (1 if quick else _MANY_REPEATS)
    for label, epsilon in _EPSILONS.items():
        runs = [_run(*split, engine="auto", epsilon=epsilon) for split in splits]
        plain = [_run(*split, engine="plain", epsilon=epsilon) for split in splits]
        seconds += [run[1] for run in runs]
        yield f"release.adult7.{label}.largest_error", _largest(runs), "share"
        yield f"release.adult7.{label}.plain_largest_error", _largest(plain), "share"


def _adult15_figures(folder: Path, releases: int, seconds: list[float]) -> Iterator[Figure]:
    """Yield the errors of 15 columns, with public records and without, and add the seconds of the fits to a list."""
    sizes, codes = adult_columns(folder, "adult15", "_private")
    queries, private = Marginals.of_order(sizes, 2), Rows(codes, sizes)
    truth, refuted = queries.answers(private) / private.records, list[float]()
    for label, epsilon in _EPSILONS.items():
        plain = [_run(queries, private, private, engine="plain", epsilon=epsilon) for _ in range(releases)]
        yield f"release.adult15.{label}.plain_largest_error", _largest(plain), "share"
        alone = [_run(queries, private, private, engine="residual", epsilon=epsilon) for _ in range(releases)]
        worst, distance = _largest(alone), _distance(queries, truth, alone)
        yield f"release.adult15.{label}.alone_largest_error", worst, "share"
        for part in _PARTS:
            public = Rows(adult_columns(folder, "adult15", f"_public_{part}")[1], sizes)
            runs = [_run(queries, private, public, engine="auto", epsilon=epsilon) for _ in range(releases)]
            seconds += [run[1] for run in runs]
            error = _largest(runs)
            yield f"release.adult15.{part}.{label}.largest_error", error, "share"
            yield f"release.public.{part}.{label}.mean_over_alone", _distance(queries, truth, runs) / distance, "ratio"
            yield f"release.public.{part}.{label}.largest_over_alone", error / worst, "ratio"
            if part != "near":
                yield f"release.adult15.{part}.{label}.over_plain", error / _largest(plain), "ratio"
            if part == "far":
                refuted += [run[2].details.get("refuted", 0.0) for run in runs]
    yield "release.adult15.far.refuted", float(np.mean(refuted)), "share"


def _largest(runs: list[tuple[float, float, Released]]) -> float:
    """Return the median over runs of the largest error."""
    return median(run[0] for run in runs)


def _distance(queries: Marginals, truth: Floats, runs: list[tuple[float, float, Released]]) -> float:
    """Return the median over runs of the mean total variation of a marginal."""
    return median(mean_distance(queries, run[2].answers, truth) for run in runs if run[2].answers is not None)


def _names() -> list[tuple[str, str]]:
    """Return the names and units of the figures, for where the data are absent."""
    names = []
    for label in _EPSILONS:
        names += [f"release.adult7.{label}.largest_error", f"release.adult7.{label}.plain_largest_error"]
    for label in _EPSILONS:
        names += [f"release.adult15.{label}.{which}_largest_error" for which in ("plain", "alone")]
        names.append(f"release.adult15.near.{label}.largest_error")
        names += [
            f"release.public.{part}.{label}.{which}_over_alone" for part in _PARTS for which in ("mean", "largest")
        ]
        for part in ("shifted", "far"):
            names += [f"release.adult15.{part}.{label}.{end}" for end in ("largest_error", "over_plain")]
    units = [(name, "ratio" if name.endswith(("over_plain", "over_alone")) else "share") for name in names]
    return [*units, ("release.adult15.far.refuted", "share"), ("release.adult.fit_seconds.slowest", "s")]


def front_figures(quick: bool) -> Iterator[Figure]:
    """Yield each figure: its name, its value (None where its data are missing), its unit."""
    yield from _synthetic_figures(quick)
    yield from _online_figures(quick)


def _synthetic_figures(quick: bool) -> Iterator[Figure]:
    """The error of synthetic records over the release's own, against the true answers: at most 2 is promised."""
    chance = np.random.default_rng(1)
    size = 20_000 if quick else 100_000
    line = QueryRelease(Thresholds()).fit(records := chance.standard_cauchy(size), chance.standard_cauchy(1000))
    yield "release.synthetic.thresholds_ratio", _ratio(line, records), "ratio"
    points, public_points = chance.normal(size=(size, 2)), chance.normal(size=(20 if quick else 40, 2))
    yield "release.synthetic.boxes_ratio", _ratio(QueryRelease(Boxes(2)).fit(points, public_points), points), "ratio"
    planes = QueryRelease(Halfspaces(2)).fit(points, public_points[: 12 if quick else 20])
    yield "release.synthetic.halfspaces_ratio", _ratio(planes, points), "ratio"
    yield "release.synthetic.adult_ratio", _adult_ratio(), "ratio"


def _ratio(release: QueryRelease, records: Any) -> float:
    truth, released = _shares(release, records), _read_answers(release)
    return float(np.abs(_shares(release, release.synthetic()) - truth).max() / np.abs(released - truth).max())


def _shares(release: QueryRelease, records: Any) -> Floats:
    """Return the true shares of some records, which are simulated or public here."""
    sealed, count = release.domain_.seal(records)
    answers: Floats = sealed.put_to(release.domain_.queries.answers) / count
    return answers


def _read_answers(release: QueryRelease) -> Floats:
    return release.released_.some(release.domain_.queries, np.arange(release.domain_.queries.count))


def _adult_ratio() -> float | None:
    """Return the ratio for all 3-way marginals of seven columns of Adult, None where the data are not here."""
    folder = data_folder() / "adult_release"
    if not (folder / "adult7.csv.gz").is_file():
        return None
    sizes, codes = adult_columns(folder, "adult7")
    declared = Columns.from_dict({f"c{index}": [str(code) for code in range(size)] for index, size in enumerate(sizes)})
    dealt = np.random.default_rng(0).permutation(len(codes))
    tables = [
        {f"c{index}": codes[part, index].astype(str).tolist() for index in range(len(sizes))}
        for part in (dealt[len(codes) // 10 :], dealt[: len(codes) // 10])
    ]
    release = QueryRelease(Workload.marginals(3), columns=declared).fit(*tables)
    assert isinstance(release.domain_.public(), Rows)
    return _ratio(release, tables[0])


def _online_figures(quick: bool) -> Iterator[Figure]:
    """What a good public start pays, and how fast queries are answered."""
    chance = np.random.default_rng(2)
    private, public = chance.normal(size=130_000), chance.normal(size=20_000)
    online = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.05).fit(private, public)
    queries = [Threshold(float(cut)) for cut in chance.normal(size=500 if quick else 5000)]
    began = time.perf_counter()
    answers = online.ask(queries)
    seconds = time.perf_counter() - began
    truth = 1.0 - np.searchsorted(np.sort(private), [query.cut for query in queries]) / len(private)
    yield "release.online.opening_epsilon", online.opening_epsilon_, "epsilon"
    yield "release.online.paid_with_a_good_start", float(online.paid_), "answers"
    yield "release.online.largest_error", float(np.abs([answer.answer for answer in answers] - truth).max()), "share"
    yield "release.online.payable", float(online.payable_), "answers"
    yield "release.online.queries_per_second", len(queries) / seconds, "queries/s"
    bad = OnlineRelease(Thresholds(), epsilon=1.0, delta=1e-6, alpha=0.05).fit(private, public + 0.7)
    answers = bad.ask(queries)
    yield "release.online.paid_with_a_bad_start", float(bad.paid_), "answers"
    yield (
        "release.online.largest_error_bad_start",
        float(np.abs([answer.answer for answer in answers] - truth).max()),
        "share",
    )


_EPSILONS = {"epsilon1": 1.0, "epsilon01": 0.1}
_RELEASES, _BANDS = 5, 100
_COVERED = {"residual": 5, "plain": 5, "adaptive": 1, "reweighting": 5}  # releases of each table: the slow ones once
_FOR_MEAN = "error_mean"  # what `residual` is called where the mean error is to be small
_WIDE_COLUMNS, _WIDE_ROWS = 60, 1_000_000


def table_figures(quick: bool) -> Iterator[Figure]:
    """Yield each figure; with `quick` one release of each, and the widest table is left out."""
    releases = 1 if quick else _RELEASES
    yield from _mean_figures(releases, quick)
    yield from _coverage_figures(quick)
    yield "release.bands.mask", _band_coverage(_BANDS // 5 if quick else _BANDS), "share"
    yield from _wide_figures(quick)


def _run_engine(queries: Marginals, rows: Rows, engine: str, epsilon: float, public: Rows | None = None) -> Released:
    return ENGINES[engine].run(queries, rows, public=public, budget=Budget(epsilon=epsilon, delta=1e-6, slack=0.0))


def _adult() -> dict[str, tuple[Marginals, Rows]] | None:
    folder = data_folder() / "adult_release"
    if not folder.exists():
        return None
    few, codes = adult_columns(folder, "adult7")
    many, codes15 = adult_columns(folder, "adult15", "_private")
    return {
        "adult15": (Marginals.of_order(many, 2), Rows(codes15, many)),
        "adult7": (Marginals.of_order(few, 3), Rows(codes, few)),
    }


def _mean_figures(releases: int, quick: bool) -> Iterator[Figure]:
    """The mean error of all pairs of 15 columns and of all three-way marginals of 7, where it is made small."""
    tables = _adult()
    for table in ("adult15", "adult7"):
        for engine in ("residual", "adaptive"):
            for label, epsilon in _EPSILONS.items():
                about = f"release.mean.{engine}.{table}.{label}"
                if tables is None or (quick and engine == "adaptive"):
                    yield f"{about}.distance", None, "share"
                    yield f"{about}.seconds", None, "s"
                    continue
                queries, rows = tables[table]
                wanted = Marginals(queries.sizes, queries.cliques, [1.0] * len(queries.cliques))
                truth, distances, began = queries.answers(rows) / rows.records, [], time.perf_counter()
                for _ in range(releases if engine == "residual" else 1):  # the other is slow, and has no bar
                    answers = _run_engine(wanted, rows, engine, epsilon).answers
                    assert answers is not None
                    distances.append(mean_distance(queries, answers, truth))
                yield f"{about}.distance", median(distances), "share"
                yield f"{about}.seconds", (time.perf_counter() - began) / len(distances), "s"


def _coverage_figures(quick: bool) -> Iterator[Figure]:
    """The share of cells above 0.1% within their 95% interval, over six simulated tables and two epsilons."""
    for engine, releases in {**_COVERED, _FOR_MEAN: _COVERED["residual"]}.items():
        names = ("mean", "missed", "lowest", "highest")
        if quick and engine == "adaptive":
            yield from ((f"release.coverage.{engine}.{name}", None, "share") for name in names)
            continue
        shares = [
            float(np.mean([_covered(*table, engine, epsilon) for _ in range(1 if quick else releases)]))
            for table in _simulated_tables()
            for epsilon in _EPSILONS.values()
        ]
        values = (float(np.mean(shares)), 1.0 - float(np.mean(shares)), min(shares), max(shares))
        yield from (
            (f"release.coverage.{engine}.{name}", value, "share") for name, value in zip(names, values, strict=True)
        )


def _covered(queries: Marginals, rows: Rows, public: Rows, engine: str, epsilon: float) -> float:
    if engine == _FOR_MEAN:
        engine, queries = "residual", Marginals(queries.sizes, queries.cliques, [1.0] * len(queries.cliques))
    truth, released = queries.answers(rows) / rows.records, _run_engine(queries, rows, engine, epsilon, public)
    low, high = released.intervals(queries, rows.records)
    return float(((low <= truth) & (truth <= high))[truth > 0.001].mean())


def _simulated_tables() -> Iterator[tuple[Marginals, Rows, Rows]]:
    """Yield marginals, records of known structure and a tenth as many public ones: the same each time.

    Error bars were thought out on the first four, and not on the last two.
    """
    for number, (sizes, order, column) in enumerate(
        [
            ((2, 5, 3, 8, 4, 10, 6, 2), 2, _apart),
            ((4, 5, 3, 8, 4, 10, 6, 7), 2, _followed),
            ((30, 25, 40, 12, 6), 2, _classes),
            ((2,) * 10, 3, _classes),
            ((3, 4), 2, _tied),
            ((5, 2, 9, 3, 12, 4, 2), 2, _tied),
        ]
    ):
        codes = column(np.random.default_rng(number), 22_000, sizes)
        yield Marginals.of_order(sizes, order), Rows(codes[2000:], sizes), Rows(codes[:2000], sizes)


def _apart(chance: np.random.Generator, rows: int, sizes: tuple[int, ...]) -> Integers:
    return np.stack([chance.choice(size, rows, p=chance.dirichlet(np.ones(size))) for size in sizes], axis=1)


def _followed(chance: np.random.Generator, rows: int, sizes: tuple[int, ...]) -> Integers:
    """Columns each of which follows from the one before for four records of five."""
    codes = _apart(chance, rows, sizes)
    for column in range(1, len(sizes)):
        code = chance.permutation(100) % sizes[column]
        codes[:, column] = np.where(chance.random(rows) < 0.8, code[codes[:, column - 1]], codes[:, column])
    return codes


def _classes(chance: np.random.Generator, rows: int, sizes: tuple[int, ...]) -> Integers:
    """Columns that are independent within each of eight classes, with few codes in each."""
    owner = chance.integers(0, 8, rows)
    columns = []
    for size in sizes:
        upto = np.cumsum(chance.dirichlet(np.full(size, 0.3 if size > 2 else 1.0), 8), axis=1)[owner]
        columns.append(np.minimum((chance.random(rows)[:, None] > upto).sum(axis=1), size - 1))
    return np.stack(columns, axis=1)


def _tied(chance: np.random.Generator, rows: int, sizes: tuple[int, ...]) -> Integers:
    """Columns with laws of their own for each pair of codes in the two before them, and unequal codes."""
    columns = [np.zeros(rows, dtype=np.int64)] * 2
    for size in sizes:
        pair, usual = columns[-2] * 100 + columns[-1], 1.0 / np.arange(1, size + 1)
        upto = np.cumsum(chance.dirichlet(2.0 * usual, 10_000), axis=1)[pair]
        columns.append(np.minimum((chance.random(rows)[:, None] > upto).sum(axis=1), size - 1))
    return np.stack(columns[2:], axis=1)


def _band_coverage(runs: int) -> float:
    """Return in what share of the releases a band of 95% holds for all answers together."""
    sizes = (4, 3, 5, 6)
    codes = _classes(np.random.default_rng(0), 5000, sizes).astype(str)
    table = {f"c{index}": codes[:, index].tolist() for index in range(len(sizes))}
    declared = Columns.from_dict({f"c{index}": [str(code) for code in range(size)] for index, size in enumerate(sizes)})
    covered = 0
    for _ in range(runs):
        release = QueryRelease(Workload.marginals(2), columns=declared, epsilon=0.5, engine="residual").fit(table)
        sealed, records = release.domain_.seal(table)  # simulated records: their truth is no secret
        truth = sealed.put_to(release.domain_.queries.answers) / records
        band = release.answer(band=0.95)
        low, high = (np.array(band[end]) for end in ("low", "high"))
        covered += bool(((low <= truth + 1e-12) & (truth <= high + 1e-12)).all())
    return covered / runs


def _wide_figures(quick: bool) -> Iterator[Figure]:
    """All pairs of 60 columns of a million records, at epsilon 1."""
    names = ("seconds", "s"), ("peak_bytes", "bytes"), ("distance", "share")
    if quick:
        yield from ((f"release.wide.{name}", None, unit) for name, unit in names)
        return
    sizes = tuple(np.random.default_rng(0).integers(2, 11, _WIDE_COLUMNS).tolist())
    rows = Rows(_classes(np.random.default_rng(1), _WIDE_ROWS, sizes), sizes)
    queries = Marginals.of_order(sizes, 2)
    began = time.perf_counter()
    answers = _run_engine(queries, rows, "residual", 1.0).answers
    seconds = time.perf_counter() - began
    assert answers is not None
    distance = mean_distance(queries, answers, queries.answers(rows) / rows.records)
    for (name, unit), value in zip(names, (seconds, float(peak_bytes()), distance), strict=True):
        yield f"release.wide.{name}", value, unit


_MONTHS = 24
_GROWING_REPEATS = 3  # of both; with `quick` the growing one is made once


def growing_figures(quick: bool) -> Iterator[Figure]:
    """Yield the noise of an update over that of a single release, and the errors on Adult: 7 columns, all pairs."""
    sums = best_running_sums(_MONTHS)
    noise = max(sums.deviation(number) for number in range(1, _MONTHS + 1)) * math.sqrt(sums.squared_length)
    yield "release.growing.noise_over_single", noise, "ratio"
    folder = data_folder() / "adult_release"
    names = [f"release.growing.adult7.{which}_error_over_single" for which in ("mean", "largest")]
    if not (folder / "adult7.csv.gz").is_file():
        yield from ((name, None, "ratio") for name in names)
        return
    sizes, codes = adult_columns(folder, "adult7")
    columns = {f"c{index}": [str(code) for code in range(size)] for index, size in enumerate(sizes)}
    dealt = np.random.default_rng(0).permutation(len(codes))
    tables = [_table(codes[part]) for part in np.array_split(dealt, _MONTHS)]
    full_table = _table(codes)
    pairs = QueryRelease(Workload.marginals(2), columns=columns)
    single = [_errors(pairs.fit(full_table), full_table) for _ in range(_GROWING_REPEATS)]
    grown = [_errors(_grow(tables, columns), full_table) for _ in range(1 if quick else _GROWING_REPEATS)]
    for name, ratio in zip(names, np.mean(grown, axis=0) / np.mean(single, axis=0), strict=True):
        yield name, float(ratio), "ratio"


def _grow(tables: list[dict[str, list[str]]], columns: dict[str, list[str]]) -> QueryRelease:
    """Return the last of the releases of a table that grows month by month."""
    growing = GrowingRelease(Workload.marginals(2), columns=columns, updates=len(tables))
    return [growing.update(str(month), table) for month, table in enumerate(tables, start=1)][-1]


def _table(codes: Any) -> dict[str, list[str]]:
    return {f"c{index}": codes[:, index].astype(str).tolist() for index in range(codes.shape[1])}


def _errors(release: QueryRelease, records: Any) -> tuple[float, float]:
    """Return the mean and the largest error of all answers about records that are public here."""
    sealed, count = release.domain_.seal(records)
    answers = release.released_.some(release.domain_.queries, np.arange(release.domain_.queries.count))
    errors = np.abs(answers - sealed.put_to(release.domain_.queries.answers) / count)
    return float(errors.mean()), float(errors.max())


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of releases: Adult, tables without public records, learning, growth, covers and peers."""
    yield from adult_figures(quick)
    yield from table_figures(quick)
    yield from learning_figures(quick)
    yield from tail_figures(quick)
    yield from growing_figures(quick)
    yield from cover_figures(quick)
    yield from front_figures(quick)
    yield from peer_figures(quick)
    yield from learning_peer_figures(quick)
