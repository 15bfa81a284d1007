"""How covers and engines err, measured on simulated records: the shares of both, and where public data cannot help."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.privacy import Budget
from quorate.models.concepts import Box, Boxes, Concept, Halfspace, Halfspaces, Intervals, Stumps, Thresholds
from quorate.release.cover import Cover, make_cover
from quorate.release.engines import ENGINES, Released, choose_engine
from quorate.release.queries import Rows

__all__ = ["Errors", "Stage", "crossover", "line_errors", "most_public_points", "plane_errors"]

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
    released, counts = _released(cover, private, public, engine)
    truth = counts / records
    weights = released.weights if released.weights is not None else np.diff(_listed(released), prepend=0.0)
    answers, cuts = (np.concatenate([[0.0], np.cumsum(each[:-1])]) for each in (weights, truth))
    values, ordered = np.unique(public), np.sort(private)
    at = np.concatenate([[-np.inf], values])  # just above a value, and at the next one
    below = np.stack([np.searchsorted(ordered, at, side="right"), np.searchsorted(ordered, np.append(values, np.inf))])
    ends = below / records
    if isinstance(concept, Thresholds):  # counted from the top
        answers, cuts, ends = answers[::-1], cuts[::-1], 1.0 - ends
    of_engine, of_cover, both = answers - cuts, ends - cuts, answers - ends
    return Errors(
        points=points,
        cells=cover.cells or 0,
        engine=released.engine,
        largest=_largest(both, concept),
        of_engine=_largest(of_engine, concept),
        of_cover=_largest(of_cover, concept),
        bound=cover.share(),
    )


def _listed(released: Released) -> Floats:
    assert released.answers is not None
    return released.answers


def _largest(errors: Floats, concept: Concept) -> float:
    """Return the largest error of a threshold, or of an interval, whose two ends err apart."""
    if isinstance(concept, Intervals):
        return float(errors.max() - errors.min())
    return float(np.abs(errors).max())


def _released(cover: Cover, private: Any, public: Any, engine: str) -> tuple[Released, Any]:
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
    released, counts = _released(cover, private, public, engine)
    truth = counts / records
    if released.answers is not None:
        of_engine = float(np.abs(released.answers - cover.queries.answers(truth)).max())
    else:
        assert released.weights is not None
        of_engine = cover.queries.largest(released.weights - truth)
    hypotheses, exact = _asked(concept, private, asked, generator)
    parts = cover.parts(cover.project(hypotheses))
    plus, minus = (np.where(part < 0, 0.0, cover.queries.some(np.maximum(part, 0), truth)) for part in parts)
    return Errors(
        points=points,
        cells=cover.cells or 0,
        engine=released.engine,
        largest=None,
        of_engine=of_engine,
        of_cover=float(np.abs(plus - minus - exact).max()),
        bound=cover.share(),
    )


def _asked(concept: Concept, private: Floats, asked: int, generator: np.random.Generator) -> tuple[list[Any], Floats]:
    """Return random boxes or halfspaces through records, and the shares of records that they hold."""
    exact = np.empty(asked)
    hypotheses: list[Any] = []
    for number in range(asked):
        ends = private[generator.integers(len(private), size=2)]
        if isinstance(concept, Boxes):
            box = Box(tuple(ends.min(axis=0).tolist()), tuple(ends.max(axis=0).tolist()))
            hypotheses.append(box)
            exact[number] = np.mean(box.predict_checked(private))
        else:
            angle = generator.uniform(0, 2 * math.pi)
            normal = np.array([math.cos(angle), math.sin(angle)])
            offset = float(normal @ ends[0])
            level = ((Fraction(normal[0]), Fraction(normal[1])), Fraction(offset))
            hypotheses.append(Halfspace(features=2, levels=(level,), otherwise=0))
            exact[number] = np.mean(private @ normal > offset)
    return hypotheses, exact


def most_public_points(concept: Concept) -> int:
    """Return the largest number of public points whose cells fit, by halving: at sizes beyond it a cover is refused."""
    from quorate.release.cover.base import LARGEST, check_cells
    from quorate.release.cover.halfspaces import check_points

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
            both = min(_stump_error(name, cover, counts, rows, means) for name in _BOTH)
            errors[size].append((float(np.abs(public.mean(axis=0) - means).max()), alone, both))
    medians = {size: np.median(np.array(runs), axis=0).tolist() for size, runs in errors.items()}
    return [Stage(size, *medians[size]) for size in points]


_BOTH = ("reweighting", "public_weights")


def _stump_error(engine: str, cover: Cover, counts: Any, public: Any, means: Floats) -> float:
    budget = Budget(epsilon=EPSILON, delta=DELTA, slack=0.0)
    released = ENGINES[engine].run(cover.queries, counts, public=public, budget=budget)
    upward = 2 + 3 * np.arange(len(means))
    return float(np.abs(released.some(cover.queries, upward) - means).max())
