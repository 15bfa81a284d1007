"""What a small public study tells about a plan, before any private record is read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.errors import Infeasible, InvalidInput
from quorate.learners import Deal, batched_equivalent

__all__ = ["Pilot", "run_pilot", "scaled_votes"]

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """Votes of teachers that were fitted on one half of a public study, on the people of its other half.

    >>> pilot = Pilot(votes=np.array([[9, 1], [2, 8]]), codes=np.array([0, 1]))
    >>> pilot.shares, round(pilot.disagreement, 2)
    (array([0.9, 0.8]), 0.15)
    """

    votes: Counts
    codes: Counts

    @property
    def shares(self) -> NDArray[np.float64]:
        """The plurality's share of the votes, point by point.

        >>> Pilot(votes=np.array([[3, 1]]), codes=np.array([0])).shares
        array([0.75])
        """
        shares: NDArray[np.float64] = self.votes.max(axis=1) / self.votes.sum(axis=1)
        return shares

    @property
    def disagreement(self) -> float:
        """The mean share of teachers that vote against the plurality.

        >>> Pilot(votes=np.array([[3, 1]]), codes=np.array([0])).disagreement
        0.25
        """
        return float(1 - self.shares.mean())

    def try_out(self, mechanism: Any, *, queries: int) -> tuple[float, float] | None:
        """Return the share of right answers and the share answered if this mechanism had to count such votes.

        The points are asked over and over, up to `queries`; None if nothing was answered. Draws real noise.

        >>> from quorate.mechanisms import NoisyMax
        >>> pilot = Pilot(votes=np.array([[10, 0], [0, 10]]), codes=np.array([0, 1]))
        >>> pilot.try_out(NoisyMax(teachers=1000, classes=2, scale=10.0), queries=6)
        (1.0, 1.0)
        """
        places = np.resize(np.arange(len(self.codes)), queries)
        answers = mechanism.answers(scaled_votes(self.votes, mechanism.teachers)[places])
        answered = answers.answered
        if not answered.any():
            return None
        right = answers.labels[answered] == self.codes[places[: answered.size]][answered]
        return float(right.mean()), float(answered.sum() / queries)


def run_pilot(
    X: NDArray[np.float64], codes: Counts, units: Counts, *, estimator: Any, people_per_teacher: int, classes: int
) -> Pilot:
    """Fit teachers of the planned size on half of the people of a *public* study; let them vote on the other half.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.linspace(-1, 1, 400)[:, np.newaxis]
    >>> codes, units = (X[:, 0] > 0).astype(np.int64), np.arange(400)
    >>> pilot = run_pilot(X, codes, units, estimator=LogisticRegression(), people_per_teacher=20, classes=2)
    >>> pilot.votes.shape, pilot.votes.sum(axis=1)[0]
    ((200, 2), np.int64(10))
    """
    learner = batched_equivalent(estimator)
    if learner is None:
        raise InvalidInput("the pilot needs an estimator that is fitted in batches, such as LogisticRegression()")
    people = np.unique(units)
    teachers = people.size // (2 * people_per_teacher)
    if teachers < 2:
        raise Infeasible(
            f"a pilot of {people.size} people cannot stand for teachers of {people_per_teacher} people each; "
            f"it takes at least {4 * people_per_teacher} people, or more and smaller teachers"
        )
    place = np.random.default_rng().permutation(people.size)[np.searchsorted(people, units)]
    owner = np.where(place < teachers * people_per_teacher, place % teachers, -1)
    fitted = learner.fit(X, codes, Deal.by_assignment(owner, teachers=teachers), classes=classes)
    points = place >= people.size - people.size // 2
    return Pilot(votes=fitted.votes(X[points]), codes=codes[points])


def scaled_votes(votes: Counts, teachers: int) -> Counts:
    """Return the votes that this many teachers would cast in the same shares; what rounding leaves goes to the first.

    >>> scaled_votes(np.array([[2, 1]]), 100)
    array([[67, 33]])
    """
    scaled: Counts = np.floor(votes / votes.sum(axis=1, keepdims=True) * teachers).astype(np.int64)
    rows = np.arange(len(scaled))
    scaled[rows, scaled.argmax(axis=1)] += teachers - scaled.sum(axis=1)
    return scaled
