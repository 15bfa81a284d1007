"""Dissent: a published student answers, and the ensemble speaks up where it clearly disagrees."""

from quorate.core.mechanisms.dissent.calibrate import RATE
from quorate.core.mechanisms.dissent.mechanism import Dissent, proposed_first
from quorate.core.mechanisms.dissent.pair import calibrate_with_quorum

__all__ = ["RATE", "Dissent", "calibrate_with_quorum", "proposed_first"]
