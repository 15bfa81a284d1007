"""A private test of a published model on held-out rows. PROOF.md has the proof."""

from quorate.models.evaluation._check import check_model
from quorate.models.evaluation.measures import ModelCheck

__all__ = ["ModelCheck", "check_model"]
