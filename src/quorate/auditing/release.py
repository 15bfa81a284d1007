"""The game on a release of queries: one record moved from the first cell to the last, and the whole fit played.

A play is a real fit, from counting to what is left after it, so that plays are in the thousands: it sees a mistake of
a factor in what is measured, not one of a few per cent. The measurement is `NoisyVector`, which has its own game.
"""

import numpy as np
from sklearn.base import clone

from quorate.auditing.bounds import score_lower_bound
from quorate.auditing.enumeration import Outcomes
from quorate.auditing.games import attempts_at
from quorate.auditing.replay import entropy_tape
from quorate.auditing.sums import vector_law
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import Budget
from quorate.models.concepts import Threshold, Thresholds
from quorate.release import QueryRelease

__all__ = ["audit_release"]

_MOST = 10_000  # plays: each is a fit, of 3 ms
_RECORDS = 200
_PUBLIC = np.array([1.0, 2.0, 3.0, 4.0])
_CUTS = (1.5, 3.5)  # all but the first cell, and the last cell alone


@game(QueryRelease)
def audit_release(target: QueryRelease, effort: Effort) -> Verdict:
    """Fit copies of the release on records of which one is replaced, ask them thresholds, and return the verdict."""
    if not isinstance(target.subject, Thresholds):
        raise InvalidInput(f"the game is about a release of Thresholds(), not of {type(target.subject).__name__}")
    effort = effort.at_most(_MOST)
    first = np.repeat([0.0, 10.0], _RECORDS // 2)
    second = np.append(first[1:], 10.0)
    with entropy_tape(effort.seed):
        law = _law(clone(target).fit(first, _PUBLIC))
        seen = [_scores(target, records, effort.plays) for records in (first, second)]
    claim = float(target.epsilon), float(target.delta)
    attack = f"one of {_RECORDS} records moved from the first cell to the last, {len(_CUTS)} thresholds asked"
    bound, confidence = score_lower_bound, effort.confidence
    attempts = attempts_at([claim], *seen, attack=attack, confidence=confidence, law=law, bound=bound)
    not_tested = "other queries and classes, public records that matter, and what a million fits would show"
    name = f"QueryRelease ({target.engine})"
    return settled(name, attempts, plays=effort.plays, confidence=confidence, not_tested=not_tested)


def _scores(target: QueryRelease, records: np.ndarray, plays: int) -> np.ndarray:
    """Return of each fit the share of the last cell less that of the first, but for a constant.

    Where cells have independent Gaussian noise of one scale, this is the likelihood ratio: no score tells more.
    """
    asked = [Threshold(cut) for cut in _CUTS]
    fits = (clone(target).fit(records, _PUBLIC).answer(asked)["answer"] for _ in range(plays))
    return np.array([sum(answers.to_pylist()) for answers in fits])


def _law(release: QueryRelease) -> Outcomes | None:
    """Return the exact laws of what tells most, where the release is cells with noise: the moved record is in two."""
    if "measured: cells" not in release.notes_:
        return None
    budget = Budget(epsilon=release.epsilon, delta=release.delta, slack=0.0)
    return vector_law(NoisyVector.for_budget(budget, squared_sensitivities=(2,)))
