"""From a labelled set to teachers: thresholds and stumps by sorting, linear models in a batch, all else by joblib."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from quorate.concepts import Concept, Stumps, Thresholds
from quorate.ensemble import Ensemble
from quorate.everlasting.cuts import fit_cuts
from quorate.learners import Deal, batched_equivalent
from quorate.predictors.concept_teachers import fit_concept_teachers

__all__ = ["SteadyClassifier", "teach"]


class SteadyClassifier(ClassifierMixin, BaseEstimator):
    """An estimator that, where its rows cannot be fitted, votes for the class that most of them show.

    So no error speaks of the rows of a phase: they are other people's queries.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 1])
    >>> SteadyClassifier(KNeighborsClassifier(n_neighbors=5)).fit(X, y).predict([[0.0]])
    array([1])
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> "SteadyClassifier":
        """Fit the estimator and try it on its own rows.

        >>> from sklearn.naive_bayes import GaussianNB
        >>> SteadyClassifier(GaussianNB()).fit(np.array([[0.0], [1.0]]), np.array([0, 1])).predict([[0.9]])
        array([1])
        """
        self.classes_ = np.unique(y)
        self.majority_ = int(np.bincount(y).argmax())
        try:
            self.fitted_ = clone(self.estimator).fit(X, y)
            self.fitted_.predict(X[:1])
        except Exception:
            self.fitted_ = None
        return self

    def predict(self, X: Any) -> Any:
        """Return the estimator's labels, or the class of most rows.

        >>> from sklearn.naive_bayes import GaussianNB
        >>> SteadyClassifier(GaussianNB()).fit(np.array([[0.0], [1.0]]), np.array([0, 1])).predict([[0.9]])
        array([1])
        """
        return np.full(len(X), self.majority_) if self.fitted_ is None else self.fitted_.predict(X)


def teach(
    estimator: Any,
    X: Any,
    codes: NDArray[np.int64],
    deal: Deal,
    *,
    classes: int,
    first: bool = True,
    n_jobs: int | None = None,
    backend: str | None = None,
) -> Ensemble:
    """Return one teacher for each chunk of the deal: each depends on its own rows, and votes even without any.

    In the `first` phase the rows are the owner's, who is told if they cannot be fitted.

    >>> X, codes = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0, 1, 0, 1])
    >>> teach(Thresholds(), X, codes, Deal.of([[0, 1], [2, 3], []]), classes=2)
    Ensemble(teachers=3, classes=2)
    """
    if isinstance(estimator, Thresholds | Stumps):
        return Ensemble(fit_cuts(estimator, X, codes, deal))  # proof: step 2
    if isinstance(estimator, Concept):
        return fit_concept_teachers(estimator, X, codes, deal, n_jobs=n_jobs, backend=backend)
    if not first and batched_equivalent(estimator) is None:
        estimator = SteadyClassifier(estimator)
    return Ensemble.fit(
        X, np.maximum(codes, 0), deal, estimator=estimator, classes=classes, n_jobs=n_jobs, backend=backend
    )
