"""NoisyVector: vectors of whole numbers with discrete Gaussian noise, all at once or one after another."""

from quorate.core.mechanisms.noisy_vector.adaptive import NoisyVectors
from quorate.core.mechanisms.noisy_vector.mechanism import NoisyVector, largest_whole_epsilon

__all__ = ["NoisyVector", "NoisyVectors", "largest_whole_epsilon"]
