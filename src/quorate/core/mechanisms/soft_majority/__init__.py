"""SoftMajority: a pure differentially private choice among the labels."""

from quorate.core.mechanisms.soft_majority.mechanism import SoftMajority

__all__ = ["SoftMajority"]
