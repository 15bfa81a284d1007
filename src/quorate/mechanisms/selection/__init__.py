"""The best of several private trials: after a secret random number of them, or after one for each candidate."""

from quorate.mechanisms.selection.every import EveryCandidate
from quorate.mechanisms.selection.mechanism import RandomStopping
from quorate.mechanisms.selection.trials import ApproximateTrial, GaussianTrial, Trial

__all__ = ["ApproximateTrial", "EveryCandidate", "GaussianTrial", "RandomStopping", "Trial"]
