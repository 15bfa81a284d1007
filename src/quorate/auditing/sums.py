"""Sums and vectors with noise: the exact law of what leaves, and the game on it."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from quorate.auditing.bounds import score_lower_bound
from quorate.auditing.enumeration import Outcomes
from quorate.auditing.games import DELTAS, attempts_at, laws_of
from quorate.auditing.plays import PlayNoise
from quorate.auditing.releases import gaussian
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.mechanisms import NoisySum
from quorate.core.mechanisms.noisy_vector import NoisyVector

__all__ = ["audit_sum", "audit_vector", "sum_outcomes", "vector_law"]


def sum_outcomes(mechanism: NoisySum, *, changes: Sequence[int]) -> Outcomes:
    """Return the distribution of several noisy sums that are 0 on D and these numbers on its neighbour.

    Every value out to 38 scales beyond both sums is enumerated, past which a probability is below the smallest double.
    A later sum may depend on what the earlier ones released, but its noise does not: a fixed list of changes, each as
    large as possible, is the worst case.
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


@game(NoisySum)
def audit_sum(target: NoisySum, effort: Effort, *, deltas: Sequence[float] = DELTAS) -> Verdict:
    """Release a sum that one unit changes by the full sensitivity, and return the verdict."""
    noise = PlayNoise(effort.seed)
    first, second = (
        np.array(target.draw_releases([total] * effort.plays, None, noise)) for total in (0, target.sensitivity)
    )
    claims = [(target.epsilon(delta=delta), delta) for delta in deltas]
    attack = f"a sum of 0 or of {target.sensitivity}, released once"
    law = sum_outcomes(target, changes=[target.sensitivity])
    attempts = attempts_at(claims, first, second, attack=attack, confidence=effort.confidence, law=law)
    not_tested = f"several releases together, and epsilon at deltas other than {', '.join(f'{d:g}' for d in deltas)}"
    return settled("NoisySum", attempts, plays=effort.plays, confidence=effort.confidence, not_tested=not_tested)


@game(NoisyVector)
def audit_vector(target: NoisyVector, effort: Effort, *, deltas: Sequence[float] = DELTAS) -> Verdict:
    """Release vectors in which one unit changes as many entries by 1 as possible, and return the verdict.

    The observation is one number, the sum of all entries, each over its squared scale: it distinguishes the two worlds
    as well as all entries do.
    """
    noise = PlayNoise(effort.seed)
    first, second = (_scores(target, effort.plays, moved, noise) for moved in (0, 1))
    claims = [(target.epsilon(delta=delta), delta) for delta in deltas]
    entries = ", ".join(map(str, target.squared_sensitivities))
    attack = f"{entries} entries moved by 1, in each of {len(target.scales)} vectors"
    law, bound = vector_law(target), score_lower_bound
    attempts = attempts_at(claims, first, second, attack=attack, confidence=effort.confidence, law=law, bound=bound)
    not_tested = (
        "entries moved by more than 1 (fewer of them, the same length), other releases from the same budget, and "
        f"epsilon at deltas other than {', '.join(f'{delta:g}' for delta in deltas)}"
    )
    return settled("NoisyVector", attempts, plays=effort.plays, confidence=effort.confidence, not_tested=not_tested)


def _scores(target: NoisyVector, plays: int, moved: int, noise: PlayNoise) -> np.ndarray:
    parts = [np.full(plays * entries, moved) for entries in target.squared_sensitivities]
    released = target.draw_release(parts, None, noise)
    pairs = zip(released, target.scales, strict=True)
    return np.asarray(np.sum([part.reshape(plays, -1).sum(axis=1) / scale**2 for part, scale in pairs], axis=0))


def vector_law(target: NoisyVector) -> Outcomes | None:
    """Return the laws of the sum of all entries that a unit moves, where there is one vector and they are few."""
    if len(target.scales) > 1 or target.squared_sensitivities[0] > 8:
        return None
    (entries,), (scale,) = target.squared_sensitivities, target.scales
    reach = math.ceil(20 * scale) + 1
    law = np.ones(1)
    for _ in range(entries):
        law = np.convolve(law, gaussian(scale, reach))
    return laws_of(np.pad(law, (0, entries)), np.pad(law, (entries, 0)))
