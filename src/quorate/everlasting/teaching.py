"""From a labelled set to teachers: thresholds, stumps, directions and linear models in batches, all else by joblib."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from quorate.concepts import Concept, Stumps, Thresholds
from quorate.ensemble import Ensemble
from quorate.everlasting.cuts import fit_cuts
from quorate.everlasting.directions import MeanDirection, fit_directions
from quorate.learners import MEMORY, Deal, Teachers, batched_equivalent
from quorate.learners.teachers import BackendName
from quorate.predictors.concept_teachers import fit_concept_teachers

__all__ = ["AbsentTeachers", "SteadyClassifier", "teach"]


class AbsentTeachers(Teachers):
    """An ensemble, and teachers without rows: each votes for the class of its number, one class after the other.

    So many empty seats mean no opinion, rather than a wrong one.

    >>> AbsentTeachers(None, [0, 1, 2], classes=2, features=1).votes(np.zeros((1, 1)))
    array([[2, 1]])
    """

    def __init__(self, inner: Ensemble | None, absent: Any, *, classes: int, features: int) -> None:
        self._inner = inner
        self._constant = np.bincount(np.asarray(absent) % classes, minlength=classes)
        self.teachers = int(self._constant.sum()) + (0 if inner is None else inner.teachers)
        self.classes, self.features = classes, features

    def votes(self, X: Any, *, backend: BackendName = "numpy", memory: int = MEMORY) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class.

        >>> AbsentTeachers(None, [1], classes=2, features=1).votes(np.zeros((1, 1)))
        array([[0, 1]])
        """
        if self._inner is None:
            return np.tile(self._constant, (len(X), 1))
        return self._inner.count(X).put_to(lambda counts: counts + self._constant)

    def ballots(self, X: Any, *, backend: BackendName = "numpy", memory: int = MEMORY) -> NDArray[Any]:
        """There are none one by one: these teachers are only counted.

        >>> AbsentTeachers(None, [1], classes=2, features=1).ballots(np.zeros((1, 1)))
        Traceback (most recent call last):
        ...
        NotImplementedError: these teachers are only counted
        """
        raise NotImplementedError("these teachers are only counted")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """There are none: teachers of a later phase are not saved.

        >>> AbsentTeachers(None, [1], classes=2, features=1).arrays()
        Traceback (most recent call last):
        ...
        NotImplementedError: teachers of a later phase are not saved
        """
        raise NotImplementedError("teachers of a later phase are not saved")


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
    if type(estimator) is MeanDirection and classes == 2:
        return Ensemble(fit_directions(estimator, X, codes, deal))  # proof: step 2
    if isinstance(estimator, Concept):
        return fit_concept_teachers(estimator, X, codes, deal, n_jobs=n_jobs, backend=backend)
    if not first and batched_equivalent(estimator) is None:
        estimator = SteadyClassifier(estimator)
    absent = np.flatnonzero(deal.sizes == 0)
    present = Deal(deal.rows, deal.sizes[deal.sizes > 0]) if absent.size < deal.teachers else None
    inner = None
    if present is not None:
        codes = np.maximum(codes, 0)
        inner = Ensemble.fit(X, codes, present, estimator=estimator, classes=classes, n_jobs=n_jobs, backend=backend)
    if inner is not None and absent.size == 0:
        return inner
    return Ensemble(AbsentTeachers(inner, absent, classes=classes, features=X.shape[1]))
