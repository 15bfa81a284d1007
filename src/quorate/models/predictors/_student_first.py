"""Student first: a published student answers, and the private ensemble is asked only whether it clearly disagrees.

Claim: as for PrivateClassifier, all outputs of `predict` and `stream` together are (epsilon, delta)-differentially
private under replacement of one unit's rows. The student is public, and so are its labels. A label that stands costs
nothing; a dissent is charged, and its query is then put to a Quorum on the same budget. Proof:
core/mechanisms/PROOF_dissent.md (steps 5 and 7), and PROOF.md here for what comes before the votes.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from quorate.compute.ensemble import Ensemble
from quorate.compute.learners import DeviceName
from quorate.core.answerers import Answerer, Journal, open_runs
from quorate.core.ballots import release_votes
from quorate.core.checks import check_choice, check_count, check_delta, check_positive
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput, RunEnded
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import NO_QUORUM, Answers, Dissent, Quorum
from quorate.core.mechanisms.base import Run
from quorate.core.mechanisms.dissent import proposed_first
from quorate.core.privacy import Budget, Cost
from quorate.core.privacy.budget import charged_together
from quorate.core.rows import take_rows
from quorate.core.session import Session
from quorate.models.predictors._subsample import PrivateClassifier, PublicRows
from quorate.models.predictors.labels import class_codes
from quorate.models.predictors.records import (
    Predictions,
    allows_missing,
    check_auto_counts,
    check_jobs,
    check_records,
    unless_auto,
)
from quorate.models.predictors.sklearn_compat import KeepsPublished
from quorate.models.saving.contract import State
from quorate.models.saving.documents import put_teachers, read_teachers
from quorate.planner import plan_student_first
from quorate.tables.frames import named_matrix

_ON_NO_QUORUM = ("abstain", "student", "random", "raise")


class StudentFirstClassifier(KeepsPublished, PrivateClassifier):
    """A published student that a private ensemble corrects; only clear disagreement costs budget.

    Parameters
    ----------
    student
        A fitted public classifier, trained privately or without these records: its cost was paid elsewhere. `clone`
        keeps the same student.
    estimator, epsilon, delta, classes, n_jobs, backend, device
        As for `PrivateClassifier`; delta must be above 0.
    teachers
        The number of teachers, or "auto": enough that a dissent is detected if nine in ten teachers agree on it, and
        that `queries` on which nine in ten agree with the student use up at most a tenth of the dissents by chance.
    queries
        With "auto": the number of queries to plan for. The run may answer more.
    dissents
        How many times the ensemble may clearly disagree. After that, queries are refused.
    no_quorums
        How many of the dissents may find no quorum. After the last one, dissents are still reported but no longer
        answered.
    on_no_quorum
        The label if the ensemble dissents and finds no quorum: "abstain" (None in the labels), "student" (the
        student's label), "random" or "raise".

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> student = DecisionTreeClassifier().fit([[-3.0], [-1.0], [2.0], [3.0]], [0, 0, 1, 1])  # wrong between 0 and 0.5
    >>> X = np.random.default_rng(0).normal(size=(10_000, 1))
    >>> classifier = StudentFirstClassifier(
    ...     student, epsilon=4.0, delta=1e-5, teachers=200, dissents=5, no_quorums=2, classes=[0, 1])
    >>> answers = classifier.fit(X, (X[:, 0] > 0).astype(int)).predict([[-2.0], [0.4], [2.0]])
    >>> answers.tolist(), answers.corrected
    ([0, 1, 1], array([False,  True, False]))
    """

    kind = "student first"
    outputs = "labels"
    own_files = ("corrections.jsonl",)

    saved_attributes = (*PrivateClassifier.saved_attributes, "dissent_")
    _published = "student"
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
        device: DeviceName = "auto",
    ) -> None:
        self.student, self.estimator, self.epsilon, self.delta = student, estimator, epsilon, delta
        self.teachers, self.dissents, self.no_quorums, self.queries = teachers, dissents, no_quorums, queries
        self.classes, self.on_no_quorum = classes, on_no_quorum  # type: ignore[assignment]
        self.n_jobs, self.backend, self.device = n_jobs, backend, device

    def check_settings(self) -> None:
        """Raise an error for invalid settings."""
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta, zero=False)
        check_count("dissents", self.dissents)
        check_count("no_quorums", self.no_quorums)
        check_count("queries", self.queries)
        check_auto_counts(self, "teachers")
        check_jobs(self.n_jobs)
        check_choice("on_no_quorum", self.on_no_quorum, _ON_NO_QUORUM)
        if not hasattr(self.student, "predict"):
            raise InvalidInput(f"student must be a fitted classifier, not {type(self.student).__name__}")
        try:
            check_is_fitted(self.student)
        except (NotFittedError, TypeError):
            raise InvalidInput("student must be fitted already, on points that are public; fit it first") from None

    def _guided(self, held_out: int, facts: dict[str, Any], public: PublicRows) -> Any:
        return self._plan(held_out, **facts)

    def _plan(self, held_out: int, *, must: bool = True, **facts: Any) -> Any:
        """Choose both mechanisms, and the number of teachers if need be, from public numbers."""
        if "records" not in facts:  # what sites, for one, have priced is another mechanism
            raise InvalidInput("a StudentFirstClassifier fits its teachers itself; a PrivateClassifier takes others")
        self._check_student()
        planned = plan_student_first(
            epsilon=self.epsilon,
            delta=self.delta,
            queries=self.queries,
            dissents=self.dissents,
            no_quorums=check_count("no_quorums", self.no_quorums),
            teachers=unless_auto(self.teachers),
            units=facts["records"],
        )
        if not planned.feasible:
            raise Infeasible(planned.shortfall())
        return planned

    def _open(self, ensemble: Ensemble, planned: Any) -> None:
        self.student_ = self.student
        self.dissent_, self.mechanism_, self.teachers_ = planned.dissent, planned.quorum, planned.teachers
        budget = Budget(epsilon=self.epsilon, delta=self.delta, order=planned.quorum.order, slack=planned.quorum.slack)
        self.session_ = Session(self.answerer(ensemble), budget)

    def mechanisms(self) -> list[Any]:
        """Return the mechanisms that the budget pays."""
        return [self.dissent_, self.mechanism_]

    def to_state(self) -> State:
        """Return settings and mechanisms, the teachers, the estimator, and the student that answers first."""
        state = State(self.fitted_values())
        put_teachers(state, self.session_.answerer.ensemble.electorate)
        state.put_estimator("estimator", self.estimator_)
        state.put_model("student", self.student_)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state, with the student that it was saved with."""
        assert state.home is not None
        student, estimator = state.model("student"), state.estimator("estimator")
        model = cls.from_fitted_values(state.values, student=student, estimator=estimator)
        model.estimator_, model.student_ = clone(estimator), student
        ensemble = Ensemble(read_teachers(state))
        model.teachers_ = ensemble.teachers
        journal = Journal(state.home.path / cls.own_files[0])
        model.session_ = state.home.open_session(model.answerer(ensemble, journal))
        return model

    def answerer(self, ensemble: Ensemble, journal: Journal | None = None) -> "StudentFirst":
        """Return what asks the student, and these teachers about it."""
        assert isinstance(self.mechanism_, Quorum)
        return StudentFirst(ensemble, self.dissent_, self.mechanism_, propose=self._proposals, journal=journal)

    def _check_student(self) -> None:
        features = getattr(self.student, "n_features_in_", self.n_features_in_)
        if features != self.n_features_in_:
            raise InvalidInput(f"student must take {self.n_features_in_} features like the records, got {features}")
        classes = getattr(self.student, "classes_", self.classes_)
        self._codes_of(np.asarray(classes))

    def _codes_of(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        codes = class_codes(self.classes_, labels)
        if (codes < 0).any():
            raise InvalidInput("student has labels that were not declared; classes must name every one")
        return codes

    def _proposals(self, X: Any) -> NDArray[np.int64]:
        """Return the classes that the student proposes for checked queries."""
        names = getattr(self.student_, "feature_names_in_", None)
        labels = np.asarray(self.student_.predict(X if names is None else named_matrix(X, names)))
        if labels.shape != (len(X),):
            raise InvalidInput(f"student must say one label for each query, not an array of shape {labels.shape}")
        return self._codes_of(labels)

    def check_queries(self, X: Any) -> Any:
        """Return queries in the form that teachers and student take, or say what is wrong. Nothing is asked."""
        check_is_fitted(self)
        missing = allows_missing(self.estimator_) and _takes_missing(self.student_)
        return check_records(self, X, estimator=self.estimator_, reset=False, missing=missing)

    def _predictions(self, queries: Any, codes: NDArray[np.int64], **batch: Any) -> Predictions:
        proposed = self._proposals(queries)
        filled = proposed if str(self.on_no_quorum) == "student" else self._filled(len(codes))
        corrected = (codes != NO_QUORUM) & (codes != proposed)
        predictions = Predictions.of(codes, classes=self.classes_, filled=filled, corrected=corrected, **batch)
        self._check_quorum(predictions)
        return predictions

    @property
    def corrections_(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The queries on which the student was corrected, and the labels released for them."""
        lines = self.session_.answerer.journal.lines()
        points = np.array([row for row, _ in lines]) if lines else np.empty((0, self.n_features_in_))
        return points, self.classes_[[code for _, code in lines]]

    def retrain(self, X: Any, y: Any, *, weight: int = 1) -> "StudentFirstClassifier":
        """Fit the student again on its public points and on the corrections, each counted `weight` times.

        The corrections are released labels, so this costs nothing. The student is then trained on queries of all
        callers: retrain only if those may become known. Pass the student's own training set, a matrix or a pandas data
        frame. The new student answers in this process; a folder keeps the student that it was saved with.

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
        points, corrected = self.corrections_
        original = np.asarray(X)
        if original.ndim != 2 or original.shape[1] != self.n_features_in_ or labels.shape != (len(original),):
            raise InvalidInput(
                f"retrain takes the student's own points, {self.n_features_in_} features each, and one label for "
                f"each; not shapes {original.shape} and {labels.shape}"
            )
        self._codes_of(labels)
        rows: Any = np.concatenate([original, np.repeat(points, weight, axis=0)])
        if hasattr(X, "iloc"):
            rows = type(X)(rows, columns=X.columns).astype(X.dtypes)
        student = self.student.estimator if isinstance(self.student, FrozenEstimator) else self.student
        self.student_ = clone(student).fit(rows, np.concatenate([labels, np.repeat(corrected, weight)]))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.allow_nan and _takes_missing(self.student)
        return tags


def _takes_missing(student: Any) -> bool:
    """Return whether a student takes missing values, as far as it says."""
    return not hasattr(student, "__sklearn_tags__") or allows_missing(student)


class StudentFirst(Answerer):
    """The student's label where it stands; where the ensemble dissents, the label that a Quorum of it finds.

    Both runs share a budget. `propose` says what the student says; `journal` has the corrections, each a query and the
    class that was released for it.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        dissent: Dissent,
        quorum: Quorum,
        *,
        propose: Callable[[Any], NDArray[np.int64]],
        journal: Journal | None = None,
    ) -> None:
        self.ensemble, self.dissent, self.quorum = ensemble, dissent, quorum
        self.propose, self.journal = propose, Journal() if journal is None else journal
        self.dissent_run: Run
        self.quorum_run: Run
        self._order = dissent.order  # that of both

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Open both runs, or go on with those whose secret noises the ledger has."""
        assert budget is not None
        self._order = budget.order
        self.dissent_run, self.quorum_run = open_runs([self.dissent, self.quorum], budget, ledger)

    def row_cost(self) -> Cost:
        """Return what a dissent costs that finds no quorum."""
        return charged_together(self.dissent.no_quorum_cost(self._order), self.quorum.no_quorum_cost(self._order))

    def affordable(self, limit: int) -> int:
        """Return `limit`, unless the last dissent was met."""
        if self.dissent_run.no_quorums_left == 0:
            raise self._out_of_dissents()
        return limit

    def quote(self, limit: int) -> tuple[int, Cost]:
        """Return how many new queries are sure to be answered, and what they cost at most: all dissents."""
        reached, dissents = self.dissent_run.quote(limit)
        return reached, dissents + self.quorum_run.quote(reached)[1]

    def draw(self, X: Any) -> Answers:
        """Ask whether the ensemble disagrees with the student, and what it says where it does."""
        proposed = self.propose(X)  # before anything is paid
        try:
            stands = release_votes(
                self.ensemble, X, lambda votes: self.dissent_run.answers(proposed_first(votes, proposed))
            )
        except (BudgetSpent, RunEnded):
            raise self._out_of_dissents() from None
        labels = proposed[: len(stands.labels)].copy()
        dissents = np.flatnonzero(stands.labels == NO_QUORUM)
        spent = stands.spent or Cost(0.0)
        if dissents.size:
            rows = take_rows(X, dissents)
            labels[dissents], cost = self._corrected(rows)
            spent = spent + cost
            right = np.flatnonzero((labels != NO_QUORUM) & (labels != proposed[: len(labels)]))
            points = np.asarray(take_rows(X, right)).tolist()
            self.journal.add(zip(points, labels[right].tolist(), strict=True))
        return Answers(labels=labels, spent=spent, refused=stands.refused)

    def _corrected(self, X: Any) -> tuple[NDArray[np.int64], Cost]:
        """Put queries dissented from to the Quorum. Where it can no longer be asked, they found no quorum."""
        labels, spent = np.full(len(X), NO_QUORUM, dtype=np.int64), Cost(0.0)
        with contextlib.suppress(BudgetSpent, RunEnded):
            answers = release_votes(self.ensemble, X, self.quorum_run.answers)
            labels[: len(answers.labels)], spent = answers.labels, answers.spent or Cost(0.0)
        return labels, spent

    def _out_of_dissents(self) -> BudgetSpent:
        text = f"the ensemble has met its {self.dissent.no_quorums} dissents, or its budget is spent"
        return BudgetSpent(f"{text}. Ask the student itself, or fit again with a budget of its own")

    def move(self, ledger: Ledger) -> None:
        """End both runs here, and leave their secret noises in the ledger."""
        ledger.keep_run(self.dissent_run.end(), self.quorum_run.end())

    def close(self) -> None:
        """Let go of what the electorate has open."""
        self.ensemble.close()
