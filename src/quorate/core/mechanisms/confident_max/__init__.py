"""ConfidentMax: a noisy test of the largest count, then a noisy maximum where it passed."""

from quorate.core.mechanisms.confident_max.mechanism import ConfidentMax

__all__ = ["ConfidentMax"]
