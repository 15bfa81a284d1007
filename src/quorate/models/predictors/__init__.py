"""Classifiers that answer from private records, as scikit-learn estimators with a budget."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.models.predictors.agnostic import AgnosticClassifier
    from quorate.models.predictors.pure import PureClassifier
    from quorate.models.predictors.records import Predictions
    from quorate.models.predictors.stable import StableClassifier
    from quorate.models.predictors.student_first import StudentFirstClassifier
    from quorate.models.predictors.subsample import PrivateClassifier
    from quorate.models.predictors.universal import UniversalClassifier

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
    "AgnosticClassifier": "agnostic",
    "Predictions": "records",
    "PrivateClassifier": "subsample",
    "PureClassifier": "pure",
    "StableClassifier": "stable",
    "StudentFirstClassifier": "student_first",
    "UniversalClassifier": "universal",
}


def __getattr__(name: str) -> Any:
    """Import a classifier when it is first asked for: linear models and releases need none of them."""
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOMES:
        raise AttributeError(f"module 'quorate.models.predictors' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"quorate.models.predictors.{_HOMES[name]}"), name)
    return value
