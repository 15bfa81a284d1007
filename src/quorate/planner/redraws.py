"""A run whose threshold noise is redrawn after each no-quorum: epochs of random length, added up."""

import math
from typing import NamedTuple

import numpy as np

from quorate.planner.laws import Floats

__all__ = ["Shares", "shares_with_redraws"]


class Shares(NamedTuple):
    """Expected shares of all queries: answered, and without a quorum; and the probability that the run lasts.

    >>> Shares(answered=0.9, no_quorum=0.05, lasts=0.5).lasts
    0.5
    """

    answered: float
    no_quorum: float
    lasts: float


_LONGEST = 2**14  # steps of time; longer runs are looked at in coarser ones
_DAMPING = 22.0  # what wraps around the transform is smaller by exp(-_DAMPING)


def shares_with_redraws(queries: int, no_quorums: int, missed: Floats, weights: Floats) -> Shares:
    """Return what is expected where an epoch's rate of no-quorums is missed[i] with probability weights[i].

    An epoch ends with its first no-quorum. With the transform f of the law of its length, f**c is that of the time
    of no-quorum number c, and f + f**2 + ... + f**c counts the no-quorums.

    >>> round(shares_with_redraws(100, 1, np.array([0.5]), np.array([1.0])).answered, 4)
    0.01
    """
    coarse = math.ceil(queries / _LONGEST)
    steps = math.ceil(queries / coarse)
    kept = np.power(1 - np.clip(missed, 0.0, 1.0), coarse)[:, np.newaxis]  # no no-quorum in one step of time
    times = np.arange(1, steps + 1)
    law = weights @ (np.power(kept, times - 1) * (1 - kept))
    size = 2 ** math.ceil(math.log2(2 * steps + 2))
    damp = np.exp(-_DAMPING / size * np.arange(size))
    padded = np.zeros(size)
    padded[1 : steps + 1] = law
    transform = np.fft.rfft(padded * damp)
    last = np.power(transform, no_quorums)
    with np.errstate(divide="ignore", invalid="ignore"):
        counted = np.where(np.abs(1 - transform) < 1e-12, no_quorums, transform * (1 - last) / (1 - transform))
    ended = np.cumsum(np.fft.irfft(last, size)[: steps + 1] / damp[: steps + 1])
    met = float((np.fft.irfft(counted, size)[: steps + 1] / damp[: steps + 1]).sum())
    asked = steps - float(ended[:steps].sum())
    answered = float(np.clip(asked * coarse - met, 0.0, queries)) / queries
    return Shares(answered, met / queries, float(np.clip(1 - ended[steps - 1], 0.0, 1.0)))
