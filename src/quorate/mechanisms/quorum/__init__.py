"""Quorum: the stability test with the best possible noise, for any number of classes."""

from quorate.mechanisms.quorum.mechanism import Quorum

__all__ = ["Quorum"]
