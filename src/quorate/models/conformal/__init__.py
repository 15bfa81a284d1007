"""Conformal prediction sets and intervals around a published model, from private held-out rows. Proof: PROOF.md."""

from quorate.models.conformal._estimators import ConformalClassifier, ConformalRegressor

__all__ = ["ConformalClassifier", "ConformalRegressor"]
