"""StudentFirstClassifier: what it costs, what it corrects, what it learns from corrections, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags

from quorate import BudgetSpent, Infeasible, InvalidInput, NoQuorum
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.core.ballots import release_votes
from quorate.core.mechanisms.dissent import proposed_first
from quorate.core.requests import Request
from quorate.models.predictors._student_first import StudentFirstClassifier
from quorate.service._batcher import RequestBatcher

# So much epsilon, so small a delta: clear votes are missed, and ties answered, less than once in 10**9 queries.
TARGET = {"epsilon": 8.0, "delta": 1e-8, "teachers": 200, "dissents": 5, "no_quorums": 2, "classes": ["no", "yes"]}


def records(rows=12_000, seed=0):
    X = np.random.default_rng(seed).normal(size=(rows, 2))
    return X, np.where(X[:, 0] > 0, "yes", "no")


X, Y = records()
OWN = np.stack([np.linspace(-3, 3, 121), np.zeros(121)], axis=1)  # the student's own points, public
OWN_LABELS = np.where(OWN[:, 0] > 1.5, "yes", "no")  # wrong between 0 and 1.5
STUDENT = KNeighborsClassifier(n_neighbors=1).fit(OWN, OWN_LABELS)
RIGHT, WRONG = [[-2.0, 0.0]], [[1.0, 0.0]]


@pytest.fixture
def classifier():
    return StudentFirstClassifier(STUDENT, **TARGET).fit(X, Y)


def along(start, stop, rows):
    """Different queries from start to stop."""
    return np.stack([np.linspace(start, stop, rows), np.zeros(rows)], axis=1)


# ---------------------------------------------------------------- what it costs


def test_traffic_on_which_the_student_is_right_costs_the_opening_alone(classifier):
    """False alarm: 2e-8, since a dissent stays possible, at these sizes 1e-12 a query."""
    opening = classifier.budget_.spent()
    pair = classifier.dissent_, classifier.mechanism_
    assert opening.renyi == pytest.approx(sum(made.opening_cost(made.order).renyi for made in pair))
    answers = classifier.predict(along(-3.0, -1.0, 20_000))
    assert answers.size == 20_000
    assert (answers == "no").all()
    assert not answers.corrected.any()
    assert classifier.budget_.spent() == opening
    assert answers.spent.renyi == 0.0


def test_the_cost_grows_with_clear_mistakes_and_not_with_traffic(classifier):
    before = classifier.budget_.spent().renyi
    each = classifier.dissent_.no_quorum_cost(classifier.budget_.order).renyi
    mixed = np.concatenate([along(-3, -1, 5000), along(0.9, 1.2, 3), along(2, 3, 5000)])
    answers = classifier.predict(mixed)
    assert answers.corrected.sum() == 3
    assert answers.corrected[5000:5003].all()
    assert classifier.budget_.spent().renyi - before == pytest.approx(3 * each, rel=1e-6)
    assert answers.spent.renyi == pytest.approx(3 * each, rel=1e-6)
    assert classifier.spent_epsilon() <= TARGET["epsilon"]


def test_where_the_teachers_are_split_the_student_stands(classifier):
    """Where Quorum would find none, and charge for it. Five dissents of 20, which end the run: 2e-8."""
    split = [(None, 0)] * 102 + [(None, 1)] * 98
    classifier.session_.answerer.ensemble = Ensemble(EstimatorTeachers(split, classes=2))
    answers = classifier.predict(along(-1, 1, 20))
    assert (answers == "no").sum() >= 15
    assert answers.refused == 0
    answerer = classifier.session_.answerer
    left = answerer.quorum_run.no_quorums_left  # 2, but for what a dissent has used
    assert release_votes(answerer.ensemble, along(-1, 1, 20), answerer.quorum_run.answers).refused == 20 - left


def test_a_repeated_mistake_is_paid_once_for_each_caller(classifier):
    first = classifier.predict(WRONG * 3, caller="a")
    assert first.tolist() == ["yes"] * 3
    spent = classifier.budget_.spent()
    again = classifier.predict(WRONG * 2, caller="a")
    assert again.tolist() == ["yes"] * 2
    assert again.corrected.all()
    assert classifier.budget_.spent() == spent
    classifier.predict(WRONG, caller="b")
    assert classifier.budget_.spent().renyi > spent.renyi


class RuleOfThumb(ClassifierMixin, BaseEstimator):
    """A published rule, which does not say what its labels are: for some rows it has none of the declared ones."""

    def predict(self, X):
        return np.where(X[:, 0] > 50, "unheard of", np.where(X[:, 0] > 0.5, "yes", "no"))

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True


def test_a_query_that_the_student_has_no_label_for_fails_for_its_caller_alone():
    """It is refused by an error of ours, which a server took for one about all requests of the batch."""
    X, y = [[0.0], [1.0]] * 2000, ["no", "yes"] * 2000
    settings = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "teachers": 200,
        "dissents": 2,
        "no_quorums": 1,
        "classes": ["no", "yes"],
    }
    session = StudentFirstClassifier(RuleOfThumb(), **settings).fit(X, y).session_
    rows = (0.0, 1.0, 99.0, 2.0, -1.0)
    asked = [Request(np.array([[row]]), f"caller {place}") for place, row in enumerate(rows)]
    replies = RequestBatcher(session.ask_all)._answer(asked)
    assert isinstance(replies.pop(2), InvalidInput)
    assert [reply.labels.tolist() for reply in replies] == [[0], [1], [1], [0]]


# ---------------------------------------------------------------- the end


def test_after_the_last_dissent_queries_are_refused(classifier):
    answers = classifier.predict(np.concatenate([along(0.8, 1.2, 8), RIGHT]))
    assert answers.corrected.sum() == 5
    assert answers.refused == 4
    assert answers.tolist()[5:] == [None] * 4
    assert classifier.predict(along(0.8, 1.2, 8)[:2]).tolist() == ["yes"] * 2  # what was paid for is remembered
    mixed = classifier.predict(np.concatenate([along(0.8, 1.2, 8)[:1], RIGHT]))
    assert mixed.tolist() == ["yes", None]
    with pytest.raises(BudgetSpent, match=r"has met its 5 dissents, or its budget is spent. Ask the student itself"):
        classifier.predict(RIGHT)


def test_after_the_last_no_quorum_dissents_are_reported_and_not_answered(classifier):
    classifier.session_.answerer.quorum_run.answers([[100, 100]] * 2)  # ends the run of Quorum
    answers = classifier.predict(np.concatenate([WRONG, RIGHT]))
    assert answers.tolist() == [None, "no"]
    assert answers.no_quorum.tolist() == [True, False]
    assert answers.refused == 0
    spent = classifier.budget_.spent()
    assert classifier.predict(WRONG).tolist() == [None]  # and is not paid again
    assert classifier.budget_.spent() == spent


@pytest.mark.parametrize("choice", ["abstain", "student", "random", "raise"])
def test_what_is_said_without_a_quorum(choice):
    made = StudentFirstClassifier(STUDENT, **TARGET, on_no_quorum=choice).fit(X, Y)
    made.session_.answerer.quorum_run.answers([[100, 100]] * 2)
    if choice == "raise":
        with pytest.raises(NoQuorum, match="1 of 2 queries found no quorum; they were paid for") as caught:
            made.predict(np.concatenate([WRONG, RIGHT]))
        assert caught.value.predictions.tolist() == [None, "no"]
        return
    answers = made.predict(np.concatenate([WRONG, RIGHT]))
    assert answers.tolist()[0] in {"abstain": [None], "student": ["no"], "random": ["no", "yes"]}[choice]
    assert not answers.answered[0]
    assert not answers.corrected[0]


# ---------------------------------------------------------------- what it corrects


def test_a_wrong_region_of_the_student_is_corrected(classifier):
    assert (STUDENT.predict(along(0.8, 1.3, 5)) == "no").all()
    answers = classifier.predict(along(0.8, 1.3, 5))
    assert (answers == "yes").all()
    assert answers.corrected.all()
    points, labels = classifier.corrections_
    np.testing.assert_array_equal(points, along(0.8, 1.3, 5))
    assert (labels == "yes").all()


def test_three_classes():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(20_000, 2))
    labels = np.where(points[:, 0] > 0.5, 2, np.where(points[:, 0] < -0.5, 0, 1))
    student = DummyClassifier(strategy="constant", constant=1).fit([[0, 0]] * 3, [0, 1, 2])
    made = StudentFirstClassifier(student, DecisionTreeClassifier(max_depth=3), **{**TARGET, "classes": [0, 1, 2]}).fit(
        points, labels
    )
    answers = made.predict([[2.0, 0.0], [0.0, 0.0], [-2.0, 0.0]])
    assert answers.tolist() == [2, 1, 0]
    assert answers.corrected.tolist() == [True, False, True]


def test_persons_and_auto_teachers():
    points, labels = records(40_000, seed=2)
    made = StudentFirstClassifier(STUDENT, **{**TARGET, "teachers": "auto"}, queries=10**6)
    made.fit(points, labels, groups=np.repeat(np.arange(20_000), 2))
    assert made.teachers_ == made.dissent_.teachers == made.mechanism_.teachers
    assert made.dissent_.distance() <= 0.4 * made.teachers_
    assert 10**6 * (1 - made.dissent_.standing_probability(-int(0.4 * made.teachers_))) < 0.1 * 5
    # So few teachers find no quorum, even where all agree, twice in 10**6 queries; twice in a row once in 10**11.
    answers = made.predict(np.concatenate([along(0.9, 1.1, 3), RIGHT])).tolist()
    assert answers[3] == "no"
    assert "yes" in answers[:2]
    assert set(answers[:3]) <= {"yes", None}
    assert "person" in made.claim_


def test_the_proposal_comes_first_whatever_it_is():
    votes = np.random.default_rng(0).integers(0, 9, size=(50, 4))
    proposed = np.random.default_rng(1).integers(0, 4, size=50)
    ordered = proposed_first(votes, proposed)
    np.testing.assert_array_equal(ordered[:, 0], votes[np.arange(50), proposed])
    np.testing.assert_array_equal(np.sort(ordered, axis=1), np.sort(votes, axis=1))


# ---------------------------------------------------------------- what it learns


def test_corrected_points_retrain_the_student(classifier):
    wrong = along(0.3, 1.4, 5)
    classifier.predict(wrong)
    assert classifier.retrain(OWN, OWN_LABELS, weight=2) is classifier
    assert (classifier.student_.predict(wrong) == "yes").all()
    assert (STUDENT.predict(wrong) == "no").all()  # the student that was given is left as it was
    assert (classifier.student_.predict(along(-3, -1, 9)) == "no").all()


def test_a_better_student_stops_paying():
    made = StudentFirstClassifier(STUDENT, **TARGET).fit(X, Y)
    made.predict(along(1.0, 1.2, 3))
    spent = made.budget_.spent()
    own = DecisionTreeClassifier(max_depth=1)
    made.student = own.fit(OWN, OWN_LABELS)
    made.retrain(OWN, OWN_LABELS, weight=200)
    answers = made.predict(along(1.01, 1.19, 500), caller="another")
    assert (answers == "yes").all()
    assert not answers.corrected.any()
    assert made.budget_.spent() == spent


def test_a_data_frame_and_a_frozen_student_retrain_alike():
    frame = pd.DataFrame(X, columns=["age", "height"])
    own = pd.DataFrame(OWN, columns=["age", "height"])
    student = KNeighborsClassifier(n_neighbors=1).fit(own, OWN_LABELS)
    made = clone(StudentFirstClassifier(FrozenEstimator(student), **TARGET)).fit(frame, Y)
    query = pd.DataFrame(WRONG, columns=["age", "height"])
    assert made.predict(query).tolist() == ["yes"]
    made.retrain(own, OWN_LABELS)
    assert made.student_.predict(query).tolist() == ["yes"]
    assert list(made.student_.feature_names_in_) == ["age", "height"]


def test_a_student_without_names_takes_a_data_frame_of_queries():
    made = StudentFirstClassifier(STUDENT, **TARGET).fit(pd.DataFrame(X, columns=["age", "height"]), Y)
    query = pd.DataFrame(np.concatenate([WRONG, RIGHT]), columns=["age", "height"])
    assert made.predict(query).tolist() == ["yes", "no"]


def test_retraining_refuses_points_of_another_kind(classifier):
    with pytest.raises(InvalidInput, match="retrain takes the student's own points, 2 features each"):
        classifier.retrain([[1.0]], ["no"])
    with pytest.raises(InvalidInput, match="retrain takes the student's own points"):
        classifier.retrain(OWN, OWN_LABELS[:-1])
    with pytest.raises(InvalidInput, match="labels that were not declared"):
        classifier.retrain(OWN, ["maybe"] * len(OWN))
    with pytest.raises(InvalidInput, match="weight must"):
        classifier.retrain(OWN, OWN_LABELS, weight=0.5)


# ---------------------------------------------------------------- what it refuses

OTHER_LABELS = LogisticRegression().fit([[0.0, 0.0], [1.0, 0.0]], ["no", "perhaps"])
OTHER_FEATURES = LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"delta": 0.0}, InvalidInput, "delta must be above 0"),
        ({"no_quorums": "auto"}, InvalidInput, "no_quorums must be a whole number of at least 1"),
        ({"teachers": 20}, Infeasible, r"it takes at least \d+ teachers"),
        ({"classes": ["no", "yes", "maybe"], "student": OTHER_LABELS}, InvalidInput, "student has labels that were"),
        ({"student": None}, InvalidInput, "student must be a fitted classifier, not NoneType"),
        ({"student": LogisticRegression()}, InvalidInput, "student must be fitted already"),
        ({"student": OTHER_FEATURES}, InvalidInput, "student must take 2 features like the records, got 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_settings_are_refused(changed, error, message):
    settings = {"student": STUDENT, **TARGET, **changed}
    with pytest.raises(error, match=message):
        StudentFirstClassifier(**settings).fit(X, Y)


def test_too_few_units_for_the_teachers_it_takes():
    with pytest.raises(Infeasible, match=r"\d+ teachers take at least \d+ units, and there are 100; raise epsilon"):
        StudentFirstClassifier(STUDENT, **{**TARGET, "teachers": "auto"}).fit(X[:100], Y[:100])


def test_a_gap_that_the_student_does_not_take_is_refused_at_once():
    """Teachers of trees take it; in a server the student would fail for all who are asked together."""
    student = LogisticRegression().fit(OWN, OWN_LABELS)
    made = StudentFirstClassifier(student, DecisionTreeClassifier(max_depth=2), **TARGET).fit(X, Y)
    assert not get_tags(made).input_tags.allow_nan  # by which a server refuses it
    with pytest.raises(ValueError, match="contains NaN"):
        made.check_queries([[np.nan, 0.0]])
    made.student_ = DecisionTreeClassifier().fit(OWN, OWN_LABELS)
    assert np.isnan(made.check_queries([[np.nan, 0.0]])).any()


def test_teachers_that_are_brought_are_refused():
    rules = [lambda rows: np.where(rows[:, 0] > 0, "yes", "no")] * 300
    with pytest.raises(InvalidInput, match="fits its teachers itself"):
        StudentFirstClassifier.from_teachers(rules, classes=["no", "yes"], public=X[:3], student=STUDENT)


def test_a_student_that_says_something_else_is_refused(classifier):
    class Odd:
        def predict(self, X):
            return ["maybe"] * len(X)

    classifier.student_ = Odd()
    with pytest.raises(InvalidInput, match="student has labels that were not declared"):
        classifier.predict(RIGHT)
    classifier.student_ = DummyClassifier().fit([[0, 0]], [["no", "yes"]])
    with pytest.raises(InvalidInput, match="one label for each query"):
        classifier.predict(RIGHT)
