"""The lower bound: its confidence is honest, it has power, and what it says about an event is true."""

import numpy as np
import pytest
from scipy import stats

from quorate.auditing import epsilon_lower_bound
from quorate.auditing._bounds import (
    _cuts,
    _parts,
    encode,
    expected_lower_bound,
    proportion_at_least,
    proportion_at_most,
    score_lower_bound,
)
from quorate.auditing._plays import SeededNoise
from quorate.core.errors import InvalidInput


@pytest.mark.parametrize("trials", [1, 7, 1000])
def test_proportions_are_those_of_clopper_and_pearson(trials):
    for seen in {0, 1, trials // 2, trials - 1, trials}:
        for error in (0.05, 1e-9):
            interval = stats.binomtest(seen, trials).proportion_ci(1 - 2 * error, method="exact")
            assert proportion_at_least(seen, trials, error=error) == pytest.approx(interval.low, rel=1e-6, abs=1e-12)
            assert proportion_at_most(seen, trials, error=error) == pytest.approx(interval.high, rel=1e-6, abs=1e-12)


def _counts(epsilon, plays, seed):
    noise = SeededNoise(seed)
    return noise.laplace(1 / epsilon, plays) + 1, noise.laplace(1 / epsilon, plays)


@pytest.mark.parametrize("splits", [1, 3])
def test_the_confidence_is_honest_on_a_tight_claim(splits):
    """A bound at 90% passes a claim that is exactly tight in 10% of repeats at most: 400 repeats allow for 83."""
    passed = sum(
        epsilon_lower_bound(*_counts(1.0, 2000, seed), delta=0.0, confidence=0.9, splits=splits).epsilon > 1.0
        for seed in range(400)
    )
    assert passed <= int(stats.binom.isf(1e-9, 400, 0.1))


def test_plays_that_count_have_no_part_in_the_choice():
    """Where the plays that count have changed worlds, the event that was chosen on the others shows nothing."""
    coin = np.random.default_rng(3)
    first, second = (coin.random(4000) < share for share in (0.7, 0.2))
    chosen, counted = _parts(np.arange(4000), 0)
    assert sorted([*chosen, *counted]) == list(range(4000))
    assert epsilon_lower_bound(first, second, delta=0.0, confidence=0.99).epsilon > 1
    first[counted], second[counted] = second[counted], first[counted].copy()
    assert epsilon_lower_bound(first, second, delta=0.0, confidence=0.99).epsilon == 0


def test_events_are_cut_at_what_the_plays_that_choose_have_seen():
    assert _cuts(np.array([0, 3, 3, 3, 4]), np.array([0, 0, 2, 2, 2])).tolist() == [1, 2, 4]


@pytest.mark.parametrize(("splits", "delta"), [(1, 0.0), (1, 0.1), (4, 0.0)])
def test_the_bound_is_that_of_two_intervals_on_three_quarters_of_the_plays(splits, delta):
    """All ones and all zeros: P(all of 3000) and P(none of 3000) are at the error that each interval has."""
    worlds = np.ones(4000, dtype=int), np.zeros(4000, dtype=int)
    found = epsilon_lower_bound(*worlds, delta=delta, confidence=0.99, splits=splits).epsilon
    least = (0.01 / 2 / splits) ** (1 / 3000)
    assert found == pytest.approx(np.log((least - delta) / (1 - least)), rel=1e-6)


def test_real_valued_scores_are_as_honest():
    passed = 0
    for seed in range(150):
        noise = np.random.default_rng(seed)
        worlds = noise.laplace(1.0, 1.0, 2000), noise.laplace(0.0, 1.0, 2000)
        passed += score_lower_bound(*worlds, delta=0.0, confidence=0.9).epsilon > 1.0
    assert passed <= int(stats.binom.isf(1e-9, 150, 0.1))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_a_count_with_noise_is_shown_tight(epsilon):
    """At a million plays and one false alarm in 10**9, at least 95% of the claim; the seeds are fixed."""
    bound = epsilon_lower_bound(*_counts(epsilon, 10**6, 1), delta=0.0, confidence=1 - 1e-9)
    assert 0.95 * epsilon <= bound.epsilon <= epsilon


def test_both_directions_are_tried():
    first, second = np.zeros(4000, dtype=int), np.arange(4000) % 4 == 0
    for worlds, seen in (((first, second), "second"), ((second, first), "first")):
        bound = epsilon_lower_bound(*worlds, delta=0.0, confidence=0.99)
        assert bound.epsilon > 3
        assert bound.event == f"outcome = 1, seen more often in the {seen} world"


def test_delta_forgives_what_it_may():
    first, second = np.arange(4000) % 4 == 0, np.zeros(4000, dtype=int)
    assert epsilon_lower_bound(first, second, delta=0.3, confidence=0.99).epsilon == 0
    assert epsilon_lower_bound(first, second, delta=0.1, confidence=0.99).epsilon > 1


def test_equal_worlds_show_nothing():
    noise = SeededNoise(3)
    bound = epsilon_lower_bound(noise.laplace(3.0, 50_000), noise.laplace(3.0, 50_000), delta=0.0, confidence=1 - 1e-9)
    assert bound.epsilon < 0.05


def test_rows_of_many_columns_are_told_apart_by_their_columns():
    noise = np.random.default_rng(5)
    first, second = noise.random((40_000, 40)) < 0.6, noise.random((40_000, 40)) < 0.5
    bound = epsilon_lower_bound(first, second, delta=0.0, confidence=0.999)
    assert bound.epsilon > 2.5  # of one column alone: log(5 / 4) = 0.22


def test_the_expected_bound_is_about_the_bound():
    laws = np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.2, 0.3])
    noise = np.random.default_rng(2)
    worlds = [noise.choice(3, size=200_000, p=law) for law in laws]
    found = epsilon_lower_bound(*worlds, delta=0.01, confidence=0.999).epsilon
    expected = expected_lower_bound(*laws, delta=0.01, confidence=0.999, plays=200_000)
    assert found == pytest.approx(expected, abs=0.03)


def test_codes_name_distinct_rows_in_order():
    first = np.array([[3, -1], [0, 7], [3, -1]])
    second = np.array([[10**12, 0], [0, 7]])
    codes = encode(first, second)
    assert codes.table.tolist() == [[0, 7], [3, -1], [10**12, 0]]
    assert codes.first.tolist() == [1, 0, 1]
    assert codes.second.tolist() == [2, 0]
    assert codes.say(np.array([True, True, False])) == "outcome in {(0, 7), (3, -1)}"
    assert encode([2**63 - 1, 0], [-(2**63)]).first.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0.5] * 20, [1] * 20),
        ([1] * 20, [[1, 2]] * 20),
        ([], []),
        ([1] * 4, [1] * 4),
        (np.zeros((8, 1, 1), int), [1]),
        ([[1], [2, 3]], [[1]]),
        (np.full(20, 2**64 - 1, dtype=np.uint64), [1] * 20),
    ],
)
def test_what_is_not_plays_is_refused(first, second):
    with pytest.raises(InvalidInput):
        epsilon_lower_bound(first, second, delta=0.0, confidence=0.9)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5, float("nan")])
def test_a_confidence_lies_between_0_and_1(confidence):
    with pytest.raises(InvalidInput, match="confidence"):
        epsilon_lower_bound([0, 1] * 10, [0, 1] * 10, delta=0.0, confidence=confidence)


def test_scores_must_be_finite():
    with pytest.raises(InvalidInput, match="finite"):
        score_lower_bound([float("nan")] * 20, [1.0] * 20, delta=0.0, confidence=0.9)
