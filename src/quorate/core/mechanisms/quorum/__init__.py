"""Quorum: a stability test whose table is the smallest for its price, for any number of classes."""

from quorate.core.mechanisms.quorum.mechanism import Quorum

__all__ = ["Quorum"]
