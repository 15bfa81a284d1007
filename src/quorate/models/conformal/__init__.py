"""Prediction sets and intervals around a published model. PROOF.md has the proof."""

from quorate.models.conformal._estimators import ConformalClassifier, ConformalRegressor

__all__ = ["ConformalClassifier", "ConformalRegressor"]
