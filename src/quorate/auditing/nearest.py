"""The game against models of neighbours: a record is there or not, and is asked about until it is worn out."""

from typing import Any

import numpy as np

from quorate.auditing.bounds import score_lower_bound
from quorate.auditing.games import attempts_at
from quorate.auditing.plays import PlayNoise
from quorate.auditing.tracing import Release
from quorate.auditing.verdict import Effort, Verdict, game, settled
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput
from quorate.models.knn import NeighbourClassifier, NeighbourRegressor
from quorate.models.knn.ballots import Levels
from quorate.models.knn.choice import TOP
from quorate.models.knn.terms import Terms

__all__ = ["audit_nearest", "neighbour_means"]

_OTHERS = 30  # records that are there in both worlds
_MORE = 3  # queries, after the one that wears the record out


@game(NeighbourClassifier, NeighbourRegressor)
def audit_nearest(target: Any, effort: Effort) -> Verdict:
    """Fit the target with and without one record, ask at its place until it is worn out, and return the verdict.

    The player sees all noisy numbers, not answers alone, and knows in which direction the record moves them: the sum of
    what was seen along it tells the two worlds apart as well as all of it does.
    """
    if target.radius is None or target.votes == "auto":
        raise InvalidInput("the target of this game has a radius and a number of votes")
    worlds = [_counted(target, present) for present in (True, False)]
    (first, terms), (second, _) = worlds
    moved, noise = first - second, PlayNoise(effort.seed)
    seen = [
        terms.mechanism.draw_release([np.tile(counts, effort.plays)], None, noise)[0].reshape(effort.plays, -1) @ moved
        for counts in (first, second)
    ]
    asked = f"a record or none, asked about {int(terms.votes) + _MORE} times"
    attempts = attempts_at(
        [(terms.epsilon, terms.delta)],
        seen[0].astype(np.float64),
        seen[1].astype(np.float64),
        attack=f"{asked}: it moves squares of {int((moved**2).sum()):,} of {terms.squares:,}",
        confidence=effort.confidence,
        bound=score_lower_bound,
    )
    kind = type(target).__name__
    not_tested = "reports of wear, other orders of queries, insertions and deletions (these are enumerated: PROOF.md)"
    return settled(kind, attempts, plays=effort.plays, confidence=effort.confidence, not_tested=not_tested)


def _counted(target: Any, present: bool) -> tuple[Integers, Any]:
    """Return what gets noise in a world, and the terms: queries at the place of the record, a few more than it pays."""
    generator = np.random.default_rng(0)
    X = np.concatenate([[[1.0, 0.0]], generator.normal(size=(_OTHERS, 2))])
    y = np.concatenate([[1], generator.integers(0, 2, size=_OTHERS)])
    ends = target.bounds if isinstance(target, NeighbourRegressor) else target.classes
    labels = np.asarray(ends)[[0, -1]][y]
    model = type(target)(**target.get_params(deep=False)).fit(X[0 if present else 1 :], labels[0 if present else 1 :])
    queries = np.repeat(X[:1], int(model.terms_.votes) + _MORE, axis=0)
    counts = model.session_.answerer.units.count(model.space_.points(queries)).put_to(np.ravel)
    return counts, model.terms_


def neighbour_means(*, epsilon: float, delta: float, make: type[NeighbourRegressor] = NeighbourRegressor) -> Release:
    """Return the release of all means by a regressor of neighbours, as `trace` takes it.

    A person has a record for each question, at a place of its own, and a query is asked at each place: so a person
    votes on every question, and pays for all. `epsilon` is for one person replaced.
    """

    def release(rows: Any) -> Floats:
        people, questions = rows.shape
        places = np.arange(questions, dtype=np.float64)[:, np.newaxis]
        votes = float(questions)
        added = _added_epsilon(epsilon, delta, votes)
        model = make(epsilon=added, delta=delta, bounds=(-1, 1), radius=0.4, votes=votes, metric="euclidean")
        everyone = np.repeat(np.arange(people), questions)
        model.fit(np.tile(places, (people, 1)), rows.ravel().astype(np.float64), groups=everyone, public=places)
        return model.predict(places)

    return release


def _added_epsilon(epsilon: float, delta: float, votes: float) -> float:
    """Return an epsilon for addition or removal at which replacement has at most this one."""
    ballot, low, high = Levels(low=-1.0, high=1.0, centre=0.0), 0.0, epsilon
    for _ in range(20):
        middle = (low + high) / 2
        terms = Terms.calibrate(epsilon=middle, delta=delta, votes=votes, top=TOP, ballot=ballot)
        low, high = (middle, high) if terms.replaced_epsilon() <= epsilon else (low, middle)
    return low
