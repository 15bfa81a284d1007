"""How often teachers err and disagree on units that none of them saw, and how common each class is, privately.

The idea is Remark 1 of Bassily, Thakkar and Thakurta (2018): set units aside and measure the rate on them under noise.
The rate of what has to be chosen with care. The share of mistakes of the *majority* may jump from 0 to 1 with one
teacher. The mean over teachers does not: with k teachers and H units held out, a unit that a teacher was fitted on
moves each sum below by at most H (one ballot a query), and a unit held out by at most k (its own query). How many of
the units held out have each label is released with them: only a unit held out moves that, from one label to another.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import Ensemble
from quorate.core.ballots import release_votes
from quorate.core.mechanisms import NoisyVector

ESTIMATE_SHARE = 0.1  # of epsilon and of delta, where units are held out


@dataclass(frozen=True, slots=True)
class Estimate:
    """Released rates, with the standard deviation of their noise, and what they cost.

    `error` is the mean share of teachers that are wrong on a unit held out, `disagreement` the mean share that vote
    against the plurality. `shares` are those of the classes among the units held out, `share_deviation` is that of the
    noise of each.
    """

    error: float
    disagreement: float
    deviation: float
    held_out: int
    epsilon: float
    delta: float
    shares: tuple[float, ...] = ()
    share_deviation: float = 0.0

    @property
    def pessimistic(self) -> float:
        """The disagreement to plan with: two deviations more, and never more than half of the votes.

        No-quorums that were planned and not met are not spent; a run that ends early is the worse mistake.
        """
        return min(0.5, self.disagreement + 2 * self.deviation)


def estimate_rates(ensemble: Ensemble, X: Any, codes: NDArray[np.int64], *, epsilon: float, delta: float) -> Estimate:
    """Release the rates and the shares within (epsilon, delta), from one row and one label of each unit held out."""
    held_out, teachers = len(codes), ensemble.teachers
    labelled = np.flatnonzero(codes >= 0)  # a row without a label counts as one that every teacher has wrong
    square = max(held_out, teachers) ** 2
    noisy = NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(square, square, 2))

    def release(votes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        wrong = teachers * held_out - votes[labelled, codes[labelled]].sum(keepdims=True)
        minority = teachers * held_out - votes.max(axis=1).sum(keepdims=True)
        return noisy.release(
            [wrong, minority, np.bincount(codes[labelled], minlength=ensemble.classes)]
        )  # proof: step 7

    wrong, minority, labels = release_votes(ensemble, X, release)
    cast = teachers * held_out
    counts = np.maximum(labels, 0.5)  # so that no share is 0, whatever the noise
    return Estimate(
        error=min(1.0, max(0.0, int(wrong[0]) / cast)),
        disagreement=min(1.0, max(0.0, int(minority[0]) / cast)),
        deviation=noisy.scales[0] / cast,
        held_out=held_out,
        epsilon=epsilon,
        delta=delta,
        shares=tuple((counts / counts.sum()).tolist()),
        share_deviation=noisy.scales[2] / held_out,
    )
