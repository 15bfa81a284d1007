"""SparseSums: keys above a threshold, and sums for them, by exact laws of tiny tables."""

import math

import numpy as np
import pytest

from quorate.core.errors import BudgetSpent
from quorate.core.mechanisms import NoisyVectors, SparseSums
from quorate.core.mechanisms.distributions import gaussian_tail
from quorate.core.privacy import Budget


@pytest.mark.parametrize(("head", "keys", "scale"), [(1, 1, 3.0), (257, 3, 900.0), (50, 2, 1e5)])
def test_single_keys_pass_with_the_slack_and_hardly_less(head, keys, scale):
    mechanism = SparseSums.for_slack(
        head=head, keys_per_unit=keys, squared_sensitivity=4 * head**2, scale=scale, slack=1e-6
    )
    above = mechanism.threshold - head
    chance = 1 - (1 - gaussian_tail(scale, above)) ** keys
    assert chance <= mechanism.slack <= 1e-6
    if scale < 2**16:
        assert chance > 0.9e-6 * (1 - 10 / scale), "no lower threshold would hold"


def test_the_cost_is_that_of_the_claim():
    mechanism = SparseSums.for_slack(head=2, keys_per_unit=1, squared_sensitivity=16, scale=20.0, slack=1e-6)
    cost = mechanism.release_cost(8.0)
    assert cost.slack == mechanism.slack
    assert cost.renyi == pytest.approx(8 / 2 * 16 / 400 - math.log1p(-mechanism.slack), rel=1e-9)


def test_sums_are_asked_for_published_keys_in_their_order():
    asked = []
    mechanism = SparseSums(head=1, keys_per_unit=1, squared_sensitivity=4, scale=1.0, threshold=50)
    heads, sums = mechanism.release(
        {"b": 1000, "a": 2000, "gone": 0, "small": 1}, lambda keys: asked.append(keys) or np.array([7, 8, 9])
    )
    assert asked == [("a", "b")]
    assert list(heads) == ["a", "b"]
    assert sums.shape == (3,)
    assert abs(heads["a"] - 2000) < 20
    assert np.abs(sums - [7, 8, 9]).max() < 20


def test_a_release_of_a_budget_takes_its_slack_and_share_once():
    budget = Budget(epsilon=1.0, delta=1e-6, slack=1e-7)
    vectors = NoisyVectors(budget, entries=16)
    settings = {"head": 1, "keys_per_unit": 1, "squared_sensitivity": 16, "slack": 1e-7, "fraction": 1.0}
    heads, _, mechanism = SparseSums.release_within(
        vectors, {"a": 10_000}, lambda keys: np.zeros(2, dtype=np.int64), **settings
    )
    assert list(heads) == ["a"]
    assert mechanism.slack <= 1e-7
    with pytest.raises(BudgetSpent):
        SparseSums.release_within(vectors, {"a": 1}, lambda keys: np.zeros(1, dtype=np.int64), **settings)
