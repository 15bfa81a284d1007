"""What classifiers that are built on a class of hypotheses share: records, teachers, queries, claims and state."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers, fit_estimators
from quorate.compute.learners import Deal
from quorate.core.answerers import Answerer
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import Labels, Points
from quorate.core.hypotheses.sealed import seal_concept, works_alone
from quorate.core.privacy.claims import Claim
from quorate.models.concepts import Concept, Finite, Stumps
from quorate.models.predictors.base import QuorateClassifier, SessionClassifier
from quorate.models.predictors.labels import two_classes
from quorate.models.predictors.records import check_matrix, fill_missing
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import State
from quorate.models.saving.documents import CONCEPTS, HYPOTHESES
from quorate.tables.persons import unit_numbers

NO_LABEL = -1  # of a place without a row


class UnitRows:
    """Rows and their labels, unit after unit, `row_limit` places each. It is private: it has no text and no copy."""

    __slots__ = ("labels", "points", "row_limit", "units")

    def __init__(self, points: Points, labels: Labels, *, row_limit: int) -> None:
        self.points, self.labels, self.row_limit = points, labels, row_limit
        self.units = len(labels) // row_limit

    @property
    def owners(self) -> NDArray[np.int64]:
        """The unit of each place."""
        return np.repeat(np.arange(self.units), self.row_limit)

    def places(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of these units."""
        return (units[:, np.newaxis] * self.row_limit + np.arange(self.row_limit)).ravel()

    def to_arrays(self) -> dict[str, Any]:
        """Return the rows as arrays, for the owner's own file and for nothing else."""
        return {"points": self.points, "labels": self.labels, "row_limit": self.row_limit}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "UnitRows":
        """Return the rows of `to_arrays`."""
        return cls(arrays["points"], arrays["labels"], row_limit=int(arrays["row_limit"]))

    def __repr__(self) -> str:
        return "<sealed records>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("private records cannot be copied or pickled from here")


def fill_unit_rows(points: Points, labels: Labels, *, groups: Any = None, row_limit: int = 1) -> UnitRows:
    """Return checked rows in their places; without `groups` each row is a unit with one place."""
    if groups is None:
        return UnitRows(points.copy(), labels.copy(), row_limit=1)  # the caller may change its own arrays later
    units, count = unit_numbers(len(labels), groups)
    order = np.argsort(units, kind="stable")
    starts = np.searchsorted(units[order], np.arange(count))
    rank = np.arange(len(labels)) - starts[units[order]]
    rows, positions = order[rank < row_limit], (units[order] * row_limit + rank)[rank < row_limit]
    filled, codes = np.full((count * row_limit, points.shape[1]), np.nan), np.full(count * row_limit, NO_LABEL)
    filled[positions], codes[positions] = points[rows], labels[rows]
    return UnitRows(filled, codes, row_limit=row_limit)


class ErmClassifier(ClassifierMixin, BaseEstimator):
    """The empirical risk minimiser of a class of hypotheses, as a scikit-learn classifier. It is not private."""

    def __init__(self, concept: Concept) -> None:
        self.concept = concept

    def fit(self, X: Any, y: Any) -> "ErmClassifier":
        """Find a hypothesis with the fewest mistakes; labels are 0 and 1."""
        self.classes_, self.hypothesis_ = np.array([0, 1]), self.concept.fit_erm(X, y)
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
    """Fit one teacher for each chunk of the deal. A row whose label is neither 0 nor 1 is left out of its chunk.

    A teacher on whose rows the class fails votes for their majority. How many these are is not looked at: a class of
    the user's own may fail on private rows.
    """
    concept.check_size(int(deal.sizes.max()))  # public, and better said than by teachers who all fail
    owner = np.full(len(labels), -1)
    owner[deal.rows] = np.repeat(np.arange(deal.teachers), deal.sizes)
    owner[(labels != 0) & (labels != 1)] = -1
    usable = Deal.by_assignment(owner, teachers=deal.teachers)
    codes = np.maximum(labels, 0)
    return Ensemble(fit_estimators(ErmClassifier(concept), X, codes, usable, classes=2, n_jobs=n_jobs, backend=backend))


def write_concept_teachers(ensemble: Ensemble) -> list[dict[str, Any]]:
    """Return each teacher as plain values: its hypothesis, and the label that it gives without one."""
    assert isinstance(ensemble.electorate, EstimatorTeachers)
    documents = []
    for teacher, majority in ensemble.electorate.fitted:
        hypothesis = None if teacher is None else to_plain(teacher.hypothesis_)
        documents.append({"majority": majority, "hypothesis": hypothesis})
    return documents


def read_concept_teachers(concept: Concept, documents: Sequence[Mapping[str, Any]]) -> Ensemble:
    """Return the teachers of `write_concept_teachers`."""
    teachers: list[tuple[Any, int]] = []
    for document in documents:
        teacher = None
        if document["hypothesis"] is not None:
            teacher = ErmClassifier(concept)
            teacher.classes_, teacher.hypothesis_ = np.array([0, 1]), from_plain(document["hypothesis"], *HYPOTHESES)
        teachers.append((teacher, int(document["majority"])))
    return Ensemble(EstimatorTeachers(teachers, classes=2))


def learning_concept(concept: Concept | None, features: int) -> Concept:
    """Return the class of hypotheses that learns from rows of so many features: stumps unless one is given."""
    if concept is None:
        return Stumps(features=features)
    if not isinstance(concept, Concept):
        raise InvalidInput(f"concept must be a class of quorate.models.concepts, not {type(concept).__name__}")
    if concept.features != features:
        raise InvalidInput(f"concept reads {concept.features} features and X has {features}")
    return concept.for_learning()


@dataclass(eq=False, repr=False)
class ConceptModel(QuorateClassifier):
    """A classifier of two classes by a class of hypotheses: its settings, its rows, and what a folder keeps of both."""

    concept: Concept | None = None
    _: KW_ONLY
    classes: Any = None
    records_per_person: int = 1

    saved_attributes: ClassVar[tuple[str, ...]] = ("concept_",)
    saved_types: ClassVar[tuple[type, ...]] = (*CONCEPTS, *HYPOTHESES)

    def _begin_fit(self, X: Any, y: Any, groups: Any, *, instead: str, declared: bool = False) -> tuple[Points, Labels]:
        """Check rows and learn their columns, the classes and the unit. Errors are for the owner: they repeat no value.

        `instead` names a class for more than two labels; `declared` says that public rows declare the columns.
        """
        self._forget()
        points = fill_missing(check_matrix(self, X, reset=True, declared=declared))
        self.concept_ = learning_concept(self.concept, points.shape[1])
        self.classes_, codes = two_classes(self.classes, points, y, instead=instead)
        self.unit_, self.declared_ = "row" if groups is None else "person", self.classes is not None
        return points, codes

    def to_state(self) -> State:
        """Return settings and fitted values, among them the class of hypotheses."""
        return State(self.fitted_values())

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state."""
        model = cls.from_fitted_values(state.values)
        model.concept = model.concept_
        return model

    def check_queries(self, X: Any) -> Any:
        """Return queries as a matrix of finite numbers, or raise an error. Nothing is asked."""
        check_is_fitted(self)
        return check_matrix(self, X, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(eq=False, repr=False)
class ConceptClassifier(ConceptModel, SessionClassifier):
    """A classifier that answers from records, or from teachers that were fitted on them.

    A subclass fits `mechanism_` or another scheme, which its folder keeps, and says in `answerer` what answers by it.
    """

    charged: ClassVar[bool] = True  # False where answers have no budget
    saved_attributes = (*ConceptModel.saved_attributes, "rows_")

    @abstractmethod
    def answerer(self, records: UnitRows, ensemble: Ensemble, folder: Path | None = None) -> Answerer:
        """Return what answers by the fitted scheme; of records and teachers, one that it does not need may be None."""

    def _records(self, X: Any, y: Any, groups: Any) -> UnitRows:
        """Return the checked records of each unit; a row that the class cannot use counts as zeros."""
        check_count("records_per_person", self.records_per_person)
        points, codes = self._begin_fit(X, y, groups, instead="PrivateClassifier")
        usable = seal_concept(self.concept_).usable(points) & works_alone(self.concept_, points)
        points[~usable] = 0.0  # no row is refused
        records = fill_unit_rows(points, codes, groups=groups, row_limit=self.records_per_person)
        self.rows_ = records.row_limit
        return records

    def to_state(self) -> State:
        """Return what was calibrated, and the records or the hypotheses of the teachers, as answers need them."""
        state, answerer = super().to_state(), self.session_.answerer
        if hasattr(answerer, "ensemble"):
            state.put_document("teachers", write_concept_teachers(answerer.ensemble))
        if hasattr(answerer, "records"):
            state.put_arrays("records", **answerer.records.to_arrays())
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state; it spends from the ledger of its folder."""
        assert state.home is not None
        model: Any = super().from_state(state)
        records = UnitRows.from_arrays(state.arrays("records")) if "records.npz" in state else None
        document = state.document("teachers") if "teachers.json" in state else None
        ensemble = None if document is None else read_concept_teachers(model.concept_, document)
        answerer = model.answerer(records, ensemble, state.home.path)
        model.session_ = state.home.open_session(answerer, charged=cls.charged)
        restored: Self = model
        return restored

    def _claim(self, epsilon: float, delta: float, *, subject: str = "", unit: str = "", open_: str = "") -> Claim:
        if self.unit_ == "person":
            unit = f"all rows of one person, of whom the first {self.rows_} are used"
        return super()._claim(epsilon, delta, subject=subject, unit=unit, open_=open_)
