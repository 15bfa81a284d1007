"""NoisyShares: the grid and its numbers, the exact law of the code against the claim, and the calibration."""

import itertools
import math

import numpy as np
import pytest

from planted.scores import ChargedForOneCount, share_outcomes
from quorate.auditing import claims_of
from quorate.auditing._enumeration import RenyiClaim, measure_claim
from quorate.auditing._laws import all_votes, neighbours
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyShares
from quorate.core.mechanisms.noisy_shares import nearest_points, numbers_of, points_of, steps_for
from quorate.core.privacy import Budget

ORDERS, DELTAS = [1.5, 2.0, 8.0, 32.0], [1e-6, 1e-3, 0.1]


@pytest.mark.parametrize(("steps", "classes"), [(1, 3), (5, 3), (4, 5), (2, 8)])
def test_every_point_of_the_grid_has_a_number_and_every_number_a_point(steps, classes):
    points = [one for one in itertools.product(range(steps + 1), repeat=classes) if sum(one) == steps]
    numbers = numbers_of(np.array(points), steps)
    assert sorted(numbers.tolist()) == list(range(len(points)))
    assert points_of(numbers, steps, classes).tolist() == [list(one) for one in points]


@pytest.mark.parametrize(("teachers", "classes"), [(1000, 3), (1000, 10), (1500, 26), (700, 100), (2000, 1000)])
def test_grids_of_many_classes_are_as_fine_as_a_number_of_64_bits_allows(teachers, classes):
    steps = steps_for(teachers, classes)
    assert math.comb(steps + classes - 1, classes - 1) <= 2**63
    assert steps == teachers or math.comb(steps + classes, classes - 1) > 2**63
    corners = np.array([[steps, *[0] * (classes - 1)], [*[0] * (classes - 1), steps]])
    assert sorted(numbers_of(corners, steps).tolist()) == [0, math.comb(steps + classes - 1, classes - 1) - 1]
    random = np.random.default_rng(classes)
    noisy = random.multinomial(teachers, np.ones(classes) / classes, size=50) + random.integers(-60, 61, (50, classes))
    points = nearest_points(noisy, teachers, steps)
    assert points.min() >= 0
    assert (points.sum(axis=1) == steps).all()
    assert (points_of(numbers_of(points, steps), steps, classes) == points).all()


def test_counts_without_noise_are_their_own_point():
    votes = np.array(all_votes(6, 3))
    assert (nearest_points(votes, 6, 6) == votes).all()
    assert nearest_points(np.array([[9, -3, 0], [2, 2, 5]]), 6, 6).tolist() == [[6, 0, 0], [1, 1, 4]]


@pytest.mark.parametrize(("teachers", "classes", "scale"), [(5, 2, 0.7), (8, 2, 2.0), (4, 3, 1.0), (2, 4, 0.4)])
def test_no_neighbours_break_the_claim(teachers, classes, scale):
    """The exact law of the code, for all votes and all that differ from them in one ballot."""
    mechanism = NoisyShares(teachers=teachers, classes=classes, scale=scale)
    claims = claims_of(mechanism, queries=1, orders=ORDERS, deltas=DELTAS)
    for votes in all_votes(teachers, classes):
        for other in neighbours(votes)[1:]:
            law = share_outcomes(mechanism, votes, other)
            assert law.whole.sum() == pytest.approx(1.0)
            assert all(measure_claim(claim, law) <= claim.limit * (1 + 1e-9) + 1e-12 for claim in claims)


@pytest.mark.parametrize(("votes", "other", "share"), [((50, 50), (49, 51), 0.999), ((30, 30, 40), (29, 31, 40), 0.95)])
def test_the_claim_is_tight_far_from_where_shares_are_cut(votes, other, share):
    mechanism = NoisyShares(teachers=100, classes=len(votes), scale=3.0)
    claim = RenyiClaim(order=2.0, limit=mechanism.query_cost(2.0).renyi)
    law = share_outcomes(mechanism, votes, other)
    assert share * claim.limit < measure_claim(claim, law) <= claim.limit
    halved = ChargedForOneCount(teachers=100, classes=3, scale=3.0)
    assert len(votes) == 2 or measure_claim(claim, law) > halved.query_cost(2.0).renyi


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("queries", [1, 1000, 10**6])
def test_a_budget_pays_for_the_planned_queries_and_hardly_more(classes, queries):
    made = NoisyShares.calibrate(epsilon=2.0, delta=1e-6, teachers=500, classes=classes, queries=queries)
    budget = Budget(epsilon=2.0, delta=1e-6, slack=0.0)
    assert queries <= budget.affordable(made.query_cost(budget.order)) <= queries * 1.001 + 1
    assert made.epsilon(delta=1e-6, queries=queries) <= 2.0 * (1 + 1e-9)


def test_answers_are_charged_and_read():
    mechanism = NoisyShares(teachers=1000, classes=2, scale=5.0)
    budget = Budget(epsilon=4.0, delta=1e-6, slack=0.0)
    answers = mechanism.answers([[900, 100]] * 3, budget=budget)
    assert budget.spent().renyi == pytest.approx(3 * mechanism.query_cost(budget.order).renyi)
    shares = mechanism.shares(answers.labels)
    assert np.abs(shares[:, 1] - 0.1).max() < 0.1  # twenty deviations
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert mechanism.shares([1000 - 1000, 3000]).tolist() == [[1.0, 0.0], [0.0, 1.0]]  # far off, and cut
    assert mechanism.excess([0, 1000, 3000]).tolist() == [-1.0, 0.0, 2.0]
    assert (mechanism.deviation, mechanism.steps) == (0.005, 1000)
    many = NoisyShares(teachers=1000, classes=5, scale=5.0)
    told = many.shares(many.answers([[800, 100, 50, 50, 0]]).labels)
    assert np.abs(told - [[0.8, 0.1, 0.05, 0.05, 0.0]]).max() < 0.1


def test_what_cannot_be_is_refused():
    mechanism = NoisyShares(teachers=10, classes=3, scale=1.0)
    with pytest.raises(InvalidInput, match="charged at a finite order"):
        mechanism.query_cost(math.inf)
    with pytest.raises(Infeasible, match="raise either"):
        NoisyShares.calibrate(epsilon=1e-9, delta=1e-9, teachers=10, classes=3, queries=10**3)
    with pytest.raises(InvalidInput, match="too many combinations"):
        share_outcomes(NoisyShares(teachers=10, classes=6, scale=1.0), (10, 0, 0, 0, 0, 0), (9, 1, 0, 0, 0, 0))
