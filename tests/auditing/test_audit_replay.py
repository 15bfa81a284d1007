"""Replays: the tape is one tape, sound predictors pass, and what reaches further than one ballot is seen."""

import os

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from quorate import PrivateClassifier
from quorate.auditing import entropy_tape, replay
from quorate.auditing.targets import REPLAYS, run_replay
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import NoisySum, SoftMajority
from quorate.core.privacy import Cost

pytestmark = pytest.mark.attack

CLASSIFIER = {"epsilon": 4.0, "teachers": 200, "queries": 40, "classes": [0, 1]}


@pytest.fixture(scope="module")
def neighbours():
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, 2))
    y = (X[:, 0] + 0.5 * random.normal(size=2000) > 0).astype(int)
    moved, flipped = X.copy(), y.copy()
    moved[5], flipped[5] = [50.0, -50.0], 1 - y[5]
    return (X, y), (moved, flipped), random.normal(size=(40, 2))


def test_the_tape_repeats_itself_and_is_gone_afterwards():
    def draws():
        with entropy_tape(3) as drawn:
            seen = os.urandom(8), NoisySum(sensitivity=1, scale=50.0).releases([0] * 5)
            return seen, list(drawn)

    assert draws() == draws()
    assert os.urandom(8) != os.urandom(8)
    one, other = (NoisySum(sensitivity=1, scale=2.0**30).releases([0] * 5) for _ in range(2))
    assert one != other  # 5 equal draws of so wide a law: one in 10**45


def test_the_tape_ends_with_an_error_and_does_not_nest():
    before = os.urandom
    with pytest.raises(ZeroDivisionError), entropy_tape(1):
        raise ZeroDivisionError
    assert os.urandom is before
    with entropy_tape(1), pytest.raises(InvalidInput, match="already"), entropy_tape(2):
        pass
    assert SoftMajority(teachers=1000, epsilon_per_query=1.0).answer([1000, 0]) == 0


@pytest.mark.parametrize("name", list(REPLAYS))
def test_predictors_are_sound(name):
    found = run_replay(name)
    assert found.sound, found.forbidden
    assert found.teachers_changed <= 1


@pytest.mark.parametrize("aggregator", ["quorum", "soft_majority", "noisy_max", "confident_max", "between_thresholds"])
def test_every_aggregator_is_sound(aggregator, neighbours):
    found = replay(PrivateClassifier(aggregator=aggregator, **CLASSIFIER), *neighbours)
    assert found.sound, found.forbidden
    assert found.teachers_changed == 1
    assert found.ballots_changed >= 1


def test_teachers_with_randomness_of_their_own_are_sound(neighbours):
    made = PrivateClassifier(DecisionTreeClassifier(max_depth=2, max_features=1), aggregator="noisy_max", **CLASSIFIER)
    assert replay(made, *neighbours).forbidden == ()


class ScaledByAll(PrivateClassifier):
    """Fits a scaler on all records."""

    def fit(self, X, y):
        return super().fit(StandardScaler().fit_transform(X), y)


class AsksMore(PrivateClassifier):
    """Draws once more where a record is large."""

    def fit(self, X, y):
        if np.abs(X).max() > 10:
            os.urandom(1)
        return super().fit(X, y)


class RefusesOutliers(PrivateClassifier):
    """Says that a record is large."""

    def fit(self, X, y):
        if np.abs(X).max() > 10:
            raise InvalidInput("a value is too large")
        return super().fit(X, y)


class LooksUp(PrivateClassifier):
    """Draws more, or pays more, for an answer where a record was large."""

    def fit(self, X, y):
        self._large = np.abs(X).max() > 10
        return super().fit(X, y)


class DrawsMore(LooksUp):
    def predict(self, X):
        if self._large:
            os.urandom(1)
        return super().predict(X)


class PaysMore(LooksUp):
    def predict(self, X):
        answer = super().predict(X)
        if self._large:
            self.budget_.spend(Cost(renyi=1e-6))
        return answer


class Crashes(LooksUp):
    """Fails, and not in words of its own, where a record is large."""

    def fit(self, X, y):
        if np.abs(X).max() > 10:
            raise ZeroDivisionError("a spread")
        return super().fit(X, y)


class FailsToAnswer(LooksUp):
    """Ends with an error, and not with an answer that is paid for, where a record was large."""

    def predict(self, X):
        if self._large:
            raise FloatingPointError("overflow")
        return super().predict(X)


class ClaimsMore(LooksUp):
    @property
    def claim_(self):
        return super().claim_ + ("; a value is large" if self._large else "")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ScaledByAll, "teachers differ"),
        (AsksMore, "fitting asks for other randomness"),
        (RefusesOutliers, "refusal"),
        (Crashes, "refusal is None on one data set and ZeroDivisionError: a spread on the other"),
        (FailsToAnswer, "query 0 ends with an error that depends on one unit"),
        (DrawsMore, "query 0 asks for other randomness"),
        (PaysMore, "query 0 costs something else"),
        (ClaimsMore, "claim_ is"),
    ],
)
def test_what_reaches_further_is_seen(kind, said, neighbours):
    found = replay(kind(aggregator="noisy_max", **CLASSIFIER), *neighbours)
    assert not found.sound
    assert any(said in sentence for sentence in found.forbidden), found.forbidden


def test_classes_read_from_the_labels_are_seen(neighbours):
    (X, y), _, queries = neighbours
    rare = y.copy()
    rare[7] = 2
    made = PrivateClassifier(aggregator="noisy_max", **CLASSIFIER | {"classes": None})
    assert any("classes_" in sentence for sentence in replay(made, (X, y), (X, rare), queries).forbidden)


def test_what_fails_on_both_data_sets_is_not_called_sound(neighbours):
    class NeverAnswers(PrivateClassifier):
        def predict(self, X):
            raise NotImplementedError("later")

    with pytest.raises(InvalidInput, match=r"nothing was replayed.*at most records=2000"):
        replay(PrivateClassifier(aggregator="noisy_max", **CLASSIFIER | {"teachers": 100_000}), *neighbours)
    with pytest.raises(InvalidInput, match=r"nothing was replayed.*NotImplementedError: later"):
        replay(NeverAnswers(aggregator="noisy_max", **CLASSIFIER), *neighbours)


def test_no_quorum_that_is_raised_is_an_answer(neighbours):
    made = PrivateClassifier(aggregator="quorum", on_no_quorum="raise", **CLASSIFIER)
    assert replay(made, *neighbours).forbidden == ()


def test_a_predictor_without_teachers_is_refused():
    class Nothing:
        def fit(self, X, y):
            return self

    with pytest.raises(InvalidInput, match="ensemble"):
        replay(Nothing, ([[0.0]], [0]), ([[1.0]], [0]), [[0.0]])


def test_names_of_replays_are_checked():
    with pytest.raises(InvalidInput, match="no replay is called"):
        run_replay("tape")
