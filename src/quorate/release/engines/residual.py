"""Gaussian noise on marginals, spent where the worst answer needs it, and answers that agree with each other.

The best strategy of independent noise on marginals. The best of all, with noise that is not independent, would have
about 5% less deviation on the workloads measured; whole-number noise of that kind is not proved here.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.errors import InvalidInput, QuorateError
from quorate.mechanisms.noisy_vector import NoisyVector
from quorate.privacy import Budget, Cost
from quorate.release.engines.components import consistent_marginals, split_components
from quorate.release.engines.released import (
    Private,
    Public,
    Released,
    check_private,
    expected_largest,
    simplex_marginals,
    spent_since,
)
from quorate.release.engines.strategy import Clique, plan_marginals
from quorate.release.queries import Floats, Marginals, Queries

__all__ = ["MeasuredMarginals", "ResidualEngine", "measure_marginals"]


@dataclass(frozen=True)
class MeasuredMarginals:
    """Noisy marginals as shares of the records, and what follows from them. Nothing in it is private any more.

    `tables[k]` is the marginal of the sorted columns `cliques[k]` with noise of standard deviation `deviations[k]`;
    `answers` are the least-squares answers of the workload with standard deviations `errors`, one a query.

    >>> from quorate.release.queries import Rows
    >>> rows, queries = Rows([[0, 1]] * 1000, sizes=(2, 2)), Marginals((2, 2), [(0,), (1,)])
    >>> budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    >>> measure_marginals(queries, check_private(queries, rows), budget).answers.shape
    (4,)
    """

    cliques: tuple[Clique, ...]
    tables: tuple[Floats, ...]
    deviations: tuple[float, ...]
    answers: Floats
    errors: Floats
    spent: Cost


def measure_marginals(queries: Marginals, private: Private, budget: Budget, noise: Any = None) -> MeasuredMarginals:
    """Measure the marginals of the best strategy, once each, and return what was measured, as shares.

    >>> from quorate.release.queries import Rows
    >>> rows, queries = Rows([[0]] * 1000, sizes=(2,)), Marginals((2,), [(0,)])
    >>> budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    >>> measure_marginals(queries, check_private(queries, rows), budget).cliques
    ((0,),)
    """
    plan = plan_marginals(queries)
    measured = Marginals(queries.sizes, plan.cliques)
    squares = [2 if math.prod(shape) > 1 else 0 for shape in measured.shapes]
    mechanism = NoisyVector.for_budget(budget, squared_sensitivities=squares, shares=plan.shares.tolist())
    before = budget.spent()
    noisy = mechanism._release(np.split(private.counts(measured), measured.offsets[1:-1]), budget, noise)
    tables = [part / private.records for part in noisy]
    deviations = [scale / private.records for scale in mechanism.scales]
    precisions = [1.0 / deviation**2 for deviation in deviations]
    components = split_components(queries.sizes, plan.cliques, precisions, tables)
    deviation = np.sqrt(plan.variances / np.sum(precisions))  # the shares are the precisions over their sum
    return MeasuredMarginals(
        plan.cliques,
        tuple(tables),
        tuple(deviations),
        consistent_marginals(queries, components, 1.0),
        np.repeat(deviation, np.diff(queries.offsets)),
        spent_since(before, budget),
    )


class ResidualEngine:
    """Marginals by the best strategy of independent Gaussian noise, made consistent, projected onto the simplex.

    >>> from quorate.release.queries import Rows
    >>> rows = Rows([[0, 1]] * 5000 + [[1, 0]] * 5000, sizes=(2, 2))
    >>> budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    >>> ResidualEngine().run(Marginals((2, 2), [(0,), (0, 1)]), rows, budget=budget).answers.round(1)
    array([0.5, 0.5, 0. , 0.5, 0.5, 0. ])
    """

    name = "residual"

    def expected_error(
        self, queries: Queries, *, records: int, epsilon: float, delta: float, public: Public = None
    ) -> float:
        """Return the expected largest error, from public numbers alone; infinity where the queries are no marginals.

        >>> queries = Marginals.of_order((4, 4, 4), 2)
        >>> 0 < ResidualEngine().expected_error(queries, records=10_000, epsilon=1.0, delta=1e-6) < 0.01
        True
        """
        if not isinstance(queries, Marginals):
            return math.inf
        try:
            scale = NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(2,)).scales[0]
            variance = float(plan_marginals(queries).variances.max())
        except QuorateError:
            return math.inf
        deviation = scale * math.sqrt(variance)
        return min(1.0, expected_largest(deviation, queries.count) / records)

    def run(self, queries: Queries, data: Any, *, public: Public = None, budget: Budget) -> Released:
        """Return the released answers, charged to the budget: all of it where nothing was spent before.

        >>> from quorate.release.queries import Rows
        >>> rows = Rows([[0]] * 7000 + [[1]] * 3000, sizes=(2,))
        >>> budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
        >>> ResidualEngine().run(Marginals((2,), [(0,)]), rows, budget=budget).answers.round(1)
        array([0.7, 0.3])
        """
        return self._run(queries, data, budget, None)

    def _run(self, queries: Queries, data: Any, budget: Budget, noise: Any) -> Released:
        if not isinstance(queries, Marginals):
            raise InvalidInput(f"the residual engine answers Marginals, not {type(queries).__name__}")
        measured = measure_marginals(queries, check_private(queries, data), budget, noise)
        answers = simplex_marginals(queries, measured.answers)
        return Released(answers, measured.errors, None, None, measured.spent, self.name)
