"""Noisy sums, of all records and of keys above a threshold: exact laws, draws, and what is refused."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from conftest import FALSE_ALARM
from quorate import Budget, BudgetSpent, Infeasible, InvalidInput
from quorate.auditing import claims_of
from quorate.auditing._enumeration import measure_claim
from quorate.auditing._plays import SeededNoise
from quorate.auditing._sums import sum_outcomes
from quorate.core.mechanisms import NoisySum, NoisyVectors, SparseSums
from quorate.core.mechanisms.distributions import gaussian_tail

# ---------------------------------------------------------------- the claim


def findings(noisy, *, changes, orders=(1.5, 2.0, 5.0, 16.0), claims=None):
    """What each claim bounds and its limit, on the exact law; sound mechanisms and bugs go through it alike."""
    made = claims_of(noisy, queries=len(changes), orders=orders, deltas=[1e-6, 1e-3, 0.1]) if claims is None else claims
    outcomes = sum_outcomes(noisy, changes=changes)
    return [(measure_claim(claim, outcomes), claim.limit) for claim in made]


SMALL = [
    NoisySum(sensitivity=1, scale=0.5),
    NoisySum(sensitivity=1, scale=3.0),
    NoisySum(sensitivity=7, scale=4.0),
    NoisySum(sensitivity=40, scale=25.0),
]


@pytest.mark.parametrize("noisy", SMALL, ids=str)
def test_no_change_within_the_sensitivity_breaks_a_claim(noisy):
    for change in {1, noisy.sensitivity // 2, noisy.sensitivity, -noisy.sensitivity}:
        for value, limit in findings(noisy, changes=[change]):
            assert value <= limit * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("noisy", SMALL[1:], ids=str)
def test_the_cost_is_reached(noisy):
    shares = [value / limit for value, limit in findings(noisy, changes=[noisy.sensitivity])]
    assert shares[1] == pytest.approx(1.0, abs=1e-6)  # the divergence at order 2
    assert shares[-2] > 0.05  # the conversion to (epsilon, delta) is not idle either


def test_several_sums_cost_the_sum():
    noisy = NoisySum(sensitivity=2, scale=1.5)
    for changes in itertools.product((-2, 0, 1, 2), repeat=2):
        for value, limit in findings(noisy, changes=changes, orders=(2.0, 4.0)):
            assert value <= limit * (1 + 1e-9) + 1e-12
    value, limit = findings(noisy, changes=[2, -2], orders=(2.0,))[0]
    assert value == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize(
    "bug",
    [
        lambda noisy: {"changes": [noisy.sensitivity + 1]},
        lambda noisy: {
            "changes": [noisy.sensitivity] * 2,
            "claims": claims_of(noisy, queries=1, orders=[2.0], deltas=[1e-3]),
        },
        lambda noisy: {
            "changes": [noisy.sensitivity],
            "claims": claims_of(replace(noisy, scale=noisy.scale * math.sqrt(2)), queries=1, orders=[2.0]),
        },
        lambda noisy: {"changes": [max(10, 4)], "claims": claims_of(noisy, queries=1, orders=[2.0])},
    ],
    ids=["a larger change", "two releases charged as one", "half the cost", "held-out units forgotten"],
)
def test_planted_bugs_are_found(bug):
    noisy = NoisySum(sensitivity=4, scale=3.0)
    assert any(value > limit * (1 + 1e-9) for value, limit in findings(noisy, **bug(noisy)))


@given(st.floats(0.05, 8), st.floats(1e-12, 1e-2), st.integers(1, 10**6), st.sampled_from([1, 2, 5, 100]))
def test_calibration_meets_its_target_and_wastes_nothing(epsilon, delta, sensitivity, releases):
    noisy = NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=sensitivity, releases=releases)
    assert noisy.epsilon(delta=delta, releases=releases) <= epsilon
    assert noisy.epsilon(delta=delta, releases=releases) >= epsilon * (1 - 1e-4)
    budget = Budget(epsilon=epsilon, delta=delta, slack=0.0)
    noisy.releases([0] * releases, budget=budget)
    with pytest.raises(BudgetSpent):
        noisy.release(0, budget=budget)


def test_the_sums_it_is_used_for_move_by_no_more_than_stated():
    """Ballots of k teachers on H held-out units: every way to change one teacher, or one unit, at a small size."""
    held_out, teachers, classes = 3, 2, 2
    bound, seen = max(held_out, teachers), 0

    def sums(ballots, labels):
        counts = np.array([[column.count(y) for y in range(classes)] for column in zip(*ballots, strict=True)])
        minority = int((teachers - counts.max(axis=1)).sum())
        wrong = teachers * held_out - int(counts[np.arange(held_out), list(labels)].sum())
        return np.array([minority, wrong])

    rows = list(itertools.product(range(classes), repeat=held_out))
    for ballots in itertools.product(rows, repeat=teachers):
        for labels in rows:
            here = sums(ballots, labels)
            for other in rows:  # the first teacher was trained on the changed unit
                seen = max(seen, np.abs(here - sums((other, *ballots[1:]), labels)).max())
            for column in itertools.product(range(classes), repeat=teachers + 1):  # the first held-out unit changed
                changed = tuple((y, *row[1:]) for y, row in zip(column[1:], ballots, strict=True))
                seen = max(seen, np.abs(here - sums(changed, (column[0], *labels[1:]))).max())
    assert seen == bound


# ---------------------------------------------------------------- the release


def test_draws_follow_the_law():
    noisy = NoisySum(sensitivity=1, scale=2.0)
    drawn = np.array(noisy.releases([1000] * 50_000)) - 1000
    points = np.arange(-6, 7)  # 29 draws are expected further out: a cell of fewer would raise an alarm too often
    law = np.exp(-(points**2) / 8.0)
    law = np.append(law / np.exp(-(np.arange(-100, 101) ** 2) / 8.0).sum(), 0.0)
    law[-1] = 1 - law.sum()
    counts = np.append([(drawn == point).sum() for point in points], (np.abs(drawn) > 6).sum())

    def alarm(expected):
        return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), df=len(expected) - 1)

    assert alarm(50_000 * law) > FALSE_ALARM
    assert alarm(50_000 * np.append(np.roll(law[:-1], 1), law[-1])) < FALSE_ALARM  # a law one off is told apart


def test_sums_of_any_size_and_integer_type():
    noisy = NoisySum(sensitivity=1, scale=1e-6)
    assert noisy.release(2**80) == 2**80
    assert noisy.release(-5) == -5
    assert noisy.release(np.int8(127)) == 127
    assert type(noisy.release(np.uint64(7))) is int
    assert noisy.releases([]) == []


def test_what_was_charged_is_charged_before_the_draw():
    noisy, seen = NoisySum(sensitivity=1, scale=10.0), []
    budget = Budget(epsilon=1.0, delta=1e-6)

    class Watching(SeededNoise):
        def gaussian(self, scale, size):
            seen.append(budget.spent().renyi)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        noisy.draw_releases([1, 2], budget, Watching(1))
    assert seen[0] == pytest.approx(2 * noisy.renyi(budget.order))
    assert budget.spent().renyi == seen[0]  # and stays charged


def test_several_sums_are_paid_all_or_none():
    noisy = NoisySum.calibrate(epsilon=1.0, delta=1e-6, sensitivity=5, releases=3)
    budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    with pytest.raises(BudgetSpent):
        noisy.releases([1, 2, 3, 4], budget=budget)
    assert budget.spent().renyi == 0.0
    assert len(noisy.releases([1, 2, 3], budget=budget)) == 3
    with pytest.raises(BudgetSpent):
        noisy.release(1, budget=budget)


@pytest.mark.parametrize("total", [12345.0, "12345", True, None, [12345], np.float64(12345)], ids=repr)
def test_a_total_that_is_no_integer_is_refused_and_not_repeated(total):
    noisy, budget = NoisySum(sensitivity=1, scale=10.0), Budget(epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="a total must") as caught:
        noisy.releases([1, total], budget=budget)
    assert "12345" not in str(caught.value)
    assert budget.spent().renyi == 0.0


def test_a_pure_budget_is_refused():
    with pytest.raises(InvalidInput, match="charged at a finite order; open the budget at one, with delta above 0"):
        NoisySum(sensitivity=1, scale=10.0).release(1, budget=Budget(epsilon=1.0, delta=0.0))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"delta": 0.0}, InvalidInput, "delta must be above 0 and below 1"),
        ({"sensitivity": 2**60}, Infeasible, r"take noise of scale .* above 2\*\*40; count in larger units"),
        ({"releases": 2**60}, Infeasible, "leave less than one quantum for each"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_targets_are_refused(changed, error, message):
    with pytest.raises(error, match=message):
        NoisySum.calibrate(**{"epsilon": 1.0, "delta": 1e-6, "sensitivity": 10, **changed})


def test_a_huge_and_a_tiny_epsilon_are_finite():
    assert NoisySum(sensitivity=1, scale=2.0**40).epsilon(delta=1e-6) >= 0.0
    assert NoisySum(sensitivity=1000, scale=1.0).epsilon(delta=1e-6) > 1e5


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
