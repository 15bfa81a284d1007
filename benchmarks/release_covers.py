"""How covers and engines err, measured on simulated records: the shares of both, and where public data cannot help.

Figures of covers: unbounded reals, boxes and halfspaces, many cells, slopes, and where public data cannot help.
"""

import itertools
import math
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np

from benchmarks.concepts import exponent
from benchmarks.figures import Figure, peak_bytes
from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.privacy import Budget
from quorate.models.concepts import Box, Boxes, Concept, Halfspace, Halfspaces, Intervals, Stumps, Thresholds
from quorate.release.cover import Cover, make_cover
from quorate.release.engines import ENGINES, Released, choose_engine
from quorate.release.queries import BoxRanges, Queries, Ranges, Rows

EPSILON, DELTA = 1.0, 1e-6


@dataclass(frozen=True)
class Errors:
    """The largest error over a class, and its two shares: the engine's on the cover's queries, and the cover's own."""

    points: int
    cells: int
    engine: str
    largest: float | None
    of_engine: float
    of_cover: float
    bound: float


def line_errors(
    concept: Thresholds | Intervals, *, records: int, points: int, world: int, engine: str = "auto"
) -> Errors:
    """Return the largest errors over *all* thresholds or intervals of a line, on records without bounds.

    For a cut between two public values the answer is one number and the truth falls from one end to the other, so the
    largest error of all cuts is found at the ends. An interval errs by the difference of its ends' errors.
    """
    generator = np.random.default_rng(world)
    public, private = (generator.standard_cauchy(size=size) for size in (points, records))
    cover = make_cover(concept, public)
    released, counts = _release(cover, private, public, engine)
    truth = counts / records
    weights = released.weights if released.weights is not None else np.diff(_answers_of(released), prepend=0.0)
    answers, cuts = (np.concatenate([[0.0], np.cumsum(shares[:-1])]) for shares in (weights, truth))
    values, ordered = np.unique(public), np.sort(private)
    at = np.concatenate([[-np.inf], values])  # just above a value, and at the next one
    below = np.stack([np.searchsorted(ordered, at, side="right"), np.searchsorted(ordered, np.append(values, np.inf))])
    ends = below / records
    if isinstance(concept, Thresholds):  # counted from the top
        answers, cuts, ends = answers[::-1], cuts[::-1], 1.0 - ends
    of_engine, of_cover, total = answers - cuts, ends - cuts, answers - ends
    return Errors(
        points=points,
        cells=cover.queries.cells or 0,
        engine=released.engine,
        largest=_largest(total, concept),
        of_engine=_largest(of_engine, concept),
        of_cover=_largest(of_cover, concept),
        bound=cover.share(),
    )


def _answers_of(released: Released) -> Floats:
    assert released.answers is not None
    return released.answers


def _largest(errors: Floats, concept: Concept) -> float:
    """Return the largest error of a threshold, or of an interval, whose two ends err apart."""
    if isinstance(concept, Intervals):
        return float(errors.max() - errors.min())
    return float(np.abs(errors).max())


def _release(cover: Cover, private: Any, public: Any, engine: str) -> tuple[Released, Any]:
    counts, start = cover.count(private), cover.count(public)
    weighted = start if isinstance(start, Rows) else start.astype(np.float64)
    chosen = choose_engine(
        cover.queries, records=len(private), epsilon=EPSILON, delta=DELTA, public=weighted, engine=engine
    )
    budget = Budget(epsilon=EPSILON, delta=DELTA, slack=0.0)
    return chosen.run(cover.queries, counts, public=weighted, budget=budget), counts


def plane_errors(
    concept: Boxes | Halfspaces, *, records: int, points: int, world: int, asked: int = 2000, engine: str = "auto"
) -> Errors:
    """Return the engine's largest error on the cover's queries, and the cover's on queries that it has not seen."""
    generator = np.random.default_rng(world)
    turn = np.array([[1.0, 0.5], [0.0, 1.0]])
    public, private = (generator.standard_t(3, size=(size, 2)) @ turn for size in (points, records))
    cover = make_cover(concept, public)
    released, counts = _release(cover, private, public, engine)
    truth = counts / records
    if released.answers is not None:
        of_engine = float(np.abs(released.answers - cover.queries.answers(truth)).max())
    else:
        assert released.weights is not None
        of_engine = largest_answer(cover.queries, released.weights - truth)
    hypotheses, exact = _draw_hypotheses(concept, private, asked, generator)
    parts = cover.parts(cover.find(hypotheses))
    plus, minus = (np.where(part < 0, 0.0, cover.queries.some(np.maximum(part, 0), truth)) for part in parts)
    return Errors(
        points=points,
        cells=cover.queries.cells or 0,
        engine=released.engine,
        largest=None,
        of_engine=of_engine,
        of_cover=float(np.abs(plus - minus - exact).max()),
        bound=cover.share(),
    )


def _draw_hypotheses(
    concept: Concept, private: Floats, asked: int, generator: np.random.Generator
) -> tuple[list[Any], Floats]:
    """Return random boxes or halfspaces through records, and the shares of records that they hold."""
    exact = np.empty(asked)
    hypotheses: list[Any] = []
    for number in range(asked):
        ends = private[generator.integers(len(private), size=2)]
        if isinstance(concept, Boxes):
            box = Box(tuple(ends.min(axis=0).tolist()), tuple(ends.max(axis=0).tolist()))
            hypotheses.append(box)
            exact[number] = np.mean(box.label_points(private))
        else:
            angle = generator.uniform(0, 2 * math.pi)
            normal = np.array([math.cos(angle), math.sin(angle)])
            offset = float(normal @ ends[0])
            level = ((Fraction(normal[0]), Fraction(normal[1])), Fraction(offset))
            hypotheses.append(Halfspace(features=2, levels=(level,), otherwise=0))
            exact[number] = np.mean(private @ normal > offset)
    return hypotheses, exact


def largest_answer(queries: Queries, weights: Floats) -> float:
    """Return the largest absolute answer of signed weights; ranges and boxes are not listed."""
    if not isinstance(queries, Ranges | BoxRanges):
        return float(np.abs(queries.answers(weights)).max())
    if isinstance(queries, Ranges):
        lines = np.asarray(weights).reshape(queries.lines, queries.length)
    else:
        grid: Any = np.asarray(weights).reshape(queries.shape)
        lines = np.moveaxis(grid, int(np.argmax(queries.shape)), -1)  # the longest axis is run along, the others listed
        for axis in range(lines.ndim - 1):
            sums = np.concatenate([np.zeros_like(lines.take([0], axis)), np.cumsum(lines, axis=axis)], axis=axis)
            first, last = np.triu_indices(lines.shape[axis])
            lines = np.take(sums, last + 1, axis=axis) - np.take(sums, first, axis=axis)
    sums = np.cumsum(lines, axis=-1)
    previous = np.concatenate([np.zeros_like(sums[..., :1]), sums[..., :-1]], axis=-1)
    rise = (sums - np.minimum.accumulate(previous, axis=-1)).max()
    return float(max(rise, (np.maximum.accumulate(previous, axis=-1) - sums).max()))


def most_public_points(concept: Concept) -> int:
    """Return the largest number of public points whose cells fit, by halving: at sizes beyond it a cover is refused."""
    from quorate.release.cover._halfspaces import check_points
    from quorate.release.queries.base import LARGEST, check_cells

    def fits(points: int) -> bool:
        try:
            if isinstance(concept, Halfspaces):
                check_points(points)
            else:
                check_cells(points ** (concept.features - 1) * (points + 1), "boxes")
        except Infeasible:
            return False
        return True

    low, high = 1, LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Stage:
    """Largest errors against the population at one number of public records: public alone, private alone, and both."""

    points: int
    public: float
    private: float
    both: float

    @property
    def gain(self) -> float:
        """How many times smaller the error with both is than with the better one alone."""
        return min(self.public, self.private) / self.both


def crossover(*, features: int, records: int, points: tuple[int, ...], seeds: int) -> list[Stage]:
    """Return how the error of all stumps falls with public records (Bassily et al. 2020, Theorem 13).

    Every binary feature has a mean of its own, drawn at random, and nothing ties them together: the distributions of
    the lower bound. Public records then help only where there are nearly enough of them to do without private ones.
    """
    cover = make_cover(Stumps(features=features, binary=True), [])
    errors: dict[int, list[tuple[float, float, float]]] = {size: [] for size in points}
    for world in range(seeds):
        generator = np.random.default_rng(world)
        means = generator.uniform(size=features)
        private = (generator.uniform(size=(records, features)) < means).astype(np.float64)
        counts = cover.count(private)
        alone = _stump_error("residual", cover, counts, None, means)
        for size in points:
            public = (generator.uniform(size=(size, features)) < means).astype(np.float64)
            rows = cover.count(public)
            combined = _stump_error("reweighting", cover, counts, rows, means)
            errors[size].append((float(np.abs(public.mean(axis=0) - means).max()), alone, combined))
    medians = {size: np.median(np.array(runs), axis=0).tolist() for size, runs in errors.items()}
    return [Stage(size, *medians[size]) for size in points]


def _stump_error(engine: str, cover: Cover, counts: Any, public: Any, means: Floats) -> float:
    budget = Budget(epsilon=EPSILON, delta=DELTA, slack=0.0)
    released = ENGINES[engine].run(cover.queries, counts, public=public, budget=budget)
    upward = 2 + 3 * np.arange(len(means))
    return float(np.abs(released.some(cover.queries, upward) - means).max())


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
    seeds, queries = range(1 if quick else 3), 100 if quick else 2000
    for name, concept, sizes in (("boxes", Boxes(2), _BOX_POINTS), ("halfspaces", Halfspaces(2), _HALFSPACE_POINTS)):
        series: list[Errors] = []
        for points in sizes:
            many = seeds if points == 40 else range(1)
            runs = [plane_errors(concept, records=100_000, points=points, world=s, asked=queries) for s in many]
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
    gains = [stage.gain for stage in stages if stage.points <= at / 3]
    yield "release.stumps.gain_before_crossover", max(gains, default=1.0), "ratio"


def exponent_crossing(sizes: list[int], values: list[float], level: float) -> float:
    """Return where values that fall like a power of the sizes reach a level."""
    power = exponent(sizes, values)
    middle = float(np.mean(np.log(values)) - power * np.mean(np.log(sizes)))
    return float(np.exp((np.log(level) - middle) / power))
