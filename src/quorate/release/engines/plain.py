"""Plain noisy answers: everything is measured once, with equal noise."""

import math
from typing import Any

import numpy as np

from quorate.arrays import Floats
from quorate.errors import Infeasible
from quorate.mechanisms.noisy_vector import NoisyVector
from quorate.privacy import Budget
from quorate.release.engines.released import (
    Engine,
    Public,
    Released,
    check_private,
    expected_largest,
    histogram_scale,
    project_simplex,
    simplex_marginals,
    spent_since,
)
from quorate.release.queries import MOST_LISTED, Marginals, Queries

__all__ = ["PlainEngine"]

_ONE_SIDED, _TWO_SIDED = 1.645, 1.960  # deviations below which 95% of a Gaussian lies, and within which
_MOST_DRAWS = 5_000_000  # about a minute of exact draws


class PlainEngine(Engine):
    """Each marginal once, projected onto the simplex; other lists by their queries or by their cells, whichever errs
    less.
    """

    name = "plain"

    def _expected(self, queries: Queries, records: int, epsilon: float, delta: float, public: Public) -> float:
        factors = _factors(queries)
        best = min(factors, key=lambda name: factors[name])
        deviation = histogram_scale(epsilon, delta) * factors[best]
        different = queries.count if best == "queries" else min(queries.count, queries.cells or 1)
        return expected_largest(deviation, different) / records if deviation < math.inf else math.inf

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        private = check_private(queries, data)
        if isinstance(queries, Marginals):
            return self._marginals(queries, private.counts(queries), private.records, budget, noise)
        factors = _factors(queries)
        if min(factors.values()) == math.inf:
            raise Infeasible(f"{queries.count} queries of these cells are too many to measure; choose another engine")
        return self._listed(queries, private, min(factors, key=lambda name: factors[name]), budget, noise)

    def _marginals(self, queries: Marginals, counts: Any, records: int, budget: Budget, noise: Any) -> Released:
        squares = [2 if math.prod(shape) > 1 else 0 for shape in queries.shapes]
        mechanism = NoisyVector.for_budget(budget, squared_sensitivities=squares)
        before = budget.spent()
        noisy = mechanism.draw_release(np.split(counts, queries.offsets[1:-1]), budget, noise)
        shares = np.concatenate(noisy) / records
        answers = simplex_marginals(queries, shares)
        return Released(
            answers,
            _projected_errors(queries, shares, answers, np.array(mechanism.scales) / records),
            None,
            None,
            spent_since(before, budget),
            self.name,
        )

    def _listed(self, queries: Queries, private: Any, what: str, budget: Budget, noise: Any) -> Released:
        square = max(queries.sensitivity, 1) if what == "queries" else 2
        mechanism = NoisyVector.for_budget(budget, squared_sensitivities=(square,))
        measured = private.counts(queries) if what == "queries" else private.cells(queries)
        before = budget.spent()
        [noisy] = mechanism.draw_release([measured], budget, noise)
        shares, scale = noisy / private.records, mechanism.scales[0] / private.records
        if what == "queries":
            answers, weights = np.clip(shares, 0.0, 1.0), None
            errors = np.full(queries.count, scale)
        else:
            weights = project_simplex(shares)
            shares = shares - (shares.sum() - 1.0) / shares.size  # the number of records is public
            answers = np.clip(queries.answers(shares), 0.0, 1.0)
            sizes = queries.answers(np.ones(shares.size))
            errors = scale * np.sqrt(np.maximum(sizes * (1 - sizes / shares.size), 0.0))
        spent = spent_since(before, budget)
        return Released(answers, errors, weights, None, spent, self.name, (f"measured: {what}",))


def _projected_errors(queries: Marginals, noisy: Floats, answers: Floats, scales: Floats) -> Floats:
    """Return one standard deviation of the error of each answer.

    The projection takes the same off each cell that it leaves above 0, which is known: 1.96 deviations hold 95% of what
    noise and that shift are together. Of k cells above 0 only k - 1 vary: their sum is known.
    """
    errors = []
    tables = zip(*(np.split(values, queries.offsets[1:-1]) for values in (noisy, answers)), scales, strict=True)
    for before, after, scale in tables:
        above = after > 0.0
        shift = float(np.abs(before - after)[above].mean())
        noise = scale * math.sqrt(1.0 - 1.0 / max(int(above.sum()), 2)) if after.size > 1 else 0.0
        errors.append(np.full(after.size, max(noise, (shift + _ONE_SIDED * noise) / _TWO_SIDED)))
    return np.concatenate(errors)


def _factors(queries: Queries) -> dict[str, float]:
    """Return by how much the noise on a histogram is multiplied in the worst answer, for each thing to measure."""
    drawn = queries.count <= _MOST_DRAWS
    if isinstance(queries, Marginals):
        return {"queries": math.sqrt(queries.sensitivity / 2) if drawn else math.inf}
    cells = queries.cells
    held = cells is not None and cells <= _MOST_DRAWS and queries.count <= MOST_LISTED
    return {
        "queries": math.sqrt(max(queries.sensitivity, 1) / 2) if drawn else math.inf,
        "cells": math.sqrt(cells or 1) / 2 if held else math.inf,
    }
