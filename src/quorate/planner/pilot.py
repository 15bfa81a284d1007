"""A pilot tests a plan on labelled public rows, before any private record is read.

Teachers are fitted on each half of the public rows and vote on the other half. A small half is dealt to teachers more
than once. The votes show how much teachers of the planned size disagree and how often they are correct. One model of a
whole half shows how accurate the public rows are without private ones.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from quorate.compute.ensemble import Ensemble
from quorate.compute.learners import Deal
from quorate.core.arrays import Integers
from quorate.core.errors import Infeasible
from quorate.core.estimator_calls import silence
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.rows import take_rows

LEAST_HALF = 50  # public units of a half; an estimate from fewer is too uncertain
_LEAST_TEACHERS = 64  # of a half; fewer do not show how much teachers disagree
_MOST_TEACHERS = 100  # of a half; more do not change the estimate
_MOST_QUERIES = 10_000  # of a run that is tried; more do not change the estimate
_WARNING_ERRORS = 2.0  # standard errors by which public rows alone must be better to cause a warning


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """Votes on public rows, each by teachers that were fitted on the half without that row.

    `codes` are the labels of these rows. `alone` is the accuracy of one model of the whole other half, or None if that
    model could not be fitted.
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
        """Return the share of correct answers and the share answered when this mechanism counts these votes.

        The points are repeated up to `queries`, and real noise is drawn. None if no query was answered.
        """
        points = np.resize(np.arange(len(self.codes)), queries)
        answers = mechanism.answers(scaled_votes(self.votes, mechanism.teachers)[points])
        answered = answers.answered
        if not answered.any():
            return None
        right = answers.labels[answered] == self.codes[points[: answered.size]][answered]
        return float(right.mean()), float(answered.sum() / queries)

    def warning(self, mechanism: Any, *, queries: int) -> str | None:
        """Return a warning if public rows alone are clearly more accurate than these answers, else None."""
        if self.alone is None:
            return None
        tried = min(queries, _MOST_QUERIES) if isinstance(mechanism, ThresholdMechanism) else len(self.codes)
        right, answered = self.try_out(mechanism, queries=tried) or (0.0, 0.0)
        error = np.sqrt(max(self.alone * (1 - self.alone), 1e-4) * (1 / len(self.codes) + 1 / tried))
        if self.alone <= right * answered + _WARNING_ERRORS * error:
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
    units_per_teacher: int,
    **fitting: Any,
) -> Pilot:
    """Fit teachers of the planned size on each half of the *public* units, and count their votes on the other half.

    Each row is a unit unless `units` numbers the units. `fitting` is as for `Ensemble.fit_parts`. The result is
    deterministic.

    Raises
    ------
    Infeasible
        If half of the units are fewer than one teacher has, or too few for an estimate.
    """
    owners_ = np.arange(len(codes)) if units is None else units
    people = np.unique(owners_)
    needed = 2 * max(units_per_teacher, LEAST_HALF)
    if people.size < needed:
        raise Infeasible(
            f"a pilot of teachers of {units_per_teacher:,} units each needs {needed:,} public units, got "
            f"{people.size:,}; add public units, or plan more and smaller teachers"
        )
    random = np.random.default_rng(0)
    positions = random.permutation(people.size)[np.searchsorted(people, owners_)]
    halves = np.split(np.arange(people.size), [people.size // 2])
    votes, right, judged = [], [], []
    for pool, rest in (halves, halves[::-1]):
        first, last = (np.flatnonzero(np.isin(positions, half)) for half in (pool, rest))
        owners = [owner[positions] for owner in _owners(random, pool, units_per_teacher, people=people.size)]
        queries = take_rows(X, last)
        votes.append(_votes(X, codes, owners, queries, **fitting))
        right.append(_right(fitting["estimator"], take_rows(X, first), codes[first], queries, codes[last]))
        judged.append(codes[last])
    known_right = [mask for mask in right if mask is not None]
    alone = float(np.concatenate(known_right).mean()) if len(known_right) == len(right) else None
    return Pilot(votes=np.concatenate(votes), codes=np.concatenate(judged), alone=alone)


def _owners(random: np.random.Generator, pool: Integers, size: int, *, people: int) -> list[Integers]:
    """Return the teacher of each unit in several deals of a pool; -1 stands for no teacher.

    If one deal makes too few teachers, the pool is dealt repeatedly. Teachers of s units out of the same n vary as
    1/s - 1/n instead of 1/s, which is the correction for a finite population. With s = mn / (m + n) they vary like
    teachers of m independent units.
    """
    if pool.size // size < _LEAST_TEACHERS:
        size = max(1, round(size * pool.size / (size + pool.size)))
    count = min(pool.size // size, _MOST_TEACHERS)
    owners = []
    for _ in range(-(-_LEAST_TEACHERS // count)):
        owner = np.full(people, -1)
        owner[random.permutation(pool)[: count * size]] = np.arange(count * size) % count
        owners.append(owner)
    return owners


def _votes(X: Any, codes: Integers, owners: list[Integers], queries: Any, **fitting: Any) -> Integers:
    parts = [(X, codes, Deal.by_assignment(owner, teachers=int(owner.max()) + 1)) for owner in owners]
    teachers, dealt = (sum(counts) for counts in zip(*((d.teachers, d.rows.size) for _, _, d in parts), strict=True))
    fitted = Ensemble.fit_parts(parts, teachers, units=dealt, **fitting)
    return np.asarray(fitted.electorate.votes(queries))


def _right(estimator: Any, X: Any, codes: Integers, queries: Any, truth: Integers) -> NDArray[np.bool_] | None:
    """Return the queries that one model of these rows labels correctly; None if it cannot be fitted."""
    with silence():
        try:
            model = clone(estimator).fit(X, codes)
            right: NDArray[np.bool_] = np.asarray(model.predict(queries)) == truth
            return right
        except Exception:  # A user estimator may fail, for example on rows of one class; then there is no comparison.
            return None


def scaled_votes(votes: Integers, teachers: int) -> Integers:
    """Return the votes of this many teachers in the same shares; the first class takes the rounding."""
    scaled: Integers = np.floor(votes / votes.sum(axis=1, keepdims=True) * teachers).astype(np.int64)
    rows = np.arange(len(scaled))
    scaled[rows, scaled.argmax(axis=1)] += teachers - scaled.sum(axis=1)
    return scaled
