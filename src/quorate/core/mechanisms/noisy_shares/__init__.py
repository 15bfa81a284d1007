"""NoisyShares: the noisy share of votes for each class."""

from quorate.core.mechanisms.noisy_shares.mechanism import NoisyShares

__all__ = ["NoisyShares"]
