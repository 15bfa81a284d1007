"""NoisyVector: vectors of whole numbers with discrete Gaussian noise."""

from quorate.mechanisms.noisy_vector.mechanism import NoisyVector

__all__ = ["NoisyVector"]
