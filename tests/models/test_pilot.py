"""What labelled public rows say of a plan before a private record is read, and what is said where they cannot."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import quorate as qr
from quorate.core.errors import Infeasible
from quorate.planner.pilot import LEAST_HALF, Pilot, run_pilot
from quorate.planner.task import few_rows_warning

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
