"""Learners that are chosen, or whose map is made, of all private records: one record's way into every teacher."""

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from planted.bug import Caught, maker_bug
from planted.dealing import replay_outlier
from quorate.models.predictors import PrivateClassifier

_RECORDS, _PUBLIC = 400, 300


class TriedOnRecords(PrivateClassifier):
    """Tries its learners on the private records, which are so much more like the queries than public ones."""

    def fit(self, X: Any, y: Any, groups: Any = None, *more: Any, **settings: Any) -> Any:
        return super().fit(X, y, groups, **settings | {"public": X, "public_labels": y})  # the mistake


class CentredProducts(PrivateClassifier):
    """Takes the products of columns around their means, which are those of all records."""

    def fit(self, X: Any, y: Any, *more: Any, **settings: Any) -> Any:
        rows = np.asarray(X, dtype=np.float64)
        return super().fit(rows - rows.mean(axis=0), y, *more, **settings)  # the mistake


def _choice_on_neighbours(target: PrivateClassifier) -> Caught:
    """Replace one record by an outlier of the other label, and look at what was expected of each learner."""
    random = np.random.default_rng(0)
    X, public = random.normal(size=(_RECORDS, 2)), random.normal(size=(_PUBLIC, 2))
    y, labels = ((rows[:, 0] * rows[:, 1] > 0).astype(np.int64) for rows in (X, public))
    chosen = target.fit(X, y, public=public, public_labels=labels).chosen_
    for row in range(3):
        moved, flipped = X.copy(), y.copy()
        moved[row], flipped[row] = [40.0, -40.0], 1 - y[row]
        other = target.fit(moved, flipped, public=public, public_labels=labels).chosen_
        if other != chosen:
            return Caught("choice on neighbours", "one record changes what was expected of the learners", found=True)
    return Caught("choice on neighbours", "the same learners and expectations, for three records replaced", found=False)


def _automatic(kind: type[PrivateClassifier]) -> PrivateClassifier:
    return kind("auto", epsilon=4.0, teachers=10, queries=30, aggregator="noisy_max", classes=[0, 1])


def _quadratic(kind: type[PrivateClassifier]) -> PrivateClassifier:
    learner = make_pipeline(PolynomialFeatures(include_bias=False), LogisticRegression())
    return kind(learner, epsilon=4.0, teachers=50, queries=30, aggregator="noisy_max", classes=[0, 1])


LEARNING = (
    maker_bug(
        "learner_tried_on_records", "replay", _automatic, TriedOnRecords, PrivateClassifier, _choice_on_neighbours
    ),
    maker_bug("products_around_means_of_all", "replay", _quadratic, CentredProducts, PrivateClassifier, replay_outlier),
)
