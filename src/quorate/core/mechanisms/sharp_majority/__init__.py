"""The sharpest answer between two classes that a price per query allows at one Renyi order."""

from quorate.core.mechanisms.sharp_majority.mechanism import SharpMajority

__all__ = ["SharpMajority"]
