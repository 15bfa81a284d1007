"""StabilityTest: the distance to instability behind a sparse vector (Bassily, Thakkar and Thakurta 2018), corrected."""

from quorate.core.mechanisms.stability.mechanism import StabilityTest

__all__ = ["StabilityTest"]
