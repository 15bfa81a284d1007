"""Classifiers that answer from private records, as scikit-learn estimators with a budget."""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = [
    "AgnosticClassifier",
    "Predictions",
    "PrivateClassifier",
    "PureClassifier",
    "StableClassifier",
    "StudentFirst",
    "StudentFirstClassifier",
    "UniversalClassifier",
]

if TYPE_CHECKING:
    from quorate.models.predictors._agnostic import AgnosticClassifier
    from quorate.models.predictors._pure import PureClassifier
    from quorate.models.predictors._stable import StableClassifier
    from quorate.models.predictors._student_first import StudentFirst, StudentFirstClassifier
    from quorate.models.predictors._subsample import PrivateClassifier
    from quorate.models.predictors._universal import UniversalClassifier
    from quorate.models.predictors.records import Predictions
else:
    __getattr__ = import_on_use(__name__, __file__)  # linear models and releases need none of them
