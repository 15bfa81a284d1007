"""Teachers that are empirical risk minimisers of a class of hypotheses."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from quorate.concepts import Concept, Finite
from quorate.ensemble import Ensemble
from quorate.ensemble.estimators import fit_estimators
from quorate.learners import Deal

__all__ = ["ErmClassifier", "fit_concept_teachers"]


class _Constant:
    """A hypothesis that gives every row one label."""

    def __init__(self, label: int) -> None:
        self._label = label

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.full(len(X), self._label, dtype=np.int64)


class ErmClassifier(ClassifierMixin, BaseEstimator):
    """The empirical risk minimiser of a class of hypotheses, as a scikit-learn classifier. It is not private.

    >>> from quorate.concepts import Thresholds
    >>> ErmClassifier(Thresholds()).fit([[1.0], [2.0]], [0, 1]).predict([[0.0], [3.0]])
    array([0, 1])
    """

    def __init__(self, concept: Concept) -> None:
        self.concept = concept

    def fit(self, X: Any, y: Any) -> "ErmClassifier":
        """Find a hypothesis with the fewest mistakes; labels are 0 and 1.

        >>> from quorate.concepts import Thresholds
        >>> ErmClassifier(Thresholds()).fit([[1.0], [2.0]], [0, 1]).hypothesis_
        Threshold(cut=1.5, upward=True)
        """
        self.classes_ = np.array([0, 1])
        try:
            self.hypothesis_: Any = self.concept.fit_erm(X, y)
        except Exception:  # a class of one's own may fail on some rows: no error speaks of them, nor counts them
            self.hypothesis_ = _Constant(int(np.mean(y) > 0.5))
        return self

    def call_rows(self) -> int | None:
        """Return how many rows are asked together: any number, since hypotheses of ours look at each row by itself.

        >>> from quorate.concepts import Thresholds
        >>> ErmClassifier(Thresholds()).call_rows() is None
        True
        """
        ours = type(self.concept).__module__.startswith("quorate.concepts.") and not isinstance(self.concept, Finite)
        return None if ours else 1

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the hypothesis's label of each row.

        >>> from quorate.concepts import Thresholds
        >>> ErmClassifier(Thresholds()).fit([[1.0], [2.0]], [0, 1]).predict([[1.7]])
        array([1])
        """
        return np.asarray(self.hypothesis_.predict(X), dtype=np.int64)


def fit_concept_teachers(
    concept: Concept,
    X: NDArray[np.float64],
    labels: NDArray[np.int64],
    deal: Deal,
    *,
    n_jobs: int | None = None,
    backend: str | None = None,
) -> Ensemble:
    """Fit one teacher for each chunk of the deal. A row whose label is neither 0 nor 1 is left out of its chunk.

    >>> from quorate.concepts import Thresholds
    >>> X, labels = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([0, 1, -1, 1])
    >>> fit_concept_teachers(Thresholds(), X, labels, Deal.of([[0, 1], [2, 3]])).teachers
    2
    """
    concept.check_size(int(deal.sizes.max()))  # public, and better said than by teachers who all fail
    owner = np.full(len(labels), -1)
    owner[deal.rows] = np.repeat(np.arange(deal.teachers), deal.sizes)
    owner[(labels != 0) & (labels != 1)] = -1
    kept = Deal.by_assignment(owner, teachers=deal.teachers)
    codes = np.maximum(labels, 0)
    return Ensemble(fit_estimators(ErmClassifier(concept), X, codes, kept, classes=2, n_jobs=n_jobs, backend=backend))
