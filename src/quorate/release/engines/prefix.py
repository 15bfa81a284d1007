"""Thresholds, intervals and boxes by a factorisation of the prefix sums: errors grow with logarithms of the cells."""

import math
from typing import Any

import numpy as np
from scipy import optimize

from quorate.arrays import Floats
from quorate.errors import InvalidInput
from quorate.mechanisms.noisy_vector import NoisyVector
from quorate.privacy import Budget
from quorate.release.engines.grid import make_grid
from quorate.release.engines.released import (
    Engine,
    Private,
    Public,
    Released,
    check_private,
    expected_largest,
    histogram_scale,
    project_simplex,
    spent_since,
)
from quorate.release.engines.series import best_factor
from quorate.release.queries import BoxRanges, Prefixes, Queries, Ranges

__all__ = ["PrefixEngine"]

_MOST_ANSWERS = 5_000_000  # ranges that are written out; more are answered from the weights when asked for


class PrefixEngine(Engine):
    """Counts of cells on lines, each measured through a square-root factor (Henzinger, Upadhyay, Upadhyay 2023), with
    the total known and prefix sums made monotone.
    """

    name = "prefix"

    def _expected(self, queries: Queries, records: int, epsilon: float, delta: float, public: Public) -> float:
        if isinstance(queries, BoxRanges):
            grid = make_grid(queries.shape)
            scale = histogram_scale(epsilon, delta, grid.squared_sensitivity)
            return expected_largest(scale * math.sqrt(grid.largest_variance), queries.cells) / records
        if not isinstance(queries, Prefixes | Ranges):
            return math.inf
        factor = best_factor(queries.length, queries.lines)
        scale = histogram_scale(epsilon, delta, factor.squared_sensitivity)
        deviation = scale * math.sqrt(float(factor.variances.max()))
        largest = expected_largest(deviation, max(queries.cells // 8, 1))  # neighbours err alike
        return largest * (1.0 if isinstance(queries, Prefixes) else 2.0) / records

    def _run(self, queries: Queries, data: Any, public: Public, budget: Budget, noise: Any) -> Released:
        if not isinstance(queries, Prefixes | Ranges | BoxRanges):
            raise InvalidInput(
                f"the prefix engine answers Prefixes, Ranges and BoxRanges, not {type(queries).__name__}"
            )
        private = check_private(queries, data)
        if isinstance(queries, BoxRanges):
            return self._boxes(queries, private, budget, noise)
        factor = best_factor(queries.length, queries.lines)
        mechanism = NoisyVector.for_budget(budget, squared_sensitivities=(factor.squared_sensitivity,))
        before = budget.spent()
        [measured] = mechanism.draw_release([factor.measure(private.cells(queries))], budget, noise)
        sums = factor.prefixes(measured, float(private.records)) / private.records
        sums = _monotone(sums.reshape(queries.lines, queries.length))
        weights = np.diff(sums, prepend=0.0, axis=1).ravel()
        deviations = mechanism.scales[0] * np.sqrt(factor.variances) / private.records
        listed = queries.count <= _MOST_ANSWERS
        return Released(
            queries.answers(weights) if listed else None,
            _errors(queries, deviations) if listed else None,
            weights,
            None,
            spent_since(before, budget),
            self.name,
            () if listed else ("answers are read off the weights",),
            {"deviation": float(deviations.max()) * (1.0 if isinstance(queries, Prefixes) else math.sqrt(2.0))},
        )

    def _boxes(self, queries: BoxRanges, private: Private, budget: Budget, noise: Any) -> Released:
        grid = make_grid(queries.shape)
        mechanism = NoisyVector.for_budget(budget, squared_sensitivities=(grid.squared_sensitivity,))
        before = budget.spent()
        [measured] = mechanism.draw_release([grid.measure(private.cells(queries))], budget, noise)
        estimates = grid.estimate(measured, float(private.records)) / private.records
        weights = grid.nearest_weights(estimates)
        scale, listed = mechanism.scales[0] / private.records, queries.count <= _MOST_ANSWERS
        return Released(
            np.clip(queries.answers(weights), 0.0, 1.0) if listed else None,
            scale * grid.deviations() if listed else None,
            weights,
            None,
            spent_since(before, budget),
            self.name,
            () if listed else ("answers are read off the weights",),
            {"deviation": scale * math.sqrt(grid.largest_variance)},
        )


def _monotone(sums: Floats) -> Floats:
    """Return the nearest prefix sums of each line that do not fall, from 0 to the line's own total.

    Totals are not negative and add up to 1. On a single line the largest error does not grow by it.
    """
    totals = project_simplex(sums[:, -1])
    rising = np.stack([optimize.isotonic_regression(line).x for line in sums])
    bounded = np.clip(rising, 0.0, totals[:, np.newaxis])
    bounded[:, -1] = totals
    return np.asarray(bounded)


def _errors(queries: Prefixes | Ranges, deviations: Floats) -> Floats:
    """Return one standard deviation an answer; for a range a bound, as if the errors of its ends were independent."""
    if isinstance(queries, Prefixes):
        return np.tile(deviations, queries.lines)
    before = np.concatenate([[0.0], deviations])
    first, last = np.triu_indices(queries.length)
    return np.tile(np.sqrt(before[last + 1] ** 2 + before[first] ** 2), queries.lines)
