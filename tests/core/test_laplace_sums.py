"""LaplaceSums: exact laws of tiny tables, and what a budget pays for."""

import math

import numpy as np
import pytest

from quorate.core.errors import BudgetSpent, Infeasible
from quorate.core.mechanisms import LaplaceSums
from quorate.core.privacy import Budget


@pytest.mark.parametrize(("head", "keys", "sensitivity"), [(1, 1, 4), (257, 3, 2000), (50, 2, 10**6)])
def test_single_keys_pass_with_the_slack_and_hardly_less(head, keys, sensitivity):
    budget = Budget(epsilon=1.0, delta=1e-5, order=math.inf, slack=1e-6)
    sums = LaplaceSums.for_budget(budget, sensitivity=sensitivity, head=head, keys_per_unit=keys, slack=1e-6)
    ratio = math.exp(-1 / sums.scale)
    chance = keys * ratio ** (sums.threshold - head + 1) / (1 + ratio)
    assert chance <= sums.slack <= 1e-6
    assert chance / ratio**2 > 1e-6, "no much lower threshold would hold"


def test_a_budget_pays_once_and_nearly_all_of_it():
    budget = Budget(epsilon=1.0, delta=0.0)
    sums = LaplaceSums.for_budget(budget, sensitivity=6)
    assert 6.0 <= sums.scale < 6.0 * (1 + 1e-9)
    noisy = sums.release(np.array([10_000, -5]), budget=budget)
    assert np.abs(noisy - [10_000, -5]).max() < 300
    with pytest.raises(BudgetSpent):
        sums.release(np.array([10_000, -5]), budget=budget)
    with pytest.raises(Infeasible):
        LaplaceSums.for_budget(budget, sensitivity=6)


def test_sums_are_asked_for_published_keys_in_their_order():
    asked = []
    budget = Budget(epsilon=1.0, delta=1e-6, order=math.inf, slack=1e-7)
    mechanism = LaplaceSums.for_budget(budget, sensitivity=4, slack=1e-7)
    heads, sums = mechanism.release_keys(
        {"b": 1000, "a": 2000, "gone": 0, "small": 1},
        lambda keys: asked.append(keys) or np.array([7, 8, 9]),
        budget=budget,
    )
    assert asked == [("a", "b")]
    assert list(heads) == ["a", "b"]
    assert sums.shape == (3,)
    cost = mechanism.release_cost(math.inf)
    assert cost.renyi == pytest.approx(1.0, rel=1e-6)
    assert cost.slack == mechanism.slack <= 1e-7


def test_public_and_private_keys_are_not_mixed_up():
    public, private = LaplaceSums(sensitivity=2, scale=2.0), LaplaceSums(sensitivity=2, scale=2.0, threshold=9)
    with pytest.raises(Infeasible, match="threshold"):
        public.release_keys({"a": 1}, lambda keys: np.zeros(1, dtype=np.int64))
    with pytest.raises(Infeasible, match="release_keys"):
        private.release(np.array([1]))


def test_noise_has_the_law_of_the_claim():
    scale, values = 3.0, np.arange(-12, 13)
    draws = LaplaceSums(sensitivity=3, scale=scale).release(np.zeros(100_000, dtype=np.int64))
    shares = np.array([np.mean(draws == value) for value in values])
    ratio = math.exp(-1 / scale)
    law = (1 - ratio) / (1 + ratio) * ratio ** np.abs(values)
    assert np.abs(shares - law).max() < 6 * math.sqrt(0.25 / len(draws)), "false in one of 10^7 runs"
