"""Classifiers that answer from private records, as scikit-learn estimators with a budget."""

from quorate.models.predictors.agnostic import AgnosticClassifier
from quorate.models.predictors.base import Predictions
from quorate.models.predictors.pure import PureClassifier
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
