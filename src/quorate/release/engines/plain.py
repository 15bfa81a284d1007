"""Plain noisy answers: everything is measured once, with equal noise."""

import math
from functools import partial
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.core.privacy import Cost
from quorate.release.engines.measuring import Measurement, MeasuringEngine, Planned
from quorate.release.engines.released import (
    Public,
    Released,
    expected_largest,
    histogram_scale,
    project_simplex,
    simplex_marginals,
)
from quorate.release.queries import MOST_LISTED, Marginals, Queries

__all__ = ["PlainEngine"]

_MOST_DRAWS = 5_000_000  # about a minute of exact draws


class PlainEngine(MeasuringEngine):
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

    def measurement(
        self, queries: Queries, public: Public, noise: float, planned: Planned = None
    ) -> Measurement[Released]:
        """Return the marginals, or the queries or the cells."""
        if isinstance(queries, Marginals):
            squares = tuple(2 if math.prod(shape) > 1 else 0 for shape in queries.shapes)
            return Measurement(
                squares,
                lambda private: np.split(private.counts(queries), queries.offsets[1:-1]),
                partial(self._marginals, queries),
            )
        factors = _factors(queries)
        if min(factors.values()) == math.inf:
            raise Infeasible(f"{queries.count} queries of these cells are too many to measure; choose another engine")
        if min(factors, key=lambda name: factors[name]) == "queries":
            square = max(queries.sensitivity, 1)
            return Measurement((square,), lambda private: [private.counts(queries)], partial(self._queries, queries))
        return Measurement((2,), lambda private: [private.cells(queries)], partial(self._cells, queries))

    def _marginals(self, queries: Marginals, noisy: Any, scales: Any, records: int, spent: Cost) -> Released:
        held = np.ones(queries.count) if queries.held is None else queries.held.astype(np.float64)  # the rest is known
        shares = held * np.concatenate(noisy) / records
        deviations = held * np.repeat(np.array(scales) / records, np.diff(queries.offsets))
        answers = simplex_marginals(queries, shares)
        return self._made(answers, shares, deviations, None, spent)

    def _queries(self, queries: Queries, noisy: Any, scales: Any, records: int, spent: Cost) -> Released:
        shares, deviations = noisy[0] / records, np.full(queries.count, scales[0] / records)
        return self._made(np.clip(shares, 0.0, 1.0), shares, deviations, None, spent, "measured: queries")

    def _cells(self, queries: Queries, noisy: Any, scales: Any, records: int, spent: Cost) -> Released:
        shares, scale = noisy[0] / records, scales[0] / records
        weights = project_simplex(shares)
        shares = shares - (shares.sum() - 1.0) / shares.size  # the number of records is public
        unbiased, sizes = queries.answers(shares), queries.answers(np.ones(shares.size))
        deviations = scale * np.sqrt(np.maximum(sizes * (1 - sizes / shares.size), 0.0))
        return self._made(np.clip(unbiased, 0.0, 1.0), unbiased, deviations, weights, spent, "measured: cells")

    def _made(
        self, answers: Floats, unbiased: Floats, deviations: Floats, weights: Floats | None, spent: Cost, *notes: str
    ) -> Released:
        """Return answers that are made of unbiased ones, and are taken to err as these do."""
        parts = (unbiased, deviations)
        return Released(answers, deviations, weights, None, spent, self.name, notes, {}, None, *parts)


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
