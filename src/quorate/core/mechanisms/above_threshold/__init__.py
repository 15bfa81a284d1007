"""AboveThreshold: a proposed whole number stands until the private one is clearly far from it."""

from quorate.core.mechanisms.above_threshold.calibrate import best_precision
from quorate.core.mechanisms.above_threshold.mechanism import AboveThreshold, distance_ballots

__all__ = ["AboveThreshold", "best_precision", "distance_ballots"]
