"""Predictors on classes of hypotheses: what they answer, what they refuse, and their manners."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from quorate import BudgetSpent, Infeasible, InvalidInput, load, save
from quorate.compute.learners import Deal
from quorate.core.answerers import OneByOne
from quorate.core.ledger import restore
from quorate.core.privacy import Budget, Cost
from quorate.core.session import Session
from quorate.models.concepts import Conjunctions, Finite, Halfspaces, Intervals, Stumps, Thresholds
from quorate.models.predictors import AgnosticClassifier, PureClassifier, StableClassifier, UniversalClassifier
from quorate.models.predictors._universal import choose_from_cover, cover_points
from quorate.models.predictors.concept_classifier import fill_unit_rows, fit_concept_teachers
from quorate.models.saving import open_folder

SECRET = 0.123456789  # stands in the private rows and nowhere else


def noisy(units, *, noise, features=1, seed=0):
    """Rows in a cube, labelled by a threshold on the first feature, some labels turned; and what is right."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(size=(units, features))
    right = (X[:, 0] > 0.4).astype(int)
    return X, right ^ (generator.uniform(size=units) < noise), right


CLEAR = np.array([[0.05], [0.1], [0.8], [0.9]])


def test_what_a_cover_costs_and_promises():
    X, y, _ = noisy(2000, noise=0.1)
    budget = Budget(epsilon=1.0, delta=1e-6)
    hypothesis, cost = choose_from_cover(Thresholds(), X, y, np.linspace(0, 1, 50), epsilon=0.5, budget=budget)
    assert hypothesis.predict([[0.1], [0.9]]).tolist() == [0, 1]
    assert budget.spent().renyi == pytest.approx(cost.renyi)
    with pytest.raises(BudgetSpent):
        choose_from_cover(Thresholds(), X, y, [0.5], epsilon=2.0, budget=Budget(epsilon=1.0, delta=0.0))
    with pytest.raises(InvalidInput, match="finite"):
        choose_from_cover(Thresholds(), X, y, [0.5, np.nan], epsilon=0.5)
    assert cover_points(vc_dimension=2, alpha=0.2, beta=0.1) == math.ceil(32 * (2 * math.log(5) + math.log(10)) / 0.2)


# Universal


def test_the_shares_of_a_universal_classifier_add_up():
    X, y, _ = noisy(8000, noise=0.0)
    for epsilon, share in itertools.product((3.0, 4.1, 5.7), (0.1, 1 / 3, 0.5)):
        made = UniversalClassifier(
            Thresholds(), epsilon=epsilon, share=share, ballots=5, teachers=30, aggregator="noisy_max", classes=[0, 1]
        ).fit(X, y)
        parts = Fraction(made.ballots_epsilon_) + Fraction(made.hypothesis_epsilon_)
        assert Fraction(epsilon) * (1 - Fraction(1, 10**9)) < parts <= Fraction(epsilon)


def test_a_universal_classifier_switches_once_and_answers_for_ever():
    X, y, _ = noisy(20_000, noise=0.1)
    made = UniversalClassifier(Thresholds(), epsilon=4.0, ballots=30, teachers=80, classes=[0, 1]).fit(X, y)
    assert not made.switched_
    with pytest.raises(AttributeError, match="takes over after 30 queries"):
        _ = made.hypothesis_
    first = made.predict(np.linspace(0, 1, 20)[:, np.newaxis])
    assert not made.switched_
    spent = made.spent_epsilon()
    assert made.predict(np.linspace(0, 1, 20)[:, np.newaxis]).tolist() == first.tolist()
    assert made.spent_epsilon() == spent
    made.predict(np.linspace(0, 1, 40)[1::2][:, np.newaxis], caller="another")
    assert made.switched_
    assert spent < made.spent_epsilon() <= 4.0
    assert made.claim_.startswith("(4, 1e-06)-differentially private")
    many = np.linspace(0, 1, 5000)[:, np.newaxis]
    answers = made.predict(many)
    assert answers.answered.all()
    assert answers.spent == Cost(0.0)
    ahead = made.predict(np.linspace(0, 1, 20)[:, np.newaxis])
    assert ahead.labels[first.answered].tolist() == first.labels[first.answered].tolist()
    assert np.mean(answers.labels == (many[:, 0] > 0.4)) > 0.85
    assert made.hypothesis_.predict([[0.05], [0.95]]).tolist() == [0, 1]
    assert made.spent_epsilon() <= 4.0


def test_a_universal_classifier_whose_ballots_end_early_goes_on():
    X, y, _ = noisy(8000, noise=0.0)
    made = UniversalClassifier(
        Thresholds(), epsilon=4.0, ballots=200, teachers=40, aggregator="noisy_max", classes=[0, 1]
    )
    made.fit(X, y)
    made.budget_.spend(made.budget_.remaining())  # as if others had asked
    answers = made.predict(np.linspace(0, 1, 30)[:, np.newaxis])
    assert made.switched_
    assert answers.answered.all()
    assert answers.labels[[0, 29]].tolist() == [0, 1]


def test_settings_of_the_universal_classifier():
    y = [0, 1] * 50
    for settings in ({"share": 0}, {"share": 1}, {"delta": 0.0}):
        with pytest.raises(InvalidInput, match=f"{next(iter(settings))}.* must be"):
            UniversalClassifier(Thresholds(), **settings).fit([[0.0], [1.0]] * 50, y)
    with pytest.raises(Infeasible, match="pass fewer points"):
        UniversalClassifier(Halfspaces(2), ballots=5000).fit(np.random.default_rng(0).normal(size=(100, 2)), y)


# Behaviour


def test_an_agnostic_classifier_learns_through_label_noise():
    X, y, _ = noisy(20_000, noise=0.2)
    made = AgnosticClassifier(Thresholds(), epsilon=3.0, queries=20, teachers=200, classes=[0, 1]).fit(X, y)
    answers = made.predict(CLEAR)
    assert answers.labels[answers.answered].tolist() == np.array([0, 0, 1, 1])[answers.answered].tolist()
    assert answers.answered.all()
    assert made.spent_epsilon() <= 3.0
    assert made.claim_ == "(3, 1e-06)-differentially private under replacement of one row"
    assert 0 < made.budget_.spent_epsilon() <= made.sample_.epsilon


@pytest.mark.parametrize("concept", [Stumps(3), None])
def test_an_agnostic_classifier_on_stumps_with_names_for_labels(concept):
    X, y, _ = noisy(20_000, noise=0.1, features=3)
    made = AgnosticClassifier(concept, epsilon=3.0, queries=10, teachers=150, classes=["high", "low"])
    answers = made.fit(X, np.where(y == 1, "high", "low")).predict([[0.05, 0.5, 0.5], [0.95, 0.5, 0.5]])
    assert answers.labels.tolist() == ["low", "high"]


def test_a_stable_classifier_learns_in_the_plane():
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(3000, 2))
    y = (X.sum(axis=1) > 1).astype(int)
    made = StableClassifier(Halfspaces(2), gamma=0.2, subset=60, classes=[0, 1]).fit(X, y)
    assert made.stability_ <= 0.2
    assert made.predict([[0.1, 0.1], [0.9, 0.9]]).tolist() == [0, 1]


def test_a_stable_answer_is_kept_for_its_caller():
    """Between two equal halves a fresh draw is a coin: 40 repeats of one query would all agree with chance 2**-39."""
    X, y = np.zeros((40, 1)), np.tile([0, 1], 20)
    made = StableClassifier(Thresholds(), gamma=0.1).fit(X, y)
    assert len({made.predict([[0.0]]).tolist()[0] for _ in range(40)}) == 1
    assert made.session_.answerer.drawn == 1
    assert len({made.predict([[0.0]], caller=str(caller)).tolist()[0] for caller in range(60)}) == 2
    assert made.spent_delta() == 1.0


def test_the_delta_of_a_stable_model_counts_what_its_ledger_has_forgotten_or_lost(tmp_path):
    X, y, _ = noisy(200, noise=0.0)
    save(StableClassifier(Thresholds(), gamma=0.1).fit(X, y), tmp_path / "model")
    made = load(tmp_path / "model")
    for drawn in (4, 8):
        made.predict(CLEAR)
        assert made.spent_delta() == pytest.approx(0.1 * drawn)
        made.session_.ledger.compact(answers_days=0)
        assert made.spent_delta() == pytest.approx(0.1 * drawn)
    made.session_.close()
    restore(tmp_path / "model", fingerprint=open_folder(tmp_path / "model").fingerprint, charge="mark")
    assert load(tmp_path / "model").spent_delta() == 1.0  # whoever kept the copy may not have kept what came after


def test_persons_are_units():
    X, y, _ = noisy(4000, noise=0.0)
    groups = np.arange(4000) // 4
    made = StableClassifier(Thresholds(), gamma=0.3, records_per_person=2, classes=[0, 1]).fit(X, y, groups=groups)
    assert (made.choice_.units, made.choice_.rows) == (1000, 2)
    assert "all rows of one person, of whom the first 2 are used" in made.claim_
    assert made.predict(CLEAR).tolist() == [0, 0, 1, 1]
    # At epsilon 6 one of these four is wrong once in 600,000 runs, at 9 once in 10**11.
    agnostic = AgnosticClassifier(
        Thresholds(), epsilon=9.0, queries=4, teachers=40, records_per_person=2, classes=[0, 1]
    )
    assert agnostic.fit(X, y, groups=groups).predict(CLEAR).tolist() == [0, 0, 1, 1]
    assert agnostic.sample_.rows == 2
    made.set_params(records_per_person=7)
    assert "of whom the first 2 are used" in made.claim_  # what was fitted counts


@pytest.mark.parametrize(
    "made",
    [
        StableClassifier(Thresholds(), gamma=0.3, records_per_person=3, classes=[0, 1]),
        AgnosticClassifier(Thresholds(), epsilon=9.0, queries=4, teachers=60, records_per_person=3, classes=[0, 1]),
        PureClassifier(Thresholds(), epsilon=90.0, queries=4, records_per_person=3, classes=[0, 1]),
        PureClassifier(Thresholds(), epsilon=200.0, queries=4, method="relabel", records_per_person=3, classes=[0, 1]),
        PureClassifier(Thresholds(), epsilon=16.0, queries=4, method="realizable", teachers=40, classes=[0, 1]),
        UniversalClassifier(Thresholds(), epsilon=12.0, ballots=2, teachers=60, records_per_person=3, classes=[0, 1]),
    ],
    ids=lambda made: f"{type(made).__name__}-{getattr(made, 'method', '')}",
)
def test_persons_may_have_fewer_rows_than_places(made):
    X, y, _ = noisy(4000, noise=0.0)
    sizes = np.tile([1, 2, 5], 500)
    groups = np.repeat(np.arange(1500), sizes)
    assert made.fit(X, y, groups=groups).predict(CLEAR).tolist() == [0, 0, 1, 1]
    assert "one person" in made.claim_


def test_what_a_class_cannot_go_through_is_said_by_fit():
    X = np.random.default_rng(0).uniform(size=(5000, 2))
    y = (X.sum(axis=1) > 1).astype(int)
    with pytest.raises(Infeasible, match="pass fewer points"):
        StableClassifier(Halfspaces(2), gamma=0.9, subset=3000).fit(X, y)
    with pytest.raises(Infeasible, match="pass fewer points"):
        PureClassifier(Halfspaces(2), method="realizable", teachers=2).fit(X, y)
    assert StableClassifier(Halfspaces(2), gamma=0.9).fit(X, y).choice_.subset < 2000
    assert PureClassifier(Halfspaces(2), epsilon=1.0).fit(X, y).scheme_.epsilon <= 1.0


def test_slots_have_public_sizes():
    X, y = np.arange(7.0)[:, np.newaxis], np.array([0, 1, 0, 1, 0, 1, 0])
    records = fill_unit_rows(X, y, groups=["a", "a", "a", "b", "a", "c", "b"], row_limit=2)
    assert records.points[:, 0].tolist()[:4] == [0.0, 1.0, 3.0, 6.0]
    assert records.labels.tolist() == [0, 1, 1, 0, 1, -1]
    assert repr(records) == "<sealed records>"
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(records)


@pytest.mark.parametrize("kind", [StableClassifier, AgnosticClassifier, UniversalClassifier, PureClassifier])
def test_bad_records_and_settings_are_refused_without_a_value(kind):
    X, y = np.full((2000, 1), SECRET), np.tile([0, 1], 1000)
    with pytest.raises(InvalidInput, match="one class"):
        kind(Thresholds()).fit(X, np.zeros(2000, dtype=int))
    with pytest.raises(InvalidInput, match="Only binary classification"):
        kind(Thresholds()).fit(X, np.arange(2000) % 3)
    with pytest.raises(InvalidInput, match="concept reads 2 features and X has 1"):
        kind(Halfspaces(2)).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples") as told:
        kind(Thresholds()).fit(X, y[:-1])
    assert str(SECRET) not in str(told.value)


def test_settings_of_the_stable_classifier():
    X, y = np.arange(50.0)[:, np.newaxis], np.tile([0, 1], 25)
    with pytest.raises(Infeasible, match=r"gamma=0\.01 takes at least 200 units, and there are 50"):
        StableClassifier(Thresholds(), gamma=0.01).fit(X, y)
    with pytest.raises(Infeasible, match="take a smaller subset"):
        StableClassifier(Thresholds(), gamma=0.1, subset=5).fit(X, y)


def test_what_is_infeasible_says_so():
    X, y, _ = noisy(1000, noise=0.2)
    with pytest.raises(Infeasible, match="bring more units, raise epsilon, or plan for fewer queries"):
        AgnosticClassifier(Thresholds(), epsilon=0.5).fit(X, y)
    with pytest.raises(Infeasible, match="no sample of 1000 units"):
        AgnosticClassifier(Thresholds(), epsilon=0.5, rate=1.0, kappa=4.0).fit(X, y)
    with pytest.raises(Infeasible, match="fewer than teachers=900"):
        AgnosticClassifier(Thresholds(), epsilon=0.5, teachers=900, aggregator="noisy_max").fit(X, y)


@pytest.mark.parametrize(
    "concept", [Thresholds(), Intervals(), Stumps(1), Conjunctions([2]), Finite([np.ones_like], features=1)]
)
def test_tied_points_constant_features_and_one_class(concept):
    """All points alike: the majority's label is answered, or there is none; nothing breaks."""
    if isinstance(concept, Finite):
        concept = Finite([lambda X: np.ones(len(X)), lambda X: np.zeros(len(X))], features=1)
    X, y = np.ones((2000, 1)), np.ones(2000, dtype=int)
    assert StableClassifier(concept, gamma=0.2, classes=[0, 1]).fit(X, y).predict([[1.0]]).tolist() == [1]
    agnostic = AgnosticClassifier(concept, epsilon=4.0, queries=2, teachers=50, classes=[0, 1])
    assert agnostic.fit(X, y).predict([[1.0]]).tolist() == [1]


def pure_settings(method):
    X, y, _ = noisy(10_000, noise=0.0)
    return PureClassifier(Thresholds(), epsilon=60.0, queries=15, method=method, classes=[0, 1]).fit(X, y)


@pytest.mark.parametrize("method", ["stable", "relabel", "realizable"])
def test_a_pure_classifier_answers_as_often_as_planned(method):
    """An answer far from the cut is wrong with probability below 0.05; eight of fifteen are with less than 1e-7."""
    made = pure_settings(method)
    queries = np.concatenate([np.linspace(0, 0.2, 7), np.linspace(0.7, 1, 8)])[:, np.newaxis]
    answers = made.predict(queries)
    assert answers.answered.all()
    assert np.sum(answers.labels == (queries[:, 0] > 0.4)) >= 8
    assert made.spent_epsilon() == pytest.approx(60.0, rel=1e-9)
    assert made.spent_epsilon() <= 60.0
    assert made.predict(queries).tolist() == answers.tolist()
    with pytest.raises(BudgetSpent):
        made.predict([[0.5]])
    assert made.claim_ == "(60, 0)-differentially private under replacement of one row"


def test_settings_of_the_pure_classifier():
    X, y = np.arange(40.0)[:, np.newaxis], np.repeat([0, 1], 20)
    with pytest.raises(InvalidInput, match="alpha must be"):
        PureClassifier(Thresholds(), alpha=0.5).fit(X, y)
    with pytest.raises(Infeasible, match="40 units are too few for relabelling"):
        PureClassifier(Thresholds(), method="relabel", epsilon=0.5).fit(X, y)
    with pytest.raises(Infeasible, match="raise epsilon, plan for fewer queries"):
        PureClassifier(Thresholds(), method="realizable", epsilon=0.1).fit(X, y)


def test_answers_are_charged_before_they_are_drawn():
    budget = Budget(epsilon=1.0, delta=0.0)

    def draw(row):
        assert budget.spent().renyi == 0.5
        raise KeyboardInterrupt

    fresh = Session(OneByOne(draw, Cost(0.5)), budget)
    with pytest.raises(KeyboardInterrupt):
        fresh.ask(np.zeros((1, 1)))
    assert budget.spent().renyi == 0.5


@pytest.mark.parametrize("concept", [Conjunctions([2]), Stumps(1, binary=True)])
def test_rows_that_break_a_promise_count_as_zeros(concept):
    X, y = np.arange(40.0)[:, np.newaxis] % 3, np.tile([0, 1], 20)
    broken, kept = (
        StableClassifier(concept, gamma=0.5)._records(rows, y, None) for rows in (X, np.where(X == 2, 0, X))
    )
    assert broken.points.tobytes() == kept.points.tobytes()


@pytest.mark.parametrize("epsilon", [1e-3, 1e5])
def test_extreme_targets_are_kept_or_refused(epsilon):
    X, y, _ = noisy(3000, noise=0.0)
    for made in (
        AgnosticClassifier(
            Thresholds(), epsilon=epsilon, queries=2, teachers=5, aggregator="noisy_max", classes=[0, 1]
        ),
        PureClassifier(Thresholds(), epsilon=epsilon, classes=[0, 1]),
        PureClassifier(Thresholds(), epsilon=epsilon, method="relabel", classes=[0, 1]),
        PureClassifier(Thresholds(), epsilon=epsilon, method="realizable", classes=[0, 1]),
    ):
        try:
            made.fit(X, y).predict([[0.1]])
        except Infeasible:
            assert epsilon < 1
        else:
            assert made.spent_epsilon() <= epsilon


def test_records_are_copied_so_that_their_owner_may_change_them():
    """Found in review: a predictor that reads its records at every query read the caller's own array."""
    X = np.linspace(0, 1, 400)[:, np.newaxis]
    y = (X[:, 0] > 0.5).astype(int)
    for made in (StableClassifier(Thresholds(), gamma=0.2), PureClassifier(Thresholds(), epsilon=5.0, queries=10)):
        records = made._records(X, y, None) if hasattr(made, "_records") else None
        assert records is not None
        assert not np.shares_memory(records.points, X)
        assert not np.shares_memory(records.labels, y)


def test_a_class_that_fails_on_a_row_fails_for_nobody():
    """Found in review: whether more than half of the teachers failed could be seen."""

    class Failing(Thresholds):
        def fit_erm(self, X, y):
            raise RuntimeError("on this row")

    labels = np.array([0, 1, 1])
    ensemble = fit_concept_teachers(Failing(), np.array([[1.0], [2.0], [3.0]]), labels, Deal.of([[0, 1, 2]]))
    assert ensemble.electorate.ballots(np.zeros((1, 1))).tolist() == [[1]]
