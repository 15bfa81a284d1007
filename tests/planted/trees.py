"""Trees whose cut points are shared: the histogram that makes boosting fast, made of all records.

The attack is the replay of `dealing`: one record replaced by an outlier may change one teacher, and moves the quantiles
of all records, and with them the cuts of every teacher.
"""

from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from planted.bug import maker_bug
from planted.dealing import replay_outlier
from quorate.models.predictors import PrivateClassifier

_BINS = 64


class CutsOfAll(PrivateClassifier):
    """Rounds each column to one of a few values, quantiles of all records, before they are dealt."""

    def fit(self, X: Any, y: Any, *more: Any, **settings: Any) -> "CutsOfAll":
        rows = np.asarray(X, dtype=np.float64)
        levels = np.quantile(rows, np.linspace(0, 1, _BINS), axis=0)  # the mistake
        columns = [level[np.searchsorted(level, column)] for level, column in zip(levels.T, rows.T, strict=True)]
        super().fit(np.stack(columns, axis=1), y, *more, **settings)
        return self


def _classifier(kind: type[PrivateClassifier]) -> PrivateClassifier:
    learner = DecisionTreeClassifier(max_depth=3)
    return kind(learner, epsilon=4.0, teachers=50, queries=30, aggregator="noisy_max", classes=[0, 1])


TREES = (maker_bug("cuts_of_all_records", "replay", _classifier, CutsOfAll, PrivateClassifier, replay_outlier),)
