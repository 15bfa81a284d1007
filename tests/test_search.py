"""A private search: the best of a random number of trials by enumeration, its cost, and what comes out of it."""

import json
import math
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr

from quorate import (
    Infeasible,
    InvalidInput,
)
from quorate.auditing import entropy_tape
from quorate.auditing.planted.selections import NumberTold, small_stopping
from quorate.auditing.selections import best_law, epsilon_trials, released_best, worst_log_ratio, worst_renyi
from quorate.mechanisms import EveryCandidate, RandomStopping
from quorate.mechanisms.selection import ApproximateTrial, GaussianTrial
from quorate.mechanisms.selection.mechanism import negative_binomial
from quorate.noise import system_noise
from quorate.privacy import Budget
from quorate.search import plan_search

ORDERS = (1.2, 2.0, 6.0, 30.0)
WEIGHTS = ((1,), (8, 4, 2, 1, 1), (1, 1, 1, 1, 4), (1, 0, 0, 7))


def pure(weights, epsilon):
    return RandomStopping(candidates=1, weights=weights, trial=ApproximateTrial(epsilon, 0.0))


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
    stopping = RandomStopping.calibrate(epsilon=1.0, delta=1e-6, candidates=candidates, trial=GaussianTrial)
    law = np.array(stopping.weights) / sum(stopping.weights)
    edges = np.concatenate([[-np.inf], np.linspace(-5.5, 5.5, 399), [np.inf]])
    first, second = np.diff(ndtr(edges)), np.diff(ndtr(edges - stopping.trial.length))
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
        for epsilon in (0.01, 0.5, 4.0):
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
    with pytest.raises(InvalidInput, match="first weight"):
        RandomStopping(candidates=2, weights=(0, 3), trial=GaussianTrial(1.0, 1e-6))


def test_a_plan_takes_the_way_that_leaves_more_to_a_trial():
    plans = {number: plan_search(candidates=number) for number in (1, 2, 10)}
    assert [plan.method for plan in plans.values()] == ["composition", "composition", "random stopping"]
    assert plans[1].trial_epsilon == pytest.approx(1.0, abs=1e-3)
    for number, plan in list(plans.items())[1:]:
        others = [
            plan_search(candidates=number, method=way).trial_epsilon for way in ("random stopping", "composition")
        ]
        assert plan.trial_epsilon == pytest.approx(max(others))
    assert plans[10].naive_epsilon > 1.5
    assert json.dumps(plans[10].as_dict())
    loose = plan_search(candidates=10, gaussian=False)
    assert loose.trial_epsilon == pytest.approx(1 / 3, rel=0.03)
    assert loose.trial_delta * loose.mean_trials <= 1e-6
    with pytest.raises(InvalidInput, match="method"):
        plan_search(candidates=3, method="grid")
    with pytest.raises(Infeasible, match="fewer candidates"):
        EveryCandidate.calibrate(epsilon=1e-3, delta=1e-6, candidates=10**18, trial=ApproximateTrial)
