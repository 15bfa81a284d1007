"""The checks of scikit-learn that our estimators fail, and why: one table, for tests, readers and callers.

`sklearn.utils.estimator_checks.check_estimator` fits an estimator on tables of its own and asks whether it behaves as
scikit-learn's do. All other checks pass. docs/reference/scikit-learn.md shows the table, and how each estimator is
checked.
"""

from typing import Any

COPY = "a fitted model that answers from a budget cannot be copied or pickled: the copy would spend it a second time"
NOISE = "it compares two fits on the same rows, and each draws its own noise and deals the records anew, without a seed"
VALUE = "it expects an error where a private value is no finite number, and the error would tell of that value"
WEIGHT = "a weight would change how much one record can move what is released: weights are refused, with this reason"
UNKNOWN_COLUMNS = "it gives a data frame to a model that does not show in which columns it takes texts: schema= says it"
NO_ANSWER = "it takes every answer for a label, and where the teachers do not agree the answer is None"

_BUDGET = {"check_estimators_pickle": COPY}
_TWO_FITS = dict.fromkeys(
    ("check_classifier_data_not_an_array", "check_fit_idempotent", "check_supervised_y_2d"),
    NOISE,
)
_LINEAR = _TWO_FITS | dict.fromkeys(
    (
        "check_all_zero_sample_weights_error",
        "check_classifiers_one_label_sample_weights",
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
        "check_sample_weights_list",
        "check_sample_weights_not_an_array",
        "check_sample_weights_not_overwritten",
        "check_sample_weights_pandas_series",
        "check_sample_weights_shape",
    ),
    WEIGHT,
)
_TARGETS = {
    "check_regressor_data_not_an_array": NOISE,
    "check_regressors_int": NOISE,
    "check_supervised_y_no_nan": VALUE,
}
_REGRESSION = _LINEAR | _TARGETS
_PRIVATE_VALUES = dict.fromkeys(("check_dtype_object", "check_estimators_nan_inf"), VALUE)
_FAILED: dict[str, dict[str, str]] = {
    "PrivateClassifier": _BUDGET | _PRIVATE_VALUES,
    "StudentFirstClassifier": _BUDGET | _PRIVATE_VALUES | _TWO_FITS,
    "AgnosticClassifier": _BUDGET | _PRIVATE_VALUES | _TWO_FITS,
    "UniversalClassifier": _BUDGET | _PRIVATE_VALUES | _TWO_FITS,
    "StableClassifier": _BUDGET | _PRIVATE_VALUES | _TWO_FITS,
    "PureClassifier": _BUDGET | _PRIVATE_VALUES,
    "EverlastingClassifier": _BUDGET
    | _PRIVATE_VALUES
    | dict.fromkeys((*_TWO_FITS, "check_classifiers_train"), NO_ANSWER),
    "NeighbourClassifier": _BUDGET | _PRIVATE_VALUES | _TWO_FITS,
    "NeighbourRegressor": _BUDGET | _PRIVATE_VALUES | _TWO_FITS | _TARGETS,
    "SemiPrivateClassifier": _TWO_FITS,
    "PrivateLogisticRegression": _LINEAR,
    "PrivateLinearRegression": _REGRESSION,
    "PrivatePoissonRegression": _REGRESSION,
    "PrivateSearchCV": _TWO_FITS,
    "ConformalClassifier": _PRIVATE_VALUES
    | {"check_classifier_data_not_an_array": UNKNOWN_COLUMNS}
    | dict.fromkeys(("check_complex_data", "check_classifiers_regression_target", "check_supervised_y_no_nan"), VALUE),
    "ConformalRegressor": _PRIVATE_VALUES
    | {"check_regressor_data_not_an_array": UNKNOWN_COLUMNS}
    | dict.fromkeys(("check_complex_data", "check_supervised_y_no_nan"), VALUE),
}


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """Return the checks that an estimator of ours fails, each with the reason, as scikit-learn takes them.

    `check_estimator(model, expected_failed_checks=expected_failed_checks(model))` then fails for no other check.

    >>> from quorate import PrivateClassifier, StudentClassifier
    >>> expected_failed_checks(PrivateClassifier())
    {'check_estimators_pickle': 'a fitted model that answers from a budget cannot be copied or pickled: ...', ...}
    >>> expected_failed_checks(StudentClassifier())
    {}
    """
    names = (kind.__name__ for kind in type(estimator).__mro__)
    return dict(next((_FAILED[name] for name in names if name in _FAILED), {}))
