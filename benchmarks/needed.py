"""How clear a vote must be: one definition for every mechanism, computed and not simulated.

Two classes. A label is b votes beyond one half where it leads by 2b votes, or by 2b - 1 if the number of teachers is
odd. `votes_needed` is the smallest b at which a query is answered correctly at a given rate, over *all* noise: that of
the query, and that of the threshold of a fresh run. The `distance()` of a mechanism with a threshold is at threshold
noise 0 instead, and counts the ballots that may change without changing the label: b - 1.
"""

import math

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.checks import check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism
from quorate.core.mechanisms.dissent import Dissent
from quorate.core.mechanisms.distributions import gaussian_pmf, laplace_tail
from quorate.core.mechanisms.noisy_max import NoisyMax
from quorate.core.mechanisms.sharp_majority import SharpMajority
from quorate.core.mechanisms.soft_majority import SoftMajority

_GAUSSIAN_REACH, _LAPLACE_REACH = 9, 36  # scales: what lies beyond has a probability below 1e-15
_EXACT_SCALE = 200.0  # up to which the law of a difference of two Gaussian noises is a convolution


def correct_probability(mechanism: QueryMechanism | ThresholdMechanism, votes: int) -> float:
    """Return how often a query whose label is this many votes beyond one half is answered with it. Reads no data.

    Of a Dissent, where the student's label is this many votes short of one half: how often the dissent is reported.
    """
    lead = 2 * votes - mechanism.teachers % 2
    if isinstance(mechanism, ThresholdMechanism):
        points, weights = threshold_law(mechanism)
        chances = [_given_threshold(mechanism, votes, int(point)) for point in points]
        return float(min(1.0, weights @ np.array(chances)))
    if isinstance(mechanism, SharpMajority):
        return mechanism.answer_probability(lead)
    if isinstance(mechanism, SoftMajority):
        return 1 / (1 + math.exp(-lead / mechanism.scale))
    if isinstance(mechanism, NoisyMax) and mechanism.classes == 2:
        return _noisy_max(mechanism.scale, lead)
    raise InvalidInput(f"a {type(mechanism).__name__} has no such number: it depends on more than the lead")


def votes_needed(mechanism: QueryMechanism | ThresholdMechanism, *, rate: float = 0.99) -> int:
    """Return the fewest votes beyond one half at which a query is answered correctly at this rate, over all noise."""
    rate = check_rate("rate", rate)
    if rate == 1:
        raise Infeasible("rate=1 is out of reach: every mechanism errs with a positive probability")
    low, high = 0, (mechanism.teachers + 1) // 2
    if correct_probability(mechanism, high) < rate:
        raise Infeasible(f"rate={rate} is out of reach with teachers={mechanism.teachers}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if correct_probability(mechanism, middle) >= rate else (middle, high)
    return high


def _given_threshold(mechanism: ThresholdMechanism, votes: int, noise: int) -> float:
    if isinstance(mechanism, Dissent):
        return 1 - mechanism.standing_probability(votes, threshold_noise=noise)
    probability: float = mechanism.answer_probability(votes - 1, threshold_noise=noise)  # type: ignore[attr-defined]
    return probability


def threshold_law(mechanism: ThresholdMechanism) -> tuple[NDArray[np.int64], Floats]:
    """Return the values that the threshold noise of a fresh run takes, and their probabilities."""
    scale: float = mechanism.threshold_scale  # type: ignore[attr-defined]
    radius = math.ceil((_LAPLACE_REACH if mechanism.redraws else _GAUSSIAN_REACH) * scale) + 1
    points = np.arange(-radius, radius + 1)
    if mechanism.redraws:
        return points, laplace_tail(scale, points) - laplace_tail(scale, points + 1)
    return points, gaussian_pmf(scale, radius)


def _noisy_max(scale: float, lead: int) -> float:
    """Return P(difference of two noises < lead): a tie may go to the other label."""
    if scale <= _EXACT_SCALE:
        law = gaussian_pmf(scale, math.ceil(12 * scale))
        difference = np.convolve(law, law)
    else:  # has all but the law of one, wider by the square root of 2
        difference = gaussian_pmf(scale * math.sqrt(2), math.ceil(20 * scale))
    centre = difference.size // 2
    return float(min(1.0, difference[: min(centre + lead, difference.size)].sum()))
