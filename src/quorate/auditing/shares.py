"""Noisy shares of the vote: the exact law of what the mechanism's own code releases, and the game on it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.auditing.bounds import score_lower_bound
from quorate.auditing.enumeration import Outcomes
from quorate.auditing.games import DELTAS, attempts_at, laws_of
from quorate.auditing.plays import PlayNoise
from quorate.auditing.releases import Votes, gaussian
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisyShares

__all__ = ["audit_shares", "share_outcomes"]

_SCALES = 12  # of noise that are enumerated: what is beyond has a probability below 1e-30
_MOST = 2_000_000  # combinations of noise


class _EveryNoise:
    """Gives every combination of noises once, as one query's draws after another's."""

    def __init__(self, grid: NDArray[np.int64]) -> None:
        self._grid = grid

    def gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        if size != self._grid.size:
            raise InvalidInput("the mechanism draws other noise than is enumerated")
        return self._grid.ravel()


def share_outcomes(mechanism: NoisyShares, votes: Votes, neighbour: Votes) -> Outcomes:
    """Return the exact distributions of the answer to one query, for these votes and for those of a neighbour.

    The code is run on every combination of noises, and answers are counted by their probability: a mistake in the
    projection, the grid or its numbering shows in the distribution.
    """
    draws = 1 if mechanism.classes == 2 else mechanism.classes
    reach = math.ceil(_SCALES * mechanism.scale) + 1
    if (2 * reach + 1) ** draws > _MOST:
        raise InvalidInput("too many combinations of noise to enumerate; take a smaller scale or fewer classes")
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * draws, indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=1)
    law = gaussian(mechanism.scale, reach + 1)
    answers, chances = [], []
    for counts in (votes, neighbour):  # noisy counts are the same for both: the noise makes up for the moved ballot
        noises = grid + (np.array(votes) - np.array(counts))[-draws:]
        noise: Any = _EveryNoise(noises)
        answers.append(mechanism.draw_labels(np.tile(np.array(counts), (len(grid), 1)), noise))
        chances.append(np.prod(law[noises + reach + 1], axis=1))
    _, places = np.unique(np.concatenate(answers), return_inverse=True)
    size, parts = int(places.max()) + 1, np.split(places.ravel(), 2)
    first, second = (np.bincount(part, weights=one, minlength=size) for part, one in zip(parts, chances, strict=True))
    return laws_of(first, second)


@game(NoisyShares)
def audit_shares(target: NoisyShares, effort: Effort, *, deltas: Sequence[float] = DELTAS) -> Verdict:
    """Move one ballot from one class to another, observe the difference of their shares, and return the verdict."""
    noise = PlayNoise(effort.seed)
    votes = _even_votes(target)
    moved = (votes[0] - 1, votes[1] + 1, *votes[2:])
    first, second = (_leads(target, one, effort.plays, noise) for one in (votes, moved))
    claims = [(target.epsilon(delta=delta), delta) for delta in deltas]
    attempts = attempts_at(
        claims,
        first,
        second,
        attack=f"one query, votes of {votes} or of {moved}",
        confidence=effort.confidence,
        bound=score_lower_bound,
    )
    not_tested = f"several queries in a game, and epsilon at deltas other than {', '.join(f'{d:g}' for d in deltas)}"
    return settled("NoisyShares", attempts, plays=effort.plays, confidence=effort.confidence, not_tested=not_tested)


def _even_votes(target: NoisyShares) -> Votes:
    """Return votes as even as can be, far from where a share is cut off."""
    each, rest = divmod(target.teachers, target.classes)
    return tuple(each + (place < rest) for place in range(target.classes))


def _leads(target: NoisyShares, votes: Votes, plays: int, noise: PlayNoise) -> NDArray[np.float64]:
    """Return by how much the share of class 1 exceeds that of class 0: all that the moved ballot shows."""
    counts = np.tile(np.array(votes, dtype=np.int64), (plays, 1))
    answers = target.draw_answers(counts, None, noise).labels
    if target.classes == 2:
        return target.excess(answers)
    shares = target.shares(answers)
    return shares[:, 1] - shares[:, 0]
