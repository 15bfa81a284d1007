"""Teachers that are empirical risk minimisers of a class of hypotheses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers, fit_estimators
from quorate.compute.learners import Deal
from quorate.models.concepts import Concept, Constant, Finite
from quorate.models.saving.hypotheses import document_of, hypothesis_of


class _Constant:
    """A hypothesis that gives every row one label."""

    def __init__(self, label: int) -> None:
        self._label = label

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.full(len(X), self._label, dtype=np.int64)


class ErmClassifier(ClassifierMixin, BaseEstimator):
    """The empirical risk minimiser of a class of hypotheses, as a scikit-learn classifier. It is not private."""

    def __init__(self, concept: Concept) -> None:
        self.concept = concept

    def fit(self, X: Any, y: Any) -> "ErmClassifier":
        """Find a hypothesis with the fewest mistakes; labels are 0 and 1."""
        self.classes_ = np.array([0, 1])
        try:
            self.hypothesis_: Any = self.concept.fit_erm(X, y)
        except Exception:  # a class of one's own may fail on some rows: no error speaks of them, nor counts them
            self.hypothesis_ = _Constant(int(np.mean(y) > 0.5))
        return self

    def call_rows(self) -> int | None:
        """Return how many rows are asked together: any number, since hypotheses of ours look at each row by itself."""
        ours = type(self.concept).__module__.startswith("quorate.models.concepts.") and not isinstance(
            self.concept, Finite
        )
        return None if ours else 1

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the hypothesis's label of each row."""
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
    """Fit one teacher for each chunk of the deal. A row whose label is neither 0 nor 1 is left out of its chunk."""
    concept.check_size(int(deal.sizes.max()))  # public, and better said than by teachers who all fail
    owner = np.full(len(labels), -1)
    owner[deal.rows] = np.repeat(np.arange(deal.teachers), deal.sizes)
    owner[(labels != 0) & (labels != 1)] = -1
    usable = Deal.by_assignment(owner, teachers=deal.teachers)
    codes = np.maximum(labels, 0)
    return Ensemble(fit_estimators(ErmClassifier(concept), X, codes, usable, classes=2, n_jobs=n_jobs, backend=backend))


def write_concept_teachers(ensemble: Ensemble) -> list[dict[str, Any]]:
    """Return each teacher as plain values: its hypothesis, and the label that it gives without one."""
    assert isinstance(ensemble.fitted, EstimatorTeachers)
    documents = []
    for teacher, majority in ensemble.fitted.fitted:
        hypothesis = None if teacher is None else teacher.hypothesis_
        if isinstance(hypothesis, _Constant):  # the class could not be fitted
            hypothesis = Constant(features=teacher.concept.features, label=int(hypothesis.predict([[]])[0]))
        documents.append({"majority": majority, "hypothesis": None if hypothesis is None else document_of(hypothesis)})
    return documents


def read_concept_teachers(concept: Concept, documents: Sequence[Mapping[str, Any]]) -> Ensemble:
    """Return the teachers of `write_concept_teachers`."""
    teachers: list[tuple[Any, int]] = []
    for document in documents:
        teacher = None
        if document["hypothesis"] is not None:
            teacher = ErmClassifier(concept)
            teacher.classes_, teacher.hypothesis_ = np.array([0, 1]), hypothesis_of(document["hypothesis"])
        teachers.append((teacher, int(document["majority"])))
    return Ensemble(EstimatorTeachers(teachers, classes=2))
