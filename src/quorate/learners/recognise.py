"""Which scikit-learn estimators have a batched equivalent, and which teachers were saved as plain arrays."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from quorate.errors import InvalidInput
from quorate.learners.centroid import BatchedCentroid
from quorate.learners.linear import LinearTeachers
from quorate.learners.logistic import BatchedLogistic
from quorate.learners.naive_bayes import BatchedNaiveBayes
from quorate.learners.ridge import BatchedRidge
from quorate.learners.stump import BatchedStump
from quorate.learners.stump_teachers import StumpTeachers
from quorate.learners.teachers import Learner, Teachers

__all__ = ["batched_equivalent", "teachers_from_arrays"]

# Settings that change how scikit-learn gets to the answer, and not which answer it seeks.
_HOW = {"copy_X", "dual", "max_iter", "n_jobs", "random_state", "tol", "verbose", "warm_start"}


def batched_equivalent(estimator: Any) -> Learner | None:
    """Return the batched learner that fits what this scikit-learn estimator would fit on each chunk, or None.

    Recognised are `LogisticRegression` with an L2 penalty and a solver of that objective, `RidgeClassifier`,
    `NearestCentroid`, `GaussianNB` and `DecisionTreeClassifier(max_depth=1)`, as long as every other setting has its
    default. A subclass is not recognised: it may do something else.

    >>> batched_equivalent(object()) is None
    True
    >>> from sklearn.linear_model import LogisticRegression
    >>> batched_equivalent(LogisticRegression(C=0.5))
    BatchedLogistic(C=0.5, fit_intercept=True)
    >>> batched_equivalent(LogisticRegression(class_weight="balanced")) is None
    True
    """
    if type(estimator).__module__.partition(".")[0] != "sklearn":
        return None
    translate = _translators().get(type(estimator))
    if translate is None:
        return None
    settings, defaults = estimator.get_params(deep=False), type(estimator)().get_params(deep=False)
    changed = {name: value for name, value in settings.items() if name not in _HOW and not _same(value, defaults[name])}
    return translate(settings, changed)


_Translator = Callable[[dict[str, Any], dict[str, Any]], Learner | None]


def _translators() -> dict[type, _Translator]:
    from sklearn.linear_model import LogisticRegression, RidgeClassifier  # noqa: PLC0415
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415
    from sklearn.neighbors import NearestCentroid  # noqa: PLC0415
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

    return {
        LogisticRegression: _logistic,
        RidgeClassifier: _ridge,
        NearestCentroid: lambda settings, changed: None if changed else BatchedCentroid(),
        GaussianNB: _naive_bayes,
        DecisionTreeClassifier: lambda settings, changed: BatchedStump() if changed == {"max_depth": 1} else None,
    }


def _logistic(settings: dict[str, Any], changed: dict[str, Any]) -> Learner | None:
    known = set(changed) <= {"C", "fit_intercept", "solver", "penalty", "l1_ratio", "intercept_scaling"}
    squares = changed.get("penalty", "l2") == "l2" and changed.get("l1_ratio", 0) in (0, None)
    solves = settings["solver"] in ("lbfgs", "newton-cg", "newton-cholesky")
    if not (known and squares and solves and not settings["dual"] and _positive(settings["C"])):
        return None
    return BatchedLogistic(C=float(settings["C"]), fit_intercept=bool(settings["fit_intercept"]))


def _ridge(settings: dict[str, Any], changed: dict[str, Any]) -> Learner | None:
    if not set(changed) <= {"alpha", "fit_intercept"} or not _positive(settings["alpha"]):
        return None
    return BatchedRidge(alpha=float(settings["alpha"]), fit_intercept=bool(settings["fit_intercept"]))


def _naive_bayes(settings: dict[str, Any], changed: dict[str, Any]) -> Learner | None:
    if not set(changed) <= {"var_smoothing"} or not _positive(settings["var_smoothing"]):
        return None
    return BatchedNaiveBayes(var_smoothing=float(settings["var_smoothing"]))


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | float | str) and value == default)


def teachers_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Teachers:
    """Return the teachers whose `arrays()` these are, whatever their kind."""
    kind = str(arrays["kind"]) if "kind" in arrays else None
    if kind == "linear":
        return LinearTeachers.from_arrays(arrays)
    if kind == "stump":
        return StumpTeachers.from_arrays(arrays)
    raise InvalidInput(f"arrays must be of the kind 'linear' or 'stump', not {kind!r}")
