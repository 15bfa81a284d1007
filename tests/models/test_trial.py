"""What public rows say before a private record is read: learners that are tried, and pilots of plans."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

import quorate as qr
from quorate import InvalidInput, PrivateClassifier, StudentClassifier, load, save
from quorate.auditing._plays import simulate
from quorate.compute.ensemble import Ensemble
from quorate.compute.learners import Deal, count_coefficients
from quorate.core.errors import Infeasible
from quorate.planner import plan
from quorate.planner.pilot import LEAST_HALF, Pilot, run_pilot
from quorate.planner.task import Task, few_rows_warning
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


CLASSES = 8
CENTRES = np.random.default_rng(5).normal(size=(CLASSES, 6)) * 1.2


def table(rows, seed):
    chance = np.random.default_rng(seed)
    y = chance.integers(CLASSES, size=rows)
    return CENTRES[y] + chance.normal(size=(rows, 6)), y


PRIVATE, PUBLIC = table(12_000, 1), table(2400, 2)


def voting(**settings):
    known = {"epsilon": 1.0, "queries": 500, "aggregator": "quorum", "teachers": 400, "classes": range(CLASSES)}
    return qr.PrivateClassifier(LogisticRegression(), **known | settings)


def quietly(classifier, **public):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        classifier.fit(*PRIVATE, **public)
    return [str(one.message) for one in told]


def test_labelled_public_rows_replace_the_assumption():
    assumed = voting(epsilon=4.0)
    quietly(assumed)
    assert (assumed.plan_.disagreement, assumed.plan_.basis) == (0.1, "assumed")
    assert "10% of the votes go against the plurality, which is assumed and not measured" in assumed.plan_.summary()
    measured = voting(epsilon=4.0)
    quietly(measured, public=PUBLIC[0], public_labels=PUBLIC[1])
    assert measured.plan_.basis == "measured"
    assert measured.plan_.disagreement > 0.2
    assert measured.plan_.answered < assumed.plan_.answered - 0.3
    assert "On public points" in measured.plan_.summary()
    # What was measured comes: the share answered has a standard deviation of 0.04, the noise of the run included.
    came = measured.predict(table(500, 3)[0]).answered.mean()
    assert abs(came - measured.plan_.answered) < 0.3


@pytest.mark.long
def test_it_is_said_that_public_rows_alone_would_do_better():
    told = quietly(voting(), public=PUBLIC[0], public_labels=PUBLIC[1])
    assert any("public rows alone would do better" in text for text in told)
    classifier = voting()
    told = quietly(classifier, public=PUBLIC[0], public_labels=PUBLIC[1])
    assert [text for text in classifier.plan_.warnings if text in told] == list(classifier.plan_.warnings)
    easy = voting(epsilon=20.0, queries=20, aggregator="noisy_max", teachers=100)
    assert not [text for text in quietly(easy, public=PUBLIC[0], public_labels=PUBLIC[1]) if "alone" in text]


def test_a_few_hundred_public_rows_tell_a_rare_class_from_a_disputed_one():
    """At 20 records a teacher, 400 public rows make 10 disjoint teachers of a half: they were left unused."""
    chance = np.random.default_rng(11)
    X = chance.normal(size=(8000, 6))
    score = 2.5 * X[:, 0] + chance.logistic(size=8000)
    y = (score > np.quantile(score, 0.95)).astype(int)
    public = {"public": X[7600:], "public_labels": y[7600:]}
    classifier = qr.PrivateClassifier(LogisticRegression(), teachers=300, queries=1000, classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier.fit(X[:6000], y[:6000], **public)
    assert (classifier.plan_.basis, classifier.plan_.aggregator) == ("measured", "quorum")
    votes = classifier.session_.answerer.ensemble.count(X[6000:7600]).put_to(lambda counts: counts)
    assert abs(classifier.plan_.disagreement - (1 - votes.max(axis=1) / 300).mean()) < 0.01


@pytest.mark.parametrize("rows", [30, 150])
def test_teachers_dealt_from_a_small_pool_differ_as_teachers_of_their_own_rows_do(rows):
    """Against disjoint teachers of a large table, which share no row. Without the correction the last is half of it."""
    true = run_pilot(*table(40_000, 8), estimator=LogisticRegression(), units_per_teacher=rows, classes=CLASSES)
    small = [
        run_pilot(*table(400, seed), estimator=LogisticRegression(), units_per_teacher=rows, classes=CLASSES)
        for seed in range(20, 26)
    ]
    assert abs(np.mean([one.disagreement for one in small]) / true.disagreement - 1) < 0.15


def test_what_is_given_is_not_measured():
    classifier = voting(disagreement=0.3)
    quietly(classifier, public=PUBLIC[0], public_labels=PUBLIC[1])
    assert (classifier.plan_.disagreement, classifier.plan_.basis) == (0.3, "given")


def test_too_few_public_rows_leave_the_assumption_and_say_so():
    few = 2 * LEAST_HALF - 1
    classifier = voting()
    quietly(classifier, public=PUBLIC[0][:few], public_labels=PUBLIC[1][:few])
    assert classifier.plan_.basis == "assumed"
    assert any("a pilot of teachers of 30 units each needs" in a for a in classifier.plan_.assumptions)
    with pytest.raises(Infeasible, match="needs 100 public units"):
        run_pilot(
            PUBLIC[0][:few], PUBLIC[1][:few], estimator=LogisticRegression(), units_per_teacher=30, classes=CLASSES
        )
    with pytest.raises(qr.InvalidInput, match="public_labels are those of public rows"):
        voting().fit(*PRIVATE, public_labels=PUBLIC[1])


def test_teachers_of_persons_are_not_tried_on_rows():
    """A person has more rows than one, and teachers of as many rows would disagree more than those of the plan."""
    people = voting(epsilon=4.0, teachers=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        people.fit(*PRIVATE, groups=np.arange(12_000) // 5, public=PUBLIC[0], public_labels=PUBLIC[1])
    assert people.plan_.basis == "assumed"
    assert any("nobody says whose the public rows are" in text for text in people.plan_.assumptions)


def test_a_pilot_is_the_same_every_time_and_knows_one_model():
    first, again = (
        run_pilot(*PUBLIC, estimator=LogisticRegression(), units_per_teacher=30, classes=CLASSES) for _ in range(2)
    )
    assert np.array_equal(first.votes, again.votes)
    assert first.votes.shape == (2400, CLASSES), "each half is judged by teachers of the other"
    assert 0.7 < first.alone < 1.0
    assert Pilot(first.votes, first.codes).warning(None, queries=1) is None, "nothing to compare with"


def test_teachers_of_few_records_are_warned_of():
    assert few_rows_warning(2, rows=10) is None
    assert few_rows_warning(26, rows=None) is None
    with pytest.warns(UserWarning, match="a teacher has 30 records for 8 classes"):
        voting().fit(*PRIVATE)
    assert "a teacher has 1 record for 2 classes" in qr.plan(records=100, teachers=100).warnings[0]


def test_a_named_aggregator_that_falls_short_is_warned_of():
    """With "auto" such a plan is refused; a named one answered by the toss of a coin, and said nothing."""
    X = np.random.default_rng(0).normal(size=(600, 2))
    classifier = qr.PrivateClassifier(epsilon=1.0, teachers=30, queries=4000, aggregator="noisy_max", classes=[0, 1])
    with pytest.warns(UserWarning, match="not feasible: with 30 teachers only 5.* any one of these would do"):
        classifier.fit(X, (X[:, 0] > 0).astype(int))
    assert not classifier.plan_.feasible
