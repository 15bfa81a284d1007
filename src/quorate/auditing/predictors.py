"""The game on a whole predictor: records that make the worst ballots, one of them replaced, real teachers fitted.

Both worlds are fitted once, by the real code, on one entropy tape, so that they have the same deal. What the mechanism
then releases about their ballots is played many times.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from quorate.auditing.attacks import attacks_on, best_attack
from quorate.auditing.enumeration import Query
from quorate.auditing.games import attempts_at
from quorate.auditing.plays import PlayNoise, play
from quorate.auditing.releases import Votes, release_of
from quorate.auditing.replay import entropy_tape, fitted_ensemble
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.errors import InvalidInput
from quorate.models.predictors import PrivateClassifier

__all__ = ["audit_classifier"]

_MOST_VOTES = 64  # that are made of records: each takes a fit


@game(PrivateClassifier)
def audit_classifier(target: PrivateClassifier, effort: Effort) -> Verdict:
    """Fit a copy of the classifier on records that vote as an attacker wants, play what it releases, and judge it.

    Each teacher gets one record, whose label it then votes for, whatever it is asked; in the second world one record
    has another label. The claim is that of the classifier, for all answers together.
    """
    plays, confidence = effort.plays, effort.confidence
    teachers = target.teachers_ if hasattr(target, "teachers_") else target.teachers
    if teachers == "auto":
        raise InvalidInput("an audit of a classifier takes a number of teachers, or a fitted classifier")
    classifier = clone(target).set_params(teachers=int(teachers), classes=[0, 1], holdout=0.0)
    mechanism = _fitted(classifier, (teachers, 0), effort.seed).mechanism_
    release = release_of(mechanism, classes=2)
    asked = min(int(target.queries), 4)
    claim = float(target.epsilon), float(target.delta)
    candidates = list(attacks_on(release, queries=asked, epsilon=claim[0]))
    attack, exact = best_attack(release, candidates, delta=claim[1], confidence=confidence, plays=plays)
    worlds = {votes: _counted(classifier, votes, effort.seed) for votes in _votes(attack.query)}
    if any(tuple(seen) != votes for votes, seen in worlds.items()):
        raise InvalidInput("the teachers did not vote as their records say; the attack does not fit this estimator")
    noise = PlayNoise(effort.seed)
    seen = [play(mechanism, attack.query, plays=plays, neighbour=other, noise=noise) for other in (False, True)]
    words = f"{attack.name}: records that make votes of {attack.query.votes} or of {attack.query.neighbour}"
    attempts = attempts_at([claim], *seen, attack=words, confidence=confidence)
    not_tested = (
        f"more than {asked} queries in a game, data on which teachers differ in what they learnt, more than two "
        "classes, a person of several rows, and the estimate on held-out units"
    )
    name = f"PrivateClassifier ({type(mechanism).__name__})"
    attempts = [replace(attempt, exact=exact) for attempt in attempts]
    return settled(name, attempts, plays=plays, confidence=confidence, not_tested=not_tested)


def _votes(query: Query) -> set[Votes]:
    """Return the votes that a tree may need, or the first of them where they are many."""
    votes, stack, seen = set[Votes](), [query], set[int]()
    while stack and len(votes) < _MOST_VOTES:
        node = stack.pop()
        if id(node) not in seen:  # a query that is reached on several ways is looked at once
            seen.add(id(node))
            votes |= {node.votes, node.neighbour}
            stack += node.then.values()
    return votes


def _fitted(classifier: PrivateClassifier, votes: Votes, seed: int) -> Any:
    labels = np.repeat([0, 1], votes)
    with entropy_tape(seed):
        return clone(classifier).fit(np.zeros((labels.size, 1)), labels)


def _counted(classifier: PrivateClassifier, votes: Votes, seed: int) -> list[int]:
    """Return the ballots that the real teachers cast, which only an audit may unseal."""
    ensemble = fitted_ensemble(_fitted(classifier, votes, seed))
    counts: list[int] = ensemble.count(np.zeros((1, 1))).put_to(lambda counts: counts[0].tolist())
    return counts
