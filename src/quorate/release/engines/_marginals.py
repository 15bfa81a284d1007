"""The engines `residual` and `adaptive`: Gaussian noise on marginals, and one table fitted to all of them.

`residual` measures by the best strategy of independent noise. The best of all, with noise that is not independent,
would have 5% to 10% less deviation for columns of eight codes, and up to a third less for binary ones; whole-number
noise of that kind is not proved here.

A mixture of products says little about a pair of columns that say the same. So `adaptive` measures twice: most of the
budget goes where `residual` spends it, a little of it releases, for each large marginal, how many records the fitted
table misplaces in it. Marginals in which more are misplaced than noise would are measured by themselves and left out of
the fit; what is left goes where the first part went. All noise is Gaussian, so that all releases together pay as one
does (`NoisyVectors`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.noisy_vector import LARGEST_WHOLE_EPSILON, NoisyVector, NoisyVectors
from quorate.core.privacy import Budget
from quorate.release.engines._components import (
    MarginalStrategy,
    NoisyTables,
    component_precisions,
    least_squares,
    plan_marginals,
    subsets,
    without_impossible,
)
from quorate.release.engines._fitted import fits_in_memory, release_tables, tables_to_check
from quorate.release.engines._mixture_fit import fit_mixture
from quorate.release.engines.base import (
    Engine,
    Measurement,
    MeasuringEngine,
    Planned,
    Private,
    Public,
    Released,
    check_private,
    expected_largest,
    histogram_scale,
)
from quorate.release.queries import Marginals, Queries
from quorate.release.queries.marginals import Clique

_FIRST, _SCORES, _EACH = 0.7, 0.025, 0.025  # of the budget: the first part, all scores, a chosen marginal
_MOST = 10  # marginals that are chosen: something is left for the last part
_BEFORE = 0.2  # of the first precision of a component: how it is known before anything is measured, in a band
_ROUNDED = 1 - 1e-9  # of a mean: the mean of equal weights may round to more than each of them
_MISPLACED = 0.5 * math.sqrt(2.0 / math.pi)  # half the mean of |z| for a standard Gaussian z


@dataclass(frozen=True)
class MeasuredMarginals:
    """Noisy marginals as shares of the records, and their post-processing. All of it is released.

    `answers` are the least-squares answers of the workload with standard deviations `errors`, one a query.
    """

    noisy: NoisyTables
    answers: Floats
    errors: Floats


def marginal_measurement(
    queries: Marginals, noise: float, finish: Callable[[MeasuredMarginals, int], Released], planned: Planned = None
) -> Measurement:
    """Return the measurement of the best strategy's marginals, and its post-processing."""
    if planned is None:
        plan = plan_marginals(queries, noise)
        planned = plan.cliques, tuple(plan.shares.tolist())
    cliques, shares = planned
    measured = Marginals(queries.sizes, cliques)

    def finish_tables(noisy: Any, scales: Any, records: int) -> Released:
        pairs = zip((part / records for part in noisy), (scale / records for scale in scales), strict=True)
        tables = without_impossible(queries, dict(zip(cliques, pairs, strict=True)))
        return finish(MeasuredMarginals(tables, *least_squares(queries, tables)), records)

    return Measurement(
        measured.squares, lambda private: private.tables(measured), finish_tables, shares, cliques=cliques
    )


class ResidualEngine(MeasuringEngine):
    """Marginals by the best strategy of independent Gaussian noise, and one table fitted to all of them."""

    name, answered = "residual", (Marginals,)

    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        scale = histogram_scale(epsilon, delta) / records
        plan = plan_marginals(queries, scale)
        return expected_largest(scale * math.sqrt(float(plan.variances.max())), queries.count)

    def _measure(self, queries: Any, public: Public, noise: float, planned: Planned) -> Measurement:
        def fit_table(measured: MeasuredMarginals, records: int) -> Released:
            return release_tables(queries, measured.noisy, self.name, records=records)

        return marginal_measurement(queries, noise, fit_table, planned)


class AdaptiveEngine(Engine):
    """Marginals as `residual` measures them, then a second measurement where the fitted table errs most."""

    name, answered = "adaptive", (Marginals,)

    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        """Return the expected largest error of the first part alone, since the gain of choices is not public."""
        if not fits_in_memory(queries) or epsilon > LARGEST_WHOLE_EPSILON:
            return math.inf
        scale = histogram_scale(epsilon, delta) / records
        deviation = scale * math.sqrt(float(plan_marginals(queries, scale).variances.max()) / _FIRST)
        return expected_largest(deviation, queries.count)

    def chooses(self, queries: Queries, *, records: int, epsilon: float, delta: float) -> bool:
        """Return whether there are marginals to choose from; without any, the engine equals `residual`."""
        if not isinstance(queries, Marginals) or not fits_in_memory(queries) or delta == 0:
            return False
        scale = histogram_scale(epsilon, delta) / records
        return bool(_bars(queries, plan_marginals(queries, scale), scale))

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        if not isinstance(queries, Marginals) or not fits_in_memory(queries):
            raise InvalidInput("engine 'adaptive' requires Marginals that fit one table; use engine='residual'")
        private = check_private(queries, data)
        alone = NoisyVector.for_budget(budget, squared_sensitivities=(2,)).scales[0] / private.records
        plan = plan_marginals(queries, alone)
        bars = _bars(queries, plan, alone)
        steps = _Steps(queries, private, budget, noise, plan, bars)
        steps.measure_plan(_FIRST if bars else 1.0)
        first = component_precisions(queries.sizes, steps.noisy)
        chosen = steps.choose() if bars else []
        for clique in chosen:
            steps.measure(clique, steps.take(_EACH))
        if bars:
            steps.measure_plan(steps.remaining)
        note = f"{len(chosen)} of {len(bars)} marginals chosen and measured by themselves"
        separate, records = frozenset(chosen), private.records
        released = release_tables(queries, steps.noisy, self.name, note, separate=separate, records=records)
        if not bars:  # a fixed design
            return released
        chances = looks_of(queries, first, component_precisions(queries.sizes, steps.noisy))
        return replace(released, details=released.details | chances)


def _bars(queries: Marginals, plan: MarginalStrategy, alone: float) -> dict[Clique, float]:
    """Return the marginals that may merit a separate measurement, and the share that each must misplace for it.

    `alone` is the deviation of a share in a lone histogram. A marginal may be worth it if it is then known better than
    the plan tells it, and a cell shows that has as much as the codes of its smallest column have on the average. It is
    worth it if more is misplaced than by noise: noise in all cells, or, where that adds up to more than all records,
    in as many as add up to them, since no answer is negative. All scores of nothing stay below the bars together.
    """
    deviation = alone / math.sqrt(_EACH)
    planned = zip(plan.cliques, alone / np.sqrt(plan.shares), strict=True)
    precisions = component_precisions(
        queries.sizes, {clique: (np.empty(0), float(spread)) for clique, spread in planned}
    )
    costs: dict[Clique, float] = {}
    for part in _heavy_parts(queries):
        sizes = [queries.sizes[column] for column in part]
        shows = deviation * math.sqrt(2.0 * math.log(math.prod(sizes))) * min(sizes) < 1.0
        if shows and precisions[part] * deviation**2 < 1.0:
            costs[part] = _MISPLACED * min(deviation * math.prod(sizes), 1.0)
    above = alone * math.sqrt(len(costs) / (2.0 * _SCORES)) * math.sqrt(2.0 * math.log(len(costs) + 1))
    return {part: cost + above for part, cost in costs.items() if cost + above < 1.0}


def _heavy_parts(queries: Marginals) -> list[Clique]:
    """Return the sets of two and more columns within marginals of at least the mean weight."""
    weights = queries.importance or (1.0,) * len(queries.cliques)
    threshold = _ROUNDED * math.fsum(weights) / len(weights)
    heavy = [clique for clique, weight in zip(queries.cliques, weights, strict=True) if weight >= threshold]
    parts = {part for clique in heavy for part in subsets(sorted(c for c in clique if queries.sizes[c] > 1))}
    return sorted(part for part in parts if len(part) > 1)


@dataclass(repr=False)
class _Steps:
    """The private steps, each charged before it is drawn, and their results."""

    queries: Marginals
    private: Private
    budget: Budget
    noise: Any  # None, or a seeded stand-in for audits and tests
    plan: MarginalStrategy
    bars: Mapping[Clique, float]
    noisy: dict[Clique, tuple[Floats, float]] = field(default_factory=dict)
    remaining: float = 1.0  # as a share of the initial budget

    def __post_init__(self) -> None:
        tables = Marginals(self.queries.sizes, list(dict.fromkeys([*self.plan.cliques, *self.bars])))
        self.counts = dict(zip(tables.cliques, self.private.tables(tables), strict=True))
        entries = 3 * tables.count + len(self.bars)  # a marginal is measured in both parts, and once if it is chosen
        self.payer = NoisyVectors(self.budget, entries=entries)

    def take(self, share: float) -> float:
        """Take this share of the budget, and return its fraction of the rest."""
        fraction = share / self.remaining
        self.remaining -= share
        return fraction

    def measure_plan(self, share: float) -> None:
        """Measure the marginals of the plan with this share of the budget; the last share takes the whole rest.

        Fractions refer to the share of the remaining marginals, so that the last marginal gets the whole rest.
        """
        rest, shares = self.remaining - share, self.plan.shares
        fractions = share * shares / (share * np.cumsum(shares[::-1])[::-1] + rest)
        for clique, fraction in zip(self.plan.cliques, fractions.tolist(), strict=True):
            self.measure(clique, fraction)
        self.remaining = rest

    def measure(self, clique: Clique, fraction: float) -> None:
        """Measure a marginal with this fraction of the rest, and combine it with its earlier measurement."""
        noisy, scale = self._release(self.counts[clique], 2, fraction)
        table, deviation = noisy / self.private.records, scale / self.private.records
        if clique in self.noisy:
            earlier, earlier_deviation = self.noisy[clique]
            new = earlier_deviation**2 / (earlier_deviation**2 + deviation**2)  # its weight, by precision
            table, deviation = (
                earlier + new * (table - earlier),
                earlier_deviation * deviation / math.hypot(earlier_deviation, deviation),
            )
        self.noisy[clique] = table, deviation

    def choose(self) -> list[Clique]:
        """Return the marginals in which the table fitted so far misplaces more than their bars, the worst first.

        The misplaced numbers are released with noise, and the choice is a function of them.
        """
        records, sizes, cliques = self.private.records, self.queries.sizes, list(self.bars)
        table = fit_mixture(sizes, self.noisy, partial(tables_to_check, sizes), emphasis=False).mixture.table
        guesses = [np.rint(table(clique) * records).astype(np.int64) for clique in cliques]
        scores = [misplaced(self.counts[clique], guess) for clique, guess in zip(cliques, guesses, strict=True)]
        noisy, _ = self._release(np.array(scores, dtype=np.int64), len(scores), self.take(_SCORES))  # proof: step 3
        above = noisy / records - np.array(list(self.bars.values()))
        return [cliques[index] for index in np.argsort(-above, kind="stable")[:_MOST] if above[index] > 0]

    def _release(self, vector: Integers, square: int, fraction: float) -> tuple[Integers, float]:
        """Charge this fraction of the rest for a vector; return the noisy vector and the scale of its noise."""
        return self.payer.draw_release(vector, self.noise, squared_sensitivity=square, fraction=fraction)


def looks_of(queries: Marginals, first: Mapping[Clique, float], final: Mapping[Clique, float]) -> dict[str, float]:
    """Return the factor that widens a band because earlier noise chooses measurements: ../PROOF.md, step 5.

    `first` are the precisions of components after the first measurement, which is public, and `final` those at the end.
    """
    looks = wider = 0.0
    for clique in queries.cliques:
        parts = subsets(tuple(sorted(column for column in clique if queries.sizes[column] > 1)))
        grown = [final[part] / first[part] for part in parts]
        looks = max(looks, sum(math.log1p(ratio / _BEFORE) for ratio in grown))
        wider = max(wider, 1.0 + _BEFORE / min(grown, default=1.0))
    return {"looks": looks, "wider": wider}


def misplaced(counts: Integers, guess: Integers) -> int:
    """Return the number of records that a table of guesses misplaces; one replaced record changes it by at most 1."""
    return int(np.maximum(counts - guess, 0).sum())
