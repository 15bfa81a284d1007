"""A private search: the best of a random number of trials by enumeration, its cost, and what comes out of it."""

import json
import math
from itertools import product
from typing import ClassVar

import numpy as np
import pandas
import pytest
from scipy import sparse
from scipy.special import ndtr, ndtri
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LinearRegression
from sklearn.metrics import get_scorer
from sklearn.tree import DecisionTreeClassifier

from planted.selections import NumberTold, small_stopping
from planted.trial_laws import best_law, epsilon_trials, released_best, worst_log_ratio, worst_renyi
from quorate import (
    Infeasible,
    InvalidInput,
    NoQuorum,
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSearchCV,
    SemiPrivateClassifier,
    StudentClassifier,
    load,
    save,
)
from quorate.auditing import entropy_tape
from quorate.cli import main
from quorate.core._noise import system_noise
from quorate.core.mechanisms import EveryCandidate, NoisyVector, RandomStopping
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.core.mechanisms.selection import ApproximateTrial, GaussianTrial, negative_binomial
from quorate.core.privacy import Budget
from quorate.models import selection as search_module
from quorate.models.concepts import Thresholds
from quorate.models.selection import _trials as scores_module
from quorate.models.selection import plan_search
from quorate.models.selection._trials import Scoring
from quorate.tables.features import AdditiveColumns

ORDERS = (1.2, 2.0, 6.0, 30.0)
WEIGHTS = ((1,), (8, 4, 2, 1, 1), (1, 1, 1, 1, 4), (1, 0, 0, 7))


def pure(weights, epsilon):
    return RandomStopping(candidates=1, weights=weights, trial=ApproximateTrial(epsilon, 0.0))


def gaussian_trials(candidates, cuts):
    """Return a search at epsilon 1, its law of numbers, and the laws of a trial's cells on two neighbours."""
    stopping = RandomStopping.calibrate(epsilon=1.0, delta=1e-6, candidates=candidates, trial=GaussianTrial)
    edges = np.concatenate([[-np.inf], cuts, [np.inf]])
    first, second = np.diff(ndtr(edges)), np.diff(ndtr(edges - stopping.trial.length))
    return stopping, np.array(stopping.weights) / sum(stopping.weights), edges, first, second


# ------------------------------------------------------------------------------------------- the best of several trials


def test_the_enumeration_agrees_with_all_sequences_of_trials_and_ties_are_broken_fairly():
    """By a sum over every k and every sequence; two outcomes have one score, and either is the best as often."""
    trial, scores, weights = np.array([0.2, 0.3, 0.4, 0.1]), [0, 1, 1, 2], (4, 2, 1, 1)
    expected = np.zeros(4)
    for number, weight in enumerate(weights, start=1):
        for outcomes in product(range(4), repeat=number):
            best = max(scores[one] for one in outcomes)
            tied = [one for one in outcomes if scores[one] == best]
            for one in tied:  # a fair choice among those with the best score
                expected[one] += weight / 8 * np.prod(trial[list(outcomes)]) / len(tied)
    released = released_best(pure(weights, 1.0), scores)
    assert np.allclose(released.law(trial)[np.argsort(released.results)], expected, atol=1e-12)
    merged = best_law(np.array(weights) / 8, np.array([0.2, 0.7, 0.1]))
    assert np.allclose(merged, [expected[0], expected[1] + expected[2], expected[3]], atol=1e-12)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_bound_holds_for_the_worst_trials_found_and_is_met_at_order_infinity(weights, epsilon):
    stopping = pure(weights, epsilon)
    released, pairs = released_best(stopping, (0, 1, 2)), epsilon_trials(epsilon)
    worst = worst_log_ratio(released, pairs)
    assert 0.97 * stopping.renyi(math.inf) <= worst <= stopping.renyi(math.inf)
    laws = [(released.law(first), released.law(second)) for first, second in pairs]
    for order in ORDERS:
        assert worst_renyi(laws, order) <= stopping.renyi(order) <= stopping.renyi(math.inf)


@pytest.mark.parametrize("candidates", [3, 8])
def test_the_bound_holds_for_gaussian_trials_whatever_their_scores_are(candidates):
    """A normal variable in 400 cells, scored by its likelihood ratio, either way, and in random orders."""
    stopping, law, _, first, second = gaussian_trials(candidates, np.linspace(-5.5, 5.5, 399))
    orders = [
        np.arange(400),
        np.arange(400)[::-1],
        *np.random.default_rng(0).permuted(np.tile(np.arange(400), (6, 1)), axis=1),
    ]
    pairs = [
        (best_law(law, one[at]), best_law(law, other[at]))
        for at in orders
        for one, other in ((first, second), (second, first))
    ]
    for order in (5.0, 12.0, 30.0):
        worst = worst_renyi(pairs, order)
        assert stopping.trial.renyi(order) * 0.9 < worst <= stopping.renyi(order)


@pytest.mark.parametrize("candidates", [3, 8])
def test_scores_exist_that_come_close_to_the_delta_that_is_claimed(candidates):
    """Outcomes that are rare and tell most are ranked where the others tell most: above those of one side, no more."""
    _, law, edges, first, second = gaussian_trials(candidates, np.linspace(-7, 7, 1401))
    worst, cells = 0.0, np.arange(first.size)
    for rare, above in product((-4.0, -3.5, -3.0), (0.8, 1.4, 2.0)):
        low, high = np.searchsorted(edges, (rare, above)) - 1
        ranked = np.concatenate([cells[low:high], cells[:low], cells[high:]])
        for at in (ranked, ranked[::-1]):
            for one, other in ((first, second), (second, first)):
                best, neighbour = best_law(law, one[at]), best_law(law, other[at])
                worst = max(worst, float(np.maximum(best - math.e * neighbour, 0.0).sum()))
    assert 1e-7 < worst <= 1e-6


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 8.0, 16.0])
def test_an_event_tells_a_gaussian_trial_apart_no_better_than_a_normal_variable_would(epsilon):
    """The noise that does for (epsilon, delta) alone is too small for that where epsilon is large: `rounded` is due."""
    trial, settings = GaussianTrial(epsilon, 1e-6), {"epsilon": epsilon, "delta": 1e-6, "squared_sensitivities": (1,)}

    def excess(noisy):
        """How likely a move by the trial's length leaves an event {noise >= k}, over how likely a step of 1 does."""
        tails = np.cumsum(gaussian_pmf(noisy.scales[0], math.ceil(12 * noisy.scales[0]))[::-1])[::-1]
        inside = (tails[:-1] > 1e-12) & (tails[:-1] < 1 - 1e-12)
        return float((ndtr(ndtri(tails[:-1]) - trial.length) / tails[1:])[inside].max())

    assert excess(NoisyVector.calibrate(**settings, rounded=True)) <= 1 + 1e-6
    assert (excess(NoisyVector.calibrate(**settings)) > 1.05) == (epsilon >= 8)


def test_searched_trials_do_not_break_the_bound():
    """Laws of three and four outcomes within epsilon, drawn to the ends of what is allowed: seeded."""
    draw, epsilon = np.random.default_rng(1), 0.8
    stopping = pure((2, 3, 1, 2), epsilon)
    for size in (3, 4):
        released, pairs = released_best(stopping, range(size)), []
        for _ in range(300):
            first = draw.dirichlet(np.full(size, 0.4))
            low, high = first * math.exp(-epsilon / 2), first * math.exp(epsilon / 2)
            second = np.where(draw.random(size) < 0.5, low, high)
            pairs += [(first, second / second.sum()), (second / second.sum(), first)]  # the sum takes the other half
        assert worst_log_ratio(released, pairs) <= stopping.renyi(math.inf)
        laws = [(released.law(one), released.law(other)) for one, other in pairs]
        assert all(worst_renyi(laws, order) <= stopping.renyi(order) for order in ORDERS)


def test_a_geometric_number_of_pure_trials_costs_at_most_three():
    for stop in (0.5, 0.1, 0.01):
        weights = tuple(int(2**60 * stop * (1 - stop) ** k) for k in range(math.ceil(40 / stop)))
        for epsilon in (0.5, 4.0):
            assert pure(weights, epsilon).renyi(math.inf) <= 3 * epsilon + 0.001
    assert pure(weights, 0.5).renyi(math.inf) > 2.9 * 0.5  # as many trials as here come close to it


def literature(order, length, *, shape, stop, mean):
    """Papernot and Steinke (2022), Theorem 2, for a Gaussian trial, at its best second order."""
    second = 1 + np.geomspace(0.01, 1e4, 4000)
    extra = (1 + shape) * ((1 - 1 / second) * second * length**2 / 2 + math.log(1 / stop) / second)
    return order * length**2 / 2 + extra.min() + math.log(mean) / (order - 1)


@pytest.mark.parametrize("shape", [1, 3])
def test_the_bound_is_below_that_of_the_literature(shape):
    stop, trial = 0.05, GaussianTrial(0.5, 1e-6)
    number = np.arange(1, 900)
    law = np.prod([number + more for more in range(1, shape)], axis=0) * (1 - stop) ** number
    weights = tuple(int(2**60 * weight) for weight in (law / law.sum()).tolist())
    stopping = RandomStopping(candidates=1, weights=weights, trial=trial)
    for order in (2.0, 5.0, 20.0, 60.0):
        known = literature(order, trial.length, shape=shape, stop=stop, mean=stopping.mean_trials)
        assert stopping.trial.renyi(order) < stopping.renyi(order) <= known


def test_a_poisson_number_without_zero_is_a_law_like_others():
    """Conditioned on at least one trial; the published bound (Theorem 6) is for a law that may end without any."""
    number, mean, trial = np.arange(1, 60), 6.0, GaussianTrial(0.5, 1e-6)
    law = np.cumprod(mean / number)
    weights = tuple(int(2**60 * weight) for weight in (law / law.sum()).tolist())
    stopping, order = RandomStopping(candidates=1, weights=weights, trial=trial), 10.0
    near = math.log1p(1 / (order - 1))
    missed = ndtr(trial.length / 2 - near / trial.length) - math.exp(near) * ndtr(
        -trial.length / 2 - near / trial.length
    )
    known = trial.renyi(order) + mean * missed + math.log(mean) / (order - 1)
    assert stopping.renyi(order) <= known + 0.02


def test_a_delta_of_trials_is_paid_for_each_of_them():
    stopping = RandomStopping(candidates=2, weights=(1, 1, 2), trial=ApproximateTrial(0.5, 1e-7))
    assert stopping.mean_trials == 2.25
    assert 2.25e-7 <= stopping.slack <= 2.2501e-7
    assert stopping.epsilon(delta=2e-7) == math.inf
    assert stopping.epsilon(delta=3e-7) < stopping.epsilon(delta=stopping.slack) + 1e-6 < 1.51
    certain = RandomStopping(candidates=2, weights=(1, 1, 2), trial=ApproximateTrial(0.5, 0.0))
    assert certain.renyi(math.inf) >= stopping.renyi(math.inf) - 1e-6


def test_the_tail_events_of_trials_stay_within_the_slack_by_enumeration():
    """Each trial may show its data set outright, with probability delta; such an outcome has the best score."""
    delta, epsilon, weights = 0.01, 0.7, (2, 3, 1, 2)
    stopping = RandomStopping(candidates=1, weights=weights, trial=ApproximateTrial(epsilon, delta))
    released, worst = released_best(stopping, (0, 1, 2, 3, 3)), 0.0
    limit = math.exp(stopping.renyi(math.inf))
    for first, second in epsilon_trials(epsilon):
        one = released.law(np.array([*(1 - delta) * first, delta, 0.0]))
        other = released.law(np.array([*(1 - delta) * second, 0.0, delta]))
        worst = max(worst, float(np.maximum(one - limit * other, 0.0).sum()))
    assert 0.9 * stopping.slack < worst <= stopping.slack


def test_whoever_learns_the_number_of_trials_learns_more_than_is_claimed():
    """The number does not depend on the data; the claim does depend on its being secret."""
    told, kept = (released_best(small_stopping(kind), (0, 1, 2)) for kind in (NumberTold, RandomStopping))
    pairs, claimed = epsilon_trials(1.0), small_stopping().renyi(math.inf)
    assert worst_log_ratio(kept, pairs) <= claimed < 3.1
    assert worst_log_ratio(told, pairs) > 3.8


def test_the_number_of_trials_is_drawn_by_its_weights_and_candidates_evenly():
    stopping = RandomStopping(candidates=3, weights=(1, 0, 5), trial=GaussianTrial(1.0, 1e-6))
    with entropy_tape(3):
        drawn = [stopping.draw_number(system_noise) for _ in range(6000)]
        tried = [stopping.best(lambda candidate: (0.0, candidate)) for _ in range(6000)]
    assert np.abs(np.bincount(drawn, minlength=4) - [0, 1000, 0, 5000]).max() < 150  # five deviations of 29
    assert np.abs(np.bincount(tried) - 2000).max() < 200


def test_a_budget_is_charged_before_a_trial_runs():
    stopping, budget = pure((1, 1), 0.5), Budget(epsilon=1.0, delta=0.0)
    with pytest.raises(ZeroDivisionError):
        stopping.best(lambda candidate: 1 / 0, budget=budget)
    assert budget.spent().renyi == pytest.approx(stopping.renyi(math.inf))


@pytest.mark.parametrize("trial", [GaussianTrial, ApproximateTrial])
@pytest.mark.parametrize("candidates", [2, 5])
def test_calibrated_trials_keep_what_was_asked_and_leave_little(trial, candidates):
    for kind in (RandomStopping, EveryCandidate):
        chosen = kind.calibrate(epsilon=0.7, delta=1e-6, candidates=candidates, trial=trial)
        assert 0.7 * (1 - 1e-3) <= chosen.epsilon(delta=1e-6) <= 0.7
        assert chosen.tried >= 0.9 - 1e-9
        assert chosen.mean_trials <= chosen.most_trials


def test_laws_try_a_candidate_as_often_as_asked_and_end():
    for shape, candidates, tried in product((2, 4), (2, 30), (0.5, 0.9)):
        weights = negative_binomial(shape, candidates=candidates, tried=tried)
        law = np.array(weights) / sum(weights)
        missed = law @ (1 - 1 / candidates) ** np.arange(1, law.size + 1)
        assert 1 - missed == pytest.approx(tried, abs=1e-6)
    with pytest.raises(InvalidInput, match="below 1"):
        negative_binomial(1, candidates=3, tried=1.0)
    with pytest.raises(Infeasible, match="name fewer"):
        negative_binomial(1, candidates=500, tried=0.9)
    with pytest.raises(InvalidInput, match="first weight"):
        RandomStopping(candidates=2, weights=(0, 3), trial=GaussianTrial(1.0, 1e-6))


def test_a_plan_takes_the_way_that_leaves_more_to_a_trial():
    plans = {number: plan_search(candidates=number) for number in (1, 2, 4)}
    assert [plan.method for plan in plans.values()] == ["composition", "composition", "random stopping"]
    assert plans[1].trial_epsilon == pytest.approx(1.0, abs=1e-3)
    for number, plan in list(plans.items())[1:]:
        others = [
            plan_search(candidates=number, method=way).trial_epsilon for way in ("random stopping", "composition")
        ]
        assert plan.trial_epsilon == pytest.approx(max(others))
    assert plans[4].naive_epsilon > 1.1
    assert json.dumps(plans[4].as_dict())
    loose = plan_search(candidates=5, gaussian=False)
    assert loose.trial_epsilon == pytest.approx(1 / 3, rel=0.03)
    assert loose.trial_delta * loose.mean_trials <= 1e-6
    with pytest.raises(InvalidInput, match="method"):
        plan_search(candidates=3, method="grid")
    with pytest.raises(Infeasible, match="fewer candidates"):
        EveryCandidate.calibrate(epsilon=1e-3, delta=1e-6, candidates=10**18, trial=ApproximateTrial)


# ------------------------------------------------------------------------------------------------------- the search


def table(rows=4000, seed=0):
    """Rows whose label no straight line tells."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 2))
    return X, np.where(np.abs(X[:, 0]) > 1, "yes", "no"), draw.normal(size=(300, 2))


def linear(**settings):
    return PrivateLogisticRegression(columns=AdditiveColumns(), classes=["no", "yes"], **settings)


GRID, GRID_BEST = {"columns__cuts": [1, 8]}, {"columns__cuts": 8}


@pytest.fixture(scope="module")
def found():
    X, y, public = table()
    with entropy_tape(1):
        return PrivateSearchCV(linear(), GRID, epsilon=2.0, scoring="roc_auc").fit(X, y, public=public)


def test_a_search_finds_the_better_candidate_and_says_what_it_cost(found):
    assert found.best_params_ == {"columns__cuts": 8}
    assert found.best_index_ == 1
    assert found.best_score_ > 0.9
    assert found.method_ == found.plan_.method == "composition"
    assert 1.99 < found.naive_epsilon_ <= 2.0
    assert found.claim_ == (
        "(2, 1e-06)-differentially private under replacement of one row; the best of private trials of 2 candidates, "
        "which are all paid for; the public rows are not protected"
    )
    assert found.best_estimator_.claim_ == found.claim_
    assert found.best_estimator_.epsilon == found.plan_.trial_epsilon < 1.5
    assert is_classifier(found)
    assert clone(found).get_params()["scoring"] == "roc_auc"


def test_the_model_found_answers_and_is_saved_as_what_it_is(found, tmp_path):
    X, y, _ = table(seed=1)
    assert found.score(X, y) > 0.9
    again = load(save(found, tmp_path / "model"))
    assert type(again) is PrivateLogisticRegression
    assert again.claim_ == found.claim_
    for ask in ("predict", "predict_proba", "decision_function"):
        assert np.array_equal(getattr(again, ask)(X[:50]), getattr(found, ask)(X[:50]))
    assert found.classes_.tolist() == ["no", "yes"]


def test_how_a_sparse_row_is_stored_does_not_change_how_others_are_added_up(monkeypatch):
    generator = np.random.default_rng(0)
    columns, values = np.sort(generator.integers(0, 8, size=60)), np.append(generator.normal(size=60), [1.0, 2.0])
    dealt = []
    monkeypatch.setattr(search_module, "take_rows", lambda rows, _: dealt.append(rows.toarray()[0]))
    for last in ([0, 1], [1, 0]):
        places = np.repeat([0, 1], [60, 2]), np.append(columns, last)
        trials = search_module._Trials([], 1.0, 1e-6, Scoring("accuracy"), None)
        trials.deal(sparse.coo_array((values, places), shape=(2, 8)), [0, 1], None, held_out=0.5)
    assert np.array_equal(dealt[0], dealt[2])


def test_nothing_but_what_was_released_is_kept(found):
    assert set(vars(found)) - set(found.get_params()) == {
        "best_estimator_", "best_index_", "best_params_", "best_score_", "claim_", "method_", "plan_", "unit_",
    }  # fmt: skip
    assert "_fits" not in vars(found.best_estimator_), "how many copies were fitted is how many trials there were"
    assert vars(found.estimator).get("_fits", []) == []
    private = [
        part for part in vars(found.best_estimator_).values() if len(np.atleast_1d(np.asarray(part, object))) > 999
    ]
    assert private == []


def test_students_and_hypotheses_are_searched_together_by_what_is_known_of_them():
    X = np.random.default_rng(0).uniform(size=(3000, 1))
    y, public = (X[:, 0] > 0.4).astype(int), np.linspace(0, 1, 60)[:, np.newaxis]
    models = [
        SemiPrivateClassifier(Thresholds(), points=2),
        SemiPrivateClassifier(Thresholds()),
        StudentClassifier(teachers=50, aggregator="noisy_max", queries=20),
        PrivateLogisticRegression(),
    ]
    with entropy_tape(2):
        search = PrivateSearchCV(models, epsilon=6.0).fit(X, y, public=public)
    assert search.method_ == "random stopping"
    assert search.best_score_ > 0.9
    assert search.plan_.trial_epsilon == pytest.approx(6 / 2.83, rel=0.02)
    assert "label set was read from y" in search.claim_
    assert search.best_estimator_.claim_ == search.claim_
    assert getattr(search.best_estimator_, "spent_epsilon_", 6.0) == 6.0


def test_a_regression_is_scored_by_its_squared_error():
    draw = np.random.default_rng(0)
    X, public = draw.normal(size=(4000, 1)), draw.normal(size=(300, 1))
    y = X[:, 0] ** 2 + draw.normal(size=4000) / 10
    model = PrivateLinearRegression(bounds=(0, 8), columns=AdditiveColumns())
    with entropy_tape(3):
        search = PrivateSearchCV(model, GRID, epsilon=2.0, largest_error=4.0).fit(X, y, public=public)
    assert search.best_params_ == {"columns__cuts": 8}
    assert -0.6 < search.best_score_ < 0.1
    assert not hasattr(search, "predict_proba")
    with pytest.raises(InvalidInput, match="largest_error"):
        PrivateSearchCV(model, GRID).fit(X, y, public=public)
    with pytest.raises(InvalidInput, match="regressions"):
        PrivateSearchCV(linear(), GRID, largest_error=2.0).fit(X, y, public=public)


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "neg_brier_score", "roc_auc"])
def test_a_score_is_near_what_it_estimates(scoring):
    X, y, _ = table(20_000)
    model = DecisionTreeClassifier(max_depth=2).fit(X[:500], y[:500])
    true = get_scorer(scoring)(model, X, y == "yes") if "brier" in scoring else get_scorer(scoring)(model, X, y)
    with entropy_tape(1):
        assert Scoring(scoring).score(model, X, y, epsilon=1.0, delta=1e-6) == pytest.approx(true, abs=0.01)


class Drawn(NoisyVector):
    """A mechanism that releases what it is given, and notes what it was made for."""

    seen: ClassVar = []

    @classmethod
    def calibrate(cls, *, squared_sensitivities, **settings):
        assert settings["rounded"], "the bound on the best trial needs it"
        cls.seen.append([squared_sensitivities[0]])
        return super().calibrate(squared_sensitivities=squared_sensitivities, **settings)

    def release(self, parts):
        self.seen[-1].append(parts[0])
        return parts


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "neg_brier_score", "roc_auc"])
def test_one_row_moves_what_is_released_by_no_more_than_the_noise_is_for(scoring, monkeypatch):
    X, y, _ = table(400)
    model = DecisionTreeClassifier(max_depth=2).fit(X, y)
    monkeypatch.setattr(scores_module, "NoisyVector", Drawn)
    Drawn.seen = []
    for place, (row, label) in enumerate(product(X[:6], ["no", "yes"])):
        rows, labels = X.copy(), y.copy()
        rows[7], labels[7] = row, label
        Scoring(scoring).score(model, rows, labels, epsilon=1.0, delta=1e-6)
        assert Drawn.seen[place][0] == Drawn.seen[0][0]
    squared, released = Drawn.seen[0][0], np.array([one for _, one in Drawn.seen])
    moved = max(int(np.square(one - other).sum()) for one, other in product(released, released))
    assert 0.5 * squared <= moved <= squared


def test_one_row_moves_a_squared_error_by_no_more_than_the_noise_is_for():
    """On one tape: the released sums differ by what the row adds."""
    X, values, released = np.linspace(0, 1, 50)[:, np.newaxis], np.zeros(50), []
    model = LinearRegression().fit(X, values)
    for other in (0.0, 1e300, math.nan):
        values[7] = other
        with entropy_tape(1):
            released.append(Scoring("", 2.0).score(model, X, values, epsilon=50.0, delta=1e-6) * 50 / 4)
    assert np.ptp(released) <= 1 + 1e-9
    assert released[0] - released[1] == pytest.approx(1)


def test_what_is_public_does_not_depend_on_a_row_and_neither_does_the_number_of_trials(monkeypatch):
    X = np.random.default_rng(0).uniform(size=(300, 1))
    y, public = (X[:, 0] > 0.4).astype(int), np.linspace(0, 1, 60)[:, np.newaxis]
    model = SemiPrivateClassifier(Thresholds(), classes=[0, 1])
    other, labels, counts, public_parts = X.copy(), y.copy(), [], []
    other[5], labels[5] = 1e6, 0
    run = search_module._Trials.run
    monkeypatch.setattr(search_module._Trials, "run", lambda self, one: (counts.append(one), run(self, one))[1])
    for rows, told in ((X, y), (other, labels)):
        counts.append(-1)
        with entropy_tape(4):
            made = PrivateSearchCV(model, {"points": [2, 5, None]}, epsilon=2.0).fit(rows, told, public=public)
        public_parts.append((made.plan_, made.claim_, made.method_, made.unit_))
    assert public_parts[0] == public_parts[1]
    assert made.method_ == "random stopping"
    first, second = np.split(np.array(counts), [counts.index(-1, 1)])
    assert first.tolist() == second.tolist()


def test_people_are_in_one_part_and_score_by_one_row():
    X, y, _ = table(60)
    trials = search_module._Trials([linear()], 1.0, 1e-6, Scoring("accuracy"), None)
    X[:, 0] = people = np.arange(60) // 4
    trials.deal(X, y, people, held_out=0.4)
    fitted, scored = trials._fitted[0][:, 0], trials._scored[0][:, 0]
    assert len(scored) == len(set(scored)) == 6
    assert not set(fitted) & set(scored)
    assert len(fitted) == 36
    assert sorted(trials._people["groups"]) == sorted(fitted)


@pytest.mark.parametrize("container", ["matrix", "objects", "pandas", "polars", "sparse"])
def test_no_value_of_a_row_that_scores_is_refused(container):
    X, y, public = table(1500)
    known = pandas.DataFrame(public, columns=["a", "b"])
    odd = np.array(X, dtype=object)
    odd[:4] = [[np.inf, 0.0], [-np.inf, "three"], [[1], None], ["\ud800", 10**400]]
    if container == "polars":
        polars = pytest.importorskip("polars")
        known = polars.from_pandas(known)
        odd = polars.DataFrame(
            {name: polars.Series(odd[:, place], dtype=polars.Object) for place, name in enumerate("ab")}
        )
        X = polars.DataFrame(X, schema=["a", "b"])
    elif container == "pandas":
        X, odd = (pandas.DataFrame(rows, columns=["a", "b"]) for rows in (X, odd))
    else:
        known = public
    if container in ("matrix", "sparse"):
        odd = X.copy()
        odd[:2] = [[np.inf, -np.inf], [np.nan, 1e308]]
    if container == "sparse":
        X, odd = sparse.csr_array(X), sparse.csr_array(odd)
    model = linear(epsilon=20.0).fit(X, y, public=known)
    plain, strange = (Scoring("accuracy").score(model, rows, y, epsilon=99.0, delta=1e-6) for rows in (X, odd))
    assert abs(plain - strange) < 0.01


def test_a_trial_leaves_the_global_generators_and_the_counts_of_its_settings_as_they_were():
    X = np.random.default_rng(0).uniform(size=(600, 1))
    y, public = (X[:, 0] > 0.4).astype(int), np.linspace(0, 1, 60)[:, np.newaxis]
    student = StudentClassifier(teachers=20, aggregator="noisy_max", queries=20, student=DecisionTreeClassifier())
    before = np.random.get_state()[1:]  # noqa: NPY002
    PrivateSearchCV([student], epsilon=6.0).fit(X, y, public=public)
    assert all(np.array_equal(*pair) for pair in zip(before, np.random.get_state()[1:], strict=True))  # noqa: NPY002
    candidate = clone(StudentClassifier(student=PrivateLogisticRegression()))
    trial, other = (search_module._copied(candidate) for _ in range(2))
    clone(trial.student)._count_fit()
    assert [vars(one.student).get("_fits", []) for one in (other, candidate)] == [[], []]


class Stubborn(DecisionTreeClassifier):
    """A student that fails on the labels it is given, after it has taken made-up ones."""

    def fit(self, X, y):
        if len(X) < 15:  # made-up labels come with more
            raise ValueError("0.123456 is a secret")
        return super().fit(X, y)


def test_a_trial_that_fails_is_the_worst_and_says_nothing():
    X = np.random.default_rng(0).uniform(size=(1500, 1))
    y, public = (X[:, 0] > 0.4).astype(int), np.linspace(0, 1, 60)[:, np.newaxis]
    fails = StudentClassifier(student=Stubborn(), teachers=50, aggregator="noisy_max", queries=12, classes=[0, 1])
    works = SemiPrivateClassifier(Thresholds(), classes=[0, 1])
    with entropy_tape(1):
        assert PrivateSearchCV([fails, works], epsilon=4.0).fit(X, y, public=public).best_index_ == 1
        with pytest.raises(NoQuorum, match="has found nothing") as raised:
            PrivateSearchCV([fails, fails], epsilon=4.0).fit(X, y, public=public)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("estimator", "grid", "why"),
    [
        (PrivateClassifier(), {}, "not searched"),
        (DecisionTreeClassifier(), {}, "not searched"),
        (StudentClassifier(mode="label-private"), None, "labels alone"),
        (StudentClassifier(holdout=0.2), None, "holdout stops a fit by what it has estimated"),
        (PrivateLogisticRegression(), {"epsilon": [1.0, 2.0]}, "cannot vary"),
        ([PrivateLogisticRegression()], {"columns": [None]}, "no param_grid"),
        ([], None, "one model or more"),
        ([PrivateLogisticRegression(), PrivateLinearRegression()], None, "all classifiers"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_spent(estimator, grid, why):
    X, y, public = table(100)
    with pytest.raises(InvalidInput, match=why):
        PrivateSearchCV(estimator, grid).fit(X, y, public=public)


def test_wrong_settings_are_refused(monkeypatch):
    X, y, public = table(100)
    for settings, kind in (
        ({"scoring": "roc_auc", "estimator": PrivateLogisticRegression(classes=["no", "yes", "maybe"])}, InvalidInput),
        ({"held_out": 0.001}, Infeasible),
        ({"held_out": 1.0}, Infeasible),
        ({"delta": 0.0}, InvalidInput),
    ):
        with pytest.raises(kind, match=next(iter(settings))):
            PrivateSearchCV(**{"estimator": linear()} | settings).fit(X, y, public=public)
    monkeypatch.setattr(search_module, "MOST_ENTRIES", 10)
    with pytest.raises(InvalidInput, match="more than 10 released numbers"):
        PrivateSearchCV(linear(), GRID).fit(X, y, public=public)
    with pytest.raises(InvalidInput, match="cannot be saved"):
        save(PrivateSearchCV(linear(), GRID), "nowhere")


def test_a_search_on_the_command_line(tmp_path, capsys, monkeypatch, run_json):
    monkeypatch.chdir(tmp_path)
    X, y, public = table(1500)
    pandas.DataFrame(X, columns=["a", "b"]).assign(ill=y).to_csv("private.csv", index=False)
    pandas.DataFrame(public, columns=["a", "b"]).to_csv("public.csv", index=False)
    fit = "fit search private.csv --label ill --classes no,yes --epsilon 9 --public public.csv"
    bill = run_json(f"{fit} --out model --cuts 1,8 --scoring roc_auc --method composition")
    assert (bill["cuts"], bill["search_method"], bill["candidates"], bill["epsilon"]) == (8, "composition", 2, 9.0)
    assert load("model").claim_ == bill["claim"]
    assert main(f"{fit} --out other --cuts few".split()) == 1
    assert "--cuts must be whole numbers" in capsys.readouterr().err


def test_a_setting_of_columns_that_are_not_there_is_refused():
    search = PrivateSearchCV(PrivateLogisticRegression(classes=[0, 1]), {"columns__cuts": [1, 8]})
    with pytest.raises(InvalidInput, match="columns of the PrivateLogisticRegression"):
        search.fit([[0.0], [1.0]] * 100, [0, 1] * 100, public=[[0.5]] * 100)


def test_a_plan_that_is_remembered_is_of_a_number():
    """True equals 1.0, and so finds what was planned for it, unless the memory tells types apart."""
    plan_search(candidates=2, epsilon=1.0)
    with pytest.raises(InvalidInput, match="epsilon"):
        plan_search(candidates=2, epsilon=True)
