"""PrivateQuantile: one quantile of private values on a public grid."""

from quorate.mechanisms.quantile.mechanism import PrivateQuantile

__all__ = ["PrivateQuantile"]
