"""Ensembles whose teachers are not apart, and classifiers that read what they must be told.

The attack is a replay: the same deal, the same queries, one record replaced. One teacher may change, and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from quorate.audit.planted.bug import Caught, PlantedBug
from quorate.ensemble import Ensemble
from quorate.learners import Deal
from quorate.predictors import PrivateClassifier

__all__ = [
    "DEALING",
    "CentredByAll",
    "DealtTwice",
    "InferredClasses",
    "Replayed",
    "TwoDeals",
    "replay_classes",
    "replay_teachers",
]

Records = NDArray[np.float64]


@dataclass(frozen=True)
class Replayed:
    """Teachers fitted on a deal that does not depend on the records: what a replay on neighbours looks at.

    >>> generator = np.random.default_rng(0)
    >>> X, codes = generator.normal(size=(40, 2)), generator.integers(0, 2, size=40)
    >>> Replayed(teachers=4).ballots(X, codes, queries=X[:3]).shape
    (4, 3)
    """

    teachers: int

    def deal(self, rows: int) -> Deal:
        """Return which rows belong to which teacher.

        >>> Replayed(teachers=4).deal(8).sizes
        array([2, 2, 2, 2])
        """
        return Deal.by_assignment(np.random.default_rng(7).permutation(rows) % self.teachers, teachers=self.teachers)

    def prepared(self, X: Records) -> Callable[[Records], Records]:
        """Return what is done to rows before a teacher sees them: nothing.

        >>> Replayed(teachers=4).prepared(np.zeros((2, 1)))(np.ones((1, 1)))
        array([[1.]])
        """
        return lambda rows: rows

    def ballots(self, X: Records, codes: NDArray[np.int64], *, queries: Records) -> NDArray[Any]:
        """Return every teacher's ballot on every query.

        >>> X = np.array([[-1.0], [1.0]] * 4)
        >>> Replayed(teachers=2).ballots(X, np.array([0, 1] * 4), queries=np.array([[3.0]])).shape
        (2, 1)
        """
        prepared = self.prepared(X)
        deal = self.deal(len(X))
        made = Ensemble.fit(prepared(X), codes, deal, estimator=LogisticRegression(), classes=2)
        return np.asarray(made.fitted.ballots(prepared(queries))).T


class TwoDeals(Deal):
    """A deal that gives some rows to two teachers, which `Deal` refuses.

    >>> TwoDeals([0, 1, 1], [2, 1]).rows
    array([0, 1, 1])
    """

    def __init__(self, rows: Any, sizes: Any) -> None:
        self.rows, self.sizes = np.asarray(rows), np.asarray(sizes)  # the mistake: nothing is checked


class DealtTwice(Replayed):
    """Draws each chunk for itself, so that one record may have two teachers.

    >>> DealtTwice(teachers=4).deal(8).rows.size > 8
    True
    """

    def deal(self, rows: int) -> Deal:
        """Return chunks that overlap.

        >>> int(DealtTwice(teachers=2).deal(4).sizes.sum()) > 4
        True
        """
        once, again = super().deal(rows), np.random.default_rng(8).permutation(rows)
        first = np.split(once.rows, np.cumsum(once.sizes)[:-1])
        chunks = [np.union1d(one, two) for one, two in zip(first, np.array_split(again, self.teachers), strict=True)]
        return TwoDeals(np.concatenate(chunks), np.array([chunk.size for chunk in chunks]))


class CentredByAll(Replayed):
    """Fits a scaler on all records before they are dealt: every teacher then depends on every record.

    >>> CentredByAll(teachers=2).prepared(np.array([[0.0], [2.0]]))(np.array([[2.0]]))
    array([[1.]])
    """

    def prepared(self, X: Records) -> Callable[[Records], Records]:
        """Return the scaler of all records.

        >>> CentredByAll(teachers=2).prepared(np.array([[0.0], [4.0]]))(np.array([[2.0]]))
        array([[0.]])
        """
        centre, spread = X.mean(axis=0), X.std(axis=0) + 1e-12  # the mistake
        return lambda rows: (rows - centre) / spread


class InferredClasses(PrivateClassifier):
    """Takes the classes from the labels, and its claim says nothing of it.

    >>> InferredClasses(teachers=20).classes is None
    True
    """

    @property
    def claim_(self) -> str:
        """The claim without what `PrivateClassifier` adds to it: that is the mistake.

        >>> hasattr(InferredClasses(), "claim_")
        False
        """
        return super().claim_.partition(";")[0]


def replay_teachers(target: Replayed) -> Caught:
    """Replace one record, an outlier, with the deal kept, and count the teachers whose ballots change.

    >>> replay_teachers(Replayed(teachers=20)).found
    False
    """
    generator = np.random.default_rng(0)
    X = generator.normal(size=(20 * target.teachers, 3))
    codes = (X[:, 0] + 0.3 * generator.normal(size=len(X)) > 0).astype(np.int64)
    queries = generator.normal(size=(200, 3))
    before = target.ballots(X, codes, queries=queries)
    most = 0
    for row in range(0, len(X), len(X) // 10):
        moved, flipped = X.copy(), codes.copy()
        moved[row], flipped[row] = [400.0, -400.0, 400.0], 1 - codes[row]
        changed = (target.ballots(moved, flipped, queries=queries) != before).any(axis=1)
        most = max(most, int(changed.sum()))
    evidence = f"replacing one record changes the ballots of {most} teachers, and of 1 at most it may"
    return Caught("replay on neighbours", evidence, found=most > 1)


def replay_classes(target: PrivateClassifier) -> Caught:
    """Fit on two data sets, of which one has a single record with a rare label, and compare what the world can see.

    >>> replay_classes(_declared()).found
    False
    """
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2000, 1))
    labels = np.where(X[:, 0] > 0, "often", "rarely")
    seen = []
    for last in ("often", "secret"):
        neighbour = labels.astype("<U8")
        neighbour[-1] = last
        seen.append(tuple(target.fit(X, neighbour).classes_))
    differ = len(set(seen)) > 1 and "public" not in target.claim_
    evidence = f"one record decides whether there are {len(seen[0])} or {len(seen[1])} classes, which the claim hides"
    return Caught("replay on neighbours", evidence if differ else "the classes do not depend on a record", found=differ)


def _declared(kind: type[PrivateClassifier] = PrivateClassifier, **settings: Any) -> PrivateClassifier:
    return kind(epsilon=2.0, teachers=100, queries=5, aggregator="noisy_max", **settings)


DEALING = (
    PlantedBug(
        "record_in_two_teachers",
        "a record that two teachers are fitted on",
        "replay",
        lambda: DealtTwice(teachers=20),
        lambda: Replayed(teachers=20),
        lambda target, plays, seed: replay_teachers(target),
    ),
    PlantedBug(
        "scaler_of_all_records",
        "a scaler fitted on all records before they are dealt",
        "replay",
        lambda: CentredByAll(teachers=20),
        lambda: Replayed(teachers=20),
        lambda target, plays, seed: replay_teachers(target),
    ),
    PlantedBug(
        "classes_inferred",
        "classes read off the private labels, without a word in the claim",
        "replay",
        lambda: _declared(InferredClasses),
        lambda: _declared(classes=["often", "rarely", "secret"]),
        lambda target, plays, seed: replay_classes(target),
    ),
)
