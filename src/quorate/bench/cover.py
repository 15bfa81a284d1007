"""Figures of covers: unbounded reals, boxes and halfspaces, many cells, slopes, and where public data cannot help."""

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from statistics import median

import numpy as np

from quorate.bench.cover_sweeps import DELTA, EPSILON, Errors, crossover, line_errors, most_public_points, plane_errors
from quorate.bench.figures import Figure, peak_bytes
from quorate.bench.sweeps import exponent
from quorate.core.privacy import Budget
from quorate.models.concepts import Boxes, Halfspaces, Intervals, Thresholds

__all__ = ["cover_figures", "exponent_crossing"]

_BOX_POINTS, _HALFSPACE_POINTS = (10, 20, 40, 80, 160), (10, 20, 40, 56)


def cover_figures(quick: bool) -> Iterator[Figure]:
    """Measure the error of a release over a cover, the engine's share and the cover's, and what it takes."""
    yield from _line_figures(quick)
    yield from _plane_figures(quick)
    yield from _many_cells(quick)
    yield from _slopes(quick)
    yield from _stumps(quick)


def _line_figures(quick: bool) -> Iterator[Figure]:
    for name, concept in (("thresholds", Thresholds()), ("intervals", Intervals())):
        start = time.perf_counter()
        runs = [line_errors(concept, records=10**6, points=10_000, world=s) for s in range(1 if quick else 3)]
        seconds = (time.perf_counter() - start) / len(runs)
        yield f"release.{name}.largest_error", median(run.largest or 0.0 for run in runs), "share"
        yield f"release.{name}.engine_error", median(run.of_engine for run in runs), "share"
        yield f"release.{name}.cover_error", median(run.of_cover for run in runs), "share"
        yield f"release.{name}.cover_error_bound", runs[0].bound, "share"
        yield f"release.{name}.seconds", seconds, "s"


def _plane_figures(quick: bool) -> Iterator[Figure]:
    seeds, asked = range(1 if quick else 3), 100 if quick else 2000
    for name, concept, sizes in (("boxes", Boxes(2), _BOX_POINTS), ("halfspaces", Halfspaces(2), _HALFSPACE_POINTS)):
        series: list[Errors] = []
        for points in sizes:
            many = seeds if points == 40 else range(1)
            runs = [plane_errors(concept, records=100_000, points=points, world=s, asked=asked) for s in many]
            series.append(runs[0])
            prefix = f"release.{name}.points{points}"
            yield f"{prefix}.engine_error", median(run.of_engine for run in runs), "share"
            yield f"{prefix}.cover_error", median(run.of_cover for run in runs), "share"
            yield f"{prefix}.cells", float(runs[0].cells), "cells"
        shrinks = exponent([run.points for run in series], [run.of_cover for run in series])
        yield f"release.{name}.cover_error_exponent", shrinks, "power of m"
        yield f"release.{name}.most_public_points", float(most_public_points(concept)), "points"


def _many_cells(quick: bool) -> Iterator[Figure]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, peak, error = pool.apply(_weigh_many_cells, (6 if quick else 7,))
    yield "release.weights_many_cells.seconds", seconds, "s"
    yield "release.weights_many_cells.peak_bytes", float(peak), "bytes"
    yield "release.weights_many_cells.largest_error", error, "share"


def _weigh_many_cells(columns: int) -> tuple[float, int, float]:
    """Run multiplicative weights on 10**columns cells and, for 7 columns, 105,000 queries, in a process of its own."""
    from quorate.release.engines import ENGINES
    from quorate.release.queries import Marginals, Rows

    generator, records = np.random.default_rng(0), 10**6
    codes = generator.normal(loc=5, scale=2, size=(records, columns)) + generator.normal(size=(records, 1))
    rows = Rows(codes.clip(0, 9).astype(np.int64), (10,) * columns)
    del codes
    fours = list(itertools.combinations(range(columns), 4))[:7]
    queries = Marginals((10,) * columns, [*itertools.combinations(range(columns), 3), *fours])
    start = time.perf_counter()
    released = ENGINES["weights"].run(queries, rows, budget=Budget(epsilon=EPSILON, delta=DELTA, slack=0.0))
    seconds, peak = time.perf_counter() - start, peak_bytes()
    assert released.answers is not None
    return seconds, peak, float(np.abs(released.answers - queries.answers(rows) / records).max())


def _slopes(quick: bool) -> Iterator[Figure]:
    """Fit powers: of the records for multiplicative weights, and of the public points for the cover's own error.

    Theorem 10 of Bassily et al. 2020 has an error of n**(-1/2) private and, up to a logarithm, m**(-1) public records.
    """
    seeds = range(2 if quick else 5)
    sizes = (3_000, 30_000, 300_000)
    for engine in ("weights", "auto"):
        errors = [
            float(
                np.mean(
                    [line_errors(Thresholds(), records=n, points=200, world=s, engine=engine).of_engine for s in seeds]
                )
            )
            for n in sizes
        ]
        yield f"release.exponent_of_records.{engine}", exponent(sizes, errors), "power of n"
    points = (100, 1_000, 10_000)
    shares = [
        np.mean([line_errors(Thresholds(), records=300_000, points=m, world=s).of_cover for s in seeds]) for m in points
    ]
    yield "release.exponent_of_public_points", exponent(points, shares), "power of m"


def _stumps(quick: bool) -> Iterator[Figure]:
    """Find where public records alone do as well as private ones alone, and how much both together gain before that."""
    features, records = (100, 2_000) if quick else (400, 4_000)
    sizes = (10, 30, 100, 300, 1000, 3000)
    stages = crossover(features=features, records=records, points=sizes, seeds=1 if quick else 3)
    private = stages[0].private
    at = exponent_crossing([stage.points for stage in stages], [stage.public for stage in stages], private)
    yield "release.stumps.private_alone_error", private, "share"
    yield "release.stumps.crossover_public_points", at, "points"
    yield "release.stumps.crossover_times_error_squared", at * private**2, "ratio"
    before = [stage.gain for stage in stages if stage.points <= at / 3]
    yield "release.stumps.gain_before_crossover", max(before, default=1.0), "ratio"


def exponent_crossing(sizes: list[int], values: list[float], level: float) -> float:
    """Return where values that fall like a power of the sizes reach a level."""
    power = exponent(sizes, values)
    middle = float(np.mean(np.log(values)) - power * np.mean(np.log(sizes)))
    return float(np.exp((np.log(level) - middle) / power))
