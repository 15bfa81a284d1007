"""What learners over a cover have in common: public points define the candidates, private rows choose among them."""

from abc import abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.checks import check_count
from quorate.concepts import Concept, Dichotomies, Hypothesis, Stumps
from quorate.concepts.sealed import opened, sealed_candidates
from quorate.errors import InvalidInput
from quorate.predictors.inputs import check_matrix, class_codes, declared_classes
from quorate.predictors.unit_rows import UnitRows, fill_unit_rows
from quorate.privacy.claims import LABELS_READ, Claim, replaced
from quorate.students.points import random_points

__all__ = ["CoverClassifier"]

_MODES = ("semi-private", "label-private")


class CoverClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of two classes that is one hypothesis, chosen among the dichotomies of public points.

    A learner of this kind takes these parameters and says in `_select` how private rows choose, and at what cost.

    >>> issubclass(CoverClassifier, ClassifierMixin)
    True
    """

    def __init__(
        self,
        concept: Concept | None = None,
        *,
        epsilon: float,
        delta: float,
        classes: Any = None,
        points: int | None = None,
        rows_per_person: int = 1,
        mode: Literal["semi-private", "label-private"] = "semi-private",
    ) -> None:
        self.concept = concept
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.points = points
        self.rows_per_person = rows_per_person
        self.mode = mode

    def fit(self, X: Any, y: Any, groups: Any = None, public: Any = None) -> Any:
        """Choose a hypothesis by its mistakes on the records, among those that the public points tell apart.

        >>> from quorate.students.semi_private import SemiPrivateClassifier
        >>> SemiPrivateClassifier().fit([[0.0], [1.0]], [0, 1])
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: mode='semi-private' needs public points: fit(X, y, public=...), or ...
        """
        self._check_settings(groups, public)
        for name in ("hypothesis_", "candidates_", "spent_epsilon_", "unit_", "claim_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        X = check_matrix(self, X, reset=True)
        self.classes_, labels = declared_classes(self.classes, y)
        if len(self.classes_) > 2:
            raise InvalidInput(
                f"Only binary classification is supported. A hypothesis tells two classes apart, not "
                f"{len(self.classes_)}: StudentClassifier takes any number"
            )
        check_consistent_length(X, labels)
        codes = class_codes(self.classes_, labels)
        defining = X if self.mode == "label-private" else check_matrix(self, public, reset=False)
        if self.points is not None:
            defining = defining[np.sort(random_points(np.arange(len(defining)), self.points))]
        candidates = sealed_candidates(self._concept().dichotomies(defining))  # proof: steps 1 and 2
        rows = fill_unit_rows(X, codes, groups=groups, most=self.rows_per_person)  # proof: step 2
        hypothesis, spent = self._select(candidates, rows)
        self.hypothesis_, self.candidates_, self.spent_epsilon_ = opened(hypothesis), len(candidates), spent
        self.unit_ = "row" if groups is None else "person"
        self.claim_ = self._claim()
        return self

    @abstractmethod
    def _select(self, candidates: Dichotomies, rows: UnitRows) -> tuple[Hypothesis, float]:
        """Return a hypothesis, chosen privately, and the epsilon that it has cost at `_claimed_delta`."""

    def _claimed_delta(self) -> float:
        return float(self.delta)

    def _check_settings(self, groups: Any, public: Any) -> None:
        """Refuse what cannot be done, from public values alone."""
        if self.mode not in _MODES:
            raise InvalidInput(f"mode must be one of {', '.join(_MODES)}, not {self.mode!r}")
        if self.mode == "semi-private" and public is None:
            raise InvalidInput(
                "mode='semi-private' needs public points: fit(X, y, public=...), or mode='label-private'"
            )
        if self.mode == "label-private" and public is not None:
            raise InvalidInput("mode='label-private' takes the features of X; leave public out, or mode='semi-private'")
        if self.points is not None:
            check_count("points", self.points)
        if check_count("rows_per_person", self.rows_per_person) != 1 and groups is None:
            raise InvalidInput("rows_per_person is for groups, which say whose each row is; there are none")

    def _concept(self) -> Concept:
        concept = Stumps(features=self.n_features_in_) if self.concept is None else self.concept
        if not isinstance(concept, Concept):
            raise InvalidInput(f"concept must be a class of quorate.concepts, not {type(concept).__name__}")
        if concept.features != self.n_features_in_:
            raise InvalidInput(
                f"X has {self.n_features_in_} features, but {type(concept).__name__} reads {concept.features}"
            )
        return concept

    def _claim(self) -> str:
        unit, open_ = replaced(self.unit_), "the public points are not protected"
        if self.mode != "semi-private":
            unit, open_ = f"the labels of {unit}", "the features are not protected"
        conditions = (open_,) if self.classes is not None else (open_, LABELS_READ)
        return str(Claim(self.epsilon, self._claimed_delta(), unit=unit, conditions=conditions))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the labels of the chosen hypothesis. Nothing is spent.

        >>> from quorate.students.semi_private import SemiPrivateClassifier
        >>> made = SemiPrivateClassifier(epsilon=100.0).fit([[0.0], [1.0]], ["no", "yes"], public=[[0.0], [1.0]])
        >>> made.predict([[-5.0]])
        array(['no'], dtype='<U3')
        """
        check_is_fitted(self, "hypothesis_")
        labels: NDArray[Any] = self.classes_[self.hypothesis_.predict(check_matrix(self, X, reset=False))]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags
