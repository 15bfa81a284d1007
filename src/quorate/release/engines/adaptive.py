"""Marginals chosen by how far a fitted table errs on them, measured, and the table fitted again.

In the manner of AIM (McKenna, Mullins, Sheldon, Miklau 2022): a choice is an exponential mechanism on how many records
the table misplaces in a marginal, less what the noise of measuring it would; where a measurement tells no
more than its noise, the next ones have a quarter of its variance. A first part of the budget measures every column, and
a tenth all marginals, so that every answer has an unbiased estimate and an error bar.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np

from quorate.arrays import Floats, Integers
from quorate.concepts.tally import ListedTally
from quorate.errors import Infeasible, InvalidInput
from quorate.mechanisms import ExponentialChoice
from quorate.mechanisms.noisy_vector import NoisyVector
from quorate.privacy import RENYI_QUANTA, Budget
from quorate.release.engines.components import precisions_told
from quorate.release.engines.fitted import fits_in_memory, release_tables, tables_to_check
from quorate.release.engines.mixture import Mixture, fit_mixture
from quorate.release.engines.released import (
    Engine,
    Private,
    Public,
    Released,
    check_private,
    expected_largest,
    histogram_scale,
    spent_since,
)
from quorate.release.engines.strategy import Clique, plan_marginals, subsets
from quorate.release.queries import Marginals, Queries

__all__ = ["AdaptiveEngine", "looks_of", "misplaced"]

_COLUMNS, _FOR_ALL = 0.25, 0.1  # of the budget: for every column, and for all marginals
_CHOICE = 0.1  # of what a chosen marginal costs
_ROUNDS = 4  # marginals a column that the rest would pay for, if it were spent evenly
_BATCH = 4  # columns for each marginal that is chosen between two fits
_STEPS = 60  # of a fit between two choices
_MOST_WEIGHT = 8  # of a marginal in the choice: a whole number
_BEFORE = 0.2  # of the first precision of a component: how it is known before anything is measured, in a band
_ABSOLUTE = math.sqrt(2.0 / math.pi)  # the mean of |z| for a standard Gaussian z


class AdaptiveEngine(Engine):
    """Columns and a little of everything first, then the marginals that the fitted table gets most wrong."""

    name = "adaptive"

    def _expected(self, queries: Queries, records: int, epsilon: float, delta: float, public: Public) -> float:
        """Return the expected largest error of the first part alone: how much choices help is not known before."""
        if not isinstance(queries, Marginals) or not fits_in_memory(queries):
            return math.inf
        whole = histogram_scale(epsilon, delta) / records
        deviation = whole * math.sqrt(float(plan_marginals(_largest(queries)).variances.max()) / _FOR_ALL)
        return expected_largest(deviation, queries.count)

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        if not isinstance(queries, Marginals) or not fits_in_memory(queries):
            raise InvalidInput("the adaptive engine answers Marginals that one table is fitted to")
        if budget.order == math.inf:
            raise InvalidInput("choices and measurements are charged at a finite order; allow a delta above 0")
        private = check_private(queries, data)
        before, steps = budget.spent(), _Steps(queries, private, budget, noise)
        columns = sum(size > 1 for size in queries.sizes)
        batch = min(len(steps.candidates), max(1, columns // _BATCH))
        each = budget.remaining().renyi * (1.0 - _COLUMNS - _FOR_ALL) / (_ROUNDS * columns)
        steps.measure_first()
        first = precisions_told(queries.sizes, steps.noisy)
        fit = fit_mixture(queries.sizes, steps.noisy, partial(tables_to_check, queries.sizes), emphasis=False)
        rounds = chosen = 0
        while batch:
            last = budget.remaining().renyi < 2 * batch * each
            if last:
                each = budget.remaining().renyi / batch
            picked = steps.choose(fit.mixture, batch, each)
            tables = [fit.mixture.table(clique) for clique in picked]
            deviation = steps.measure(picked, each)
            fit = fit.refit(steps.noisy, steps=_STEPS)
            rounds, chosen = rounds + 1, chosen + len(picked)
            if last:
                break
            moved = [
                float(np.abs(fit.mixture.table(clique) - table).mean())
                for clique, table in zip(picked, tables, strict=True)
            ]
            if sum(move < _ABSOLUTE * deviation for move in moved) >= len(picked) / 2:
                each = min(4.0 * each, budget.remaining().renyi / batch)
        note = f"{chosen} marginals chosen in {rounds} rounds"
        weights = queries.importance or [1.0] * len(queries.cliques)
        smoothed = Marginals(queries.sizes, queries.cliques, weights, queries.possible)
        released = release_tables(smoothed, steps.noisy, spent_since(before, budget), self.name, note)
        chances = looks_of(queries, first, precisions_told(queries.sizes, steps.noisy))
        return replace(released, details=released.details | chances)


@dataclass(repr=False)
class _Steps:
    """The private steps, each charged before it is drawn, and what they have told."""

    queries: Marginals
    private: Private
    budget: Budget
    noise: Any  # None, or a seeded stand-in for audits and tests
    noisy: dict[Clique, tuple[Floats, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes, weights = self.queries.sizes, self.queries.importance or (1.0,) * len(self.queries.cliques)
        wanted = [tuple(sorted(c for c in clique if sizes[c] > 1)) for clique in self.queries.cliques]
        heaviest: dict[Clique, float] = {}
        for clique, weight in zip(wanted, weights, strict=True):
            for part in subsets(clique):
                heaviest[part] = max(heaviest.get(part, 0.0), weight)
        self.columns = [part for part in heaviest if len(part) == 1]
        self.candidates = sorted(part for part in heaviest if len(part) > 1)
        if not self.columns:
            raise Infeasible("marginals of no column are known without a measurement; choose engine='plain'")
        least = min((heaviest[part] for part in self.candidates), default=1.0)
        scaled = [min(_MOST_WEIGHT, round(heaviest[part] / least)) for part in self.candidates]
        self.weights = np.array(scaled, dtype=np.int64)
        tables = Marginals(sizes, self.candidates or self.columns)
        self.counts = np.split(self.private.counts(tables), tables.offsets[1:-1])

    def measure_first(self) -> None:
        """Measure every column, and all marginals as their largest error asks for."""
        plan, sizes = plan_marginals(_largest(self.queries)), self.queries.sizes
        share = dict(zip(plan.cliques, (_FOR_ALL * plan.shares).tolist(), strict=True))
        roots = [sizes[column] ** (2 / 3) for (column,) in self.columns]
        for clique, root in zip(self.columns, roots, strict=True):
            share[clique] = share.get(clique, 0.0) + _COLUMNS * root / sum(roots)
        measured = Marginals(sizes, list(share))
        mechanism = NoisyVector.for_budget(
            self.budget,
            squared_sensitivities=[2] * len(share),
            shares=list(share.values()),
            fraction=_COLUMNS + _FOR_ALL,
        )
        self._release(mechanism, list(share), np.split(self.private.counts(measured), measured.offsets[1:-1]))

    def choose(self, mixture: Mixture, most: int, each: float) -> list[Clique]:
        """Return marginals that the table gets wrong, chosen privately one after the other, none of them twice."""
        records, scale = self.private.records, self._scale(each)
        scores = np.empty(len(self.candidates), dtype=np.int64)
        for place, (clique, counts) in enumerate(zip(self.candidates, self.counts, strict=True)):
            guess = np.rint(mixture.table(clique) * records).astype(np.int64)
            scores[place] = misplaced(counts, guess) - round(0.5 * _ABSOLUTE * scale * len(guess))
        scores = self.weights * np.clip(scores, -records, records)  # proof: step 3
        most_weight = int(self.weights.max())
        left, picked = np.arange(len(scores)), []
        choice = ExponentialChoice(epsilon=_epsilon(each, self.budget.order), sensitivity=most_weight)
        for _ in range(most):
            tally = ListedTally(most_weight * records - scores[left], _number, rows=2 * most_weight * records)
            place = self._draw(choice, tally)
            picked.append(self.candidates[int(left[place])])
            left = np.delete(left, place)
        return picked

    def measure(self, cliques: list[Clique], each: float) -> float:
        """Measure these marginals; return the deviation of their noise."""
        mechanism = NoisyVector(squared_sensitivities=(2,) * len(cliques), scales=(self._scale(each),) * len(cliques))
        self._release(mechanism, cliques, [self.counts[self.candidates.index(clique)] for clique in cliques])
        return mechanism.scales[0] / self.private.records

    def _draw(self, choice: ExponentialChoice, tally: ListedTally) -> int:
        if self.noise is None:
            return cast(int, choice.choose(tally, budget=self.budget))
        return cast(int, choice.draw_choice(tally, self.budget, self.noise))

    def _scale(self, each: float) -> float:
        told = each * (1.0 - _CHOICE) - 4 / RENYI_QUANTA
        if told <= 0:
            raise Infeasible("less than one quantum is left for a marginal; open a budget with a larger epsilon")
        return math.sqrt(self.budget.order / told) * (1 + 1e-9)

    def _release(self, mechanism: NoisyVector, cliques: list[Clique], counts: list[Integers]) -> None:
        """Release noisy marginals, and keep them with what was told about the same ones before."""
        parts = mechanism.draw_release(counts, self.budget, self.noise)
        for clique, part, scale in zip(cliques, parts, mechanism.scales, strict=True):
            table, deviation = part / self.private.records, scale / self.private.records
            if clique in self.noisy:
                earlier, known = self.noisy[clique]
                share = known**2 / (known**2 + deviation**2)  # of what is new, by precision
                table, deviation = earlier + share * (table - earlier), known * deviation / math.hypot(known, deviation)
            self.noisy[clique] = table, deviation


def looks_of(queries: Marginals, first: Mapping[Clique, float], told: Mapping[Clique, float]) -> dict[str, float]:
    """Return by what a band is wider because earlier noise decides what is measured again: ../PROOF.md, step 5.

    `first` are the precisions of components after the first measurement, which is public, and `told` those at the end.
    """
    looks = wider = 0.0
    for clique in queries.cliques:
        parts = subsets(tuple(sorted(column for column in clique if queries.sizes[column] > 1)))
        grown = [told[part] / first[part] for part in parts]
        looks = max(looks, sum(math.log1p(one / _BEFORE) for one in grown))
        wider = max(wider, 1.0 + _BEFORE / min(grown, default=1.0))
    return {"looks": looks, "wider": wider}


def misplaced(counts: Integers, guess: Integers) -> int:
    """Return how many records a table of guesses lacks, cell by cell: one replaced record moves it by at most 1."""
    return int(np.maximum(counts - guess, 0).sum())


def _epsilon(each: float, order: float) -> float:
    """Return the epsilon of a choice that costs its part of what a marginal may cost, rounded down."""
    return math.sqrt(8 * max(each * _CHOICE - 4 / RENYI_QUANTA, 1e-12) / order) * (1 - 1e-9)


def _largest(queries: Marginals) -> Marginals:
    return Marginals(queries.sizes, queries.cliques)


def _number(place: int) -> Any:
    """Return the candidate of a tally: its place."""
    return place
