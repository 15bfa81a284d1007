"""Scores from ballots: one paid answer read in three ways, thresholds and priors, weights of classes, class shares.

Where real noise is met, what is asserted lies more than six deviations off: one false alarm in 10**8.
"""

import csv
import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from quorate import BudgetSpent, Infeasible, InvalidInput, PrivateClassifier, load, plan
from quorate.cli import main
from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.estimators import EstimatorTeachers
from quorate.compute.learners import BatchedLogistic, Deal
from quorate.core.mechanisms import NoisyShares
from quorate.core.requests import NO_QUORUM
from quorate.models.predictors._voting import estimate_rates
from quorate.models.predictors.base import Scoring
from quorate.planner.task import by_class, check_prior, rare_class_warning, takes_class_weight, weigh_classes
from quorate.service._outputs import outputs_of

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6000, 2))
Y = np.where(X[:, 0] + 0.3 * RANDOM.normal(size=6000) > 1.2, "yes", "no")  # one in eight
QUERIES = RANDOM.normal(size=(8, 2))
SETTINGS = {"epsilon": 8.0, "delta": 1e-6, "teachers": 200, "queries": 20, "classes": ["no", "yes"], "scores": True}
SHARES = {"no": 0.875, "yes": 0.125}


def made(**more):
    return PrivateClassifier(**SETTINGS | more).fit(X, Y)


def test_all_ways_of_asking_read_one_answer_that_is_paid_for_once():
    classifier = made()
    labels = classifier.predict(QUERIES)
    spent = classifier.spent_epsilon()
    shares = classifier.predict_proba(QUERIES)
    excess = classifier.decision_function(QUERIES)
    assert spent == classifier.spent_epsilon() > 0
    assert labels.scores.tolist() == shares.tolist()
    assert np.clip(excess + 0.5, 0, 1) == pytest.approx(shares[:, 1])
    assert (labels.labels == "yes").tolist() == (excess >= 0).tolist()
    assert shares.sum(axis=1) == pytest.approx(1.0)
    assert labels.answered.all()
    assert list(classifier.stream(QUERIES[:2])) == labels.tolist()[:2]
    other = classifier.predict_proba(QUERIES[:1], caller="somebody else")  # pays for an answer of its own
    assert classifier.spent_epsilon() > spent
    assert other.shape == (1, 2)


def test_a_threshold_and_a_prior_are_read_after_the_answer_and_cost_nothing():
    classifier = made(prior=SHARES)
    shares = classifier.predict_proba(QUERIES)[:, 1]
    excess, spent = classifier.decision_function(QUERIES) + 0.5, classifier.spent_epsilon()
    for threshold, level in ((0.3, 0.3), ("balanced", 0.125), (None, 0.5)):
        classifier.set_params(threshold=threshold)
        assert (classifier.predict(QUERIES).labels == "yes").tolist() == (excess >= level).tolist()
        assert classifier.decision_function(QUERIES) == pytest.approx(excess - level)
    assert classifier.predict_proba(QUERIES)[:, 1].tolist() == shares.tolist()
    assert classifier.spent_epsilon() == spent


def test_the_budget_is_never_overdrawn():
    classifier = made(queries=5)
    first = classifier.predict_proba(QUERIES)
    assert np.isnan(first).all(axis=1).tolist() == [False] * 5 + [True] * 3
    told = classifier.predict(QUERIES)
    assert (told.refused, told.no_quorum.sum(), told.answered.sum()) == (3, 0, 5)
    assert told.tolist()[5:] == [None] * 3
    assert np.isnan(classifier.decision_function(QUERIES)[5:]).all()
    with pytest.raises(BudgetSpent):
        classifier.predict_proba(QUERIES[5:])
    assert classifier.spent_epsilon() <= 8.0
    assert classifier.predict_proba(QUERIES[:5]).tolist() == first[:5].tolist()


def test_more_classes_are_ranked_by_their_shares_or_by_what_exceeds_the_prior():
    y = np.digitize(X[:, 0], [-1, 1.2])
    settings = SETTINGS | {"classes": [0, 1, 2], "prior": [0.16, 0.72, 0.12]}
    classifier = PrivateClassifier(**settings).fit(X, y)
    shares = classifier.predict_proba(QUERIES)
    assert classifier.decision_function(QUERIES).tolist() == shares.tolist()
    assert classifier.predict(QUERIES).labels.tolist() == shares.argmax(axis=1).tolist()
    classifier.set_params(threshold="balanced")
    ratios = shares / [0.16, 0.72, 0.12]
    assert classifier.decision_function(QUERIES) == pytest.approx(ratios)
    assert classifier.predict(QUERIES).labels.tolist() == ratios.argmax(axis=1).tolist()
    classifier.set_params(threshold=0.5)
    with pytest.raises(InvalidInput, match="a number for two classes"):
        classifier.predict(QUERIES + 9)
    with pytest.raises(InvalidInput, match="a number for two classes"):
        PrivateClassifier(**settings | {"threshold": 0.5}).fit(X, y)


def test_reading_answers_by_hand():
    scoring = Scoring(NoisyShares(teachers=10, classes=2, scale=1.0), "balanced", (0.8, 0.2))
    answers = np.array([8, 11, 12, 25, NO_QUORUM])  # counts of -2, 1, 2 and 15 of 10
    assert scoring.labels(answers).tolist() == [0, 0, 1, 1, NO_QUORUM]
    assert scoring.decisions(answers[:4]) == pytest.approx([-0.4, -0.1, 0.0, 1.3])
    assert scoring.probabilities(answers[:4])[:, 1] == pytest.approx([0.0, 0.1, 0.2, 1.0])
    assert np.isnan(scoring.decisions(answers)[4])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"threshold": 0.0}, "threshold must be above 0"),
        ({"threshold": "high"}, "threshold must be above 0"),
        ({"threshold": "balanced"}, "declare the shares of the classes"),
        ({"threshold": 0.2, "scores": False}, "set scores=True"),
        ({"prior": "holdout"}, "set holdout"),
        ({"prior": [0.5, 0.6]}, "sum to 1"),
        ({"prior": {"no": 1.0}}, "must name each class once"),
        ({"prior": [0.5]}, "2 positive numbers"),
        ({"prior": "often"}, "prior must be numbers"),
        ({"class_weight": {"no": 1.0, "yes": -1.0}}, "2 positive numbers"),
        ({"class_weight": "fair"}, "class_weight must be one of auto, balanced"),
        ({"class_weight": "balanced", "estimator": GaussianNB()}, "GaussianNB takes no class_weight"),
        ({"aggregator": "quorum"}, "aggregator must be .* for scores"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_fitted(settings, text):
    with pytest.raises(InvalidInput, match=text):
        made(**settings)
    with pytest.raises(Infeasible, match="delta = 0"):
        made(delta=0.0)


def test_labels_have_no_scores():
    classifier = made(scores=False, aggregator="noisy_max")
    assert not hasattr(classifier, "predict_proba")
    assert not hasattr(classifier, "decision_function")
    assert classifier.predict(QUERIES).scores is None
    classifier.set_params(scores=True)
    with pytest.raises(InvalidInput, match="was fitted for labels"):
        classifier.predict_proba(QUERIES)
    named = made(scores=False, aggregator="noisy_shares")  # the same by another name
    assert named.predict_proba(QUERIES).shape == (8, 2)
    assert plan(teachers=200, scores=True).settings()["aggregator"] == "noisy_shares"


CHUNKS = [np.arange(start, 600, 12) for start in range(12)]


@pytest.mark.parametrize("weights", ["balanced", {0: 1.0, 1: 6.0, 2: 3.0}])
@pytest.mark.parametrize("classes", [2, 3])
def test_weighted_teachers_are_those_of_scikit_learn(weights, classes):
    y = np.minimum((X[:, 0] > 1).astype(np.int64) + (X[:, 1] > 1), classes - 1)
    given = weights if weights == "balanced" else tuple(weights[code] for code in range(classes))
    teachers = BatchedLogistic(class_weight=given).fit(X, y, Deal.of(CHUNKS), classes=classes)
    own = {code: weights[code] for code in range(classes)} if weights != "balanced" else weights
    one = LogisticRegression(class_weight=own, tol=1e-9, max_iter=1000)
    expected = [one.fit(X[chunk], y[chunk]).predict(X[:500]) for chunk in CHUNKS]
    assert teachers.ballots(X[:500]).T.tolist() == [labels.tolist() for labels in expected]
    plain = BatchedLogistic().fit(X, y, Deal.of(CHUNKS), classes=classes).ballots(X[:500])
    assert (plain != teachers.ballots(X[:500])).any()


def test_a_class_without_a_weight_weighs_one():
    y = np.arange(600) % 3
    short, full = (
        BatchedLogistic(class_weight=weights).fit(X[:600], y, Deal.of(CHUNKS), classes=3).arrays()["scores"]
        for weights in ((2.0,), (2.0, 1.0, 1.0))
    )
    assert short.tolist() == full.tolist()


def test_a_teacher_balances_its_own_rows_and_no_others():
    """Every label of the first chunk is changed: no coefficient of another teacher moves, to the last bit."""
    y, other = (Y == "yes").astype(np.int64), (Y == "yes").astype(np.int64)
    other[CHUNKS[0]] = 1 - other[CHUNKS[0]]
    first, second = (
        BatchedLogistic(class_weight="balanced").fit(X, codes, Deal.of(CHUNKS), classes=2).arrays()["scores"]
        for codes in (y, other)
    )
    assert (first[0] != second[0]).any()
    assert first[1:].tobytes() == second[1:].tobytes()


def test_weights_reach_the_estimator_in_a_pipeline_and_are_numbered_as_teachers_know_classes():
    pipeline = weigh_classes(make_pipeline(StandardScaler(), LogisticRegression()), (1.0, 7.0))
    assert pipeline.steps[1][1].class_weight == {0: 1.0, 1: 7.0}
    assert takes_class_weight(RidgeClassifier())
    assert not takes_class_weight(GaussianNB())
    tree = made(estimator=DecisionTreeClassifier(max_depth=2), teachers=60, class_weight={"yes": 9.0, "no": 1.0})
    assert tree.estimator_.class_weight == {0: 1.0, 1: 9.0}
    assert made().estimator_.class_weight == "balanced"  # auto, with scores
    assert made(class_weight=None).estimator_.class_weight is None
    assert made(scores=False).estimator_.class_weight is None
    assert made(estimator=GaussianNB()).predict_proba(QUERIES).shape == (8, 2)  # which takes none


def test_balanced_teachers_spread_the_shares_of_a_rare_class():
    positive = X[Y == "yes"][:20] + np.array([0.5, 0.0])
    balanced, plain = (made(class_weight=weight, queries=40).predict_proba(positive) for weight in ("balanced", None))
    assert balanced[:, 1].mean() > plain[:, 1].mean() + 0.05


def test_class_shares_are_estimated_with_the_rates_and_paid_for():
    ensemble = Ensemble(EstimatorTeachers([(None, 0)] * 90 + [(None, 1)] * 10, classes=3))
    codes = np.repeat([0, 1, 2], [700, 290, 10])
    told = estimate_rates(ensemble, np.zeros((1000, 1)), codes, epsilon=4.0, delta=1e-6)
    assert sum(told.shares) == pytest.approx(1.0)
    assert np.abs(np.array(told.shares) - [0.7, 0.29, 0.01]).max() < 12 * told.share_deviation < 0.1
    assert min(told.shares) > 0
    assert abs(told.disagreement - 0.1) < 8 * told.deviation
    classifier = made(holdout=0.3, prior="holdout", threshold="balanced")
    assert classifier.spent_epsilon() == pytest.approx(0.8)  # a tenth, before any answer
    labels = classifier.predict(QUERIES)
    level = classifier.estimate_.shares[1]
    assert classifier.decision_function(QUERIES) == pytest.approx(
        classifier.mechanism_.excess(classifier.session_.ask(classifier.check_queries(QUERIES)).labels) - level
    )
    assert classifier.spent_epsilon() <= 8.0
    assert labels.answered.all()


def test_a_served_model_has_a_tensor_of_scores():
    scoring = Scoring(NoisyShares(teachers=10, classes=2, scale=1.0), 0.3)
    classifier = SimpleNamespace(outputs="vote shares", classes_=np.array(["no", "yes"]), scoring=lambda: scoring)
    outputs = outputs_of(classifier)
    assert outputs.tensors[-1] == ("scores", "FP64", [-1, 2])
    answers, refused = np.array([12, 13, NO_QUORUM]), np.array([False, False, True])
    chosen = outputs.choose(None, binary=False)
    label, index, outcome, scores = outputs.write(answers, refused, chosen)
    assert (label.values, index.values.tolist()) == (["no", "yes", ""], [0, 1, -2])
    assert outcome.values == ["answered", "answered", "refused"]
    assert scores.values == pytest.approx(np.array([[0.8, 0.2], [0.7, 0.3], [0.0, 0.0]]))
    assert [tensor.name for tensor in outputs.write(answers, refused, [("scores", True), ("index", True)])] == [
        "scores",
        "index",
    ]


def test_a_rare_class_is_warned_of_before_anything_is_spent():
    told = "a class of share 12% will rarely win a majority: "
    told += "use scores=True or class_weight='balanced' (--scores, --class-weight), or a linear model"
    assert plan(teachers=500, prior=[0.88, 0.12]).warnings == (told,)
    assert told in plan(teachers=500, prior=[0.88, 0.12]).summary()
    assert plan(teachers=500, prior=[0.7, 0.3]).warnings == ()
    assert plan(teachers=500, prior=[0.88, 0.12], scores=True).warnings == ()
    assert plan(records=100_000, teachers=500, prior=[0.88, 0.12], class_weight="balanced").warnings == ()
    few = plan(records=15_000, teachers=500, prior=[0.88, 0.12], class_weight="balanced").warnings
    assert "has about 4 of the 30 records of a teacher" in few[0]
    with pytest.warns(UserWarning, match="a class of share 12% will rarely win a majority"):
        made(scores=False, prior=SHARES)
    with pytest.warns(UserWarning, match="will rarely win a majority"):
        made(scores=False, prior="holdout", holdout=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(prior=SHARES)
        made(scores=False)
    assert rare_class_warning([0.5, 0.4, 0.1], weighted=False, rows=None) is not None
    assert check_prior({"b": 0.25, "a": 0.75}, ["a", "b"]) == (0.75, 0.25)
    assert by_class("class_weight", [1, 2], ["a", "b"]) == (1.0, 2.0)


@pytest.fixture
def tables(tmp_path):
    for name, rows in (("records", slice(0, 4000)), ("public", slice(4000, 5000)), ("queries", slice(5000, 5006))):
        with (tmp_path / f"{name}.csv").open("w") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "b", "label"])
            writer.writerows([*row, label] for row, label in zip(X[rows].tolist(), Y[rows].tolist(), strict=True))
    return tmp_path


def test_the_command_line_takes_weights_and_warns(tables, capsys):
    fit = ["fit", "subsample", str(tables / "records.csv"), "--label", "label", "--classes", "no,yes", "--epsilon", "8"]
    fit += ["--teachers", "100", "--queries", "20"]
    assert main([*fit, "--prior", "no=0.88,yes=0.12", "--out", str(tables / "labels")]) == 0
    assert capsys.readouterr().err.count("quorate: a class of share 12% will rarely win a majority") == 1
    assert main([*fit, "--class-weight", "no=1,yes=7", "--out", str(tables / "weighed")]) == 0
    assert load(tables / "weighed").class_weight == [1.0, 7.0]
    assert main([*fit, "--class-weight", "none", "--scores", "--out", str(tables / "plain")]) == 0
    assert load(tables / "plain").class_weight is None
    assert main([*fit, "--prior", "no=most", "--out", str(tables / "none")]) == 1
    assert "--prior must be a number for each class" in capsys.readouterr().err
    assert main(["plan", "--teachers", "500", "--prior", "0.9,0.1", "--json"]) == 0
    assert "a class of share 10%" in json.loads(capsys.readouterr().out)["warnings"][0]
    assert main(["plan", "--records", "30000", "--epsilon", "4", "--scores"]) == 0
    assert "An answer is the share of votes" in " ".join(capsys.readouterr().out.split())
