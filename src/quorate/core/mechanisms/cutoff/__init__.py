"""NoisyCutoff: ending a phase by its number of no-quorums without telling what one query was answered."""

from quorate.core.mechanisms.cutoff.mechanism import CutoffRun, NoisyCutoff

__all__ = ["CutoffRun", "NoisyCutoff"]
