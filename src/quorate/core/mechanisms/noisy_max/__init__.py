"""NoisyMax: noise on every count, the largest wins, and only the winner's name is paid for."""

from quorate.core.mechanisms.noisy_max.mechanism import NoisyMax

__all__ = ["NoisyMax"]
