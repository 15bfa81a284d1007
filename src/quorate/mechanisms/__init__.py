"""The mechanisms: one folder each, with its claim, its cost, its release and its proof."""

from quorate.exchange import NO_QUORUM
from quorate.mechanisms.above_threshold import AboveThreshold
from quorate.mechanisms.base import Answers
from quorate.mechanisms.between_thresholds import BetweenThresholds
from quorate.mechanisms.confident_max import ConfidentMax
from quorate.mechanisms.cutoff import NoisyCutoff
from quorate.mechanisms.dissent import Dissent
from quorate.mechanisms.distributed_max import DistributedMax
from quorate.mechanisms.exponential import ExponentialChoice
from quorate.mechanisms.noisy_max import NoisyMax
from quorate.mechanisms.noisy_shares import NoisyShares
from quorate.mechanisms.noisy_sum import NoisySum
from quorate.mechanisms.noisy_vector import NoisyVector, NoisyVectors
from quorate.mechanisms.quantile import PrivateQuantile
from quorate.mechanisms.quorum import Quorum
from quorate.mechanisms.relabel import Relabel, Relabelled
from quorate.mechanisms.selection import EveryCandidate, RandomStopping
from quorate.mechanisms.sharp_majority import SharpMajority
from quorate.mechanisms.soft_majority import SoftMajority
from quorate.mechanisms.sparse_histogram import SparseHistogram
from quorate.mechanisms.stability import StabilityTest

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
    "Relabelled",
    "SharpMajority",
    "SoftMajority",
    "SparseHistogram",
    "StabilityTest",
]
