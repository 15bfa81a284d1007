"""The games on fitted models: teachers that vote, models of nearest records, releases of queries.

Real code is fitted on two neighbouring data sets. Where what is released depends on the data through a few integers,
both worlds are fitted once, on one entropy tape, and the mechanism is then played on these many times.
"""

from typing import Any

import numpy as np
from sklearn.base import clone

from quorate.auditing._bounds import score_lower_bound
from quorate.auditing._enumeration import Outcomes, Query
from quorate.auditing._laws import Votes, release_of
from quorate.auditing._plays import PlayNoise, play
from quorate.auditing._sums import vector_law
from quorate.auditing._verdict import Effort, Verdict, game
from quorate.auditing._votes import attacks_on, best_attack
from quorate.auditing.replay import entropy_tape, fitted_ensemble
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.core.privacy import Budget
from quorate.models.concepts import Threshold, Thresholds
from quorate.models.knn import NeighbourClassifier, NeighbourRegressor
from quorate.models.predictors import PrivateClassifier
from quorate.release import QueryRelease

_MOST_VOTES = 64  # votes of an attack that are made of records; each takes a fit
_OTHER_RECORDS = 30  # of a model of nearest records, in both worlds
_QUERIES_AFTER_WEAR = 3
_MOST_FITS = 10_000  # of a release, each of 3 ms
_RELEASED_RECORDS = 200
_PUBLIC_POINTS = np.array([1.0, 2.0, 3.0, 4.0])
_CUTS = (1.5, 3.5)  # all but the first cell, and the last cell alone


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


@game(NeighbourClassifier, NeighbourRegressor)
def audit_nearest(target: Any, effort: Effort) -> Verdict:
    """Fit the target with and without one record, ask at its place until it is worn out, and return the verdict.

    The player sees all noisy numbers, not answers alone, and knows in which direction the record moves them: the sum of
    what was seen along it tells the two worlds apart as well as all of it does.
    """
    if target.radius is None or target.votes == "auto":
        raise InvalidInput("the target of this game has a radius and a number of votes")
    worlds = [_count_votes(target, present) for present in (True, False)]
    (first, terms), (second, _) = worlds
    moved, noise = first - second, PlayNoise(effort.seed)
    scores = [
        terms.mechanism.draw_release([np.tile(counts, effort.plays)], None, noise)[0].reshape(effort.plays, -1) @ moved
        for counts in (first, second)
    ]
    return effort.judge_plays(
        type(target).__name__,
        [(terms.epsilon, terms.delta)],
        *(score.astype(np.float64) for score in scores),
        attack=f"a record or none, asked about {int(terms.votes) + _QUERIES_AFTER_WEAR} times: it moves squares of "
        f"{int((moved**2).sum()):,} of {terms.squares:,}",
        not_tested="reports of wear, other orders of queries, insertions and deletions (these are enumerated: "
        "PROOF.md)",
        bound=score_lower_bound,
    )


def _count_votes(target: Any, present: bool) -> tuple[Integers, Any]:
    """Return what gets noise in a world, and the terms: queries at the place of the record, a few more than it pays."""
    generator = np.random.default_rng(0)
    X = np.concatenate([[[1.0, 0.0]], generator.normal(size=(_OTHER_RECORDS, 2))])
    y = np.concatenate([[1], generator.integers(0, 2, size=_OTHER_RECORDS)])
    ends = target.bounds if isinstance(target, NeighbourRegressor) else target.classes
    labels = np.asarray(ends)[[0, -1]][y]
    model = type(target)(**target.get_params(deep=False)).fit(X[0 if present else 1 :], labels[0 if present else 1 :])
    queries = np.repeat(X[:1], int(model.terms_.votes) + _QUERIES_AFTER_WEAR, axis=0)
    counts = model.session_.answerer.units.count(model.space_.points(queries)).put_to(np.ravel)
    return counts, model.terms_


@game(QueryRelease)
def audit_release(target: QueryRelease, effort: Effort) -> Verdict:
    """Fit copies of the release on records of which one is replaced, ask them thresholds, and return the verdict.

    A play is a real fit, so that plays are in the thousands: it sees a mistake of a factor in what is measured, not one
    of a few per cent. The measurement is `NoisyVector`, which has its own game.
    """
    if not isinstance(target.subject, Thresholds):
        raise InvalidInput(f"the game is about a release of Thresholds(), not of {type(target.subject).__name__}")
    effort = effort.limit_plays(_MOST_FITS)
    first = np.repeat([0.0, 10.0], _RELEASED_RECORDS // 2)
    second = np.append(first[1:], 10.0)
    with entropy_tape(effort.seed):
        law = _law(clone(target).fit(first, _PUBLIC_POINTS))
        scores = [_scores(target, records, effort.plays) for records in (first, second)]
    return effort.judge_plays(
        f"QueryRelease ({target.engine})",
        [(float(target.epsilon), float(target.delta))],
        *scores,
        attack=f"one of {_RELEASED_RECORDS} records moved from the first cell to the last, {len(_CUTS)} thresholds "
        "asked",
        not_tested="other queries and classes, public records that matter, and what a million fits would show",
        exact=law,
        bound=score_lower_bound,
    )


def _scores(target: QueryRelease, records: np.ndarray, plays: int) -> np.ndarray:
    """Return of each fit the share of the last cell less that of the first, but for a constant.

    Where cells have independent Gaussian noise of one scale, this is the likelihood ratio: no score tells more.
    """
    queries = [Threshold(cut) for cut in _CUTS]
    fits = (clone(target).fit(records, _PUBLIC_POINTS).answer(queries)["answer"] for _ in range(plays))
    return np.array([sum(answers.to_pylist()) for answers in fits])


def _law(release: QueryRelease) -> Outcomes | None:
    """Return the exact laws of what tells most, where the release is cells with noise: the moved record is in two."""
    if "measured: cells" not in release.notes_:
        return None
    budget = Budget(epsilon=release.epsilon, delta=release.delta, slack=0.0)
    return vector_law(NoisyVector.for_budget(budget, squared_sensitivities=(2,)))
