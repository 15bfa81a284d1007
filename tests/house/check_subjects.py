"""Every public estimator as scikit-learn's checks can fit it: next to no noise, and what else a fit needs.

The checks call `fit(X, y)` on tables of one to 300 rows. What they know nothing of is given here: public rows (the
records serve as such), a model that was published, a phase for every query.
"""

import contextlib
from functools import partial
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeClassifier

import quorate as qr
from quorate.models.students import QueryReleaseClassifier
from quorate.tables.features import AdditiveColumns, HashedColumns


def _own_rows(kind):
    """Return the estimator with the records as its public rows."""

    def fit(self, X, y=None, groups=None):
        return kind.fit(self, X, y, groups=groups, public=X)

    return type(f"Own{kind.__name__}", (kind,), {"fit": fit, "__module__": __name__})


def _own_weighed_rows(kind):
    """Return the same of an estimator that is offered weights."""

    def fit(self, X, y=None, groups=None, sample_weight=None):
        return kind.fit(self, X, y, groups=groups, public=X, sample_weight=sample_weight)

    return type(f"Own{kind.__name__}", (kind,), {"fit": fit, "__module__": __name__})


OwnPrivateLogisticRegression = _own_weighed_rows(qr.PrivateLogisticRegression)
OwnPrivateLinearRegression = _own_weighed_rows(qr.PrivateLinearRegression)
OwnPrivatePoissonRegression = _own_weighed_rows(qr.PrivatePoissonRegression)
OwnStudentClassifier = _own_rows(qr.StudentClassifier)
OwnSemiPrivateClassifier = _own_rows(qr.SemiPrivateClassifier)
OwnQueryReleaseClassifier = _own_rows(QueryReleaseClassifier)
OwnPrivateSearchCV = _own_rows(qr.PrivateSearchCV)


class DrawnColumns(HashedColumns):
    """Directions are drawn: the checks have dense rows, of which `fit` says that they tell nothing about words."""

    def fit(self, X, y=None):
        self._counts(X, reset=True)
        return super().fit(None)


class Published:
    """A model that was published: the latest one, which is no setting that a fit would change."""

    latest: ClassVar = {}  # of each kind

    def publish(self, X, y):
        """Learn from what a check is about to give to `fit`; where that is malformed, from something else."""
        X = X.toarray() if hasattr(X, "toarray") else X
        for given, labels in ((np.eye(2), [0, 1]), (X, y)):
            with contextlib.suppress(Exception):
                rows, targets = np.asarray(given, dtype=np.float64), np.asarray(labels).ravel()
                if len(rows) > 1:
                    self.latest[type(self).__name__] = self.learner().fit(np.nan_to_num(rows), targets)

    def _model(self):
        return self.latest[type(self).__name__]

    def fit(self, X, y):
        raise AssertionError("a published model is not fitted again")

    def predict(self, X):
        return self._model().predict(X)

    def __sklearn_is_fitted__(self):
        return True


class PublishedTree(Published, ClassifierMixin, BaseEstimator):
    learner = partial(DecisionTreeClassifier, random_state=0)

    @property
    def classes_(self):
        return self._model().classes_

    def predict_proba(self, X):
        return self._model().predict_proba(X)


class PublishedLine(Published, RegressorMixin, BaseEstimator):
    learner = Ridge


def _own_model(kind, setting):
    """Return an estimator over a published model with one that has just been published."""

    def fit(self, X, y=None, groups=None):
        getattr(self, setting).publish(X, y)
        return kind.fit(self, X, y, groups=groups)

    return type(f"Own{kind.__name__}", (kind,), {"fit": fit, "__module__": __name__})


OwnConformalClassifier = _own_model(qr.ConformalClassifier, "model")
OwnConformalRegressor = _own_model(qr.ConformalRegressor, "model")
OwnStudentFirstClassifier = _own_model(qr.StudentFirstClassifier, "student")

_VOTES = {"epsilon": 1e5, "delta": 1e-6, "teachers": 1, "aggregator": "soft_majority", "queries": 1000}
SUBJECTS = [
    qr.PrivateClassifier(**_VOTES),
    qr.PrivateClassifier(epsilon=1e6, teachers=1, queries=2000, scores=True),  # noise moves a count once in 10**100
    OwnStudentFirstClassifier(
        PublishedTree(), epsilon=1e5, teachers=3, dissents=50, no_quorums=1, on_no_quorum="student"
    ),
    qr.AgnosticClassifier(epsilon=1e6),
    qr.UniversalClassifier(epsilon=1e6),
    qr.StableClassifier(gamma=0.999),
    qr.PureClassifier(epsilon=1e6, method="realizable", queries=1000, teachers=1),
    qr.EverlastingClassifier(epsilon=1e5, chunk=3, no_quorums=1),
    qr.NeighbourClassifier(epsilon=4e3, radius=0.9, votes=1000.0),
    qr.NeighbourClassifier(epsilon=4e3, radius=0.9, votes=1000.0, scores=True),
    qr.NeighbourRegressor(epsilon=4e3, radius=0.7, votes=30.0, bounds=(-4, 4)),
    OwnStudentClassifier(**_VOTES),
    OwnSemiPrivateClassifier(epsilon=1e5),
    OwnQueryReleaseClassifier(epsilon=1e5),
    OwnPrivateLogisticRegression(epsilon=1e3),
    OwnPrivateLinearRegression(epsilon=1e3, bounds=(-4, 4)),
    OwnPrivatePoissonRegression(epsilon=1e3, largest=8),
    AdditiveColumns(),
    DrawnColumns(number=3),
    OwnPrivateSearchCV(qr.PrivateLogisticRegression(), epsilon=1e3),
    OwnConformalClassifier(PublishedTree(), epsilon=1e5, miscoverage=0.9),
    OwnConformalRegressor(PublishedLine(), epsilon=1e5, miscoverage=0.9, largest_error=100.0),
]
