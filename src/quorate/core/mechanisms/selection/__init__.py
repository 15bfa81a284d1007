"""The best of several private trials: after a secret random number of them, or after one for each candidate."""

from quorate.core.mechanisms.selection.every import EveryCandidate
from quorate.core.mechanisms.selection.mechanism import RandomStopping
from quorate.core.mechanisms.selection.trials import ApproximateTrial, GaussianTrial, Trial

__all__ = ["ApproximateTrial", "EveryCandidate", "GaussianTrial", "RandomStopping", "Trial"]
