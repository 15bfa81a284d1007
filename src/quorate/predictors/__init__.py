"""Classifiers that answer from private records: scikit-learn manners, a budget inside."""

from quorate.predictors.agnostic import AgnosticClassifier
from quorate.predictors.base import Predictions
from quorate.predictors.pure import PureClassifier
from quorate.predictors.stable import StableClassifier
from quorate.predictors.student_first import StudentFirstClassifier, StudentFirstPredictions
from quorate.predictors.subsample import PrivateClassifier
from quorate.predictors.universal import UniversalClassifier

__all__ = [
    "AgnosticClassifier",
    "Predictions",
    "PrivateClassifier",
    "PureClassifier",
    "StableClassifier",
    "StudentFirstClassifier",
    "StudentFirstPredictions",
    "UniversalClassifier",
]
