"""Thresholds, intervals and boxes by a factorisation of the prefix sums: errors grow with logarithms of the cells."""

import math
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.privacy import Cost
from quorate.release.engines.grid import Grid, make_grid
from quorate.release.engines.measuring import Measurement, MeasuringEngine, Planned
from quorate.release.engines.released import Public, Released, expected_largest, histogram_scale, project_simplex
from quorate.release.engines.series import Factor, best_factor
from quorate.release.queries import BoxRanges, Prefixes, Queries, Ranges

__all__ = ["PrefixEngine"]

_MOST_ANSWERS = 5_000_000  # ranges that are written out; more are answered from the weights when asked for


class PrefixEngine(MeasuringEngine):
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

    def measurement(
        self, queries: Queries, public: Public, noise: float, planned: Planned = None
    ) -> Measurement[Released]:
        """Return the cells of the lines, or of the grid, multiplied by the factor."""
        if isinstance(queries, BoxRanges):
            grid = make_grid(queries.shape)
            return Measurement(
                (grid.squared_sensitivity,),
                lambda private: [grid.measure(private.cells(queries))],
                partial(self._boxes, queries=queries, grid=grid),
                largest=grid.largest_coefficient,
            )
        if not isinstance(queries, Prefixes | Ranges):
            raise InvalidInput(
                f"the prefix engine answers Prefixes, Ranges and BoxRanges, not {type(queries).__name__}"
            )
        factor = best_factor(queries.length, queries.lines)
        return Measurement(
            (factor.squared_sensitivity,),
            lambda private: [factor.measure(private.cells(queries))],
            partial(self._lines, queries=queries, factor=factor),
            largest=int(factor.coefficients.max()),
        )

    def _lines(
        self, noisy: Any, scales: Any, records: int, spent: Cost, *, queries: Prefixes | Ranges, factor: Factor
    ) -> Released:
        sums = (factor.prefixes(noisy[0], float(records)) / records).reshape(queries.lines, queries.length)
        raw, weights = (np.diff(each, prepend=0.0, axis=1).ravel() for each in (sums, _monotone(sums)))
        deviations = scales[0] * np.sqrt(factor.variances) / records
        listed = queries.count <= _MOST_ANSWERS
        errors = _errors(queries, deviations) if listed else None
        return Released(
            queries.answers(weights) if listed else None,
            errors,
            weights,
            None,
            spent,
            self.name,
            () if listed else ("answers are read off the weights",),
            {"deviation": float(deviations.max()) * (1.0 if isinstance(queries, Prefixes) else math.sqrt(2.0))},
            unbiased=queries.answers(raw) if listed else None,
            deviations=errors,
        )

    def _boxes(self, noisy: Any, scales: Any, records: int, spent: Cost, *, queries: BoxRanges, grid: Grid) -> Released:
        raw = grid.estimate(noisy[0], float(records)) / records
        weights = grid.nearest_weights(raw)
        scale, listed = scales[0] / records, queries.count <= _MOST_ANSWERS
        errors = scale * grid.deviations() if listed else None
        return Released(
            np.clip(queries.answers(weights), 0.0, 1.0) if listed else None,
            errors,
            weights,
            None,
            spent,
            self.name,
            () if listed else ("answers are read off the weights",),
            {"deviation": scale * math.sqrt(grid.largest_variance)},
            unbiased=queries.answers(raw) if listed else None,
            deviations=errors,
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
