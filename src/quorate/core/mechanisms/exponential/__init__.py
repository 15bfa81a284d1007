"""ExponentialChoice: a private choice of a hypothesis among many by their mistakes."""

from quorate.core.mechanisms.exponential.mechanism import ExponentialChoice

__all__ = ["ExponentialChoice"]
