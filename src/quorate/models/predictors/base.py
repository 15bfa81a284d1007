"""The base classes of models: a claim, a session that answers, and classifiers that turn its replies into labels."""

import os
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.core.checks import check_rate
from quorate.core.errors import BudgetSpent, InvalidInput, NoQuorum
from quorate.core.mechanisms.base import ThresholdMechanism
from quorate.core.privacy.claims import COLUMNS_READ, LABELS_READ, Claim, replaced
from quorate.core.progress import HIDDEN, progress
from quorate.core.requests import NO_QUORUM, Quote, Replies
from quorate.core.session import Session
from quorate.models.predictors.records import Predictions, forget_fit
from quorate.models.predictors.sklearn_compat import (
    NO_SCORES,
    CountedCopies,
    ShowsClaim,
    Without,
    only_with,
)
from quorate.models.saving.contract import SavedModel

if TYPE_CHECKING:
    from quorate.compute.learners import DeviceName

Threshold = float | Literal["balanced"] | None


def check_threshold(threshold: Any, *, scores: bool, prior: Any) -> None:
    """Refuse a threshold that is none, or that nothing would read, or that lacks a prior to compare with."""
    if not scores:
        raise InvalidInput("threshold is for scores, the noisy shares of votes: set scores=True")
    if threshold != "balanced":
        check_rate("threshold", threshold)
    elif prior is None:
        raise InvalidInput("threshold='balanced' is at the prior: declare the shares of the classes with prior=")


@dataclass(frozen=True)
class Scoring:
    """How released shares of the vote become probabilities, rankings and labels, all of it at no cost.

    Without a threshold a label is the class with the largest share. With a number it is class 1 of two where its share
    is at least that. "balanced" takes the class whose share exceeds its prior most, as a ratio; of two, class 1 from
    its prior on.
    """

    mechanism: Any  # a `NoisyShares`, or the ballot of neighbours
    threshold: Threshold = None
    prior: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.threshold, int | float) and self.mechanism.classes > 2:
            raise InvalidInput("threshold is a number for two classes; for more it is None or 'balanced'")

    def probabilities(self, answers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the noisy share of each class; nan where there is no answer."""
        shares = np.full((len(answers), self.mechanism.classes), np.nan)
        answered = answers != NO_QUORUM
        shares[answered] = self.mechanism.shares(answers[answered])
        return shares

    def decisions(self, answers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return by how much the noisy share of class 1 exceeds the threshold; of more classes, what each is ranked by.

        A share is not cut at 0 and 1 here: below 0 the noise still ranks.
        """
        if self.mechanism.classes > 2:
            shares = self.probabilities(answers)
            return shares if self.threshold is None else shares / np.array(self.prior)
        return np.where(answers == NO_QUORUM, np.nan, self.mechanism.excess(answers) - self._level())

    def labels(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the class number of each answer; `NO_QUORUM` where there is none."""
        decided = self.decisions(answers)
        answered = answers != NO_QUORUM
        labels = np.full(len(answers), NO_QUORUM, dtype=np.int64)
        labels[answered] = decided[answered] >= 0 if decided.ndim == 1 else decided[answered].argmax(axis=1)
        return labels

    def _level(self) -> float:
        """Return the share from which on class 1 of two is answered."""
        if self.threshold == "balanced":
            assert self.prior is not None
            return self.prior[1]
        return 0.5 if self.threshold is None else float(self.threshold)


_CHARGED = "Interrupted: what was charged stays charged. Ask again: what was answered before is free."


class QuorateModel(SavedModel, CountedCopies, ShowsClaim, BaseEstimator):
    """A classifier or a regressor with a claim.

    `unit_` is what it protects; `declared_` tells whether its classes were declared.
    """

    unit_: str
    declared_: bool

    def _forget(self) -> None:
        """Forget an earlier fit, and count this one."""
        if "_fits" in vars(self):
            self._count_fit()
        forget_fit(self)

    def _claim(self, epsilon: float, delta: float, *, subject: str = "", unit: str = "", open_: str = "") -> Claim:
        """Return the claim; `open_` says what it does not protect."""
        total = str(getattr(self, "total_", ""))  # of an account that several models draw on
        read = (
            "" if self.declared_ else LABELS_READ,
            COLUMNS_READ if getattr(self, "types_are_public_", False) else "",
        )
        conditions = tuple(text for text in (open_, total, *read) if text)
        return Claim(epsilon, delta, unit=unit or replaced(self.unit_), what=subject, conditions=conditions)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # filled, as every container becomes a matrix
        tags.non_deterministic = True
        return tags

    def __getstate__(self) -> Any:
        if hasattr(self, "session_"):
            raise TypeError(
                f"a fitted {type(self).__name__} cannot be copied or pickled: the copy would spend the budget, or use "
                "secret noise, a second time. It can be saved with quorate.save, which keeps one for all"
            )
        return super().__getstate__()


@dataclass(eq=False, repr=False)
class TeacherSettings:
    """The settings of teachers that vote, and of the mechanism that counts their ballots."""

    estimator: Any = None
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    teachers: int | Literal["auto"] = "auto"
    aggregator: str = "auto"
    queries: int = 1000
    classes: Any = None
    no_quorums: int | Literal["auto"] = "auto"
    disagreement: float | None = None
    holdout: float = 0.0
    n_jobs: int | None = None
    backend: str | None = None
    device: "DeviceName" = "auto"


class QuorateClassifier(ClassifierMixin, QuorateModel):
    """A classifier with a claim. It has no scores unless a subclass defines them."""

    classes: Any
    classes_: NDArray[Any]
    predict_proba: Any = Without(NO_SCORES)
    predict_log_proba: Any = Without(NO_SCORES)
    decision_function: Any = Without(NO_SCORES)


class AnsweringClassifier(QuorateClassifier, metaclass=ABCMeta):
    """A classifier that answers queries one batch after the other, each of some caller."""

    @abstractmethod
    def predict(self, X: Any, caller: str = "") -> Predictions:
        """Answer a batch of queries in order."""

    def stream(self, queries: Iterable[Any], caller: str = "") -> Iterator[Any]:
        """Yield an answer to each query as it arrives: a label, or None for no answer.

        A query is a row of features.
        """
        for query in queries:
            row = query if hasattr(query, "columns") else np.asarray(query)[np.newaxis, :]
            yield self.predict(row, caller=caller).tolist()[0]


class SessionModel(QuorateModel, metaclass=ABCMeta):
    """A model that answers through `session_`, from a budget or by draws that are stable one by one."""

    session_: Session
    epsilon_: float
    delta_: float

    @property
    def budget_(self) -> Any:
        """The budget that pays for answers; None if answers are not paid for."""
        return self.session_.budget

    @property
    def claim_(self) -> str:
        """The guarantee, in one sentence."""
        return str(self._claim(self.epsilon_, self.delta_))

    def _bar(self) -> tuple[str, float] | None:
        if self.budget_ is None:
            return None
        return "budget left", self.budget_.remaining().renyi / self.budget_.capacity().renyi

    def spent_epsilon(self) -> float:
        """Return the epsilon spent so far, ex post, at this classifier's delta.

        It depends on the answers given (a no-quorum is paid for) and bounds what these answers reveal if querying stops
        now. The guarantee, for any queries, is `claim_`. See core/privacy/PROOF.md, step 8.
        """
        check_is_fitted(self)
        return float(self.budget_.spent_epsilon())

    @abstractmethod
    def check_queries(self, X: Any) -> Any:
        """Return queries in the form that the session takes, or say what is wrong with them. Nothing is asked."""

    def cost(self, X: Any, caller: str = "") -> Quote:
        """Return what `predict(X)` would cost now, without asking anything.

        The quote says how many queries are free and how many can be paid for.

        >>> from quorate import PrivateClassifier
        >>> X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
        >>> classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="noisy_max").fit(X, y)
        >>> quote = classifier.cost([[0.0], [1.0], [1.0]])
        >>> quote.payable, quote.repeated, quote.refused, quote.takes <= quote.left
        (2, 1, 0, True)
        """
        check_is_fitted(self)
        self.check_settings()
        return self.session_.quote(self.check_queries(X), caller=caller)

    def check_settings(self) -> None:
        """Raise an error for invalid settings; called before every fit and every batch."""

    def _ask_session(self, X: Any, caller: str) -> tuple[Any, Replies]:
        check_is_fitted(self)
        self.check_settings()
        queries = self.check_queries(X)
        with nullcontext() if HIDDEN.get() else progress("answering", len(queries), left=_CHARGED):
            return queries, self.session_.ask(queries, caller=caller)

    def keep_files(self, session: Any, path: Path) -> None:
        """Write the journal of what was released so far, to which an answerer that has one adds more."""
        if (journal := getattr(session.answerer, "journal", None)) is not None:
            session.answerer.journal = journal.copied(path / self.own_files[0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "session_")


class SessionClassifier(SessionModel, AnsweringClassifier):
    """A classifier that answers through `session_`."""

    on_no_quorum: str = "abstain"

    def predict(self, X: Any, caller: str = "") -> Predictions:
        """Answer a batch of queries in order, each at the cost that its mechanism sets.

        A query that this `caller` asked before gets the same answer again, at no privacy cost. If the budget ends
        within the batch, the rest is refused; once it is spent, `BudgetSpent` is raised. An invalid query raises an
        error before anything is spent.
        """
        queries, replies = self._ask_session(X, caller)
        return self._predictions(queries, replies.labels, refused=replies.refused, spent=replies.spent)

    def _predictions(self, queries: Any, codes: NDArray[np.int64], **batch: Any) -> Predictions:
        """Return the replies as labels; `batch` says what was refused and spent."""
        predictions = Predictions.of(codes, classes=self.classes_, filled=self._filled(len(codes)), **batch)
        self._check_quorum(predictions)
        return predictions

    def _filled(self, rows: int) -> NDArray[np.int64] | None:
        """Return the classes to say where there was no quorum, or None to say nothing."""
        if self.on_no_quorum != "random":
            return None
        words = np.frombuffer(os.urandom(8 * rows), dtype=np.uint64)
        return (words % len(self.classes_)).astype(np.int64)

    def _check_quorum(self, predictions: Predictions) -> None:
        """Raise an error for a query without a quorum, if that is how they are answered."""
        if self.on_no_quorum == "raise" and predictions.no_quorum.any():
            missed = int(predictions.no_quorum.sum())
            text = f"{missed} of {predictions.size} queries found no quorum; they were paid for"
            raise NoQuorum(f"{text}, and the batch is in this error's `predictions`", predictions=predictions)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of queries that are answered with `y`. All queries are asked and paid for, or none."""
        check_consistent_length(X, y, sample_weight)
        self._check_payable(X)
        answers = self.predict(X)
        if answers.refused:
            refused = f"{answers.refused} of {answers.size} queries"
            raise BudgetSpent(f"{refused} could not be paid for, so that there is no score")
        return float(np.average(answers.labels == np.asarray(y), weights=sample_weight))

    def _check_payable(self, X: Any) -> None:
        """Refuse queries that cannot all be paid for, before one of them is.

        A run that pays for no-quorums alone is trusted with as many queries as were planned.
        """
        quote = self.cost(X)
        new, payable = quote.queries - quote.repeated, quote.payable
        if isinstance(getattr(self, "mechanism_", None), ThresholdMechanism) and payable:
            payable = max(payable, getattr(self, "queries", payable))
        if payable < new:
            raise BudgetSpent(
                f"{new:,} new queries must all be paid for to have a score, and the budget is for {payable:,} of them: "
                "none was asked. Score fewer rows, or fit with queries= as many as you will ask"
            )


class ScoredClassifier(SessionClassifier):
    """A classifier whose answers may stand for noisy shares of the vote, from which labels and scores follow."""

    @abstractmethod
    def gives_scores(self) -> bool:
        """Return whether answers are noisy shares of the vote rather than labels."""

    @abstractmethod
    def scoring(self) -> "Scoring":
        """Return how the shares become labels; refuse a model that was fitted for labels."""

    @only_with(lambda classifier: classifier.gives_scores(), "scores=True")
    def predict_proba(self, X: Any, caller: str = "") -> NDArray[np.float64]:
        """Return the noisy share of votes for each class, one row per query.

        Shares are at least 0, and each row sums to 1. A query is paid for once, whichever methods use it; a row is nan
        if the budget could not pay for it. Shares of votes rank queries; they are not calibrated probabilities.

        >>> from quorate import PrivateClassifier
        >>> X = np.linspace(-1, 1, 20_000)[:, np.newaxis]
        >>> classifier = PrivateClassifier(epsilon=4.0, teachers=500, queries=10, classes=[0, 1], scores=True)
        >>> shares = classifier.fit(X, (X[:, 0] > 0).astype(int)).predict_proba([[-0.9], [0.9]])
        >>> shares.round(1).tolist(), classifier.predict([[0.9]]).scores.tolist() == shares[1:].tolist()
        ([[1.0, 0.0], [0.0, 1.0]], True)
        """
        return self.scoring().probabilities(self._ask_session(X, caller)[1].labels)

    @only_with(lambda classifier: classifier.gives_scores(), "scores=True")
    def decision_function(self, X: Any, caller: str = "") -> NDArray[np.float64]:
        """Return how far the noisy share of the second of two classes exceeds the threshold, 0.5 by default.

        For more classes, return the value that ranks each class: its share, or its share over its prior with
        threshold="balanced". `predict` returns the class of the largest value, or the second of two classes if the
        excess is at least 0.
        """
        return self.scoring().decisions(self._ask_session(X, caller)[1].labels)

    def _predictions(self, queries: Any, codes: NDArray[np.int64], **batch: Any) -> Predictions:
        if self.outputs != "vote shares":
            return super()._predictions(queries, codes, **batch)
        scoring = self.scoring()
        scores = scoring.probabilities(codes)
        return Predictions.of(scoring.labels(codes), classes=self.classes_, scores=scores, **batch)
