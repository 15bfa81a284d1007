"""The exponential mechanism: its draws against the exact law, its claim against all small data sets, planted bugs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorate import Budget, BudgetSpent, InvalidInput
from quorate.auditing._choices import choice_law
from quorate.auditing._plays import SeededNoise
from quorate.core._noise import system_noise
from quorate.core.hypotheses.concept import ListedTally
from quorate.core.mechanisms.exponential import (
    ExponentialChoice,
    draw_below,
    draw_level,
    enclose_exp,
    happens,
    proposal_weights,
)
from quorate.models.concepts import Intervals, Stumps, Thresholds

DRAWS = 20_000


class Script:
    """Words that are given beforehand."""

    def __init__(self, *words):
        self._words = list(words)

    def words(self, size):
        taken, self._words = self._words[:size], self._words[size:]
        assert len(taken) == size, "more words were asked for"
        return np.array(taken, dtype=np.uint64)


def p_value(levels, counts, rate):
    weights = np.array(counts) * np.exp(-float(rate) * np.arange(len(counts)))
    expected = weights / weights.sum() * len(levels)
    observed = np.bincount(levels, minlength=len(counts))
    assert not observed[np.array(counts) == 0].any()
    common = expected >= 10
    observed = np.append(observed[common], observed[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    if expected[-1] < 10:
        observed, expected = observed[:-1], expected[:-1] * observed[:-1].sum() / expected[:-1].sum()
    return stats.chisquare(observed, expected).pvalue


@pytest.mark.parametrize(
    ("counts", "rate"),
    [
        ([0, 3, 0, 1, 10, 2], Fraction(1, 2)),
        ([1, 10, 100, 1000, 10_000], Fraction(2)),
        ([5, 5, 5], Fraction(1, 10**9)),
        ([0, 0, 2**60, 2**61], Fraction(4, 3)),
    ],
)
def test_levels_follow_the_law_and_not_one_without_the_half(counts, rate, false_alarm):
    levels = [draw_level(np.array(counts), rate, system_noise) for _ in range(DRAWS // 4)]
    assert p_value(levels, counts, rate) > false_alarm
    if rate > Fraction(1, 100):
        assert p_value(levels, counts, 2 * rate) < false_alarm
        assert p_value(levels, counts, rate / 2) < false_alarm


def test_choices_follow_the_law_over_intervals(false_alarm):
    x, y = np.array([1.0, 2.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 1, 0])
    dichotomies = Intervals().dichotomies(x)
    tally, choice = dichotomies.tally(x, y), ExponentialChoice(epsilon=0.8)
    weights = np.exp(-0.4 * dichotomies.mistakes(x, y))
    place = {candidate: index for index, candidate in enumerate(dichotomies)}
    drawn = np.bincount([place[choice.choose(tally)] for _ in range(DRAWS)], minlength=len(place))
    assert stats.chisquare(drawn, weights / weights.sum() * DRAWS).pvalue > false_alarm
    wrong = np.exp(-0.8 * dichotomies.mistakes(x, y))
    assert stats.chisquare(drawn, wrong / wrong.sum() * DRAWS).pvalue < false_alarm


def worst_loss(cover, rate, rows=3):
    points = [0.5, 1.5, 2.5]
    worst = 0.0
    laws = {
        row: choice_law(cover.tally([x for x, _ in row], [y for _, y in row]), rate)
        for row in itertools.product(itertools.product(points, (0, 1)), repeat=rows)
    }
    for row, here in laws.items():
        for changed in itertools.product(points, (0, 1)):
            there = laws[changed, *row[1:]]
            assert here.keys() == there.keys()
            worst = max(worst, *(math.log(here[h] / there[h]) for h in here))
    return worst


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_claim_holds_for_all_small_data_sets_and_is_nearly_reached(epsilon):
    cover = Thresholds(both_directions=True).dichotomies([0.0, 1.0, 2.0, 3.0])
    worst = worst_loss(cover, ExponentialChoice(epsilon=epsilon).rate)
    assert 0.5 * epsilon < worst <= epsilon + 1e-12


def test_planted_weights_without_the_half_are_caught():
    cover = Thresholds(both_directions=True).dichotomies([0.0, 1.0, 2.0, 3.0])
    assert worst_loss(cover, Fraction(2)) > 2.0
    assert worst_loss(cover, ExponentialChoice(epsilon=2.0).rate) <= 2.0


def test_planted_candidates_of_the_private_points_are_caught():
    """Without a public cover a neighbour has other candidates: the loss of a release would have no bound."""
    here = choice_law(Thresholds().dichotomies([0.5, 1.5]).tally([0.5, 1.5], [0, 1]), Fraction(1, 2))
    there = choice_law(Thresholds().dichotomies([0.5, 2.5]).tally([0.5, 2.5], [0, 1]), Fraction(1, 2))
    assert here.keys() != there.keys()


def test_a_unit_of_several_rows():
    assert ExponentialChoice(epsilon=1.0, sensitivity=4).rate == Fraction(1, 8)
    cover = Thresholds().dichotomies([0.0, 1.0])
    here = choice_law(cover.tally([0.5] * 4, [1] * 4), ExponentialChoice(epsilon=1.0, sensitivity=4).rate)
    there = choice_law(cover.tally([0.5] * 4, [0] * 4), ExponentialChoice(epsilon=1.0, sensitivity=4).rate)
    assert max(abs(math.log(here[h] / there[h])) for h in here) <= 1.0


@given(
    st.lists(st.integers(0, 2**50), min_size=1, max_size=30).filter(any),
    st.floats(1e-300, 1e300).map(Fraction) | st.fractions(Fraction(1, 1000), 20),
)
def test_proposals_are_never_below_the_weights_and_hardly_above(counts, rate):
    counts = np.array(counts)
    bounds, shift = proposal_weights(counts, rate)
    least = int(np.flatnonzero(counts)[0])
    exact = [Fraction(int(c)) * enclose_exp(rate * max(0, m - least), digits=40)[1] for m, c in enumerate(counts)]
    assert all(bound >= weight * 2**shift for bound, weight in zip(bounds.tolist(), exact, strict=True))
    assert ((bounds > 0) == (counts > 0)).all()
    assert int(bounds.sum()) <= sum(exact) * Fraction(2) ** shift * (1 + Fraction(1, 2**18)) + counts.size
    assert int(bounds.sum()) < 2**62


@given(st.fractions(0, 2000), st.integers(5, 60))
def test_the_exponential_is_enclosed(exponent, digits):
    low, high = enclose_exp(exponent, digits=digits)
    closer = enclose_exp(exponent, digits=digits + 30)
    assert 0 <= low <= closer[0] < closer[1] <= high <= 1 or exponent == 0
    assert high - low <= high * (exponent + 10) / 10 ** (digits - 2)


def test_huge_exponents_are_enclosed_and_refused_quickly():
    low, high = enclose_exp(Fraction(10**300), digits=10)
    assert low == 0 < high < Fraction(1, 2**1000)
    assert not happens(Fraction(1), Fraction(10**300), Script(1))


def test_an_event_is_decided_where_its_probability_lies():
    """exp(-1) in 64-bit words: the words around it decide, and the word that holds it asks for another."""
    word = int(enclose_exp(Fraction(1), digits=60)[0] * 2**64)
    assert happens(Fraction(1), Fraction(1), Script(word - 1))
    assert not happens(Fraction(1), Fraction(1), Script(word + 1))
    next_word = int((enclose_exp(Fraction(1), digits=90)[0] * 2**64 - word) * 2**64)
    assert happens(Fraction(1), Fraction(1), Script(word, next_word - 1))
    assert not happens(Fraction(1), Fraction(1), Script(word, next_word + 1))
    assert happens(Fraction(1, 2), Fraction(0), Script(2**63 - 1))
    assert not happens(Fraction(1, 2), Fraction(0), Script(2**63))


def test_integers_below_a_bound():
    assert draw_below(1, Script()) == 0
    assert draw_below(6, Script(7, 6, 5)) == 5
    assert draw_below(2**64 + 1, Script(1, 1, 0, 9)) == 9
    drawn = np.bincount([draw_below(6, system_noise) for _ in range(6000)], minlength=6)
    assert stats.chisquare(drawn).pvalue > 1e-9


def test_candidates_that_cannot_matter_are_still_possible():
    """A level of weight exp(-500) has a proposal of its own: nothing is cut off."""
    bounds, _ = proposal_weights(np.array([1, 0, 5]), Fraction(250))
    assert bounds[2] == 1


def test_edges_of_a_choice(false_alarm):
    one = Thresholds().dichotomies([]).tally([], [])
    assert ExponentialChoice(epsilon=1.0).choose(one).cut == -math.inf
    point = Stumps(features=2).dichotomies([[1.0, 2.0]]).tally([[1.0, 2.0]], [1])
    labels = [ExponentialChoice(epsilon=1.0).choose(point).label for _ in range(2000)]
    assert stats.binomtest(sum(labels), 2000, 1 / (1 + math.exp(-0.5))).pvalue > false_alarm
    with pytest.raises(InvalidInput, match="a choice is made from a Tally, not from list"):
        ExponentialChoice(epsilon=1.0).choose([1, 2])
    with pytest.raises(InvalidInput, match="at least one candidate and fewer than"):
        ExponentialChoice(epsilon=1.0).choose(ListedTally(np.empty(0, dtype=int), str, rows=3))
    with pytest.raises(InvalidInput, match="epsilon must"):
        ExponentialChoice(epsilon=0.0)
    with pytest.raises(InvalidInput, match="sensitivity must"):
        ExponentialChoice(epsilon=1.0, sensitivity=0)


def test_a_choice_is_charged_before_it_is_drawn():
    budget = Budget(epsilon=1.0, delta=0.0)
    tally = Thresholds().dichotomies([1.0]).tally([1.0], [1])
    ExponentialChoice(epsilon=0.6).choose(tally, budget=budget)
    with pytest.raises(BudgetSpent):
        ExponentialChoice(epsilon=0.6).choose(tally, budget=budget)
    assert budget.spent().renyi == pytest.approx(0.6)


def test_costs():
    choice = ExponentialChoice.calibrate(epsilon=1.0, delta=1e-6, choices=100)
    assert 1 / 100 < choice.epsilon_per_choice < 1
    assert 0.999 < choice.epsilon(delta=1e-6, choices=100) <= 1.0
    assert choice.renyi(8.0) == pytest.approx(choice.epsilon_per_choice**2, rel=1e-9)
    assert ExponentialChoice(epsilon=0.25).epsilon(choices=4) == 1.0


def test_costs_are_rounded_up_and_calibrated_ones_down():
    for epsilon, choices in itertools.product((0.1, 0.3, 0.7, 1 / 3), range(1, 60)):
        assert Fraction(ExponentialChoice(epsilon=epsilon).epsilon(choices=choices)) >= Fraction(epsilon) * choices
    for epsilon in np.random.default_rng(0).uniform(1e5, 1e6, 200).tolist():
        choice = ExponentialChoice.calibrate(epsilon=epsilon, choices=7)
        assert Fraction(choice.epsilon_per_choice) * 7 <= Fraction(epsilon)
    assert ExponentialChoice(epsilon=1.7e308).epsilon(choices=4) == math.inf


def test_what_a_budget_affords_of_what_was_calibrated():
    choice = ExponentialChoice.calibrate(epsilon=1.0, delta=1e-6, choices=100)
    for slack, least in ((None, 95), (0.0, 99)):
        budget = Budget(epsilon=1.0, delta=1e-6, slack=slack)
        assert least <= budget.affordable(choice.choice_cost(budget.order)) <= 100
    budget = Budget(epsilon=1.0, delta=0.0)
    assert budget.affordable(ExponentialChoice.calibrate(epsilon=1.0, choices=7).choice_cost(math.inf)) == 7


def test_proposals_hold_for_rates_below_all_normal_numbers():
    rate = Fraction(1, 2**1080)
    bounds, shift = proposal_weights(np.array([1, 5, 1]), rate)
    assert all(bound >= count * 2**shift for bound, count in zip(bounds.tolist(), (1, 5, 1), strict=True))
    assert 0 <= draw_level(np.array([1, 5, 1]), rate, system_noise) <= 2


def test_a_seeded_choice_repeats_itself():
    x = np.arange(50.0)
    tally = Intervals().dichotomies(x).tally(x, (x % 3 == 0).astype(int))
    choice = ExponentialChoice(epsilon=0.1)
    assert choice.draw_choice(tally, None, SeededNoise(4)) == choice.draw_choice(tally, None, SeededNoise(4))
