"""What classifiers that are built on a class of hypotheses share: records, queries, claims, manners."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.checks import check_count
from quorate.concepts import Concept, Stumps
from quorate.concepts.sealed import sealed, works_alone
from quorate.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.exchange import Replies
from quorate.predictors.inputs import check_matrix, class_codes, declared_classes
from quorate.predictors.predictions import Predictions
from quorate.predictors.slots import Slots, fill_slots
from quorate.privacy.claims import LABELS_READ, Claim, replaced

__all__ = ["ConceptClassifier", "largest_set"]


class _Source(Protocol):
    """What answers checked queries: a session, or answers that are drawn one by one."""

    budget: Any

    def ask(self, X: Any, *, caller: str = "") -> Replies:
        """Answer a batch of checked queries."""


def largest_set(concept: Concept, rows: int) -> int:
    """Return the largest number of rows, up to `rows`, whose dichotomies the class can go through.

    >>> from quorate.concepts import Halfspaces, Thresholds
    >>> largest_set(Thresholds(), 10**6), largest_set(Halfspaces(2), 10**6) < 10**4
    (1000000, True)
    """
    low, high = 0, rows + 1
    while high - low > 1:
        middle = (low + high) // 2 if low else rows
        try:
            concept._check_size(middle)
        except Infeasible:
            high = middle
            low = max(low, 1)
        else:
            low = middle
    return low


class ConceptClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of two classes built on a class of hypotheses; `answers_` is what answers its queries."""

    concept: Concept | None
    classes: Any
    rows_per_person: int
    answers_: _Source
    epsilon_: float
    delta_: float

    @property
    def budget_(self) -> Any:
        """The budget of what answers; where that runs on a sample it is larger than epsilon, for sampling shrinks it.

        >>> hasattr(ConceptClassifier(), "budget_")
        False
        """
        return self.answers_.budget

    @property
    def claim_(self) -> str:
        """The guarantee, in one sentence.

        >>> hasattr(ConceptClassifier(), "claim_")
        False
        """
        return str(self._claim(self.epsilon_, self.delta_))

    def _records(self, X: Any, y: Any, groups: Any) -> Slots:
        """Check records and learn their columns and classes. Errors are for their owner, and repeat no value."""
        check_count("rows_per_person", self.rows_per_person)
        if self.concept is not None and not isinstance(self.concept, Concept):
            raise InvalidInput(f"concept must be a class of quorate.concepts, not {type(self.concept).__name__}")
        for name in ("answers_", "concept_"):
            self.__dict__.pop(name, None)  # of an earlier fit: no answer mixes two models
        points = check_matrix(self, X, reset=True)
        concept = Stumps(features=points.shape[1]) if self.concept is None else self.concept
        if points.shape[1] != concept.features:
            raise InvalidInput(f"concept reads {concept.features} features and X has {points.shape[1]}")
        if not sealed(concept).usable(points).all():  # as with missing values: their owner had better know
            raise InvalidInput("X has values that the concept does not declare: codes from 0 up, or 0 and 1 if binary")
        if not works_alone(concept, points).all():
            raise InvalidInput("X has rows on which the concept fails: try it with check_concept")
        self.classes_, labels = declared_classes(self.classes, y)
        if len(self.classes_) > 2:
            raise InvalidInput(
                f"Only binary classification is supported. A hypothesis tells two classes apart, not "
                f"{len(self.classes_)}: PrivateClassifier takes any number"
            )
        check_consistent_length(points, labels)
        codes = class_codes(self.classes_, labels)
        slots = fill_slots(points, codes, groups=groups, most=self.rows_per_person)
        self.concept_, self.unit_, self.rows_ = concept, "row" if groups is None else "person", slots.most
        self.declared_ = self.classes is not None
        return slots

    def checked(self, X: Any) -> Any:
        """Return queries as a matrix of finite numbers, or say what is wrong with them. Nothing is asked.

        >>> from quorate.predictors import StableClassifier
        >>> StableClassifier(gamma=0.5).fit([[0.0], [1.0]] * 10, [0, 1] * 10).checked([[1]])
        array([[1.]])
        """
        check_is_fitted(self)
        return check_matrix(self, X, reset=False)

    def predict(self, X: Any, caller: str = "") -> Predictions:
        """Answer a batch of queries, in order. A query that this `caller` asked before gets the same answer again.

        Where a budget ends within the batch the rest is refused; once it is spent, `BudgetSpent` is raised.

        >>> from quorate.predictors import StableClassifier
        >>> made = StableClassifier(gamma=0.5).fit([[0.0], [1.0]] * 200, [0, 1] * 200).predict([[0.0], [1.0]])
        >>> made.labels
        array([0, 1])
        """
        queries = self.checked(X)
        if not isinstance(caller, str):
            raise InvalidInput(f"caller must be a text that names who asks, not {caller!r}")
        return self._made(self.answers_.ask(queries, caller=caller))

    def _made(self, replies: Replies) -> Predictions:
        return Predictions.of(replies.labels, classes=self.classes_, refused=replies.refused, spent=replies.spent)

    def stream(self, queries: Iterable[Any], caller: str = "") -> Iterator[Any]:
        """Answer queries one by one as they come, each a row of features: a label, or None for no answer.

        >>> from quorate.predictors import StableClassifier
        >>> list(StableClassifier(gamma=0.5).fit([[0.0], [1.0]] * 200, [0, 1] * 200).stream([[0.0], [1.0]]))
        [0, 1]
        """
        for query in queries:
            row = query if hasattr(query, "columns") else np.asarray(query)[np.newaxis, :]
            yield self.predict(row, caller=caller).tolist()[0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of queries that are answered, and answered with `y`. They are asked, and paid for, all.

        >>> from quorate.predictors import StableClassifier
        >>> StableClassifier(gamma=0.5).fit([[0.0], [1.0]] * 200, [0, 1] * 200).score([[0.0], [1.0]], [0, 1])
        1.0
        """
        check_consistent_length(X, y, sample_weight)
        made = self.predict(X)
        if made.refused:
            raise BudgetSpent(f"{made.refused} of {made.size} queries could not be paid for, so that there is no score")
        return float(np.average(made.labels == np.asarray(y), weights=sample_weight))

    def _claim(self, epsilon: float, delta: float, what: str = "") -> Claim:
        unit = replaced("row") if self.unit_ == "row" else self._of_a_person()
        conditions = () if self.declared_ else (LABELS_READ,)
        return Claim(epsilon, delta, unit=unit, what=what, conditions=conditions)

    def _of_a_person(self) -> str:
        return f"all rows of one person, of whom the first {self.rows_} are used"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "answers_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags

    def __getstate__(self) -> Any:
        if hasattr(self, "answers_"):
            kind = type(self).__name__
            raise TypeError(
                f"a fitted {kind} cannot be copied or pickled: it holds private records or a budget, and the copy "
                "would spend it a second time"
            )
        return super().__getstate__()
