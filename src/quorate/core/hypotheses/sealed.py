"""A class of one's own, sealed: whatever it does on private rows, no error leaves, and a row speaks for itself alone.

The classes of this package do not fail on finite rows. A class of one's own may, and then its error, or what is done
instead, would speak of private rows. Sealed, it cannot: what it says of a row is 0, or "not usable", where it fails on
that row, whatever the other rows are; its candidates are the constant 0 alone where it fails on the points that define
them. So mistakes move by at most one for each row that is replaced, and candidates depend on the points that define
them and on nothing else: all that a private choice asks of a class (`models/predictors/PROOF_CONCEPTS.md`, step 0).
"""

from functools import partial
from typing import Any

import numpy as np

from quorate.core.errors import Infeasible
from quorate.core.estimator_calls import silence
from quorate.core.hypotheses.concept import (
    LISTED,
    Concept,
    Constant,
    Dichotomies,
    Hypothesis,
    Labels,
    Mask,
    Points,
    check_points,
    say_by_row,
)

_HERE = "quorate.models.concepts."  # the classes of this package; a class that inherits from one is somebody else's


def seal_concept(concept: Concept) -> Concept:
    """Return a class that never fails on private rows: this one, if it is of this package, or one around it."""
    return concept if _is_ours(concept) else _Sealed(concept)


def seal_candidates(candidates: Dichotomies) -> Dichotomies:
    """Return candidates that never fail on private rows: for those that public points define."""
    return candidates if _is_ours(candidates) else _Candidates(candidates, candidates.features)


def unseal_hypothesis(hypothesis: Hypothesis) -> Hypothesis:
    """Return a chosen hypothesis as its class made it: for one that is published, and met by public points alone."""
    return hypothesis.inside if isinstance(hypothesis, _Labels) else hypothesis


def works_alone(concept: Concept, points: Points) -> Mask:
    """Return on which rows the class does not fail: each is looked at by itself."""
    if _is_ours(concept):
        return np.ones(len(points), dtype=np.bool_)
    keys = [row.tobytes() for row in points]
    works = {key: _works(concept, row[np.newaxis]) for key, row in dict(zip(keys, points, strict=True)).items()}
    return np.array([works[key] for key in keys], dtype=np.bool_)


def _works(concept: Concept, row: Points) -> bool:
    try:
        with silence():
            pair = concept.dichotomies(row.copy())
            if not 1 <= len(pair) <= 2:  # a row has two labels
                return False
            predictions = [np.asarray(pair[index].label_points(row.copy())) for index in range(len(pair))]
            return all(prediction.shape == (1,) and prediction[0] in (0, 1) for prediction in predictions)
    except Exception:  # of any kind: the class is the caller's own
        return False


def _is_ours(thing: object) -> bool:
    return type(thing).__module__.startswith(_HERE)


class _Sealed(Concept):
    """A class of one's own whose failures are its own affair."""

    def __init__(self, concept: Concept) -> None:
        self._concept, self.features = concept, concept.features

    @property
    def vc_dimension(self) -> int:
        return self._concept.vc_dimension

    def growth(self, points: int) -> int:
        return self._concept.growth(points)

    def check_size(self, rows: int) -> None:
        self._concept.check_size(rows)

    def _usable(self, points: Points) -> Mask:
        return say_by_row(self._concept.usable, points)

    def dichotomies(self, X: Any) -> Dichotomies:
        points = check_points(X, features=self.features)
        self.check_size(len(points))
        return self._dichotomies(points)

    def _dichotomies(self, points: Points) -> Dichotomies:
        try:
            with silence():
                dichotomies = self._concept.dichotomies(points.copy())
                return (
                    dichotomies
                    if _is_ours(dichotomies) and dichotomies.features == self.features
                    else _Candidates(dichotomies, self.features)
                )
        except Exception:  # of any kind: it would speak of the points
            return _Candidates(_Nothing(self.features), self.features)


class _Nothing(Dichotomies):
    """The one candidate that there is where a class fails: 0 for all."""

    def __init__(self, features: int) -> None:
        self.features = features

    def __len__(self) -> int:
        return 1

    def _candidate(self, index: int) -> Hypothesis:
        return Constant(features=self.features, label=0)


class _Candidates(Dichotomies):
    """Candidates of one's own: counted one by one where they do not count themselves, and listed in any case.

    A tally of one's own is not asked. It might fail when a candidate is fetched, after the draw and because of it.
    """

    def __init__(self, inside: Dichotomies, features: int) -> None:
        self._inside, self.features, self._size = inside, features, len(inside)
        self.usable = partial(say_by_row, inside.usable)
        if not 1 <= self._size <= LISTED:
            raise Infeasible(f"a class of one's own lists 1 to {LISTED} candidates, not {self._size}")

    def __len__(self) -> int:
        return self._size

    def _candidate(self, index: int) -> Hypothesis:
        try:
            candidate = self._inside[index]
        except Exception:  # of any kind: it would speak of what was chosen
            candidate = None
        if isinstance(candidate, Hypothesis):
            return _Labels(candidate, self.features)
        return Constant(features=self.features, label=0)

    def _mistakes(self, points: Points, labels: Labels) -> Any:
        counted = self._count_mistakes(points, labels)
        return super()._mistakes(points, labels) if counted is None else counted

    def _count_mistakes(self, points: Points, labels: Labels) -> Any:
        """Return the mistakes as the candidates count them by a way of their own, if they have one and it works."""
        if not self._inside.counts_mistakes:
            return None
        try:
            with silence():
                mistakes = np.asarray(self._inside.mistakes_on(points.copy(), labels.copy()))
        except Exception:  # of any kind: it would speak of the rows
            return None
        numbers = mistakes.shape == (self._size,) and mistakes.dtype.kind in "iu"
        return mistakes.astype(np.int64) if numbers and ((mistakes >= 0) & (mistakes <= len(labels))).all() else None


class _Labels(Hypothesis):
    """A hypothesis of one's own that says 0 of a row on which it fails."""

    def __init__(self, inside: Hypothesis, features: int) -> None:
        self.inside, self.features = inside, features

    def _predict(self, points: Points) -> Any:
        return say_by_row(self.inside.label_points, points).astype(np.int64)
