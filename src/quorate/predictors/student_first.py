"""Student first: a published student answers, and the private ensemble is asked only whether it clearly disagrees.

Claim: as for PrivateClassifier, all that `predict` and `stream` ever return is (epsilon, delta)-differentially private
under replacement of one unit's rows. The student is public, and so is what it says. A label that stands costs nothing;
a dissent is paid, and is then put to a Quorum on the same budget. Proof: mechanisms/dissent/PROOF.md (steps 5 and 7),
and PROOF.md here for what comes before the votes.
"""

import os
import threading
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from quorate.answerers import Votes
from quorate.checks import check_count, check_delta, check_positive
from quorate.ensemble import Ensemble
from quorate.errors import BudgetSpent, Infeasible, InvalidInput, NoQuorum, RunEnded
from quorate.mechanisms import NO_QUORUM
from quorate.mechanisms.dissent import proposed_first
from quorate.planner import plan_student_first
from quorate.predictors.inputs import check_records, class_codes
from quorate.predictors.predictions import Predictions
from quorate.predictors.subsample import PrivateClassifier
from quorate.privacy import Budget, Cost
from quorate.rows import query_digests, take_rows
from quorate.session import Session, release_votes

__all__ = ["StudentFirstClassifier", "StudentFirstPredictions"]

_ON_NO_QUORUM = ("abstain", "student", "random", "raise")
_BLOCK = 8192  # queries counted together


class StudentFirstPredictions(Predictions):
    """Predictions that also know where the ensemble corrected the student: `corrected` is the mask of those answers.

    >>> made = StudentFirstPredictions.of(np.array([1]), classes=np.array([5, 7]), refused=np.zeros(1, bool))
    >>> made.tolist()
    [7]
    """

    corrected: NDArray[np.bool_]


class StudentFirstClassifier(PrivateClassifier):
    """A published student answers any amount of traffic; the ensemble is paid only for where the student is wrong.

    Parameters
    ----------
    student
        A fitted classifier that is public, and was trained without these records or privately: what it costs was paid
        elsewhere. Wrap it in scikit-learn's `FrozenEstimator` where this classifier will be cloned.
    estimator, epsilon, delta, classes, n_jobs, backend
        As for `PrivateClassifier`; delta must be above 0.
    teachers
        How many, or "auto": enough for a dissent to be heard where nine in ten teachers agree, and for `queries` on
        which nine in ten agree with the student to use up no more than a tenth of the dissents by chance.
    queries
        How much traffic is planned for, with "auto". The run may answer more.
    dissents
        How many times the ensemble may clearly disagree before it falls silent and queries are refused.
    no_quorums
        How many of the queries dissented from may find no quorum. After the last one, dissents are still reported and
        are no longer answered.
    on_no_quorum
        What to say where the ensemble dissents and finds no quorum: "abstain" (None in the labels), "student" (what
        the student said), "random" or "raise".

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> student = DecisionTreeClassifier().fit([[-3.0], [-1.0], [2.0], [3.0]], [0, 0, 1, 1])  # wrong between 0 and 0.5
    >>> X = np.random.default_rng(0).normal(size=(10_000, 1))
    >>> classifier = StudentFirstClassifier(
    ...     student, epsilon=4.0, delta=1e-5, teachers=200, dissents=5, no_quorums=2, classes=[0, 1])
    >>> answers = classifier.fit(X, (X[:, 0] > 0).astype(int)).predict([[-2.0], [0.4], [2.0]])
    >>> answers.tolist(), answers.corrected
    ([0, 1, 1], array([False,  True, False]))
    """

    aggregator, disagreement, holdout = "quorum", None, 0.0  # what PrivateClassifier would be asked

    def __init__(
        self,
        student: Any,
        estimator: Any = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        teachers: int | Literal["auto"] = "auto",
        dissents: int = 50,
        no_quorums: int = 10,
        queries: int = 100_000,
        classes: Any = None,
        on_no_quorum: Literal["abstain", "student", "random", "raise"] = "abstain",
        n_jobs: int | None = None,
        backend: str | None = None,
    ) -> None:
        self.student = student
        self.estimator = estimator
        self.epsilon = epsilon
        self.delta = delta
        self.teachers = teachers
        self.dissents = dissents
        self.no_quorums = no_quorums
        self.queries = queries
        self.classes = classes
        self.on_no_quorum = on_no_quorum  # type: ignore[assignment]
        self.n_jobs = n_jobs
        self.backend = backend

    def _check_settings(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta, zero=False)
        check_count("dissents", self.dissents)
        check_count("no_quorums", self.no_quorums)
        check_count("queries", self.queries)
        if self.teachers != "auto":
            check_count("teachers", self.teachers)
        if self.on_no_quorum not in _ON_NO_QUORUM:
            raise InvalidInput(f"on_no_quorum must be one of {', '.join(_ON_NO_QUORUM)}, not {self.on_no_quorum!r}")
        if not hasattr(self.student, "predict"):
            raise InvalidInput(f"student must be a fitted classifier, not {type(self.student).__name__}")
        try:
            check_is_fitted(self.student)
        except (NotFittedError, TypeError):
            raise InvalidInput("student must be fitted already, on points that are public; fit it first") from None

    def _plan(self, held_out: int, **known: Any) -> Any:
        """Choose both mechanisms, and the number of teachers if need be, from public numbers."""
        self._check_student()
        made = plan_student_first(
            epsilon=self.epsilon,
            delta=self.delta,
            queries=self.queries,
            dissents=self.dissents,
            no_quorums=check_count("no_quorums", self.no_quorums),
            teachers=None if self.teachers == "auto" else self.teachers,
            units=known["records"],
        )
        if not made.feasible:
            raise Infeasible(made.summary())
        return made

    def _open(self, ensemble: Ensemble, made: Any) -> None:
        self.student_ = self.student
        self.dissent_, self.mechanism_, self.teachers_ = made.dissent, made.quorum, made.teachers
        budget = Budget(epsilon=self.epsilon, delta=self.delta, order=made.quorum.order, slack=made.quorum.slack)
        self._lock = threading.Lock()
        self._paid: dict[tuple[str, bytes], int] = {}  # by caller and query; never more than there are dissents
        self._corrections: list[tuple[NDArray[Any], int]] = []
        self._run = made.dissent.open(budget)
        self.session_ = Session(Votes(ensemble, made.quorum), budget)

    def _check_student(self) -> None:
        features = getattr(self.student, "n_features_in_", self.n_features_in_)
        if features != self.n_features_in_:
            raise InvalidInput(
                f"student takes {features} features and the records have {self.n_features_in_}; both must be the same"
            )
        classes = getattr(self.student, "classes_", self.classes_)
        self._codes_of(np.asarray(classes))

    def _codes_of(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        try:
            return class_codes(self.classes_, labels)
        except InvalidInput:
            raise InvalidInput("student has labels that were not declared; classes must name every one") from None

    def _proposals(self, X: Any, checked: Any) -> NDArray[np.int64]:
        """Return the classes that the student proposes; a student that knows no names of features is not given any."""
        named = hasattr(self.student_, "feature_names_in_") or not isinstance(checked, np.ndarray)
        labels = np.asarray(self.student_.predict(X if named else checked))
        if labels.shape != (len(checked),):
            raise InvalidInput(f"student must say one label for each query, not an array of shape {labels.shape}")
        return self._codes_of(labels)

    def predict(self, X: Any, caller: str = "") -> StudentFirstPredictions:
        """Answer a batch of queries: the student's label, unless the ensemble clearly disagrees.

        A query of this `caller` on which the ensemble dissented before gets the same answer again, at no privacy cost.
        Queries after the last dissent that the run or its budget allows are refused; once none can be answered,
        `BudgetSpent` is raised.

        >>> from sklearn.dummy import DummyClassifier
        >>> student = DummyClassifier(strategy="constant", constant=1).fit([[0.0], [1.0]], [0, 1])  # always says 1
        >>> X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
        >>> classifier = StudentFirstClassifier(
        ...     student, epsilon=4.0, delta=1e-5, teachers=200, dissents=2, no_quorums=1)
        >>> answers = classifier.fit(X, y).predict([[0.0], [1.0], [0.0]])
        >>> answers.labels, answers.corrected
        (array([0, 1, 0]), array([ True, False,  True]))
        """
        check_is_fitted(self)
        self._check_settings()
        if not isinstance(caller, str):
            raise InvalidInput(f"caller must be a text that names who asks, not {caller!r}")
        checked = check_records(self, X, estimator=self.estimator_, reset=False)
        digests = query_digests(checked)
        proposals = self._proposals(X, checked).tolist()
        places: dict[bytes, int] = {}
        for place, digest in enumerate(digests):
            places.setdefault(digest, place)  # a query asked twice is one query
        proposed = {digest: proposals[place] for digest, place in places.items()}
        with self._lock:
            outcome = {digest: self._paid[caller, digest] for digest in places if (caller, digest) in self._paid}
            new = {digest: place for digest, place in places.items() if digest not in outcome}
            spent, ended = self._ask(checked, new, proposed, outcome, caller)
        if ended is not None and not outcome:
            raise ended
        labels = np.array([outcome.get(digest, NO_QUORUM) for digest in digests], dtype=np.int64)
        refused = np.array([digest not in outcome for digest in digests], dtype=np.bool_)
        first = np.array([proposed[digest] for digest in digests], dtype=np.int64)
        return self._made(labels, refused, first, spent)

    def _ask(
        self,
        X: Any,
        new: dict[bytes, int],
        proposed: dict[bytes, int],
        outcome: dict[bytes, int],
        caller: str,
    ) -> tuple[Cost, BudgetSpent | None]:
        """Put new queries to the ensemble, block by block, and add what came of them to `outcome`."""
        spent, waiting = Cost(0.0), list(new)
        for start in range(0, len(waiting), _BLOCK):
            block = waiting[start : start + _BLOCK]
            rows = take_rows(X, [new[digest] for digest in block])
            codes = np.array([proposed[digest] for digest in block], dtype=np.int64)
            try:
                answers = self._dissents(rows, codes)
            except (BudgetSpent, RunEnded):
                text = f"the ensemble has met its {self.dissents} dissents, or its budget is spent"
                return spent, BudgetSpent(f"{text}. Ask the student itself, or fit again with a budget of its own")
            stands = answers.labels != NO_QUORUM
            outcome.update((digest, proposed[digest]) for digest, kept in zip(block, stands, strict=False) if kept)
            wrong = np.flatnonzero(~stands)
            if wrong.size:
                spent = spent + self._correct(take_rows(rows, wrong), [block[i] for i in wrong], proposed, caller)
                outcome.update((block[i], self._paid[caller, block[i]]) for i in wrong)
            spent = spent + (answers.spent or Cost(0.0))
            if answers.refused:
                break
        return spent, None

    def _dissents(self, X: Any, proposed: NDArray[np.int64]) -> Any:
        """Ask whether the ensemble disagrees."""
        return release_votes(
            self.session_.answerer.ensemble, X, lambda votes: self._run.answers(proposed_first(votes, proposed))
        )

    def _correct(self, X: Any, digests: list[bytes], proposed: dict[bytes, int], caller: str) -> Cost:
        """Put queries dissented from to the Quorum. Where it can no longer be asked, they found no quorum."""
        try:
            replies = self.session_.ask(X, caller=caller)
        except BudgetSpent:
            self._paid.update(((caller, digest), NO_QUORUM) for digest in digests)
            return Cost(0.0)
        for place, (digest, label) in enumerate(zip(digests, replies.labels.tolist(), strict=True)):
            self._paid[caller, digest] = label  # paid for, and released: kept
            if label not in (NO_QUORUM, proposed[digest]):
                self._corrections.append((np.asarray(take_rows(X, [place]))[0], label))
        return replies.spent

    def _made(
        self, labels: NDArray[np.int64], refused: NDArray[np.bool_], proposed: NDArray[np.int64], spent: Cost
    ) -> StudentFirstPredictions:
        filled = proposed if self.on_no_quorum == "student" else None  # type: ignore[comparison-overlap]
        if self.on_no_quorum == "random":
            words = np.frombuffer(os.urandom(8 * labels.size), dtype=np.uint64)
            filled = (words % len(self.classes_)).astype(np.int64)
        made = StudentFirstPredictions.of(labels, classes=self.classes_, refused=refused, spent=spent, filled=filled)
        assert isinstance(made, StudentFirstPredictions)
        made.corrected = made.answered & (labels != proposed)
        if self.on_no_quorum == "raise" and made.no_quorum.any():
            text = f"the ensemble dissents on {int(made.no_quorum.sum())} of {made.size} queries and finds no quorum"
            raise NoQuorum(
                f"{text}; they were paid for, and the batch is in this error's `predictions`", predictions=made
            )
        return made

    @property
    def corrections_(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The queries on which the student was corrected, and the labels released for them.

        >>> hasattr(StudentFirstClassifier(None), "corrections_")
        False
        """
        rows = [row for row, _ in self._corrections]
        points = np.stack(rows) if rows else np.empty((0, self.n_features_in_))
        return points, self.classes_[[code for _, code in self._corrections]]

    def retrain(self, X: Any, y: Any, *, weight: int = 1) -> "StudentFirstClassifier":
        """Fit the student again on its own public points and on the corrections, each counted `weight` times.

        The corrections are released labels, so this costs nothing. The queries of all callers become points that the
        student was trained on: do it where those may be known. What the caller passes is the student's own training
        set, a matrix or a pandas data frame.

        >>> from sklearn.dummy import DummyClassifier
        >>> student = DummyClassifier(strategy="most_frequent").fit([[0.0], [1.0], [2.0]], [0, 1, 1])  # always says 1
        >>> X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
        >>> classifier = StudentFirstClassifier(
        ...     student, epsilon=4.0, delta=1e-5, teachers=200, dissents=2, no_quorums=1)
        >>> classifier.fit(X, y).predict([[0.0]]).tolist()
        [0]
        >>> classifier.retrain([[0.0], [1.0], [2.0]], [0, 1, 1], weight=9).student_.predict([[0.0]])
        array([0])
        """
        check_is_fitted(self)
        weight = check_count("weight", weight)
        labels = np.asarray(y)
        with self._lock:
            points, corrected = self.corrections_
        own = np.asarray(X)
        if own.ndim != 2 or own.shape[1] != self.n_features_in_ or labels.shape != (len(own),):
            raise InvalidInput(
                f"retrain takes the student's own points, {self.n_features_in_} features each, and one label for "
                f"each; not shapes {own.shape} and {labels.shape}"
            )
        self._codes_of(labels)
        rows: Any = np.concatenate([own, np.repeat(points, weight, axis=0)])
        if hasattr(X, "iloc"):
            rows = type(X)(rows, columns=X.columns).astype(X.dtypes)
        student = self.student.estimator if isinstance(self.student, FrozenEstimator) else self.student
        student = clone(student).fit(rows, np.concatenate([labels, np.repeat(corrected, weight)]))
        with self._lock:
            self.student_ = student
        return self
