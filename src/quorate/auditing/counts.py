"""The calibration target of the auditor: a count with discrete Laplace noise, whose claim is tight for every epsilon.

If its ratio is below 1, the auditor is at fault, not the claim. It is not a mechanism of the product.
"""

from dataclasses import dataclass, replace

import numpy as np

from quorate.auditing.games import attempts_at
from quorate.auditing.plays import PlayNoise
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.checks import check_positive

__all__ = ["NoisyCount", "audit_count"]


@dataclass(frozen=True)
class NoisyCount:
    """A count of records with noise of P(x) proportional to exp(-epsilon |x|): epsilon-DP, and no less."""

    epsilon: float

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    def played(self, count: int, *, plays: int, noise: PlayNoise) -> np.ndarray:
        """Return what is released about this count, once for each play."""
        return count + noise.laplace(1 / self.epsilon, plays)


@game(NoisyCount)
def audit_count(target: NoisyCount, effort: Effort) -> Verdict:
    """Count a record or not, and return the verdict."""
    plays, confidence, noise = effort.plays, effort.confidence, PlayNoise(effort.seed)
    first, second = (target.played(count, plays=plays, noise=noise) for count in (0, 1))
    attempts = attempts_at([(target.epsilon, 0.0)], first, second, attack="a count of 0 or of 1", confidence=confidence)
    attempts = [
        replace(attempt, exact=target.epsilon) for attempt in attempts
    ]  # the ratio of neighbouring values of the law
    return settled("NoisyCount", attempts, plays=plays, confidence=confidence, not_tested="nothing: the claim is tight")
