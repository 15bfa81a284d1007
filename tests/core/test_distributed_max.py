"""Noise in shares: the bound on sums of discrete Gaussians is held against exact convolutions."""

import math

import numpy as np
import pytest

from quorate import Budget, BudgetSpent, InvalidInput
from quorate.auditing._plays import SeededNoise
from quorate.core.mechanisms import DistributedMax
from quorate.core.mechanisms.distributed_max import NoisyTotals, share_distance
from quorate.core.mechanisms.distributions import gaussian_pmf

CASES = [(0.5, 2), (0.5, 5), (0.6, 3), (0.8, 4), (1.0, 2), (1.0, 6), (1.5, 3), (2.0, 8)]


def law_of_sum(scale, shares):
    """Return the exact law of a sum of shares, and of its whole numbers."""
    radius = math.ceil(12 * scale) + 8
    law = one = gaussian_pmf(scale, radius)
    for _ in range(shares - 1):
        law = np.convolve(law, one)
    return law, np.arange(law.size) - law.size // 2


def exact_renyi(scale, shares, order):
    """Return the divergence of a sum of shares from itself moved by 1; of far values only what doubles can hold."""
    law, _ = law_of_sum(scale, shares)
    log = np.log(law[law > 1e-250])
    terms = order * log[1:] + (1 - order) * log[:-1]
    return (terms.max() + math.log(np.exp(terms - terms.max()).sum())) / (order - 1)


@pytest.mark.parametrize(("scale", "shares"), CASES)
def test_a_sum_of_shares_is_as_near_to_a_gaussian_as_is_said(scale, shares):
    law, places = law_of_sum(scale, shares)
    wide = gaussian_pmf(scale * math.sqrt(shares), places[-1])
    near = np.abs(places) <= 6 * scale * math.sqrt(shares)  # farther out the cut of the convolution shows
    distance = np.abs(np.log(law[near] / wide[near])).max()
    said = share_distance(scale, shares)
    assert distance <= said + 1e-9
    if scale < 1:  # and it is no idle bound: the sum does differ
        assert distance > said / 100


@pytest.mark.parametrize(("scale", "shares"), CASES)
@pytest.mark.parametrize("order", [1.5, 2.0, 4.0, 8.0])
def test_the_cost_covers_the_exact_divergence(scale, shares, order):
    mechanism = DistributedMax(teachers=10, classes=3, scale=scale, sites=shares + 2, corrupt=2)
    exact = 2 * exact_renyi(scale, shares, order)
    assert exact <= mechanism.renyi(order)
    if scale >= 1:
        assert mechanism.renyi(order) < 1.01 * exact + 0.01


def test_the_plain_gaussian_cost_is_too_small_for_small_shares():
    """The correction is needed: without it, the cost of the discrete Gaussian would be below the truth."""
    exact = exact_renyi(0.5, 2, 1.05)
    assert exact > 1.05 / (2 * 2 * 0.5**2)


def test_one_share_too_few_costs_more_than_is_charged():
    charged = DistributedMax(teachers=10, classes=2, scale=2.0, sites=4, corrupt=2)
    assert 2 * exact_renyi(2.0, 1, 8.0) > charged.renyi(8.0)  # only one of two honest sites adds its share


def test_calibrated_noise_pays_for_as_many_queries_as_were_said():
    known = {"epsilon": 1.0, "delta": 1e-6, "teachers": 900, "classes": 4}
    mechanism = DistributedMax.calibrate(**known, queries=50, sites=12, corrupt=4)
    budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    assert 50 <= budget.affordable(mechanism.query_cost(budget.order)) <= 51
    assert mechanism.epsilon(delta=1e-6, queries=50) <= 1.0
    totals = np.zeros((60, 4), dtype=np.int64).view(NoisyTotals)
    answers = mechanism.answers(totals, budget=budget)
    assert answers.labels.size + answers.refused == 60
    with pytest.raises(BudgetSpent):
        mechanism.answers(totals, budget=budget)


def test_shares_are_added_at_the_site_and_the_largest_total_wins():
    mechanism = DistributedMax(teachers=300, classes=3, scale=4.0, sites=3)
    counts = np.array([[80, 15, 5], [0, 0, 100]])
    shares = [mechanism.draw_share(counts, SeededNoise(place)) for place in range(3)]
    totals = np.sum(shares, axis=0).view(NoisyTotals)
    assert mechanism.answers(totals).labels.tolist() == [0, 2]
    assert mechanism.answer(totals[1]) == 2
    many = mechanism.draw_share(np.zeros((20_000, 3), dtype=np.int64), SeededNoise(7))
    assert abs(many.std() / 4.0 - 1) < 0.02


def test_counts_without_noise_are_refused():
    mechanism = DistributedMax(teachers=300, classes=3, scale=4.0, sites=3)
    with pytest.raises(InvalidInput, match="noisy totals of sites"):
        mechanism.answers(np.array([[300, 0, 0]]))
    with pytest.raises(InvalidInput, match="counts of at least 0 that sum to teachers=100"):
        mechanism.add_share([[300, 0, 0]], teachers=100)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"corrupt": 3}, "corrupt must be below sites=3"),
        ({"scale": 0.4}, "scale of a share must be at least 0.5"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        DistributedMax(**{"teachers": 30, "classes": 2, "scale": 4.0, "sites": 3} | wrong)
    with pytest.raises(InvalidInput, match="finite order"):
        DistributedMax(teachers=30, classes=2, scale=4.0, sites=3).renyi(math.inf)
