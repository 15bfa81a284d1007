"""Learners tried on public rows: what is chosen, that private records have no say, and that forecasts come true."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

from quorate import InvalidInput, PrivateClassifier, StudentClassifier, load, save
from quorate.auditing._plays import simulate
from quorate.compute.ensemble import Ensemble
from quorate.compute.learners import Deal, count_coefficients
from quorate.planner import plan
from quorate.planner.task import Task
from quorate.planner.trial import CANDIDATES, Goal, _area, candidates, choose_learner

pytestmark = pytest.mark.filterwarnings("ignore:public rows alone would do better")  # and so they would, here

TASK = Task(epsilon=1.0, delta=1e-6, queries=300, classes=2)
LAWS = {
    "logistic": lambda X: 3 * X[:, 0] + X[:, 1],
    "quadratic": lambda X: 4 * (np.hypot(X[:, 0], X[:, 1]) - 1.2),
    "tree": lambda X: np.where(X[:, 1] > 0.3, 4 * X[:, 0], -4 * np.sign(X[:, 0]) - 2),
}


def drawn(law, rows, *, seed=0, columns=6):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns))
    return X, (random.random(rows) < 1 / (1 + np.exp(-LAWS[law](X)))).astype(np.int64)


@pytest.mark.parametrize("law", LAWS)
def test_the_learner_that_suits_the_table_is_chosen(law):
    chosen = choose_learner(candidates(None), *drawn(law, 4000), Goal(TASK, "sharp_majority", records=20_000))
    assert chosen.learner == law
    assert [trial.learner for trial in chosen.tried] == list(CANDIDATES)
    assert f"{law}, tried on public rows and their labels; expected accuracy: logistic 0." in chosen.why


@pytest.mark.parametrize("law", LAWS)
def test_what_is_expected_comes_true(law):
    """Real teachers on as many records, with simulated noise, are right as often as was said, to five points."""
    X, y = drawn(law, 24_000)
    chosen = choose_learner(candidates(None), X[20_000:], y[20_000:], Goal(TASK, "sharp_majority", records=20_000))
    teachers, trial = chosen.teachers, max(chosen.tried, key=lambda one: one.worth)
    deal = Deal.by_assignment(np.arange(20_000) % teachers, teachers=teachers)
    fitted = Ensemble.fit(X[:20_000], y[:20_000], deal, estimator=CANDIDATES[chosen.learner](), classes=2).electorate
    judges, labels = drawn(law, 4000, seed=1)
    target = {"epsilon": TASK.epsilon, "delta": TASK.delta, "queries": TASK.queries, "aggregator": "sharp_majority"}
    answers = simulate(plan(**target, teachers=teachers).mechanism, fitted.votes(judges), seed=0).labels
    assert trial.worth == pytest.approx((answers == labels).mean(), abs=0.05)


def test_what_noise_does_to_a_student_of_a_rare_class_is_foreseen():
    """A student that weighs a rare class more believes labels that noise turned: wrong on one row in three, not taken.

    Real ballots, simulated noise, fifteen students: right as often as was said, to three points.
    """
    task = Task(epsilon=1.0, delta=1e-6, queries=1000, classes=2)
    random = np.random.default_rng(0)
    X = random.normal(size=(34_000, 6))
    y = (random.random(34_000) < 1 / (1 + np.exp(4 - 1.5 * X[:, 0] - X[:, 1]))).astype(np.int64)  # one in fifteen
    goal = Goal(task, "sharp_majority", records=20_000, teachers=300, teach=True)
    chosen = choose_learner(candidates(None), X[20_000:30_000], y[20_000:30_000], goal)
    assert chosen.learner == "logistic"
    said = {trial.learner: trial.worth for trial in chosen.tried}
    mechanism = plan(epsilon=1.0, delta=1e-6, queries=1000, teachers=300, aggregator="sharp_majority").mechanism
    deal = Deal.by_assignment(np.arange(20_000) % 300, teachers=300)
    for name in ("logistic", "balanced-logistic"):
        fitted = Ensemble.fit(X[:20_000], y[:20_000], deal, estimator=CANDIDATES[name](), classes=2).electorate
        right = []
        for seed in range(15):
            asked = 20_000 + random.permutation(10_000)[:1000]
            released = simulate(mechanism, fitted.votes(X[asked]), seed=seed).labels
            right.append(CANDIDATES[name]().fit(X[asked], released).score(X[30_000:], y[30_000:]))
        assert said[name] == pytest.approx(np.mean(right), abs=0.03)
    assert said["balanced-logistic"] < said["logistic"] - 0.05


def test_simulated_labels_keep_the_default_unless_another_is_clearly_better():
    X, _ = drawn("logistic", 1000, columns=30)
    chosen = choose_learner(candidates(None), X, None, Goal(TASK, "sharp_majority", records=5000))
    assert (chosen.learner, chosen.labels) == ("logistic", "simulated")
    assert "simulated labels" in chosen.why


def test_a_wide_table_is_not_multiplied_out():
    X, y = drawn("quadratic", 400, columns=50)
    chosen = choose_learner(candidates(None), X, y, Goal(TASK, "sharp_majority", records=2000, teachers=20))
    assert "quadratic" not in [trial.learner for trial in chosen.tried]
    assert {trial.teachers for trial in chosen.tried} == {20}


def test_few_public_rows_say_nothing():
    X, y = drawn("tree", 150)
    chosen = choose_learner(candidates(None), X, y, Goal(TASK, "auto", records=5000))
    assert (chosen.learner, chosen.teachers, chosen.labels, chosen.tried) == ("logistic", None, "none", ())
    assert "nothing was tried" in chosen.why


def test_one_tree_says_less_than_the_vote_of_many():
    """Steps of twelve columns: trees answer best, and a student who is one of them would not."""
    random = np.random.default_rng(0)
    X = random.normal(size=(4000, 20))
    score = sum(np.sign(np.abs(X[:, j]) - 0.7) if j % 2 else np.sign(X[:, j]) for j in range(12))
    y = (random.random(4000) < 1 / (1 + np.exp(-1.2 * score))).astype(np.int64)
    able = {name: CANDIDATES[name]() for name in ("logistic", "tree")}
    task = Task(epsilon=4.0, delta=1e-6, queries=1000, classes=2)
    for teach, expected in ((False, "tree"), (True, "logistic")):
        goal = Goal(task, "sharp_majority", records=100_000, teachers=500, teach=teach)
        assert choose_learner(able, X, y, goal).learner == expected


def test_three_classes_are_tried_too():
    X = np.random.default_rng(0).normal(size=(900, 4))
    y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
    task = Task(epsilon=1.0, delta=1e-6, queries=200, classes=3)
    for aggregator in ("noisy_max", "noisy_shares"):
        assert choose_learner(candidates(None), X, y, Goal(task, aggregator, 6000, teachers=200)).learner == "tree"


def test_the_area_under_the_curve_counts_the_noise():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, size=3000)
    ones = random.binomial(64, np.where(labels, 0.6, 0.4))
    votes = np.stack([64 - ones, ones], axis=1)
    noisy = ones / 64 + 0.2 * random.normal(size=3000)
    assert _area(votes, labels, 1e-9) == pytest.approx(roc_auc_score(labels, ones), abs=1e-9)
    assert _area(votes, labels, 0.2) == pytest.approx(roc_auc_score(labels, noisy), abs=0.02)


def test_scores_and_balanced_classes_have_measures_of_their_own():
    X, y = drawn("logistic", 2000)
    scored = choose_learner(candidates("balanced"), X, y, Goal(TASK, "noisy_shares", records=5000, teachers=200))
    assert scored.measure == "area under the curve"
    assert "balanced-logistic" not in [trial.learner for trial in scored.tried]
    rare = (X[:, 0] > 1.5).astype(np.int64)
    goal = Goal(TASK, "sharp_majority", records=5000, teachers=200, balanced=True)
    assert choose_learner(candidates(None), X, rare, goal).learner == "balanced-logistic"


SETTINGS = {"epsilon": 2.0, "queries": 100, "aggregator": "sharp_majority", "classes": [0, 1]}


def test_private_records_have_no_say():
    X, y = drawn("tree", 6000)
    public, labels = drawn("tree", 1500, seed=1)
    seen = {
        PrivateClassifier("auto", teachers=60, **SETTINGS)
        .fit(records, answers, public=public, public_labels=labels)
        .chosen_
        for records, answers in ((X, y), (0 * X, y), (1e30 * X, 0 * y))
    }
    assert len(seen) == 1
    assert seen.pop().learner == "tree"


def test_the_default_tries_only_where_public_labels_are():
    X, y = drawn("tree", 6000)
    public, labels = drawn("tree", 1500, seed=1)
    tried = PrivateClassifier(**SETTINGS).fit(X, y, public=public, public_labels=labels)
    assert isinstance(tried.estimator_, DecisionTreeClassifier)
    assert tried.teachers_ == tried.chosen_.teachers == tried.plan_.teachers
    assert PrivateClassifier(**SETTINGS).fit(X, y, public=public).chosen_ is None
    alone = PrivateClassifier("auto", **SETTINGS).fit(X, y)
    assert isinstance(alone.estimator_, LogisticRegression)
    assert alone.chosen_.labels == "none"


def test_the_number_of_teachers_of_a_given_learner_is_tried_too():
    X, y = drawn("tree", 6000)
    public, labels = drawn("tree", 1500, seed=1)
    given = DecisionTreeClassifier(max_depth=3)
    fitted = PrivateClassifier(given, **SETTINGS).fit(X, y, public=public, public_labels=labels)
    assert [trial.learner for trial in fitted.chosen_.tried] == ["DecisionTreeClassifier"]
    other = PrivateClassifier(BernoulliNB(), **SETTINGS | {"teachers": 20}).fit(
        X[:500], y[:500], public=public, public_labels=labels
    )
    assert (other.chosen_.tried, other.teachers_) == ((), 20)


def test_a_plan_gives_trees_more_records_than_lines():
    X, y = drawn("tree", 10_000)
    lines, trees = (PrivateClassifier(CANDIDATES[name](), **SETTINGS).fit(X, y) for name in ("logistic", "tree"))
    assert trees.teachers_ < lines.teachers_
    assert count_coefficients(BernoulliNB(), 7) == 7
    assert count_coefficients(CANDIDATES["quadratic"](), 7) == 35


def test_what_was_chosen_is_saved(tmp_path):
    X, y = drawn("quadratic", 6000)
    public, labels = drawn("quadratic", 1500, seed=1)
    settings = SETTINGS | {"epsilon": 10_000.0, "queries": 10, "teachers": 30}  # answers are the plurality's
    fitted = PrivateClassifier("auto", **settings).fit(X, y, public=public, public_labels=labels)
    assert fitted.chosen_.learner == "quadratic"
    save(fitted, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.chosen_ == fitted.chosen_
    assert isinstance(loaded.estimator_, Pipeline)
    assert loaded.predict([[3.0, 3.0, 0, 0, 0, 0], [0.0] * 6]).tolist() == [1, 0]


def test_a_student_learns_as_its_teachers_do(tmp_path):
    X, y = drawn("tree", 8000)
    public, labels = drawn("tree", 1500, seed=1)
    settings = SETTINGS | {"queries": 600, "teachers": 80, "epsilon": 4.0}
    student = StudentClassifier("auto", **settings).fit(X, y, public=public, public_labels=labels)
    assert isinstance(student.student_, DecisionTreeClassifier)
    assert student.chosen_.learner == "tree"
    assert "a student's accuracy" in student.chosen_.why
    save(student, tmp_path / "s")
    assert (load(tmp_path / "s").predict(public) == student.predict(public)).all()
    assert student.set_params(mode="label-private").fit(X, y).chosen_.labels == "none"  # lent rows are not public


@pytest.mark.parametrize(
    ("public", "labels", "said"),
    [
        (None, [0, 1], "give public too"),
        (np.zeros((2, 6)), [0, 1, 1], "inconsistent numbers"),
        (np.zeros((2, 6)), [0, 7], "not declared"),
        (np.zeros((2, 5)), [0, 1], "features"),
    ],
)
def test_public_rows_that_do_not_fit_are_refused(public, labels, said):
    X, y = drawn("tree", 1000)
    with pytest.raises((InvalidInput, ValueError), match=said):
        PrivateClassifier(teachers=20, **SETTINGS).fit(X, y, public=public, public_labels=labels)
