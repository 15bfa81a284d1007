"""Classifiers whose teachers are not apart, or that read off the records what they must be told.

The attack is a replay: the same randomness, the same queries, one record replaced. One teacher may change, and answers
that are paid for; nothing else.
"""

from typing import Any

import numpy as np

from planted.bug import Caught, PlantedBug, maker_bug
from quorate.auditing.replay import replay
from quorate.compute.ensemble import Ensemble, deal_units
from quorate.compute.learners import Deal
from quorate.models.predictors import PrivateClassifier
from quorate.tables.persons import unit_numbers


class UncheckedDeal(Deal):
    """A deal that may give a row to two teachers, which `Deal` refuses."""

    def __init__(self, rows: Any, sizes: Any) -> None:
        self.rows, self.sizes = np.asarray(rows), np.asarray(sizes)  # the mistake: nothing is checked


class ChunksOverlap(PrivateClassifier):
    """Gives each teacher the chunk of the next one too, so that every record has two teachers."""

    def fit(self, X: Any, y: Any, *more: Any, **settings: Any) -> "ChunksOverlap":
        super().fit(X, y, *more, **settings)
        rows = np.asarray(X, dtype=np.float64)
        right, _ = deal_units(*unit_numbers(len(rows)), teachers=self.teachers_)
        chunks = np.split(right.rows, np.cumsum(right.sizes)[:-1])
        pairs = [np.concatenate(pair) for pair in zip(chunks, chunks[1:] + chunks[:1], strict=True)]  # the mistake
        deal = UncheckedDeal(np.concatenate(pairs), [pair.size for pair in pairs])
        codes = np.searchsorted(self.classes_, np.asarray(y))
        ensemble = Ensemble.fit(rows, codes, deal, estimator=self._estimator(), classes=len(self.classes_))
        self._open(ensemble, self.plan_)
        return self


class ScaledByAll(PrivateClassifier):
    """Scales the records by the mean and the spread of all of them before they are dealt."""

    def fit(self, X: Any, y: Any, *more: Any, **settings: Any) -> "ScaledByAll":
        rows = np.asarray(X, dtype=np.float64)
        super().fit((rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-12), y, *more)  # the mistake
        return self


class InferredClasses(PrivateClassifier):
    """Takes the classes from the labels, and its claim says nothing of it."""

    @property
    def claim_(self) -> str:
        """The claim without what `PrivateClassifier` adds to it: that is the mistake."""
        return super().claim_.partition(";")[0]


def replay_outlier(target: PrivateClassifier) -> Caught:
    """Replace one record by an outlier of the other label, on one tape; then another record; and so on."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(1000, 3))
    y = (X[:, 0] + 0.3 * generator.normal(size=1000) > 0).astype(np.int64)
    queries = generator.normal(size=(30, 3))
    for row in range(8):
        moved, flipped = X.copy(), y.copy()
        moved[row], flipped[row] = [400.0, -400.0, 400.0], 1 - y[row]
        seen = replay(target, (X, y), (moved, flipped), queries, seed=row)
        if not seen.sound:
            return Caught("replay on neighbours", "; ".join(seen.forbidden), found=True)
    return Caught("replay on neighbours", "nothing differed that must not, for eight records replaced", found=False)


def replay_rare_label(target: PrivateClassifier) -> Caught:
    """Give one record a label that no other record has, on one tape."""
    X = np.random.default_rng(0).normal(size=(1000, 1))
    y = np.where(X[:, 0] > 0, "often", "rarely")
    other = y.copy()
    other[-1] = "secret"
    seen = replay(target, (X, y), (X, other), X[:5])
    said = seen.forbidden[0] if seen.forbidden else "nothing differed that must not"
    return Caught("replay on neighbours", said, found=not seen.sound)


def _classifier(kind: type[PrivateClassifier] = PrivateClassifier, **settings: Any) -> PrivateClassifier:
    return kind(epsilon=4.0, teachers=50, queries=30, aggregator="noisy_max", **settings)


def _bug(name: str, broken: type[PrivateClassifier]) -> PlantedBug:
    return maker_bug(name, "replay", _classifier, broken, PrivateClassifier, replay_outlier, classes=[0, 1])


DEALING = (
    _bug("record_in_two_teachers", ChunksOverlap),
    _bug("scaler_of_all_records", ScaledByAll),
    PlantedBug(
        "classes_inferred",
        "replay",
        lambda: _classifier(InferredClasses),
        lambda: _classifier(classes=["often", "rarely", "secret"]),
        replay_rare_label,
    ),
)
