"""The sharpest answer between two classes that a price allows."""

from quorate.mechanisms.sharp_majority.mechanism import SharpMajority

__all__ = ["SharpMajority"]
