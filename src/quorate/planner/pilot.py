"""What labelled public rows tell about a plan, before any private record is read: a pilot.

Teachers are fitted on one half of the public rows and vote on the other half, and the other way round. A half that is
small is dealt to teachers more than once. That shows how much teachers of the planned size disagree, and how often they
are right; and one model of all of a half shows what public rows give by themselves.
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
from quorate.core.isolation import silence
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.rows import take_rows

LEAST_HALF = 50  # public units: fewer show nothing
_COMMITTEE = 64  # teachers, at least: fewer do not show how much they disagree
_MOST_TEACHERS = 100  # of a half: more show nothing new
_TRIED = 10_000  # queries of a run, at most: more show nothing new either
_SURE = 2.0  # standard errors by which public rows alone must be better for it to be said


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """Votes on public rows, of teachers that were fitted on the half of them to which the row does not belong.

    `codes` are the labels of these rows and `alone` how often one model of all of the other half is right on them, None
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
        points = np.resize(np.arange(len(self.codes)), queries)
        answers = mechanism.answers(scaled_votes(self.votes, mechanism.teachers)[points])
        answered = answers.answered
        if not answered.any():
            return None
        right = answers.labels[answered] == self.codes[points[: answered.size]][answered]
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
    units_per_teacher: int,
    **fitting: Any,
) -> Pilot:
    """Let teachers of each half of the *public* units vote on the rows of the other half, as those of the plan would.

    Every row is a unit of its own, unless told. `fitting` is as for `Ensemble.fit_parts`. Raises `Infeasible` where
    half of the units are fewer than a teacher has, or too few to show anything. The same rows give the same votes.
    """
    owners_ = np.arange(len(codes)) if units is None else units
    people = np.unique(owners_)
    needed = 2 * max(units_per_teacher, LEAST_HALF)
    if people.size < needed:
        raise Infeasible(
            f"{people.size:,} public units are too few to stand for teachers of {units_per_teacher:,} units each: it "
            f"takes {needed:,}, or more and smaller teachers"
        )
    random = np.random.default_rng(0)
    positions = random.permutation(people.size)[np.searchsorted(people, owners_)]
    halves = np.split(np.arange(people.size), [people.size // 2])
    votes, right, judged = [], [], []
    for pool, rest in (halves, halves[::-1]):
        first, last = (np.flatnonzero(np.isin(positions, half)) for half in (pool, rest))
        owners = [owner[positions] for owner in _owners(random, pool, units_per_teacher, places=people.size)]
        queries = take_rows(X, last)
        votes.append(_votes(X, codes, owners, queries, **fitting))
        right.append(_right(fitting["estimator"], take_rows(X, first), codes[first], queries, codes[last]))
        judged.append(codes[last])
    known_right = [mask for mask in right if mask is not None]
    alone = float(np.concatenate(known_right).mean()) if len(known_right) == len(right) else None
    return Pilot(votes=np.concatenate(votes), codes=np.concatenate(judged), alone=alone)


def _owners(random: np.random.Generator, pool: Integers, size: int, *, places: int) -> list[Integers]:
    """Return which teacher has which place, in each of several deals of the places of a pool; -1 is nobody.

    Where one deal makes too few teachers, the pool is dealt again and again. Teachers of s units out of the same n vary
    among themselves as 1/s - 1/n and not as 1/s, the correction for a finite population: with s = mn / (m + n) they
    differ as teachers of m units of their own do.
    """
    if pool.size // size < _COMMITTEE:
        size = max(1, round(size * pool.size / (size + pool.size)))
    count = min(pool.size // size, _MOST_TEACHERS)
    owners = []
    for _ in range(-(-_COMMITTEE // count)):
        owner = np.full(places, -1)
        owner[random.permutation(pool)[: count * size]] = np.arange(count * size) % count
        owners.append(owner)
    return owners


def _votes(X: Any, codes: Integers, owners: list[Integers], queries: Any, **fitting: Any) -> Integers:
    """Return the votes of the teachers of all these deals together."""
    parts = [(X, codes, Deal.by_assignment(owner, teachers=int(owner.max()) + 1)) for owner in owners]
    teachers, dealt = (sum(counts) for counts in zip(*((d.teachers, d.rows.size) for _, _, d in parts), strict=True))
    fitted = Ensemble.fit_parts(parts, teachers, units=dealt, **fitting)
    return np.asarray(fitted.electorate.votes(queries))


def _right(estimator: Any, X: Any, codes: Integers, queries: Any, truth: Integers) -> NDArray[np.bool_] | None:
    """Return where one model of these rows is right on others."""
    with silence():
        try:
            model = clone(estimator).fit(X, codes)
            right: NDArray[np.bool_] = np.asarray(model.predict(queries)) == truth
            return right
        except Exception:  # somebody else's estimator, on rows of one class perhaps: there is nothing to compare
            return None


def scaled_votes(votes: Integers, teachers: int) -> Integers:
    """Return the votes that this many teachers would cast in the same shares; the rounding goes to the first."""
    scaled: Integers = np.floor(votes / votes.sum(axis=1, keepdims=True) * teachers).astype(np.int64)
    rows = np.arange(len(scaled))
    scaled[rows, scaled.argmax(axis=1)] += teachers - scaled.sum(axis=1)
    return scaled
