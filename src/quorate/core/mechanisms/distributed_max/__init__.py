"""DistributedMax: noise that the sites of a federation add in shares, and the largest noisy total."""

from quorate.core.mechanisms.distributed_max.mechanism import DistributedMax, NoisyTotals, share_distance

__all__ = ["DistributedMax", "NoisyTotals", "share_distance"]
