"""NoisySum: a whole-number sum with discrete Gaussian noise."""

from quorate.core.mechanisms.noisy_sum.mechanism import NoisySum

__all__ = ["NoisySum"]
