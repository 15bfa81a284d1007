"""What held-out private rows say of a published model: prediction sets that cover, and a test of the model."""

from quorate.held_out.check import check_model
from quorate.held_out.classifier import ConformalClassifier
from quorate.held_out.measures import ModelCheck
from quorate.held_out.regressor import ConformalRegressor

__all__ = ["ConformalClassifier", "ConformalRegressor", "ModelCheck", "check_model"]
