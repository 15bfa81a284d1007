"""How often teachers err and disagree on units that none of them saw, estimated privately, to plan no-quorums by.

The idea is Remark 1 of Bassily, Thakkar and Thakurta (2018): set units aside and measure the rate on them under noise.
The rate of what has to be chosen with care. The share of mistakes of the *majority* may jump from 0 to 1 with one
teacher. The mean over teachers does not: with k teachers and H units held out, a unit that a teacher was fitted on
moves each sum below by at most H (one ballot a query), and a unit held out by at most k (its own query).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.ensemble import Ensemble
from quorate.mechanisms import NoisySum
from quorate.session import release_votes

__all__ = ["ESTIMATE_SHARE", "Estimate", "estimate_rates"]

ESTIMATE_SHARE = 0.1  # of epsilon and of delta, where units are held out


@dataclass(frozen=True, slots=True)
class Estimate:
    """Released rates, with the standard deviation of their noise, and what they cost.

    `error` is the mean share of teachers that are wrong on a unit held out, `disagreement` the mean share that vote
    against the plurality.
    """

    error: float
    disagreement: float
    deviation: float
    held_out: int
    epsilon: float
    delta: float

    @property
    def pessimistic(self) -> float:
        """The disagreement to plan with: two deviations more, and never more than half of the votes.

        No-quorums that were planned and not met are not spent; a run that ends early is the worse mistake.
        """
        return min(0.5, self.disagreement + 2 * self.deviation)


def estimate_rates(ensemble: Ensemble, X: Any, codes: NDArray[np.int64], *, epsilon: float, delta: float) -> Estimate:
    """Release both rates within (epsilon, delta), from one row and one label of each unit held out."""
    held_out, teachers = len(codes), ensemble.teachers
    noisy = NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=max(held_out, teachers), releases=2)

    def release(votes: NDArray[np.int64]) -> tuple[int, int]:
        wrong = teachers * held_out - int(votes[np.arange(held_out), codes].sum())
        minority = teachers * held_out - int(votes.max(axis=1).sum())
        return noisy.release(wrong), noisy.release(minority)

    wrong, minority = release_votes(ensemble, X, release)
    cast = teachers * held_out
    return Estimate(
        error=min(1.0, max(0.0, wrong / cast)),
        disagreement=min(1.0, max(0.0, minority / cast)),
        deviation=noisy.scale / cast,
        held_out=held_out,
        epsilon=epsilon,
        delta=delta,
    )
