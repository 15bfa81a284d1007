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
    """Votes of teachers that were fitted on one half of a public study, on the people of its other half."""

    votes: Counts
    codes: Counts

    @property
    def shares(self) -> NDArray[np.float64]:
        """The plurality's share of the votes, point by point."""
        shares: NDArray[np.float64] = self.votes.max(axis=1) / self.votes.sum(axis=1)
        return shares

    @property
    def disagreement(self) -> float:
        """The mean share of teachers that vote against the plurality."""
        return float(1 - self.shares.mean())

    def try_out(self, mechanism: Any, *, queries: int) -> tuple[float, float] | None:
        """Return the share of right answers and the share answered if this mechanism had to count such votes.

        The points are asked over and over, up to `queries`; None if nothing was answered. Draws real noise.
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
    """Fit teachers of the planned size on half of the people of a *public* study; let them vote on the other half."""
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
    """Return the votes that this many teachers would cast in the same shares; the rounding goes to the first."""
    scaled: Counts = np.floor(votes / votes.sum(axis=1, keepdims=True) * teachers).astype(np.int64)
    rows = np.arange(len(scaled))
    scaled[rows, scaled.argmax(axis=1)] += teachers - scaled.sum(axis=1)
    return scaled
