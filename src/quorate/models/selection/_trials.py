"""The trials of a search: what each may cost, from public numbers, and the private score of a fitted candidate.

A score is one release of (epsilon, delta) by Gaussian noise on held-out rows. A row is a unit here, and adds to a sum
or to a table. Each scoring releases the fewest numbers that it can be made of: others would be noise in this one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, is_regressor

from quorate.core.arrays import Floats, Integers
from quorate.core.ballots import Ballots, release_counts
from quorate.core.checks import check_choice, check_count, check_positive
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import EveryCandidate, NoisyVector, RandomStopping
from quorate.core.mechanisms.selection import ApproximateTrial, GaussianTrial, Trial
from quorate.models.evaluation.measures import area_interval
from quorate.models.evaluation.rows import (
    classes_of,
    count_cells,
    labels_by_row,
    private_rows,
    probabilities_by_row,
    values_by_row,
)
from quorate.models.predictors.labels import class_codes, target_numbers
from quorate.planner import Plan

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
            [released] = release_counts(Ballots(counts.ravel()), lambda sealed: noisy.release([sealed]))
            return np.asarray(released.reshape(counts.shape))

        if self.largest_error is not None:
            errors = np.abs(np.nan_to_num(target_numbers(y)) - values_by_row(model, rows)) / self.largest_error
            return -_mean_square(errors, release) * self.largest_error**2
        labels = class_codes(classes_of(model), y)
        if self.name in ("accuracy", "balanced_accuracy"):
            right = (labels_by_row(model, rows) == labels).astype(np.int64)
            if self.name == "accuracy":
                return float(release(right.sum(keepdims=True), 1)[0] / len(right))
            return _mean_recall(count_cells((len(classes_of(model)), 2), labels, right), release)
        probabilities = probabilities_by_row(model, rows)
        if self.name == "roc_auc":
            bins = np.searchsorted(_EDGES, probabilities[:, -1], side="right")
            return _area(count_cells((2, len(_EDGES) + 1), labels, bins), release)
        distances = probabilities - np.eye(probabilities.shape[1])[labels]
        errors = np.sqrt((distances**2).sum(axis=1) / 2)
        return -_mean_square(np.where(labels < 0, 1.0, errors), release)


def _mean_square(errors: Floats, release: Release) -> float:
    """Return the mean of squares, of which none is above 1; what is no number counts as 1."""
    steps = np.rint(np.fmin(errors, 1.0) ** 2 * _GRID).astype(np.int64)
    return float(release(steps.sum(keepdims=True), _GRID**2)[0] / _GRID / len(steps))


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
            raise InvalidInput("largest_error must be a public upper bound for most errors, got None")
        return Scoring(_VALUES[0], check_positive("largest_error", largest_error))
    check_choice("scoring", name or _LABELS[0], _LABELS)
    if largest_error is not None:
        raise InvalidInput("largest_error is for regressions, whose scores are errors")
    return Scoring(name or _LABELS[0])


Method = Literal["auto", "random stopping", "composition"]


@lru_cache(maxsize=64, typed=True)  # True is no epsilon of 1
def choose_selection(
    method: Method, *, candidates: int, epsilon: float, delta: float, gaussian: bool, tried: float
) -> RandomStopping | EveryCandidate:
    """Return the way of choosing that leaves more to each trial, or the one that is asked for."""
    check_choice("method", method, get_args(Method))
    trial: type[Trial] = GaussianTrial if gaussian else ApproximateTrial
    budget: dict[str, Any] = {"epsilon": check_positive("epsilon", epsilon), "delta": delta, "trial": trial}
    candidates = check_count("candidates", candidates)
    possible: list[RandomStopping | EveryCandidate] = []
    if method != "random stopping":
        possible.append(EveryCandidate.calibrate(candidates=candidates, **budget))
    if method != "composition" and (candidates > 1 or method != "auto"):
        possible.append(RandomStopping.calibrate(candidates=candidates, tried=tried, **budget))
    return max(possible, key=lambda selection: selection.trial.epsilon)


def plan_search(
    *,
    candidates: int,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    gaussian: bool = True,
    tried: float = 0.9,
    method: Method = "auto",
) -> Plan:
    """Plan a private search: what each trial gets, and what composition would cost. Nothing private is read.

    `gaussian` says that all candidates are linear models, whose noise is Gaussian; of others nothing is assumed but
    their epsilon and delta. The other parameters are those of `PrivateSearchCV`.

    >>> few, many = (plan_search(candidates=number) for number in (2, 20))
    >>> few.method, round(few.trial_epsilon, 2), many.method, round(many.trial_epsilon, 2)
    ('composition', 0.69, 'random stopping', 0.45)
    >>> round(many.naive_epsilon, 1)  # of twenty such trials
    2.3
    >>> print(many.summary())
    Candidates are drawn from 20 and tried, 82 times on average, with epsilon = 0.451 for each trial. All trials
    together keep epsilon = 1, delta = 1e-06. A candidate is tried with probability 90.0%; one such trial of each
    would cost epsilon = 2.27 by composition.
    """
    chosen = choose_selection(
        method, candidates=candidates, epsilon=epsilon, delta=delta, gaussian=gaussian, tried=tried
    )
    return plan_of(chosen, epsilon=epsilon, delta=delta)


def plan_of(chosen: RandomStopping | EveryCandidate, *, epsilon: float, delta: float) -> Plan:
    """Return the plan of a way of choosing.

    `trial_epsilon` and `trial_delta` are what one fit, and one score, get. `naive_epsilon` is what one such trial of
    each candidate would cost by composition. `tried` is the probability with which a given candidate is tried.
    """
    trial, candidates = chosen.trial, chosen.candidates
    method = "random stopping" if isinstance(chosen, RandomStopping) else "composition"
    naive = trial.composed(candidates, delta=max(delta, 1.01 * candidates * trial.slack))
    guarantee = f"All trials together keep epsilon = {epsilon:g}, delta = {delta:g}."
    if method == "composition":
        subject = "The one candidate" if candidates == 1 else f"Each of {candidates:,} candidates"
        text = f"{subject} is tried once, with epsilon = {trial.epsilon:.3g}. {guarantee}"
    else:
        text = (
            f"Candidates are drawn from {candidates:,} and tried, {chosen.mean_trials:,.0f} times on average, with "
            f"epsilon = {trial.epsilon:.3g} for each trial. {guarantee} A candidate is tried with probability "
            f"{chosen.tried:.1%}; one such trial of each would cost epsilon = {naive:.3g} by composition."
        )
    settings = {"method": method, "epsilon": float(epsilon), "delta": float(delta), "tried": chosen.tried}
    figures = {
        "candidates": candidates,
        "trial_epsilon": trial.epsilon,
        "trial_delta": trial.delta,
        "naive_epsilon": naive,
        "mean_trials": chosen.mean_trials,
        "most_trials": chosen.most_trials,
    }
    return Plan(
        family="search",
        feasible=True,
        keywords=settings,
        figures=settings | figures,
        text=text,
        shown=("method", "candidates", "trial_epsilon", "epsilon", "delta"),
        bar=("candidates expected to be tried", chosen.tried),
    )
