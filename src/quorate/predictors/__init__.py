"""Classifiers that answer from private records: scikit-learn manners, a budget inside."""

from importlib import import_module
from typing import TYPE_CHECKING

from quorate.predictors.agnostic import AgnosticClassifier
from quorate.predictors.predictions import Predictions
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

if not TYPE_CHECKING:

    def __getattr__(name):  # the old place of what `quorate.models` does for all kinds, for one release
        if name not in ("load", "save"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("quorate.models"), name)
