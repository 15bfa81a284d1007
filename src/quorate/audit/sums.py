"""The exact law of noisy sums on a data set and on its neighbour, from the definition of the noise alone."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from quorate.audit.enumeration import Outcomes
from quorate.audit.releases import gaussian
from quorate.mechanisms import NoisySum

__all__ = ["sum_outcomes"]


def sum_outcomes(mechanism: NoisySum, *, changes: Sequence[int]) -> Outcomes:
    """Return the law of several noisy sums that are 0 on D and these numbers on its neighbour.

    Every value out to 38 scales beyond both sums is enumerated, past which a probability is below the smallest double.
    A later sum may depend on what the earlier ones released, but its noise does not: a fixed list of changes, each as
    large as it may be, is the worst case.

    >>> outcomes = sum_outcomes(NoisySum(sensitivity=2, scale=4.0), changes=[2])
    >>> round(outcomes.renyi(3.0), 9) == round(3.0 * 2**2 / (2 * 4.0**2), 9)
    True
    """
    reach = math.ceil(38 * mechanism.scale) + max(abs(change) for change in changes) + 1
    values = np.arange(-reach, reach + 1)
    law = gaussian(mechanism.scale, 2 * reach)  # P(x) for x = -2 reach .. 2 reach
    ones = [law[values + 2 * reach] for _ in changes]
    others = [law[values - change + 2 * reach] for change in changes]
    histories = list(itertools.product(values.tolist(), repeat=len(changes)))
    whole, neighbour = (_joint(laws) for laws in (ones, others))
    return Outcomes(histories, whole, whole, neighbour)


def _joint(laws: Sequence[np.ndarray]) -> np.ndarray:
    """Return the probabilities of all combinations, in the order of `itertools.product`."""
    joint = np.ones(1)
    for law in laws:
        joint = np.outer(joint, law).ravel()
    return joint
