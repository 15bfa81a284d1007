"""Sums, vectors and shares with noise: the exact law of what is released, and the games on them."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.auditing._bounds import score_lower_bound
from quorate.auditing._enumeration import Outcomes
from quorate.auditing._laws import Votes, gaussian
from quorate.auditing._plays import PlayNoise
from quorate.auditing._verdict import DELTAS, Effort, Verdict, game
from quorate.core.checks import check_positive
from quorate.core.mechanisms import NoisyShares, NoisySum
from quorate.core.mechanisms.noisy_vector import NoisyVector


@dataclass(frozen=True)
class NoisyCount:
    """A count of records with noise of P(x) proportional to exp(-epsilon |x|): epsilon-DP, and no less.

    It is the calibration target of the auditor, not a mechanism of the product. Its claim is tight for every epsilon,
    so if its ratio is below 1, the auditor is at fault.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    def draw_counts(self, count: int, *, plays: int, noise: PlayNoise) -> np.ndarray:
        """Return what is released about this count, once for each play."""
        return count + noise.laplace(1 / self.epsilon, plays)


@game(NoisyCount)
def audit_count(target: NoisyCount, effort: Effort) -> Verdict:
    """Count a record or not, and return the verdict."""
    noise = PlayNoise(effort.seed)
    first, second = (target.draw_counts(count, plays=effort.plays, noise=noise) for count in (0, 1))
    return effort.judge_plays(
        "NoisyCount",
        [(target.epsilon, 0.0)],
        first,
        second,
        attack="a count of 0 or of 1",
        not_tested="nothing: the claim is tight",
        exact=target.epsilon,  # the ratio of neighbouring values of the law
    )


def sum_outcomes(mechanism: NoisySum, *, changes: Sequence[int]) -> Outcomes:
    """Return the distribution of several noisy sums that are 0 on D and these numbers on its neighbour.

    Every value out to 38 scales beyond both sums is enumerated, past which a probability is below the smallest double.
    A later sum may depend on what the earlier ones released, but its noise does not: a fixed list of changes, each as
    large as possible, is the worst case.
    """
    reach = math.ceil(38 * mechanism.scale) + max(abs(change) for change in changes) + 1
    values = np.arange(-reach, reach + 1)
    law = gaussian(mechanism.scale, 2 * reach)  # P(x) for x = -2 reach .. 2 reach
    histories = list(itertools.product(values.tolist(), repeat=len(changes)))
    joint = _joint([law[values + 2 * reach] for _ in changes])
    neighbour = _joint([law[values - change + 2 * reach] for change in changes])
    return Outcomes(histories, joint, joint, neighbour)


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
    return effort.judge_plays(
        "NoisySum",
        [(target.epsilon(delta=delta), delta) for delta in deltas],
        first,
        second,
        attack=f"a sum of 0 or of {target.sensitivity}, released once",
        not_tested=f"several releases together, and {_name_other_deltas(deltas)}",
        exact=sum_outcomes(target, changes=[target.sensitivity]),
    )


def _name_other_deltas(deltas: Sequence[float]) -> str:
    return f"epsilon at deltas other than {', '.join(f'{delta:g}' for delta in deltas)}"


@game(NoisyVector)
def audit_vector(target: NoisyVector, effort: Effort, *, deltas: Sequence[float] = DELTAS) -> Verdict:
    """Release vectors in which one unit changes as many entries by 1 as possible, and return the verdict.

    The observation is one number, the sum of all entries, each over its squared scale: it distinguishes the two worlds
    as well as all entries do.
    """
    noise = PlayNoise(effort.seed)
    first, second = (_scores(target, effort.plays, moved, noise) for moved in (0, 1))
    entries, other_deltas = ", ".join(map(str, target.squared_sensitivities)), _name_other_deltas(deltas)
    return effort.judge_plays(
        "NoisyVector",
        [(target.epsilon(delta=delta), delta) for delta in deltas],
        first,
        second,
        attack=f"{entries} entries moved by 1, in each of {len(target.scales)} vectors",
        not_tested="entries moved by more than 1 (fewer of them, the same length), other releases from the same "
        f"budget, and {other_deltas}",
        exact=vector_law(target),
        bound=score_lower_bound,
    )


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
    return Outcomes.from_laws(np.pad(law, (0, entries)), np.pad(law, (entries, 0)))


@game(NoisyShares)
def audit_shares(target: NoisyShares, effort: Effort, *, deltas: Sequence[float] = DELTAS) -> Verdict:
    """Move one ballot from one class to another, observe the difference of their shares, and return the verdict."""
    noise, votes = PlayNoise(effort.seed), _even_votes(target)
    moved = (votes[0] - 1, votes[1] + 1, *votes[2:])
    first, second = (_leads(target, counts, effort.plays, noise) for counts in (votes, moved))
    return effort.judge_plays(
        "NoisyShares",
        [(target.epsilon(delta=delta), delta) for delta in deltas],
        first,
        second,
        attack=f"one query, votes of {votes} or of {moved}",
        not_tested=f"several queries in a game, and {_name_other_deltas(deltas)}",
        bound=score_lower_bound,
    )


def _even_votes(target: NoisyShares) -> Votes:
    """Return votes as even as can be, far from where a share is cut off."""
    share, rest = divmod(target.teachers, target.classes)
    return tuple(share + (label < rest) for label in range(target.classes))


def _leads(target: NoisyShares, votes: Votes, plays: int, noise: PlayNoise) -> NDArray[np.float64]:
    """Return by how much the share of class 1 exceeds that of class 0: all that the moved ballot shows."""
    counts = np.tile(np.array(votes, dtype=np.int64), (plays, 1))
    answers = target.draw_answers(counts, None, noise).labels
    if target.classes == 2:
        return target.excess(answers)
    shares = target.shares(answers)
    return shares[:, 1] - shares[:, 0]
