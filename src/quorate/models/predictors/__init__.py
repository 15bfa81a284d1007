"""Classifiers that answer from private records, as scikit-learn estimators with a budget."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.models.predictors._agnostic import AgnosticClassifier
    from quorate.models.predictors._pure import PureClassifier
    from quorate.models.predictors._stable import StableClassifier
    from quorate.models.predictors._student_first import StudentFirstClassifier
    from quorate.models.predictors._subsample import PrivateClassifier
    from quorate.models.predictors._universal import UniversalClassifier
    from quorate.models.predictors.records import Predictions

__all__ = [
    "AgnosticClassifier",
    "Predictions",
    "PrivateClassifier",
    "PureClassifier",
    "StableClassifier",
    "StudentFirstClassifier",
    "UniversalClassifier",
]

_HOMES = {
    "AgnosticClassifier": "_agnostic",
    "Predictions": "records",
    "PrivateClassifier": "_subsample",
    "PureClassifier": "_pure",
    "StableClassifier": "_stable",
    "StudentFirstClassifier": "_student_first",
    "UniversalClassifier": "_universal",
}


def __getattr__(name: str) -> Any:
    """Import a classifier when it is first asked for: linear models and releases need none of them."""
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOMES:
        raise AttributeError(f"module 'quorate.models.predictors' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"quorate.models.predictors.{_HOMES[name]}"), name)
    return value
