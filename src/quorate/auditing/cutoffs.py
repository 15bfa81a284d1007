"""The game on a noisy cutoff: one arrival finds a quorum or does not, and all see when the phase closes."""

from collections.abc import Sequence

import numpy as np

from quorate.auditing.games import attempts_at, laws_of, most_telling
from quorate.auditing.plays import PlayNoise
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.mechanisms.cutoff import CutoffRun, NoisyCutoff

__all__ = ["audit_cutoff", "closing_law"]

_MOST = 200_000  # plays: each opens a real run of its own


def closing_law(cutoff: NoisyCutoff, no_quorum: Sequence[bool]) -> np.ndarray:
    """Return the law of how many of these arrivals are let in, from the definition of the cutoff."""
    ratio = cutoff.ratio / 2**64
    steps = np.arange(cutoff.spread + 1)
    limits = cutoff.allowed + steps
    law = ratio**steps * np.where(steps < cutoff.spread, 1 - ratio, 1.0)  # the last step takes all that is left
    outcomes = np.asarray(no_quorum, dtype=np.int64)
    before = np.cumsum(outcomes) - outcomes
    missing = np.maximum(limits[:, np.newaxis] - before, 0)
    closes = ratio**missing  # fresh noise reaches what is missing
    stays = np.cumprod(1 - closes, axis=1)
    reached = np.concatenate([np.ones((limits.size, 1)), stays], axis=1)
    return np.asarray(law @ (reached * np.concatenate([closes, np.ones((limits.size, 1))], axis=1)))


@game(NoisyCutoff)
def audit_cutoff(target: NoisyCutoff, effort: Effort) -> Verdict:
    """Change one arrival's outcome, look when the phase closes, and return the verdict."""
    effort, noise = effort.at_most(_MOST), PlayNoise(effort.seed)
    longest = min(3 * target.most, 60)
    candidates = []
    for met in {0, target.allowed // 2, max(0, target.allowed - 1), target.allowed}:
        rest = [True] * min(met, longest - 2)
        for tail in ([False] * 4, [False] * (longest - 1 - len(rest)), [True] * (longest - 1 - len(rest))):
            candidates.append([*rest, True, *tail])

    def pair(outcomes: list[bool], place: int) -> tuple[list[bool], list[bool]]:
        return outcomes, [*outcomes[:place], False, *outcomes[place + 1 :]]

    pairs = [pair(one, place) for one in candidates for place in {0, sum(one) - 1} if one[place]]
    first, second = most_telling(pairs, lambda one: closing_law(target, one), delta=target.delta, effort=effort)
    law = laws_of(*(closing_law(target, one) for one in (first, second)))
    seen = [_closings(target, one, effort.plays, noise) for one in (first, second)]
    attack = f"one no-quorum of {sum(first)} among {len(first)} arrivals taken away"
    claims = [(target.epsilon, target.delta)]
    attempts = attempts_at(claims, *seen, attack=attack, confidence=effort.confidence, law=law)
    not_tested = "arrivals chosen by what was seen before, and more than 60 of them"
    return settled("NoisyCutoff", attempts, plays=effort.plays, confidence=effort.confidence, not_tested=not_tested)


def _closings(cutoff: NoisyCutoff, outcomes: Sequence[bool], plays: int, noise: PlayNoise) -> np.ndarray:
    arrivals = np.array(outcomes)
    return np.array([CutoffRun(cutoff, noise=noise).admit(arrivals) for _ in range(plays)], dtype=np.int64)
