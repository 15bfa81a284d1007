"""Releases of marginals without public records: mean errors on Adult, coverage, bands, many columns.

The mean error of a marginal is its total variation distance. Simulated tables have known structure: columns that are
independent, that follow from each other, that have many rare codes, and answers of a survey to yes-or-no questions.
"""

import time
from collections.abc import Iterator
from statistics import median

import numpy as np

from quorate.bench.adult import adult_columns
from quorate.bench.figures import Figure, data_folder, peak_bytes
from quorate.core.arrays import Floats, Integers
from quorate.core.privacy import Budget
from quorate.release import Columns, QueryRelease, Workload
from quorate.release.engines import ENGINES, Released
from quorate.release.queries import Marginals, Rows

__all__ = ["mean_distance", "table_figures"]

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
    yield "release.bands.held", _bands_held(_BANDS // 5 if quick else _BANDS), "share"
    yield from _wide_figures(quick)


def mean_distance(queries: Marginals, answers: Floats, truth: Floats) -> float:
    """Return the mean total variation distance of a marginal."""
    parts = np.split(np.abs(answers - truth), queries.offsets[1:-1])
    return float(np.mean([0.5 * part.sum() for part in parts]))


def _run(queries: Marginals, rows: Rows, engine: str, epsilon: float, public: Rows | None = None) -> Released:
    return ENGINES[engine].run(queries, rows, public=public, budget=Budget(epsilon=epsilon, delta=1e-6, slack=0.0))


def _adult() -> dict[str, tuple[Marginals, Rows]] | None:
    folder = data_folder() / "adult_release"
    if not folder.exists():
        return None
    few, codes = adult_columns(folder, "adult7")
    many, more = adult_columns(folder, "adult15", "_private")
    return {
        "adult15": (Marginals.of_order(many, 2), Rows(more, many)),
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
                    answers = _run(wanted, rows, engine, epsilon).answers
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
        each = [
            float(np.mean([_covered(*table, engine, epsilon) for _ in range(1 if quick else releases)]))
            for table in _simulated_tables()
            for epsilon in _EPSILONS.values()
        ]
        values = (float(np.mean(each)), 1.0 - float(np.mean(each)), min(each), max(each))
        yield from (
            (f"release.coverage.{engine}.{name}", value, "share") for name, value in zip(names, values, strict=True)
        )


def _covered(queries: Marginals, rows: Rows, public: Rows, engine: str, epsilon: float) -> float:
    if engine == _FOR_MEAN:
        engine, queries = "residual", Marginals(queries.sizes, queries.cliques, [1.0] * len(queries.cliques))
    truth, released = queries.answers(rows) / rows.records, _run(queries, rows, engine, epsilon, public)
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


def _bands_held(runs: int) -> float:
    """Return in what share of the releases a band of 95% holds for all answers together."""
    sizes = (4, 3, 5, 6)
    codes = _classes(np.random.default_rng(0), 5000, sizes).astype(str)
    table = {f"c{place}": codes[:, place].tolist() for place in range(len(sizes))}
    declared = Columns.from_dict({f"c{place}": [str(code) for code in range(size)] for place, size in enumerate(sizes)})
    held = 0
    for _ in range(runs):
        release = QueryRelease(Workload.marginals(2), columns=declared, epsilon=0.5, engine="residual").fit(table)
        sealed, records = release.domain_.seal(table)  # simulated records: their truth is no secret
        truth = sealed.put_to(release.domain_.queries.answers) / records
        band = release.answer(band=0.95)
        low, high = (np.array(band[end]) for end in ("low", "high"))
        held += bool(((low <= truth + 1e-12) & (truth <= high + 1e-12)).all())
    return held / runs


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
    answers = _run(queries, rows, "residual", 1.0).answers
    seconds = time.perf_counter() - began
    assert answers is not None
    distance = mean_distance(queries, answers, queries.answers(rows) / rows.records)
    for (name, unit), value in zip(names, (seconds, float(peak_bytes()), distance), strict=True):
        yield f"release.wide.{name}", value, unit
