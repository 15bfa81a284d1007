"""What classifiers that are built on a class of hypotheses share: records, queries and claims."""

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.sealed import sealed, works_alone
from quorate.core.privacy.claims import Claim
from quorate.models.concepts import Concept, Stumps
from quorate.models.predictors.base import SessionClassifier, check_matrix, fill_missing
from quorate.models.predictors.labels import two_classes
from quorate.models.predictors.unit_rows import UnitRows, fill_unit_rows
from quorate.models.saving.contract import State
from quorate.models.saving.hypotheses import concept_document, concept_of


class ConceptClassifier(SessionClassifier):
    """A classifier of two classes built on a class of hypotheses."""

    concept: Concept | None
    rows_per_person: int

    def _records(self, X: Any, y: Any, groups: Any) -> UnitRows:
        """Check records and learn their columns and classes. Errors are for their owner, and repeat no value."""
        check_count("rows_per_person", self.rows_per_person)
        if self.concept is not None and not isinstance(self.concept, Concept):
            raise InvalidInput(f"concept must be a class of quorate.models.concepts, not {type(self.concept).__name__}")
        self._forget("session_", "concept_")
        points = fill_missing(check_matrix(self, X, reset=True))
        concept = Stumps(features=points.shape[1]) if self.concept is None else self.concept.for_learning()
        if points.shape[1] != concept.features:
            raise InvalidInput(f"concept reads {concept.features} features and X has {points.shape[1]}")
        points[~(sealed(concept).usable(points) & works_alone(concept, points))] = 0.0  # no row is refused
        self.classes_, codes = two_classes(self.classes, points, y, instead="PrivateClassifier")
        records = fill_unit_rows(points, codes, groups=groups, most=self.rows_per_person)
        self.concept_, self.unit_, self.rows_ = concept, "row" if groups is None else "person", records.most
        self.declared_ = self.classes is not None
        return records

    def concept_state(self, **calibrated: Any) -> State:
        """Return what all of these classifiers keep, and what was calibrated for this one."""
        values = self.fitted_values() | {"concept": concept_document(self.concept_), "rows_per_unit": self.rows_}
        return State(values | {"calibrated": calibrated})

    @classmethod
    def from_concept_state(cls, state: State) -> Self:
        """Return a classifier with what all of these keep, and no session yet."""
        concept = concept_of(state.values["concept"])
        model = cls.from_fitted_values(state.values, concept=concept)
        model.concept_, model.rows_ = concept, int(state.values["rows_per_unit"])
        return model

    def checked(self, X: Any) -> Any:
        """Return queries as a matrix of finite numbers, or raise an error. Nothing is asked."""
        check_is_fitted(self)
        return check_matrix(self, X, reset=False)

    def _claim(self, epsilon: float, delta: float, *, what: str = "", unit: str = "", open_: str = "") -> Claim:
        if self.unit_ == "person":
            unit = f"all rows of one person, of whom the first {self.rows_} are used"
        return super()._claim(epsilon, delta, what=what, unit=unit, open_=open_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
