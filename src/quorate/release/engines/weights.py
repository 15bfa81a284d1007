"""Private multiplicative weights: choose the worst-answered query, measure it, correct the weights, and repeat.

Selection is an exponential mechanism on whole-number scores, the distance between a query's count and what the weights
say, which one replaced record moves by at most 1; the measurement has discrete Gaussian noise. Corrections are
post-processing. Weights are not normalised: their total is kept beside them, so that a correction touches the cells of
its query and no others.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import ListedTally
from quorate.core.mechanisms import ExponentialChoice
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import RENYI_QUANTA, Budget, best_order, to_capacity
from quorate.release.engines.base import Engine, Public, Released, check_private, descend
from quorate.release.queries import MOST_LISTED, NOTHING, Marginals, Queries, Rows
from quorate.release.queries.marginals import clear_weights

_CACHED = 4096  # lists of cells
_LEAST_TOTAL, _LARGEST_TOTAL = 1e-6, 1e9  # Weights are scaled back to 1 beyond these, before rounding shows.
_EXTREME, _SETTLED = 1e-14, 1e-9  # shares that count as 0 or 1; a move that ends the replay
_MOST_ROUNDS = 512
_STEPS = 200  # of a fit of maximum entropy
_REPLAYED = 400  # earlier corrections replayed after a new one
_FINAL_PASSES = 20
_FEW_CELLS, _BATCH = 20_000, 4  # with more cells, so many rounds share one pass over all of them
_PROGRESS, _NOISE = 0.035, 0.35  # of the worst case, as seen on simulated thresholds, boxes and random halfspaces
_MARGINAL_PROGRESS = 0.15  # as seen on simulated tables: a round corrects one cell of one marginal, and few others


def unseen_share(counts: Floats) -> float:
    """Estimate the share of records missing from a public sample by the share of its singletons (Good 1953)."""
    amount = max(float(counts.sum()), 1.0)
    return float(np.clip(((counts > 0) & (counts <= 1)).sum() / amount, 1.0 / (amount + 1), 0.5))


def start_weights(queries: Queries, public: Public) -> Floats:
    """Return the initial distribution over all cells: uniform, or the public one with the unseen share spread out.

    The estimated unseen share is spread over all cells.
    """
    if queries.cells is None:
        raise Infeasible("these cells are too many to list; choose an engine that works on rows")
    if public is None:
        return np.full(queries.cells, 1.0 / queries.cells)
    if isinstance(public, Rows):
        numbers = public.cell(range(len(public.sizes)))
        counts = np.bincount(numbers, public.weights, minlength=queries.cells).astype(np.float64)
    else:
        counts = np.asarray(public, dtype=np.float64)
    amount = float(counts.sum()) if counts.shape == (queries.cells,) else 0.0
    if not amount > 0 or bool((counts < 0).any()):
        raise InvalidInput(f"public data must be Rows, or {queries.cells} counts that are not all zero")
    unseen = unseen_share(counts)
    return np.asarray((1.0 - unseen) * counts / amount + unseen / queries.cells)


class LearnedWeights:
    """Weights over all cells, or over the records of a support, that agree with released shares of some queries.

    A correction scales the cells of a query by one factor, which is the least change, by relative entropy, that gives
    the query its released share (Hardt and Rothblum 2010). A query may leave out another one that lies within it.
    """

    def __init__(self, queries: Queries, start: Floats, support: Rows | None = None) -> None:
        self.queries, self.support = queries, support
        self.corrections: dict[tuple[int, int], float] = {}  # released shares by query and the query excluded from it
        self._weights = np.array(start, dtype=np.float64)
        self._total = float(self._weights.sum())
        self._members: dict[tuple[int, int], slice | NDArray[np.int64]] = {}

    @classmethod
    def from_public(cls, queries: Queries, public: Floats | Rows, *, blend: float) -> "LearnedWeights":
        """Return the public histogram, with a share `blend` of the uniform one so that no cell is ruled out."""
        support = public.merged() if isinstance(public, Rows) else None
        counts = np.asarray(public if support is None else support.weights, dtype=np.float64)
        total, uniform = float(counts.sum()), np.full(counts.size, 1.0 / counts.size)
        return cls(queries, uniform if total <= 0 else (1 - blend) * counts / total + blend * uniform, support)

    @property
    def weights(self) -> Floats:
        """The current weights, of sum 1."""
        return np.asarray(self._weights / self._weights.sum())

    def answers(self) -> Floats:
        """Return the share that the weights give to every query."""
        self._total = float(self._weights.sum())  # Rounding errors of the running total end here.
        weights = self._weights if self.support is None else self.support.weighted(self._weights)
        return np.asarray(self.queries.answers(weights) / self._total)

    def answer(self, query: int, without: int = NOTHING) -> float:
        """Return the share that the weights give to a query, minus the query excluded from it."""
        index, weights = self._cells(query, without)
        return min(1.0, float(weights[index].sum()) / self._total)

    def remember(self, query: int, share: float, without: int = NOTHING) -> None:
        """Store a released share, replacing an earlier one of the same query; `agree` applies it."""
        self.corrections.pop((query, without), None)
        self.corrections[query, without] = share

    def agree(self, steps: int = _REPLAYED) -> None:
        """Apply the newest corrections in turn, until all of them hold or for about this many steps."""
        newest = list(self.corrections.items())[-steps:]
        for _ in range(max(2, steps // len(newest))):
            moves = [self.correct(query, share, without) for (query, without), share in newest]
            if max(map(abs, moves)) < _SETTLED:
                return

    def correct(self, query: int, share: float, without: int = NOTHING) -> float:
        """Set the share of a query; return the change, 0 where its cells have all of the weight or none."""
        index, weights = self._cells(query, without)
        total = float(weights[index].sum())
        current = total / self._total
        if not _EXTREME < current < 1 - _EXTREME:
            return 0.0
        share = min(max(share, _EXTREME), 1 - _EXTREME)
        factor = share * (1.0 - current) / (current * (1.0 - share))
        weights[index] *= factor
        self._total += (factor - 1.0) * total
        if not _LEAST_TOTAL < self._total < _LARGEST_TOTAL:
            self._weights /= self._weights.sum()  # in place, so that views stay valid
            self._total = 1.0
        return share - current

    def _cells(self, query: int, without: int) -> tuple[Any, Floats]:
        """Return the index of a query's cells and the indexed array, a view and never a copy."""
        if self.support is None and without == NOTHING and isinstance(self.queries, Marginals):
            return self.queries.slab(query), self._weights.reshape(self.queries.sizes)
        if (query, without) not in self._members:
            if len(self._members) >= _CACHED:
                self._members.clear()
            if self.support is None and without == NOTHING:
                self._members[query, without] = self.queries.members(query)
            else:
                self._members[query, without] = np.flatnonzero(mask_query(self.queries, query, without, self.support))
        return self._members[query, without], self._weights


def mask_query(queries: Queries, query: int, without: int, support: Rows | None) -> NDArray[np.bool_]:
    """Return the mask of the cells, or rows of the support, in a query and outside the query excluded from it."""
    mask = _mask(queries, query, support)
    return mask if without == NOTHING else mask & ~_mask(queries, without, support)


def _mask(queries: Queries, query: int, support: Rows | None) -> NDArray[np.bool_]:
    if support is None:
        mask = np.zeros(queries.cells or 0, dtype=np.bool_)
        mask[queries.members(query)] = True
        return mask
    if isinstance(queries, Marginals):
        clique, codes = queries.find(query)
        return np.asarray((support.narrow[:, list(queries.cliques[clique])] == np.array(codes)).all(axis=1))
    if queries.count > MOST_LISTED:
        raise Infeasible(f"{queries.count} queries are too many to find the rows of a single query")
    indicator = np.zeros(queries.count)
    indicator[query] = 1.0
    return np.asarray(queries.spread(indicator, support) > 0)


def fit_entropy(
    forward: Callable[[Floats], Floats],
    backward: Callable[[Floats], Floats],
    *,
    targets: Floats,
    precisions: Floats,
    prior: Floats,
    strength: float,
) -> Floats:
    """Return the weights w that minimise sum precisions (forward(w) - targets)^2 / 2 + strength * KL(w, prior)."""
    logs = np.log(prior)

    def weigh(ratios: Floats) -> Floats:
        logits = logs + ratios
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def objective(ratios: Floats) -> tuple[float, Floats]:
        weights = weigh(ratios)
        residuals = forward(weights) - targets
        change = np.log(np.maximum(weights, 1e-300)) - logs
        value = 0.5 * float(precisions @ residuals**2) + strength * float(weights @ change)
        slope = backward(precisions * residuals) + strength * change
        return value / strength, weights * (slope - weights @ slope) / strength

    return weigh(descend(objective, np.zeros(prior.size), steps=_STEPS))


@dataclass(frozen=True)
class Rounds:
    """The number of rounds, the epsilon of a choice, the noise scale of a measurement, and the expected error."""

    rounds: int
    epsilon: float
    scale: float
    error: float


def plan_rounds(
    capacity: float, *, order: float, entropy: float, count: int, records: int, progress: float = _PROGRESS
) -> Rounds:
    """Return the number of rounds of least expected error, each half choice and half measurement.

    A correction of a share that is off by alpha brings the weights nearer to the truth by at least 2 alpha**2, of
    `entropy` in all; and a round's noise grows with the square root of their number. Both are taken at a fraction of
    the worst case: `progress` is that of the first.
    """
    if order == math.inf:
        raise Infeasible("multiplicative weights are charged at a finite order; allow a delta above 0")
    best: Rounds | None = None
    for step in range(2 * int(math.log2(_MOST_ROUNDS)) + 1):
        rounds = max(1, round(2 ** (step / 2)))
        step_cost = capacity / (2 * rounds) - 4 / RENYI_QUANTA
        if step_cost <= 0:
            break
        epsilon = math.sqrt(8 * step_cost / order) * (1 - 1e-9)
        scale = math.sqrt(order / (2 * step_cost)) * (1 + 1e-9)
        noise = (2 * math.log(max(count, 2)) / epsilon + 2 * scale) / records
        error = min(1.0, progress * math.sqrt(entropy / (2 * rounds)) + _NOISE * noise)
        if best is None or error < best.error:
            best = Rounds(rounds, epsilon, scale, error)
    if best is None:
        raise Infeasible("less than one quantum is left for a round; open a budget with a larger epsilon")
    return best


class WeightsEngine(Engine):
    """Multiplicative weights over all cells (Hardt and Rothblum 2010; Hardt, Ligett, McSherry 2012), each correction
    exact and confined to the cells of its query, earlier measurements replayed. Public data, if any, are the start.
    """

    name = "weights"

    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        if not _applies(queries):
            return math.inf
        order = best_order(epsilon=epsilon, delta=delta * 0.9)
        capacity = to_capacity(epsilon, delta=delta * 0.9, order=order)
        plan = plan_rounds(capacity, order=order, records=records, **self._difficulty(queries, public))
        return plan.error

    def _difficulty(self, queries: Queries, public: Public) -> dict[str, Any]:
        """Return the public values that determine the number of rounds, besides sizes and budget."""
        progress = _MARGINAL_PROGRESS if isinstance(queries, Marginals) else _PROGRESS
        return {"entropy": self._entropy(queries, public), "count": queries.count, "progress": progress}

    def _entropy(self, queries: Queries, public: Public) -> float:
        """Return a bound on the relative entropy of the truth to the start."""
        largest = math.log(max(queries.cells or 2, 2))
        if public is None:
            return largest
        weights = public.merged().weights if isinstance(public, Rows) else np.asarray(public, dtype=np.float64)
        seen = (np.count_nonzero(weights) + 1) / max(float(weights.sum()), 1.0)
        return min(largest, seen + unseen_share(weights) * largest)

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        if not _applies(queries):
            raise InvalidInput("engine 'weights' must list all cells: take fewer, or leave engine='auto'")
        if budget.order == math.inf:
            raise InvalidInput("multiplicative weights are charged at a finite order; allow a delta above 0")
        private = check_private(queries, data)
        table = LearnedWeights(queries, start_weights(queries, public))
        plan = plan_rounds(
            budget.remaining().renyi,
            order=budget.order,
            records=private.records,
            **self._difficulty(queries, public),
        )
        counts = private.counts(queries)
        measured: dict[int, list[float]] = {}
        steps = _Steps(counts, private.records, plan, budget, noise)
        batch = 1 if queries.cells is not None and queries.cells <= _FEW_CELLS else _BATCH
        for first in range(0, plan.rounds, batch):
            answers = table.answers()
            for _ in range(min(batch, plan.rounds - first)):
                query = steps.choose(answers)
                answers[query] = share = steps.measure(query)
                measured.setdefault(query, []).append(share)
                table.remember(query, _target(measured[query], private.records))
            table.agree()
        table.agree(_FINAL_PASSES * len(measured))
        weights, answers = table.weights, table.answers()
        if isinstance(queries, Marginals) and (possible := queries.possible) is not None:
            weights = clear_weights(weights, possible.table(range(len(queries.sizes)), queries.sizes))
            answers = queries.answers(weights)
        return Released(
            np.clip(answers, 0.0, 1.0),
            None,
            weights,
            None,
            self.name,
            (f"{plan.rounds} rounds, {len(measured)} different queries measured",),
            {"rounds": float(plan.rounds), "deviation": plan.scale / private.records},
        )


@dataclass(frozen=True, repr=False)
class _Steps:
    """The two private steps of a round, each charged before it is drawn."""

    counts: NDArray[np.int64]
    records: int
    plan: Rounds
    budget: Budget
    noise: Any  # None, or a seeded stand-in for audits and tests

    def choose(self, answers: Floats) -> int:
        """Privately choose a badly answered query, and return its number."""
        guesses = np.clip(np.rint(answers * self.records), 0, self.records).astype(np.int64)
        scores = np.abs(self.counts - guesses)  # proof: step 3: a replaced record moves a score by at most 1
        tally = ListedTally(self.records - scores, _number, rows=self.records)
        choice = ExponentialChoice(epsilon=self.plan.epsilon, sensitivity=1)
        if self.noise is None:
            return cast(int, choice.choose(tally, budget=self.budget))
        return cast(int, choice.draw_choice(tally, self.budget, self.noise))

    def measure(self, query: int) -> float:
        """Return the noisy share of one query."""
        mechanism = NoisyVector(squared_sensitivities=(1,), scales=(self.plan.scale,))
        [noisy] = mechanism.draw_release([self.counts[query : query + 1]], self.budget, self.noise)
        return float(noisy[0]) / self.records


def _applies(queries: Queries) -> bool:
    return queries.cells is not None and queries.count <= MOST_LISTED


def _number(query: int) -> Any:
    """Return the candidate of a tally: the number itself."""
    return query


def _target(shares: list[float], records: int) -> float:
    """Return the mean of a query's measurements, kept off 0 and 1."""
    margin = 0.25 / records
    return min(max(sum(shares) / len(shares), margin), 1.0 - margin)
