"""SparseHistogram: noisy counts of unlisted keys, published where they pass a threshold."""

from quorate.core.mechanisms.sparse_histogram.mechanism import SparseHistogram

__all__ = ["SparseHistogram"]
