"""What labelled public rows tell about a plan, before any private record is read: a pilot.

Teachers of the planned size are fitted on one half of the public rows and vote on the other half. That shows how much
teachers of this size disagree, and how often they are right; and one model of all that first half shows what public
rows give by themselves.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from quorate.arrays import Integers
from quorate.ensemble import Ensemble
from quorate.errors import Infeasible
from quorate.learners import Deal, DeviceName
from quorate.mechanisms.base import ThresholdMechanism
from quorate.quiet import silence
from quorate.rows import take_rows

__all__ = ["LEAST_TEACHERS", "Pilot", "run_pilot", "scaled_votes"]

LEAST_TEACHERS = 8  # fewer do not show how much they disagree
_MOST_TEACHERS = 200  # more show nothing new
_TRIED = 10_000  # queries of a run, at most: more show nothing new either
_SURE = 2.0  # standard errors by which public rows alone must be better for it to be said


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """Votes of teachers that were fitted on one half of the public rows, on the rows of the other half.

    `codes` are the labels of these rows and `alone` how often one model of all of the first half is right on them, None
    where it could not be fitted.
    """

    votes: Integers
    codes: Integers
    alone: float | None = None

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

    def warning(self, mechanism: Any, *, queries: int) -> str | None:
        """Return what to say where public rows alone are clearly better than these answers would be, or None."""
        if self.alone is None:
            return None
        tried = min(queries, _TRIED) if isinstance(mechanism, ThresholdMechanism) else len(self.codes)
        right, answered = self.try_out(mechanism, queries=tried) or (0.0, 0.0)
        error = np.sqrt(max(self.alone * (1 - self.alone), 1e-4) * (1 / len(self.codes) + 1 / tried))
        if self.alone <= right * answered + _SURE * error:
            return None
        return (
            f"public rows alone would do better: one model of half of them is right on {self.alone:.1%} of the other "
            f"half; of private answers {answered:.1%} would come, {right:.1%} of them right. Use the public rows "
            "alone, a linear model, or fewer teachers"
        )


def run_pilot(
    X: Any,
    codes: Integers,
    units: Integers | None = None,
    *,
    estimator: Any,
    units_per_teacher: int,
    classes: int,
    n_jobs: int | None = None,
    backend: str | None = None,
    device: DeviceName = "auto",
) -> Pilot:
    """Fit teachers of the planned size on half of the *public* units; let them vote on the rows of the other half.

    Every row is a unit of its own, unless told. Raises `Infeasible` where there are too few of them. The same rows give
    the same votes.
    """
    known = np.arange(len(codes)) if units is None else units
    people = np.unique(known)
    teachers = min(people.size // (2 * units_per_teacher), _MOST_TEACHERS)
    if teachers < LEAST_TEACHERS:
        needed = 2 * LEAST_TEACHERS * units_per_teacher
        raise Infeasible(
            f"{people.size:,} public units are too few to stand for teachers of {units_per_teacher:,} units each: it "
            f"takes {needed:,}, or more and smaller teachers"
        )
    place = np.random.default_rng(0).permutation(people.size)[np.searchsorted(people, known)]
    owner = np.where(place < teachers * units_per_teacher, place % teachers, -1)
    deal = Deal.by_assignment(owner, teachers=teachers)
    fitted = Ensemble.fit(
        X, codes, deal, estimator=estimator, classes=classes, n_jobs=n_jobs, backend=backend, device=device
    )
    first, last = (np.flatnonzero(half) for half in (place < people.size // 2, place >= people.size - people.size // 2))
    judged = take_rows(X, last)
    alone = _alone(estimator, take_rows(X, first), codes[first], judged, codes[last])
    return Pilot(votes=np.asarray(fitted.fitted.votes(judged)), codes=codes[last], alone=alone)


def _alone(estimator: Any, X: Any, codes: Integers, judged: Any, truth: Integers) -> float | None:
    """Return how often one model of these rows is right on others."""
    with silence():
        try:
            model = clone(estimator).fit(X, codes)
            return float(np.mean(np.asarray(model.predict(judged)) == truth))
        except Exception:  # somebody else's estimator, on rows of one class perhaps: there is nothing to compare
            return None


def scaled_votes(votes: Integers, teachers: int) -> Integers:
    """Return the votes that this many teachers would cast in the same shares; the rounding goes to the first."""
    scaled: Integers = np.floor(votes / votes.sum(axis=1, keepdims=True) * teachers).astype(np.int64)
    rows = np.arange(len(scaled))
    scaled[rows, scaled.argmax(axis=1)] += teachers - scaled.sum(axis=1)
    return scaled
