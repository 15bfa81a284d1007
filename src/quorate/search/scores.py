"""The private score of a fitted candidate on held-out rows: one release of (epsilon, delta) by Gaussian noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_regressor

from quorate.checks import check_positive
from quorate.ensemble import Ballots
from quorate.errors import InvalidInput
from quorate.features.blocks import as_numbers
from quorate.held_out import check_model
from quorate.held_out.rows import values_by_row
from quorate.mechanisms import NoisyVector
from quorate.predictors.base import check_choice, check_records
from quorate.session import release_counts

__all__ = ["Scoring", "scoring_of"]

_LABELS = ("accuracy", "balanced_accuracy", "roc_auc")
_VALUES = ("neg_mean_squared_error",)
_GRID = 2**10  # steps of a row's squared error, in units of the largest


@dataclass(frozen=True)
class Scoring:
    """What a score is, by the name that scikit-learn has for it: larger is better."""

    name: str
    largest_error: float | None = None

    def score(self, model: Any, X: Any, y: Any, *, epsilon: float, delta: float) -> float:
        """Return the score of a published model on private rows, each of another unit: (epsilon, delta)-DP."""
        if self.largest_error is not None:
            return self._squared_error(model, X, y, epsilon, delta)
        told = check_model(model, X, y, epsilon=epsilon, delta=delta)  # held_out/PROOF.md, step 7
        if self.name == "accuracy":
            return 1 - told.measure("error").estimate
        return told.measure("auc" if self.name == "roc_auc" else "balanced accuracy").estimate

    def _squared_error(self, model: Any, X: Any, y: Any, epsilon: float, delta: float) -> float:
        largest = self.largest_error
        assert largest is not None
        rows = check_records(BaseEstimator(), X, estimator=model, reset=True, frames=True)
        errors = np.abs(np.nan_to_num(as_numbers(y).ravel()) - values_by_row(model, rows)) / largest
        steps = np.rint(np.fmin(errors, 1.0) ** 2 * _GRID).astype(np.int64)  # what is no number counts as the largest
        noisy = NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(_GRID**2,), rounded=True)
        [total] = release_counts(Ballots(steps.sum(keepdims=True)), lambda counts: noisy.release([counts]))
        return -float(total[0]) / _GRID / len(steps) * largest**2


def scoring_of(name: str | None, estimator: Any, largest_error: float | None) -> Scoring:
    """Return the scoring of this name, or the usual one for such an estimator."""
    if is_regressor(estimator):
        check_choice("scoring", name or _VALUES[0], _VALUES)
        if largest_error is None:
            raise InvalidInput("largest_error must be a public number that errors hardly exceed: there is no default")
        return Scoring(_VALUES[0], check_positive("largest_error", largest_error))
    check_choice("scoring", name or _LABELS[0], _LABELS)
    if largest_error is not None:
        raise InvalidInput("largest_error is for regressions, whose scores are errors")
    return Scoring(name or _LABELS[0])
