"""The private score of a fitted candidate on held-out rows: one release of (epsilon, delta) by Gaussian noise.

A row is a unit here, and adds to a sum or to a table. Each scoring releases the fewest numbers that it can be made of:
what is spent on other figures would be noise in this one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, is_regressor

from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import Ballots, release_counts
from quorate.core.checks import check_choice, check_positive
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyVector
from quorate.models.evaluation.intervals import area_interval
from quorate.models.evaluation.rows import classes_of, labels_by_row, private_rows, probabilities_by_row, values_by_row
from quorate.models.predictors.labels import class_codes, target_numbers

_LABELS = ("accuracy", "balanced_accuracy", "neg_brier_score", "roc_auc")
_VALUES = ("neg_mean_squared_error",)
_GRID = 2**10  # steps of a row's squared error, in units of the largest
_EDGES = expit(np.linspace(-4.0, 4.0, 9))  # of ten bins of probabilities: more would add noise

Release = Callable[[Integers, int], Integers]


@dataclass(frozen=True)
class Scoring:
    """What a score is, by the name that scikit-learn has for it: larger is better."""

    name: str
    largest_error: float | None = None

    def noisy(self, squared_sensitivity: int, *, epsilon: float, delta: float) -> NoisyVector:
        """Return what puts noise on a score, never less than a rounded Gaussian's: proof: step 2."""
        squares = (squared_sensitivity,)
        return NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=squares, rounded=True)

    def score(self, model: Any, X: Any, y: Any, *, epsilon: float, delta: float) -> float:
        """Return the score of a published model on private rows, each of another unit: (epsilon, delta)-DP."""
        rows = private_rows(BaseEstimator(), model, X)  # proof: step 3: no value is refused

        def release(counts: Integers, squared_sensitivity: int) -> Integers:
            noisy = self.noisy(squared_sensitivity, epsilon=epsilon, delta=delta)
            [told] = release_counts(Ballots(counts.ravel()), lambda whole: noisy.release([whole]))
            return np.asarray(told.reshape(counts.shape))

        if self.largest_error is not None:
            errors = np.abs(np.nan_to_num(target_numbers(y)) - values_by_row(model, rows)) / self.largest_error
            return -_mean_square(errors, release) * self.largest_error**2
        labels = class_codes(classes_of(model), y)
        if self.name in ("accuracy", "balanced_accuracy"):
            right = (labels_by_row(model, rows) == labels).astype(np.int64)
            if self.name == "accuracy":
                return float(release(right.sum(keepdims=True), 1)[0] / len(right))
            return _mean_recall(_table(labels, right, (len(classes_of(model)), 2)), release)
        given = probabilities_by_row(model, rows)
        if self.name == "roc_auc":
            return _area(_table(labels, np.searchsorted(_EDGES, given[:, -1], side="right"), (2, 10)), release)
        away = given - np.eye(given.shape[1])[labels]
        errors = np.sqrt((away**2).sum(axis=1) / 2)
        return -_mean_square(np.where(labels < 0, 1.0, errors), release)


def _mean_square(errors: Floats, release: Release) -> float:
    """Return the mean of squares, of which none is above 1; what is no number counts as 1."""
    steps = np.rint(np.fmin(errors, 1.0) ** 2 * _GRID).astype(np.int64)
    return float(release(steps.sum(keepdims=True), _GRID**2)[0] / _GRID / len(steps))


def _table(labels: Integers, places: Integers, shape: tuple[int, int]) -> Integers:
    counts, labelled = np.zeros(shape, dtype=np.int64), labels >= 0  # a row without a label is in no cell
    np.add.at(counts, (labels[labelled], places[labelled]), 1)  # a row that is replaced moves two cells by 1, or none
    return counts


def _mean_recall(table: Integers, release: Release) -> float:
    wrong, right = np.maximum(release(table, 2), 0.5).T
    return float(np.mean(right / (right + wrong)))


def _area(table: Integers, release: Release) -> float:
    """Return the area under the curve of counts with noise; the interval around it is of no use here."""
    negative, positive = release(table, 2).astype(np.float64)
    return area_interval(positive, negative, scale=1.0, fewest=1.0, miss=0.5).estimate


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
