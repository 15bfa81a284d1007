"""The game on fitted teachers that vote: real code is fitted on two neighbouring data sets.

What is released depends on the data through a few integers, so both worlds are fitted once, on one entropy tape, and
the mechanism is then played on these many times.
"""

from typing import Any

import numpy as np
from sklearn.base import clone

from quorate.auditing._enumeration import Query
from quorate.auditing._laws import Votes, release_of
from quorate.auditing._plays import PlayNoise, play
from quorate.auditing._verdict import Effort, Verdict, game
from quorate.auditing._votes import attacks_on, best_attack
from quorate.auditing.replay import entropy_tape, fitted_ensemble
from quorate.core.errors import InvalidInput
from quorate.models.predictors import PrivateClassifier

_MOST_VOTES = 64  # votes of an attack that are made of records; each takes a fit


@game(PrivateClassifier)
def audit_classifier(target: PrivateClassifier, effort: Effort) -> Verdict:
    """Fit a copy of the classifier on records that vote as an attacker wants, play what it releases, and judge it.

    Each teacher gets one record, whose label it then votes for, whatever it is asked; in the second world one record
    has another label. The claim is that of the classifier, for all answers together.
    """
    teachers = target.teachers_ if hasattr(target, "teachers_") else target.teachers
    if teachers == "auto":
        raise InvalidInput("an audit of a classifier takes a number of teachers, or a fitted classifier")
    classifier = clone(target).set_params(teachers=int(teachers), classes=[0, 1], holdout=0.0)
    mechanism = _fit_votes(classifier, (teachers, 0), effort.seed).mechanism_
    release = release_of(mechanism, classes=2)
    queries, claim = min(int(target.queries), 4), (float(target.epsilon), float(target.delta))
    candidates = list(attacks_on(release, queries=queries, epsilon=claim[0]))
    attack, exact = best_attack(release, candidates, delta=claim[1], confidence=effort.confidence, plays=effort.plays)
    if any(_count_ballots(classifier, votes, effort.seed) != votes for votes in _votes(attack.query)):
        raise InvalidInput("the teachers did not vote as their records say; the attack does not fit this estimator")
    noise = PlayNoise(effort.seed)
    first, second = (
        play(mechanism, attack.query, plays=effort.plays, neighbour=other, noise=noise) for other in (False, True)
    )
    return effort.judge_plays(
        f"PrivateClassifier ({type(mechanism).__name__})",
        [claim],
        first,
        second,
        attack=f"{attack.name}: records that make votes of {attack.query.votes} or of {attack.query.neighbour}",
        not_tested=f"more than {queries} queries in a game, data on which teachers differ in what they learnt, more "
        "than two classes, a person of several rows, and the estimate on held-out units",
        exact=exact,
    )


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


def _fit_votes(classifier: PrivateClassifier, votes: Votes, seed: int) -> Any:
    labels = np.repeat([0, 1], votes)
    with entropy_tape(seed):
        return clone(classifier).fit(np.zeros((labels.size, 1)), labels)


def _count_ballots(classifier: PrivateClassifier, votes: Votes, seed: int) -> Votes:
    """Return the ballots that the real teachers cast, which only an audit may unseal."""
    ensemble = fitted_ensemble(_fit_votes(classifier, votes, seed))
    counts: Votes = ensemble.count(np.zeros((1, 1))).put_to(lambda counts: tuple(counts[0].tolist()))
    return counts
