"""The interface of engines, and the base of engines that measure fixed vectors once.

Such an engine separates its measurement from its post-processing, so that the same vectors may also be measured update
by update (`quorate.release._growing`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from threadpoolctl import ThreadpoolController

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import Infeasible, InvalidInput, QuorateError
from quorate.core.mechanisms.noisy_vector import NoisyVector, NoisyVectors
from quorate.core.privacy import Budget
from quorate.release.engines._mixture import Mixture
from quorate.release.queries import NOTHING, BoxRanges, Levels, Marginals, Prefixes, Queries, Ranges, Rows
from quorate.release.queries.marginals import Clique

Public = Rows | NDArray[np.float64] | None

_TWO_SIDED = 1.959963984540054  # standard deviations that hold 95% of a Gaussian
Planned = tuple[tuple[Clique, ...], tuple[float, ...]] | None  # marginals to measure, and the share of each


@dataclass(frozen=True)
class Released:
    """Answers as shares of the records. All of it is released.

    `answers` is None where the queries are too many to list: then `weights` answer them. `bars` are the error bars of
    the answers, or what computes them from released values alone, the same each time, or None where an engine has none:
    `errors` has them, and computes them on first use. `weights` add up to 1, over
    the cells, or over the records of `support` where there is one. `model` is the one table that the answers are read
    off, where there is one: it answers any marginal, and records are drawn from it. `unbiased` are the answers before
    any model or public data, with noise of the standard deviations `deviations` and nothing else: where they are kept.
    Cells that cannot occur have them too, so that sums of cells are those of smaller marginals.
    """

    answers: Floats | None
    bars: Floats | Callable[[], Floats] | None
    weights: Floats | None
    support: Rows | None
    engine: str
    notes: tuple[str, ...] = ()
    details: dict[str, float] = field(default_factory=dict)
    model: Mixture | None = None
    unbiased: Floats | None = None
    deviations: Floats | None = None

    @cached_property
    def errors(self) -> Floats | None:
        """One standard deviation of the error of each answer, or None where an engine has no such figure."""
        return self.bars() if callable(self.bars) else self.bars

    def expected_error(self, foreseen: float) -> float:
        """Return the expected largest error of the release, or the `foreseen` one where it has none."""
        if callable(self.bars) and self.errors is not None:
            return min(1.0, expected_largest_of(self.errors))
        return self.details.get("expected_error", foreseen)

    def level(self, count: int, beta: float) -> float:
        """Return the number of deviations within which all `count` unbiased answers lie with probability 1 - beta.

        An engine that chooses what to measure has `looks` and `wider` among its details: ../PROOF.md, step 5.
        """
        looks, wider = self.details.get("looks", 0.0), self.details.get("wider", 1.0)
        return math.sqrt(wider * (2 * math.log(2 * count / beta) + looks))

    @property
    def has_bars(self) -> bool:
        """Whether the engine knows the noise of its answers, so that `error_bound` is a proved bound."""
        measures_everything = self.engine == "prefix" and "deviation" in self.details  # rather than a part
        return self.bars is not None or measures_everything

    def error_bound(self, queries: Queries, beta: float) -> float:
        """Return a bound on the error of any answer, with probability 1 - beta: ../PROOF.md, step 5."""
        level, details = self.level(queries.count, beta), self.details
        if "moved" in details:  # noise of the unbiased answers, and the distance of the model from them
            return level * details["deviation"] + details["moved"]
        largest = details["deviation"] if self.errors is None else float(self.errors.max())
        return self._projection_factor(queries) * level * largest

    def _projection_factor(self, queries: Queries) -> int:
        """Return the factor by which consistency may increase the largest error: ../PROOF.md, step 5."""
        if self.engine == "prefix" and isinstance(queries, Prefixes | Ranges) and queries.lines > 1:
            return 2 if isinstance(queries, Prefixes) else 3
        boxes = self.engine == "prefix" and isinstance(queries, BoxRanges)
        return 2 if self.answers is None or boxes or isinstance(queries, Marginals) else 1

    def intervals(self, queries: Queries, records: int) -> tuple[Floats, Floats]:
        """Return the ends of a 95% interval for each answer; NaN where the engine has no noise estimate."""
        answers = np.empty(0) if self.answers is None else self.answers
        if self.unbiased is None:
            errors = np.full(len(answers), np.nan) if self.errors is None else self.errors
            return around(answers, answers, half_interval(errors))
        numbers = np.arange(len(answers))
        return self.ends(queries, answers, (numbers, np.full_like(numbers, NOTHING)), numbers, records=records)

    def ends(
        self,
        queries: Queries,
        shares: Floats,
        parts: tuple[Integers, Integers],
        starts: Integers,
        *,
        records: int,
        beta: float | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the ends of intervals around sums of runs of queries, each less another: ../PROOF.md, step 5.

        They follow from unbiased answers and their noise, and are widened to contain `shares`. Each holds with 95%, or
        all together with 1 - `beta`. A sum of impossible cells is 0.
        """
        assert self.unbiased is not None
        assert self.deviations is not None
        plus, minus = parts
        centre = sum_runs(take_answers(self.unbiased, plus) - take_answers(self.unbiased, minus), starts)
        noise, less = take_answers(self.deviations, plus), take_answers(self.deviations, minus)
        half = half_interval(np.sqrt(sum_runs(noise**2 + less**2, starts)), records)
        if beta is not None:
            half = np.maximum(half, self.level(queries.count, beta) * sum_runs(noise + less, starts))
        if isinstance(queries, Marginals) and queries.mask is not None:
            occurs = sum_runs(take_answers(queries.mask.astype(np.float64), plus), starts) > 0.0
            centre, half = np.where(occurs, centre, 0.0), np.where(occurs, half, 0.0)
        return around(shares, centre, half)

    def some(self, queries: Queries, which: ArrayLike) -> Floats:
        """Return the answers of some of the queries that were released."""
        if self.answers is not None:
            return np.asarray(self.answers[np.asarray(which)])
        if self.weights is None:
            raise InvalidInput("a release must have answers or weights; the folder is damaged")
        return queries.some(which, self.weights if self.support is None else self.support.weighted(self.weights))


class Engine(ABC):
    """A way to answer all queries of a list from counts. Noise is drawn inside of mechanisms alone."""

    name: str
    answered: tuple[type[Queries], ...] = (Queries,)  # lists that this engine answers
    needs_public_rows = False

    def expected_error(
        self, queries: Queries, *, records: int, epsilon: float, delta: float, public: Public = None
    ) -> float:
        """Return the expected largest error, from public numbers alone; infinity where the engine does not apply.

        It is rounded to nine digits: engines are compared by it, and the last bits depend on the processor.
        """
        if not isinstance(queries, self.answered) or (self.needs_public_rows and not isinstance(public, Rows)):
            return math.inf
        try:
            error = self._expected(queries, records, epsilon, delta, public)
        except QuorateError:
            return math.inf
        return error if error == math.inf else min(1.0, float(f"{error:.9g}"))

    def run(self, queries: Queries, data: Any, *, public: Public = None, budget: Budget) -> Released:
        """Charge the rest of the budget and return the released answers."""
        return self._run(queries, data, public, budget, None)

    @abstractmethod
    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        """Return the expected largest error, or infinity; an error of the calibration means infinity too."""

    @abstractmethod
    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        """Return the released answers; `noise` is None, or a seeded stand-in for audits and tests."""


def histogram_scale(epsilon: float, delta: float, square: int = 2) -> float:
    """Return the noise scale for one release of a vector of this squared sensitivity, by default a histogram's."""
    return NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(square,)).scales[0]


class Private:
    """Counted private records, without repr. Only engines read them, and only mechanisms get their numbers."""

    def __init__(self, records: int, cells: Integers | None, rows: Rows | None) -> None:
        self.records, self._cells, self._rows = records, cells, rows

    def counts(self, queries: Queries) -> Integers:
        """Return the count of each query: whole numbers."""
        summed = queries.answers(self._rows) if self._rows is not None else queries.answers(self.cells(queries))
        return np.rint(summed).astype(np.int64)  # sums of whole numbers below 2**53: exact

    def tables(self, queries: Marginals | Levels) -> list[Integers]:
        """Return the counts of each marginal, or of each level."""
        return np.split(self.counts(queries), queries.offsets[1:-1])

    def cells(self, queries: Queries) -> Integers:
        """Return the count of each cell."""
        if self._cells is not None:
            return self._cells
        if queries.cells is None or self._rows is None:
            raise Infeasible("these cells are too many to list; choose an engine that takes rows")
        return self._rows.sum_cells(range(len(self._rows.sizes))).astype(np.int64)

    def __repr__(self) -> str:
        return f"<private counts of {self.records} records>"


def check_private(queries: Queries, data: Any) -> Private:
    """Return private data ready to be counted: whole-number counts of the cells, or Rows of one unit each."""
    if isinstance(data, Rows):
        if not isinstance(queries, Marginals):
            raise InvalidInput(f"queries for Rows must be Marginals, got {type(queries).__name__}")
        if data.sizes != queries.sizes:
            raise InvalidInput(f"rows must have columns of sizes {queries.sizes}, got {data.sizes}")
        if not data.is_unweighted:
            raise InvalidInput("private rows must have weight 1 each: one row, one unit")
        if not data.records:
            raise InvalidInput("private data must have at least one record")
        return Private(data.records, None, data)
    counts = np.asarray(data)
    if queries.cells is None or counts.shape != (queries.cells,) or counts.dtype.kind not in "iu":
        raise InvalidInput(
            f"private data must be {queries.cells} whole-number counts, one a cell, or Rows, not {counts.dtype} "
            f"of shape {counts.shape}"
        )
    if bool((counts < 0).any()):
        raise InvalidInput("counts of private records must not be negative")
    records = int(counts.sum())
    if not 0 < records < 2**40:  # a sum of them for each of some thousand lines is still below 2**53
        raise InvalidInput("private data must have at least one record and fewer than 2**40")
    return Private(records, counts.astype(np.int64), None)


def half_interval(deviations: Floats, records: float = math.inf) -> Floats:
    """Return half of the width of a 95% interval for noise of these deviations.

    Noise of whole numbers lies within so many of its deviations and half a record more, with 95%: ../PROOF.md, step 5.
    """
    return np.asarray(_TWO_SIDED * deviations + np.where(deviations > 0.0, 0.5 / records, 0.0))


def around(answers: Floats, unbiased: Floats, half: Floats) -> tuple[Floats, Floats]:
    """Return the ends of intervals around unbiased answers, as wide as it takes to hold the answers.

    A share without noise, such as 0 or 1, may differ in the last bits of a sum.
    """
    centre = np.where(half > 0.0, unbiased, np.round(unbiased, 12))
    return np.minimum(centre - half, answers), np.maximum(centre + half, answers)


def sum_runs(values: Floats, starts: Integers) -> Floats:
    """Return the sums of runs of values, by where each run begins."""
    return values if len(starts) == len(values) else np.asarray(np.add.reduceat(values, starts))


def take_answers(values: Floats, numbers: Integers) -> Floats:
    """Return the values of queries by their numbers; `NOTHING` has the value 0."""
    return np.where(numbers == NOTHING, 0.0, values[np.maximum(numbers, 0)])


def expected_largest(deviation: float, count: int) -> float:
    """Return about the expected largest absolute value of `count` Gaussian errors of this standard deviation."""
    if count < 2:
        return 0.8 * deviation
    root = math.sqrt(2 * math.log(2 * count))
    return deviation * (root - (math.log(math.log(2 * count)) + math.log(4 * math.pi) - 1.1544) / (2 * root))


def expected_largest_of(deviations: Floats) -> float:
    """Return about the expected largest of Gaussian errors of different deviations."""
    ordered = np.sort(deviations)[::-1]
    ranks = np.unique(np.geomspace(1, ordered.size, 60).astype(int))
    return max(expected_largest(float(ordered[rank - 1]), int(rank)) for rank in ranks)


@lru_cache(maxsize=1)
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def descend(objective: Callable[[Floats], tuple[float, Floats]], start: Floats, *, steps: int) -> Floats:
    """Minimise an objective by L-BFGS from `start` in at most this many steps; it returns a value and its gradient.

    Its vectors are short: threads of the linear algebra would wait for each other longer than they work.
    """
    with _threads().limit(limits=1, user_api="blas"):
        options = {"maxiter": steps, "maxcor": 20}
        return np.asarray(optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x)


def project_simplex(values: Floats) -> Floats:
    """Return the nearest vector (by least squares) of numbers that are not negative and add up to 1."""
    ordered = np.sort(values)[::-1]
    excess = np.cumsum(ordered) - 1.0
    last = int(np.flatnonzero(ordered - excess / np.arange(1, values.size + 1) > 0)[-1])
    return np.asarray(np.maximum(values - excess[last] / (last + 1), 0.0))


def simplex_marginals(queries: Marginals, answers: Floats) -> Floats:
    """Return each marginal projected onto the simplex, with 0 in the cells that cannot occur."""
    projected = np.zeros_like(answers)
    mask = np.ones(len(answers), dtype=np.bool_) if queries.mask is None else queries.mask
    for start, end in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        cells = start + np.flatnonzero(mask[start:end])
        projected[cells] = project_simplex(answers[cells])
    return projected


@dataclass(frozen=True)
class Measurement:
    """A measurement: whole-number vectors linear in the records, and the post-processing of their noisy values.

    A replaced record changes vector k by at most `squares[k]`, squared and summed up; no record adds more than
    `largest` to an entry. `finish` takes the vectors with noise, the deviation of each and the number of records.
    `cliques` are the columns of each vector that is a marginal chosen for the workload.
    """

    squares: tuple[int, ...]
    vectors: Callable[[Private], list[Integers]]
    finish: Callable[[Sequence[Integers | Floats], Sequence[float], int], Released]
    shares: tuple[float, ...] | None = None
    largest: int = 1
    cliques: tuple[Clique, ...] = ()

    @property
    def planned(self) -> "Planned":
        """The plan that repeats this measurement."""
        return (self.cliques, self.shares) if self.cliques and self.shares else None


def measure_once(plan: Callable[[float], Measurement], private: Private, budget: Budget, noise: Any = None) -> Released:
    """Measure by the plan for this deviation of a share in a lone histogram, and return the post-processed release."""
    alone = NoisyVector.for_budget(budget, squared_sensitivities=(2,)).scales[0]
    planned = plan(alone / private.records)
    mechanism = NoisyVector.for_budget(budget, squared_sensitivities=planned.squares, shares=planned.shares)
    noisy = mechanism.draw_release(planned.vectors(private), budget, noise)
    return planned.finish(noisy, mechanism.scales, private.records)


class MeasuringEngine(Engine):
    """An engine that measures fixed vectors of counts once; everything after that is post-processing."""

    def measurement(self, queries: Queries, public: Public, noise: float, planned: Planned = None) -> Measurement:
        """Return the measurement, from public numbers; `noise` is the deviation of a share in a lone histogram.

        An earlier plan, `planned`, is repeated where several plans are possible.
        """
        if not isinstance(queries, self.answered):
            names = ", ".join(kind.__name__ for kind in self.answered)
            raise InvalidInput(f"queries for engine {self.name!r} must be {names}, got {type(queries).__name__}")
        return self._measure(queries, public, noise, planned)

    @abstractmethod
    def _measure(self, queries: Any, public: Public, noise: float, planned: Planned) -> Measurement:
        """Return the measurement for queries that this engine answers."""

    def run_rest(self, queries: Queries, data: Any, vectors: NoisyVectors) -> Released:
        """Charge the rest after other releases and return the released answers: ../PROOF.md, step 9."""
        private = check_private(queries, data)
        alone = vectors.scale(squared_sensitivity=2, fraction=1.0) / private.records
        planned = self.measurement(queries, None, alone)
        noisy, scales = vectors.release_rest(
            planned.vectors(private),
            squared_sensitivities=planned.squares,
            shares=planned.shares or (1.0,) * len(planned.squares),
        )
        return planned.finish(noisy, scales, private.records)

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        return measure_once(partial(self.measurement, queries, public), check_private(queries, data), budget, noise)
