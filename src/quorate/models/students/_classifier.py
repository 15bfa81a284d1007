"""Knowledge transfer (Bassily, Thakkar and Thakurta 2018): private teachers label public points for a student.

Claim, mode="transfer": the fitted object, `student_` and `labelled_` included, is (epsilon, delta)-differentially
private under replacement of one unit's rows (a row, or a person if `groups` are given). The public points are not
protected. Once fitted, predictions cost nothing more.

Claim, mode="label-private": no public points are needed. The units are split in halves by a secret permutation. The
first half trains the teachers. The features of the second half serve as public points, and its labels are never read.
Then
- the labels of every unit are protected: replacing one unit's labels is (epsilon, delta)-differentially private;
- the features of a unit in the first half are protected just as its labels are;
- the features of a unit in the second half are not protected: the student and `labelled_` may show them.

The proof is in PROOF.md.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from quorate.core.checks import check_choice, check_count
from quorate.core.errors import BudgetSpent, InvalidInput, NoQuorum
from quorate.core.estimator_calls import silence
from quorate.core.privacy.budget import to_quanta
from quorate.core.privacy.claims import Node
from quorate.core.rows import query_digests, take_rows
from quorate.models.predictors import PrivateClassifier
from quorate.models.predictors.base import QuorateClassifier, TeacherSettings
from quorate.models.predictors.labels import class_codes, declared_classes
from quorate.models.predictors.records import allows_missing, check_records, fill_missing, is_auto
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import Outputs, Spending, State
from quorate.models.saving.documents import MECHANISMS
from quorate.models.students.points import Labelled, k_centre_points, labels_of, margins, random_points, split_units
from quorate.planner import Plan
from quorate.tables.containers import Role

_TRIED = 200  # rows of a trial, and at least this many for each class


def try_student(student: Any, public: Any, classes: NDArray[Any], *, shows_errors: bool = True) -> Any:
    """Fit a copy on public rows with made-up labels, so that what it refuses is said before anything is spent.

    `shows_errors` is False where the rows are not public after all: then the error says nothing of them.
    """
    rows = take_rows(public, np.arange(min(len(public), _TRIED * len(classes))))
    with silence():
        try:
            tried = clone(student).fit(rows, classes[np.arange(len(rows)) % len(classes)])
            tried.predict(take_rows(rows, np.arange(1)))
        except Exception as error:
            kind = f"{type(error).__name__}: {error}" if shows_errors else type(error).__name__
            raise InvalidInput(
                f"the student does not take the public points (tried with made-up labels) - {kind}"
            ) from (error if shows_errors else None)
    return tried


def train(student: Any, rows: Any, labels: NDArray[Any]) -> Any:
    """Return a copy of the student fitted on these rows; where they show one label, one that always says it."""
    if (labels == labels[0]).all():
        return DummyClassifier(strategy="most_frequent").fit(rows, labels)
    try:
        return clone(student).fit(rows, labels)
    except Exception as error:
        error.add_note("The labels are paid for and are kept in `labelled_`: another student can be fitted on them.")
        raise


_POINTS = ("random", "margin", "k-centre")
_MODES = ("transfer", "label-private")
_ROUNDS = 5  # batches of points="margin": one at random, the others where the student so far is least sure

Points = NDArray[np.int64]
Method = TypeVar("Method")


def _student_has(method: str) -> Callable[[Method], Method]:
    has: Callable[[Method], Method] = available_if(
        lambda self: hasattr(getattr(self, "student_", None) or self.unfitted_student(), method)
    )
    return has


@dataclass(eq=False, repr=False)
class StudentClassifier(TeacherSettings, QuorateClassifier):
    """A publishable classifier, trained on public points that private teachers have labelled.

    Parameters
    ----------
    estimator
        The teacher: any scikit-learn classifier; `LogisticRegression()` by default. "auto" tries candidates on the
        public points, as for `PrivateClassifier`.
    student
        The model that is trained on the answered points and published: any scikit-learn classifier; a copy of
        `estimator` by default.
    epsilon, delta, teachers, aggregator, classes, no_quorums, disagreement, holdout, n_jobs, backend, device
        As for `PrivateClassifier`.
    queries
        How many points are put to the vote; all of them if there are fewer. Equal points are paid for once.
    points
        How points are chosen: "random"; "margin", in five batches, the first at random and the others where the student
        so far is least sure (often the best); "k-centre", each as far as possible from those before it, for matrices.
    mode
        "transfer" needs `public` points; "label-private" makes them from one half of the records. The top of this
        module states what is then protected.

    `student_` is the fitted student, `labelled_` the points that were asked and their answers, `plan_` the plan,
    `spent_epsilon_` the cost, ex post, and `claim_` the guarantee. No teacher, ballot or private row is kept. If the
    answered points have only one label, the student always predicts it. If no point is answered, `NoQuorum` is raised.

    >>> X = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> public = np.random.default_rng(1).normal(size=(300, 2))
    >>> made = StudentClassifier(epsilon=2.0, teachers=400, queries=200, aggregator="noisy_max", classes=["no", "yes"])
    >>> made.fit(X, y, public=public).predict([[3.0, 0.0], [-3.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    student: Any = None
    _: KW_ONLY
    points: Literal["random", "margin", "k-centre"] = "random"
    mode: Literal["transfer", "label-private"] = "transfer"

    kind = "student"
    spending = Spending(published=True, chargeable=True, searchable=True)
    summary = "A classifier trained on public points that private teachers have labelled."
    saved_attributes = ("claim_", "claim_part_", "spent_epsilon_", "spent_quanta_")

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_labels: Any = None
    ) -> "StudentClassifier":
        """Fit teachers on the records, let them label points, train the student, and discard the teachers.

        If labels of the public points are given as `public_labels`, learners (unless one is given) and numbers of
        teachers are tried on them. The categories of a data frame are those of the public points; any other counts as
        missing.
        """
        self._check_settings(public)
        self._forget()
        self.classes_, labels = declared_classes(self.classes, y)  # of all units, whatever the split: proof: step 4
        if self.mode == "transfer":
            public = self._rows(public, reset=True, role="public")  # the format is that of public points: proof: step 3
            X = self._rows(X, reset=False, role="private")
            return self._transfer(X, labels, groups, public, public_labels=public_labels)
        X = self._rows(X, reset=True, role="private")
        X = X if allows_missing(self.unfitted_student()) else fill_missing(X)  # some of them are asked as queries
        check_consistent_length(X, labels)
        teaching, lent = split_units(len(X), groups)
        people = None if groups is None else labels_of(groups, teaching)
        labels = labels_of(labels, teaching)
        return self._transfer(take_rows(X, teaching), labels, people, take_rows(X, lent), row_numbers=lent)

    def _transfer(
        self,
        X: Any,
        labels: Any,
        groups: Any,
        public: Any,
        *,
        row_numbers: Points | None = None,
        public_labels: Any = None,
    ) -> "StudentClassifier":
        """Label the public points and train the student; `row_numbers` are those of points that were records."""
        queries = check_records(PrivateClassifier(), public, estimator=self._estimator(), reset=True, role="public")
        tried = try_student(self.unfitted_student(), public, self.classes_, shows_errors=row_numbers is None)
        if self.points == "margin":
            margins(tried, take_rows(public, np.arange(1)))
        first = self._first_points(public)
        # A query asked twice is answered twice and paid for once: the plan is for distinct ones.
        paid = query_digests(queries if self.points == "margin" else take_rows(queries, first))
        shared = public if row_numbers is None else None
        teachers = self._teachers(min(self.queries, len(set(paid)))).fit(
            X, labels, groups=groups, public=shared, public_labels=public_labels, teach=True
        )
        self.estimator_, self.chosen_ = teachers.estimator_, teachers.chosen_
        self.plan_, self.unit_, self.declared_ = teachers.plan_, teachers.unit_, self.classes is not None
        unit, open_ = "", "the public points are not protected"
        if self.mode != "transfer":
            unit = f"the labels of one {self.unit_}"
            open_ = "the features of the half that served as public points are not protected"
        self.claim_ = str(self._claim(self.epsilon, self.delta, unit=unit, open_=open_))
        labelled = self._ask(teachers, public, first)
        if self.points == "margin":
            labelled = self._ask_by_margin(teachers, public, labelled)
        self.spent_epsilon_ = teachers.spent_epsilon()
        self.spent_quanta_, self.claim_part_ = to_quanta(teachers.budget_.spent()), teachers.spent_claim()
        self.labelled_ = labelled if row_numbers is None else replace(labelled, rows=row_numbers[labelled.rows])
        del teachers  # before anything can be raised that would carry them in its traceback
        if labelled.labels.size == 0:
            raise NoQuorum(
                f"none of the {labelled.rows.size} points asked found a quorum: nothing is there to learn, and it "
                "was paid for. Ask for more teachers, a larger epsilon or fewer queries, or for aggregator='noisy_max'"
            )
        self.student_ = self._train(public, labelled)
        return self

    def claim_part(self) -> Node:
        """Return the account from which the answers of the teachers were paid."""
        return self.claim_part_

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a label, with probabilities if the student has them."""
        return "probabilities" if hasattr(self, "predict_proba") else "labels"

    def to_state(self) -> State:
        """Return settings, plan, the fitted student, and the points that were asked; the teachers are gone."""
        check_is_fitted(self, "student_")
        mechanism, plan = to_plain(self.plan_.mechanism), self.plan_.as_dict()
        state = State({**self.fitted_values(), "mechanism": mechanism, "plan": plan})
        labelled = self.labelled_
        state.put_estimator("student", {"student": clone(self.unfitted_student()), "fitted": self.student_})
        codes = class_codes(self.classes_, labelled.labels)
        state.put_arrays("labelled", rows=labelled.rows, answered=labelled.answered, codes=codes)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the classifier of a state, as it was after `fit`; what the teachers were is not kept."""
        student, arrays = state.estimator("student"), state.arrays("labelled")
        model = cls.from_fitted_values(state.values, student=student["student"])
        labels = model.classes_[arrays["codes"].astype(np.int64)]
        model.labelled_ = Labelled(arrays["rows"], arrays["answered"], labels)
        model.plan_ = Plan.from_dict(state.values["plan"], from_plain(state.values["mechanism"], *MECHANISMS))
        model.student_ = student["fitted"]
        return model

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return what the student is, how many labels it was trained on, and its classes."""
        return [
            f"Student: {type(self.student_).__name__}, trained on {self.labelled_.labels.size} released labels.",
            f"Classes: {', '.join(map(str, self.classes_.tolist()))}.",
        ]

    def check_chargeable(self) -> None:
        """Refuse a mode that shows features of the records, which an account protects."""
        super().check_chargeable()
        if self.mode == "label-private":  # release/PROOF.md, step 8
            raise InvalidInput(
                "a student in mode='label-private' shows the features of half of the records, which an account "
                "protects: use mode='transfer', with public points"
            )

    def published_estimator(self) -> Any:
        """Return what a model card carries: the student, an estimator of scikit-learn."""
        return self.student_

    def _train(self, public: Any, labelled: Labelled) -> Any:
        """Train a student on the answered points, in the order of the rows: the order of asking does not matter."""
        order = np.argsort(labelled.points, kind="stable")
        return train(self.unfitted_student(), take_rows(public, labelled.points[order]), labelled.labels[order])

    def _check_settings(self, public: Any) -> None:
        check_count("queries", self.queries)
        for name, choices in (("points", _POINTS), ("mode", _MODES)):
            check_choice(name, getattr(self, name), choices)
        if self.mode == "transfer" and public is None:
            raise InvalidInput("mode='transfer' needs public points: fit(X, y, public=...), or mode='label-private'")
        if self.mode == "label-private" and public is not None:
            raise InvalidInput("mode='label-private' makes its own public points; leave public out, or mode='transfer'")

    def _rows(self, X: Any, *, reset: bool, role: Role) -> Any:
        """Return rows as the student takes them: a data frame stays one, anything else becomes a matrix of numbers."""
        return check_records(self, X, estimator=self.unfitted_student(), reset=reset, frames=True, role=role)

    def _estimator(self) -> Any:
        free = self.estimator is None or is_auto(self.estimator)
        return getattr(self, "estimator_", LogisticRegression()) if free else self.estimator

    def unfitted_student(self) -> Any:
        """Return the unfitted model that is trained on the answered points."""
        return self._estimator() if self.student is None else self.student

    def _teachers(self, number: int) -> PrivateClassifier:
        settings = {setting.name: getattr(self, setting.name) for setting in fields(TeacherSettings)}
        return PrivateClassifier(**settings | {"queries": number, "classes": self.classes_})

    def _first_points(self, public: Any) -> Points:
        """Return the points to be asked first: all of them, unless later ones depend on the answers."""
        number = min(self.queries, len(public))
        if self.points == "k-centre":
            return k_centre_points(public, number)
        return random_points(np.arange(len(public)), -(-number // _ROUNDS) if self.points == "margin" else number)

    def _ask(self, teachers: PrivateClassifier, public: Any, points: Points) -> Labelled:
        """Put these points to the vote. What leaves the teachers leaves here."""
        try:
            replies = teachers.predict(take_rows(public, points))  # proof: step 1
        except BudgetSpent:
            return Labelled(np.empty(0, np.int64), np.empty(0, np.bool_), self.classes_[:0])
        return Labelled.of(points, replies, kind=self.classes_.dtype)

    def _ask_by_margin(self, teachers: PrivateClassifier, public: Any, labelled: Labelled) -> Labelled:
        """Ask on in batches, each where a student of all labels released so far is least sure."""
        number = min(self.queries, len(public))
        while 0 < labelled.rows.size < number:
            unasked = np.setdiff1d(np.arange(len(public)), labelled.rows)
            batch = min(-(-number // _ROUNDS), number - labelled.rows.size)
            if np.unique(labelled.labels).size < 2:
                chosen = random_points(unasked, batch)
            else:  # proof: step 2
                try:
                    student = self._train(public, labelled)
                except Exception:  # it fails once more on these labels when they are kept, and says why
                    break
                chosen = unasked[np.argsort(margins(student, take_rows(public, unasked)), kind="stable")[:batch]]
            answers = self._ask(teachers, public, chosen)
            if answers.rows.size == 0:
                break
            labelled = labelled + answers
        return labelled

    def check_queries(self, X: Any) -> Any:
        """Return queries in the form that the student takes, or raise an error."""
        check_is_fitted(self, "student_")
        return self._rows(X, reset=False, role="query")

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the student's labels. Nothing is spent."""
        rows = self.check_queries(X)
        return np.asarray(self.student_.predict(rows))

    @_student_has("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the student's probabilities, one column for each of `classes_`. Nothing is spent."""
        rows = self.check_queries(X)
        shares = np.zeros((len(rows), len(self.classes_)))
        shares[:, np.searchsorted(self.classes_, self.student_.classes_)] = self.student_.predict_proba(rows)
        return shares

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = allows_missing(self.unfitted_student())
        return tags
