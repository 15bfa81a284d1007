"""BetweenThresholds: two noisy thresholds around the half, for two classes (Bun, Steinke and Ullman 2016)."""

from quorate.core.mechanisms.between_thresholds.mechanism import BetweenThresholds

__all__ = ["BetweenThresholds"]
