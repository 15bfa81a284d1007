"""Membership inference finds members through a plain model, and not through a private one; and time is measured.

Models that are not private are seeded here. Private ones draw real noise: a test of theirs fails by chance with
probability below 1e-8, since what it bounds holds in expectation and intervals of confidence 1 - 1e-9 stand around it.
"""

import time

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from planted.delays import Delayed
from planted.membership import Timing, attack_membership, attack_timing, confidences, make_targets, scores_of
from quorate.auditing._tracing import Roc, area_under_curve
from quorate.core.errors import InvalidInput
from quorate.models.predictors import PrivateClassifier
from quorate.models.students import StudentClassifier

pytestmark = pytest.mark.attack

CLAIM = {"epsilon": 1.0, "delta": 1e-5}
CONFIDENCE = 1 - 1e-9
PUBLIC = np.random.default_rng(9).normal(size=(200, 8))


def plain(X, y):
    return KNeighborsClassifier(3).fit(X, y).predict_proba


def plain_labels(X, y):
    return KNeighborsClassifier(1).fit(X, y).predict


def private(X, y):
    made = PrivateClassifier(
        LogisticRegression(), **CLAIM, teachers=200, aggregator="noisy_max", queries=40, classes=[0, 1]
    ).fit(X, y)
    return lambda queries: made.predict(queries).labels


def student(X, y):
    settings = {"teachers": 200, "aggregator": "noisy_max", "queries": 100, "classes": [0, 1]}
    return StudentClassifier(LogisticRegression(), **CLAIM, **settings).fit(X, y, public=PUBLIC).predict_proba


def targets(poison):
    return make_targets(records=2000, targets=40, features=8, poison=poison, seed=1)


@pytest.mark.parametrize(("train", "poison"), [(plain, 0), (plain, 1), (plain_labels, 0)])
def test_plain_model_is_seen_leaking(train, poison):
    found = attack_membership(train, targets(poison), models=40)
    assert found.area > 0.8
    assert found.excess(**CLAIM, confidence=CONFIDENCE) > 0.2


def test_members_are_found_at_few_false_alarms():
    assert attack_membership(plain, targets(0), models=60).hits(false_alarms=0.001) > 0.3


@pytest.mark.parametrize("poison", [0, 3])
@pytest.mark.parametrize("train", [private, student])
def test_private_model_stays_within_what_epsilon_allows(train, poison):
    found = attack_membership(train, targets(poison), models=40)
    assert found.excess(**CLAIM, confidence=CONFIDENCE) <= 0
    assert 0.3 < found.area < 0.75  # 1600 trials: epsilon = 1 allows 0.73 at most, and 0.5 is seen


def test_poison_adds_wrong_copies_and_targets_are_replaced():
    made = targets(2)
    members = np.arange(40) < 20
    X, y = made.data(members)
    assert len(X) == 2000 + 80
    assert (X[:20] == made.X[:20]).all()
    assert (X[20:40] == made.others[20:]).all()
    assert (X[2000:2002] == made.X[0]).all()
    assert (y[2000:2002] != made.y[0]).all()


def test_scores_use_the_other_half_alone():
    """A model's own confidence is no evidence about itself: what one half says moves the other half's scores only."""
    generator = np.random.default_rng(0)
    member = generator.random((40, 5)) < 0.5
    confidence = generator.normal(size=(40, 5))
    moved = confidence.copy()
    moved[20:] += 7.0
    before, after = (scores_of(one, member) for one in (confidence, moved))
    own = np.cumsum(member.sum(axis=1))[19]
    assert (before.members[:own] != after.members[:own]).all()  # judged by shadows that moved
    assert (before.members[own:] != after.members[own:]).all()  # moved, and judged by shadows that did not
    alone = scores_of(np.array([[3.5], [-3.5], [3.0], [-3.0]]), np.array([[True], [False], [True], [False]]))
    assert (alone.members == 0).all()  # one shadow of a kind says nothing
    assert (alone.others == 0).all()


def test_without_a_leak_members_score_like_others():
    generator = np.random.default_rng(0)
    member = generator.random((200, 100)) < 0.5
    for confidence in (
        generator.normal(size=member.shape),
        generator.choice([-1.0, 1.0], p=[0.9, 0.1], size=member.shape),
    ):
        assert abs(scores_of(confidence, member).area - 0.5) < 0.02  # seeded: always the same


def test_the_excess_is_that_of_two_intervals_on_the_half_that_had_no_part_in_the_choice():
    error = 0.005 ** (1 / 1000)  # what the probability of 1000 hits of 1000 is at least, at half of 0.01
    found = Roc(np.ones(2000), np.zeros(2000)).excess(epsilon=1.0, delta=0.1, confidence=0.99)
    assert found == pytest.approx(error - np.exp(1.0) * (1 - error) - 0.1, rel=1e-6)
    changed = Roc(np.arange(2000) % 2 == 0, np.arange(2000) % 2 == 1)  # the half that counts has changed sides
    assert changed.excess(epsilon=1.0, delta=0.1, confidence=0.99) < 0


def test_curve_runs_from_nothing_to_all():
    alarms, hits = Roc(np.array([1.0, 2.0, 2.0]), np.array([0.0, 2.0])).curve()
    assert alarms.tolist() == [0.0, 0.5, 0.5, 1.0]
    assert hits == pytest.approx([0.0, 2 / 3, 1.0, 1.0])


def test_confidences_read_labels_and_probabilities():
    assert confidences(np.array([[0.75, 0.25]]), np.array([1])) == pytest.approx([-np.log(3)])
    assert confidences(np.array([[1.0, 0.0]]), np.array([1])).tolist() == [-10.0]


def test_more_targets_than_records_are_refused():
    with pytest.raises(InvalidInput, match="more than"):
        make_targets(records=5, targets=6, features=1)


def test_planted_delay_is_seen():
    def ask(query):
        return query

    slow = attack_timing(Delayed(ask, when=bool, seconds=0.0005), [0] * 200, [1] * 200)
    assert slow.area > 0.7  # nearly 1 on a machine that does nothing else
    assert slow.tells(confidence=CONFIDENCE)


def test_equal_work_is_not_told_apart():
    """The order is random, so whatever the machine does is dealt to both kinds: chance says no but for 1e-9."""

    def ask(query):
        end = time.perf_counter() + 2e-5
        while time.perf_counter() < end:
            pass

    assert not attack_timing(ask, [0] * 300, [1] * 300).tells(confidence=CONFIDENCE)


def test_the_two_kinds_are_asked_in_one_random_order():
    asked = []
    attack_timing(asked.append, [0] * 50, [1] * 50, warm=0)
    assert len(asked) == 100
    assert 15 < sum(asked[:50]) < 35  # seeded: always the same


def test_area_counts_ties_half():
    assert area_under_curve(np.zeros(3), np.zeros(5)) == 0.5
    assert Timing(np.array([1.0, 1.0]), np.array([1.0, 2.0])).area == 0.75
