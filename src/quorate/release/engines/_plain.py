"""The engines `plain` and `levels`, which measure once, with equal noise: queries, cells, or levels of a hierarchy.

Noisy levels are combined from below and from above (Hay, Rastogi, Miklau and Suciu 2010), which is least squares on a
tree. Then, from the top down, siblings are drawn towards each other as far as their differences are noise (James and
Stein 1961), and brought to the nearest that are not negative and add up to their parent.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.errors import Infeasible
from quorate.release.engines.base import (
    Measurement,
    MeasuringEngine,
    Planned,
    Public,
    Released,
    expected_largest,
    expected_largest_of,
    histogram_scale,
    project_simplex,
    simplex_marginals,
)
from quorate.release.queries import MOST_LISTED, Levels, Marginals, Queries

_MOST_DRAWS = 5_000_000  # about a minute of exact draws
_FEWEST = 4  # siblings that are drawn together: with fewer nothing is gained for certain


class PlainEngine(MeasuringEngine):
    """Each marginal once, projected onto the simplex; other lists by their queries or by their cells, whichever errs
    less.
    """

    name = "plain"

    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        factors = _factors(queries)
        best = min(factors, key=lambda name: factors[name])
        deviation = histogram_scale(epsilon, delta) * factors[best]
        different = queries.count if best == "queries" else min(queries.count, queries.cells or 1)
        return expected_largest(deviation, different) / records if deviation < math.inf else math.inf

    def _measure(self, queries: Any, public: Public, noise: float, planned: Planned) -> Measurement:
        """Return the marginals, or the queries or the cells."""
        if isinstance(queries, Marginals):
            finish = partial(self._marginals, queries)
            return Measurement(queries.squares, lambda private: private.tables(queries), finish)
        factors = _factors(queries)
        if min(factors.values()) == math.inf:
            raise Infeasible(f"{queries.count} queries of these cells are too many to measure; choose another engine")
        if min(factors, key=lambda name: factors[name]) == "queries":
            square = max(queries.sensitivity, 1)
            return Measurement((square,), lambda private: [private.counts(queries)], partial(self._queries, queries))
        return Measurement((2,), lambda private: [private.cells(queries)], partial(self._cells, queries))

    def _marginals(self, queries: Marginals, noisy: Any, scales: Any, records: int) -> Released:
        mask = np.ones(queries.count) if queries.mask is None else queries.mask.astype(np.float64)  # the rest is known
        shares = mask * np.concatenate(noisy) / records
        deviations = mask * np.repeat(np.array(scales) / records, np.diff(queries.offsets))
        answers = simplex_marginals(queries, shares)
        return self._make_answers(answers, shares, deviations, None)

    def _queries(self, queries: Queries, noisy: Any, scales: Any, records: int) -> Released:
        shares, deviations = noisy[0] / records, np.full(queries.count, scales[0] / records)
        return self._make_answers(np.clip(shares, 0.0, 1.0), shares, deviations, None, "measured: queries")

    def _cells(self, queries: Queries, noisy: Any, scales: Any, records: int) -> Released:
        shares, scale = noisy[0] / records, scales[0] / records
        weights = project_simplex(shares)
        shares = shares - (shares.sum() - 1.0) / shares.size  # the number of records is public
        unbiased, sizes = queries.answers(shares), queries.answers(np.ones(shares.size))
        deviations = scale * np.sqrt(np.maximum(sizes * (1 - sizes / shares.size), 0.0))
        return self._make_answers(np.clip(unbiased, 0.0, 1.0), unbiased, deviations, weights, "measured: cells")

    def _make_answers(
        self, answers: Floats, unbiased: Floats, deviations: Floats, weights: Floats | None, *notes: str
    ) -> Released:
        """Return answers from unbiased ones, with the error bars of these."""
        parts = (unbiased, deviations)
        return Released(answers, deviations, weights, None, self.name, notes, {}, None, *parts)


def _factors(queries: Queries) -> dict[str, float]:
    """Return the factor from histogram noise to the worst answer's noise, for each possible measurement."""
    is_drawable = queries.count <= _MOST_DRAWS
    if isinstance(queries, Marginals):
        return {"queries": math.sqrt(queries.sensitivity / 2) if is_drawable else math.inf}
    cells = queries.cells
    is_listed = cells is not None and cells <= _MOST_DRAWS and queries.count <= MOST_LISTED
    return {
        "queries": math.sqrt(max(queries.sensitivity, 1) / 2) if is_drawable else math.inf,
        "cells": math.sqrt(cells or 1) / 2 if is_listed else math.inf,
    }


class LevelsEngine(MeasuringEngine):
    """Every level of a hierarchy once, with equal shares, and answers that add up."""

    name, answered = "levels", (Levels,)

    def _expected(self, queries: Any, records: int, epsilon: float, delta: float, public: Public) -> float:
        measured = sum(size > 1 for size in queries.sizes)
        scale = histogram_scale(epsilon, delta) * math.sqrt(max(measured, 1)) / records
        noise = [np.full(size, scale**2 if size > 1 else 0.0) for size in queries.sizes]
        deviations = np.sqrt(add_up(queries, [np.zeros(size) for size in queries.sizes], noise, 0.0)[1])
        return expected_largest(float(deviations.max()), queries.count)

    def _measure(self, queries: Any, public: Public, noise: float, planned: Planned) -> Measurement:
        def finish(noisy: Any, scales: Any, records: int) -> Released:
            return self._combine_levels(queries, [part / records for part in noisy], np.array(scales) / records)

        return Measurement(queries.squares, lambda private: private.tables(queries), finish)

    def _combine_levels(self, queries: Levels, noisy: list[Floats], scales: Floats) -> Released:
        noise = [
            np.full(size, scale**2 if size > 1 else 0.0) for size, scale in zip(queries.sizes, scales, strict=True)
        ]
        tables = [np.ones(1) if size == 1 else part for size, part in zip(queries.sizes, noisy, strict=True)]
        unbiased, variances = add_up(queries, tables, noise, 1.0)
        answers, errors, merged = _from_above(queries, unbiased, variances)
        deviations = np.sqrt(variances)
        note = f"{merged} sets of siblings that noise cannot tell apart have equal shares of their parents"
        details = {
            "deviation": float(deviations.max()),
            "moved": float(np.abs(answers - unbiased).max()),
            "expected_error": min(1.0, expected_largest_of(errors)),
            "merged": float(merged),
        }
        weights = answers[queries.offsets[-2] :]
        notes = (note,) if merged else ()
        return Released(answers, errors, weights, None, self.name, notes, details, None, unbiased, deviations)


def add_up(queries: Levels, noisy: list[Floats], noise: list[Floats], total: float) -> tuple[Floats, Floats]:
    """Return the best linear estimates of all nodes, which add up to `total`, and their variances.

    `noise` has the variance of each noisy value; that of a level with one node is 0, since the total is known.
    """
    last = len(queries.sizes) - 1
    below: list[tuple[Floats, Floats]] = [(noisy[last], noise[last])]
    for level in range(last, 0, -1):  # the estimate of each node from this level and those below
        up, (values, variances) = queries.parents(level), below[0]
        sums, spreads = (np.bincount(up, part, minlength=queries.sizes[level - 1]) for part in (values, variances))
        level_noise = noise[level - 1]
        trust = np.divide(
            spreads, spreads + level_noise, out=np.zeros_like(level_noise), where=spreads + level_noise > 0
        )
        below.insert(0, (sums + trust * (noisy[level - 1] - sums), trust * level_noise))
    top, spread = below[0]
    spread_sum = spread.sum()
    share = np.divide(spread, spread_sum, out=np.zeros_like(spread), where=spread_sum > 0)
    estimates, sure = [top + share * (total - top.sum())], [spread - spread * share]
    for level in range(1, last + 1):
        up, (values, variances) = queries.parents(level), below[level]
        sums, spreads = (np.bincount(up, part, minlength=queries.sizes[level - 1]) for part in (values, variances))
        share = np.divide(variances, spreads[up], out=np.zeros_like(variances), where=spreads[up] > 0)
        estimates.append(values + share * (estimates[-1] - sums)[up])
        sure.append(variances - variances * share + share**2 * sure[-1][up])
    return np.concatenate(estimates), np.maximum(np.concatenate(sure), 0.0)


def _from_above(queries: Levels, unbiased: Floats, variances: Floats) -> tuple[Floats, Floats, int]:
    """Return answers that are not negative and add up, their errors, and how many sets of siblings became one."""
    start = queries.offsets
    answers, errors, merged = [project_simplex(unbiased[: start[1]])], [np.sqrt(variances[: start[1]])], 0
    for level in range(1, len(queries.sizes)):
        up = queries.parents(level)
        values, noise = unbiased[start[level] : start[level + 1]], variances[start[level] : start[level + 1]]
        adjusted, risk = np.empty_like(values), np.empty_like(values)
        for parent, siblings in enumerate(np.split(np.argsort(up, kind="stable"), _ends(up, queries.sizes[level - 1]))):
            belief, squares = _belief(values[siblings], float(noise[siblings].mean()))
            merged += belief == 0.0 and len(siblings) > 1
            middle = values[siblings].mean()
            shrunk = middle + belief * (values[siblings] - middle)
            amount = answers[-1][parent]
            adjusted[siblings] = amount * project_simplex(shrunk / amount) if amount > 0 else 0.0
            alone = belief**2 + (1.0 - belief) / len(siblings)  # remaining noise of each sibling
            risk[siblings] = alone * noise[siblings] + (1.0 - belief) ** 2 * squares
        answers.append(adjusted)
        errors.append(np.sqrt(risk))
    return np.concatenate(answers), np.concatenate(errors), merged


def _belief(values: Floats, noise: float) -> tuple[float, float]:
    """Return the weight of the siblings' differences, and their squared size without noise."""
    count, spread = len(values), float(((values - values.mean()) ** 2).sum())
    if count < _FEWEST or noise == 0.0 or spread == 0.0:
        return 1.0, 0.0
    seen = max(0.0, spread / (count - 1) - noise) + noise * math.sqrt(2.0 / (count - 1))  # what noise may hide, too
    return max(0.0, 1.0 - (count - 3) * noise / spread), seen


def _ends(up: Any, parents: int) -> Any:
    return np.cumsum(np.bincount(up, minlength=parents))[:-1]
