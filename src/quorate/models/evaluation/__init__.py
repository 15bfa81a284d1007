"""What held-out private rows say of a published model: prediction sets that cover, and a test of the model."""

from quorate.models.conformal.regressor import ConformalRegressor
from quorate.models.evaluation.check import check_model
from quorate.models.evaluation.classifier import ConformalClassifier
from quorate.models.evaluation.measures import ModelCheck

__all__ = ["ConformalClassifier", "ConformalRegressor", "ModelCheck", "check_model"]
