"""PrivateQuantile: one quantile of private values on a public grid."""

from quorate.core.mechanisms.quantile.mechanism import PrivateQuantile

__all__ = ["PrivateQuantile"]
