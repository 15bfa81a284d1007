"""The mechanisms: one module each, with its claim, its cost and its release, and a proof beside it."""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use
from quorate.core.requests import NO_QUORUM

__all__ = [
    "NO_QUORUM",
    "AboveThreshold",
    "Answers",
    "BetweenThresholds",
    "ConfidentMax",
    "Dissent",
    "DistributedMax",
    "EveryCandidate",
    "ExponentialChoice",
    "LaplaceSums",
    "NoisyCutoff",
    "NoisyMax",
    "NoisyShares",
    "NoisySum",
    "NoisyVector",
    "NoisyVectors",
    "PrivateQuantile",
    "Quorum",
    "RandomStopping",
    "Relabel",
    "SharpMajority",
    "SoftMajority",
    "SparseHistogram",
    "SparseSums",
    "StabilityTest",
]

if TYPE_CHECKING:
    from quorate.core.mechanisms.above_threshold import AboveThreshold
    from quorate.core.mechanisms.base import Answers
    from quorate.core.mechanisms.between_thresholds import BetweenThresholds
    from quorate.core.mechanisms.confident_max import ConfidentMax
    from quorate.core.mechanisms.cutoff import NoisyCutoff
    from quorate.core.mechanisms.dissent import Dissent
    from quorate.core.mechanisms.distributed_max import DistributedMax
    from quorate.core.mechanisms.exponential import ExponentialChoice
    from quorate.core.mechanisms.laplace_sums import LaplaceSums
    from quorate.core.mechanisms.noisy_max import NoisyMax
    from quorate.core.mechanisms.noisy_shares import NoisyShares
    from quorate.core.mechanisms.noisy_sum import NoisySum
    from quorate.core.mechanisms.noisy_vector import NoisyVector, NoisyVectors
    from quorate.core.mechanisms.quantile import PrivateQuantile
    from quorate.core.mechanisms.quorum import Quorum
    from quorate.core.mechanisms.relabel import Relabel
    from quorate.core.mechanisms.selection import EveryCandidate, RandomStopping
    from quorate.core.mechanisms.sharp_majority import SharpMajority
    from quorate.core.mechanisms.soft_majority import SoftMajority
    from quorate.core.mechanisms.sparse_histogram import SparseHistogram
    from quorate.core.mechanisms.sparse_sums import SparseSums
    from quorate.core.mechanisms.stability import StabilityTest
else:
    __getattr__ = import_on_use(__name__, __file__)
