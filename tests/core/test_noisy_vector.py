"""NoisyVector: its two claims against the exact law of the noise, what a budget is charged, and what it refuses."""

import itertools
import math

import numpy as np
import pytest

from quorate import Budget, BudgetSpent, Cost, Infeasible, InvalidInput
from quorate.auditing._plays import SeededNoise
from quorate.core.mechanisms.noisy_vector import NoisyVector, discrete_delta, gaussian_delta
from support.exact_losses import exact_delta, exact_renyi

# ---------------------------------------------------------------- the exact law

SHIFTS = [
    [(1,), (-1,)],
    [(1, -1)],
    [(1, 1, -1)],
    [(2,)],
    [(3, -1)],
    [(2, 2, 1)],
]


@pytest.mark.parametrize("shifts", [shift for group in SHIFTS for shift in group], ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_no_shift_within_the_sensitivity_breaks_the_claim(shifts, epsilon, delta):
    square = sum(shift**2 for shift in shifts)
    noisy = NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(square,))
    moved = [(noisy.scales[0], shift) for shift in shifts]
    assert exact_delta(moved, epsilon) <= delta
    for order in (2.0, 5.0):
        assert exact_renyi(moved, order) <= noisy.renyi(order) * (1 + 1e-9)
    assert noisy.epsilon(delta=delta) <= epsilon * (1 + 1e-9)


def test_the_claim_is_nearly_reached():
    noisy = NoisyVector.calibrate(epsilon=0.5, delta=1e-3, squared_sensitivities=(2,))
    assert noisy.scales[0] > 5
    assert exact_delta([(noisy.scales[0], 1), (noisy.scales[0], -1)], 0.5) > 0.8e-3
    assert exact_renyi([(noisy.scales[0], 1), (noisy.scales[0], -1)], 5.0) == pytest.approx(noisy.renyi(5.0), rel=1e-6)


@pytest.mark.parametrize("bug", ["forgotten half", "no rounding variance in small noise", "one part forgotten"])
def test_planted_bugs_in_the_calibration_are_found(bug):
    epsilon, delta = 2.0, 1e-4
    sound = NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(2, 2))
    first, second = sound.scales
    moved = [(first, 1), (first, -1), (second, 1), (second, -1)]
    assert exact_delta(moved, epsilon) <= delta
    broken = {
        "forgotten half": [(scale / math.sqrt(2), shift) for scale, shift in moved],
        "no rounding variance in small noise": [(scale * 0.9, shift) for scale, shift in moved],
        "one part forgotten": [*moved, (first, 1), (first, -1)],
    }
    assert exact_delta(broken[bug], epsilon) > delta


def test_parts_of_different_scales_share_one_claim():
    noisy = NoisyVector.calibrate(epsilon=1.0, delta=1e-3, squared_sensitivities=(2, 1), shares=(0.7, 0.3))
    moved = [(noisy.scales[0], 1), (noisy.scales[0], -1), (noisy.scales[1], 1)]
    assert 0.7e-3 < exact_delta(moved, 1.0) <= 1e-3
    assert noisy.renyi(3.0) >= exact_renyi(moved, 3.0) * (1 - 1e-9)


# ---------------------------------------------------------------- a second accountant


@pytest.mark.parametrize(("epsilon", "square"), [(0.1, 1), (1.0, 1), (1.0, 4), (3.0, 9)])
def test_agrees_with_another_accountant(epsilon, square):
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    noisy = NoisyVector.calibrate(epsilon=epsilon, delta=1e-6, squared_sensitivities=(square,))
    law = pld.from_discrete_gaussian_mechanism(
        noisy.scales[0], sensitivity=math.isqrt(square), value_discretization_interval=epsilon / 20_000
    )
    theirs = law.get_epsilon_for_delta(1e-6)
    assert theirs <= epsilon * (1 + 2e-3)
    assert noisy.scales[0] < 4 or theirs >= epsilon * 0.95  # the rounding variance is all that is given away


def test_the_gaussian_trade_off_against_integration():
    for epsilon, length in itertools.product((0.05, 0.5, 2.0, 8.0), (0.1, 0.5, 2.0)):
        loss = np.linspace(epsilon, max(epsilon + 1, length**2 / 2 + 12 * length), 2_000_001)
        density = np.exp(-((loss - length**2 / 2) ** 2) / (2 * length**2)) / (length * math.sqrt(2 * math.pi))
        found = float(np.trapezoid(density * -np.expm1(epsilon - loss), loss))
        assert gaussian_delta(epsilon, length) == pytest.approx(found, rel=1e-4, abs=1e-15)
        assert discrete_delta(epsilon, length, entries=1000) >= gaussian_delta(epsilon, length)


def test_far_out_the_trade_off_stays_on_the_safe_side():
    assert gaussian_delta(1.0, 1e-3) <= 1e-200 or gaussian_delta(1.0, 1e-3) < 1e-100
    assert gaussian_delta(1.0, 1e3) == 1.0
    assert 0 < gaussian_delta(800.0, 45.0) <= 1.0
    assert discrete_delta(1e-12, 1.0, entries=1000) == 1.0


def test_where_a_float_no_longer_holds_the_second_tail_it_is_left_out():
    from scipy.special import log_ndtr

    for epsilon, second in itertools.product((600.0, 650.0, 690.0), np.linspace(37.2, 38.5, 27)):
        length = second - math.sqrt(second**2 - 2 * epsilon)
        first = length / 2 - epsilon / length
        upper = math.exp(log_ndtr(first))
        exact = upper * -math.expm1(epsilon + log_ndtr(-epsilon / length - length / 2) - log_ndtr(first))
        assert exact <= gaussian_delta(epsilon, length) <= upper * (1 + 1e-9)


def test_a_part_that_no_unit_moves_takes_nothing_from_the_others():
    alone = NoisyVector.calibrate(epsilon=1.0, delta=1e-6, squared_sensitivities=(2,)).scales[0]
    for squares in ((0, 2), (2, 0), (0, 0, 2)):
        noisy = NoisyVector.calibrate(epsilon=1.0, delta=1e-6, squared_sensitivities=squares)
        assert noisy.scales[squares.index(2)] == pytest.approx(alone, rel=1e-9)
        assert noisy.epsilon(delta=1e-6) <= 1.0 + 1e-9
    used = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    used.spend(Cost(1e-6))
    pair = [NoisyVector.for_budget(used, squared_sensitivities=squares) for squares in ((2,), (2, 0))]
    assert pair[0].scales[0] == pytest.approx(pair[1].scales[0], rel=1e-9)


# ---------------------------------------------------------------- budgets


def test_a_fresh_budget_is_spent_whole_and_once():
    budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    noisy = NoisyVector.for_budget(budget, squared_sensitivities=(2,))
    assert noisy.renyi(budget.order) > budget.capacity().renyi  # less noise than the one-order cost would allow
    noisy.release([[5, 5]], budget=budget)
    assert budget.remaining() == Cost(0.0)
    with pytest.raises(BudgetSpent):
        noisy.release([[5, 5]], budget=budget)
    with pytest.raises(Infeasible):
        NoisyVector.for_budget(budget, squared_sensitivities=(2,))


def test_what_is_set_aside_for_tail_events_is_not_used():
    budget = Budget(epsilon=1.0, delta=1e-6, slack=0.9e-6)
    noisy = NoisyVector.for_budget(budget, squared_sensitivities=(2,))
    least = NoisyVector.calibrate(epsilon=1.0, delta=0.1e-6, squared_sensitivities=(2,)).scales[0]
    assert noisy.scales[0] == pytest.approx(least, rel=1e-6)
    with pytest.raises(BudgetSpent):  # enough for all of delta, and not for the part that is left
        NoisyVector.calibrate(epsilon=1.0, delta=1e-6, squared_sensitivities=(2,)).release([[5, 5]], budget=budget)
    noisy.release([[5, 5]], budget=budget)
    budget.spend(Cost(0.0, 0.9e-6))  # tail events have their own share


def test_a_used_budget_pays_at_its_order():
    budget = Budget(epsilon=1.0, delta=1e-6, slack=0.0)
    fresh = NoisyVector.for_budget(budget, squared_sensitivities=(2,))
    budget.spend(Cost(1e-6))
    with pytest.raises(BudgetSpent):
        fresh.release([[5, 5]], budget=budget)
    used = NoisyVector.for_budget(budget, squared_sensitivities=(2,))
    assert 1.03 < used.scales[0] / fresh.scales[0] < 1.12
    used.release([[5, 5]], budget=budget)
    assert budget.remaining().renyi < 1e-6


def test_a_fraction_of_a_budget():
    budget = Budget(epsilon=1.0, delta=1e-6)
    half = NoisyVector.for_budget(budget, squared_sensitivities=(2,), fraction=0.5)
    for _ in range(2):
        half.release([[5, 5]], budget=budget)
    with pytest.raises(BudgetSpent):
        half.release([[5, 5]], budget=budget)


def test_nothing_is_drawn_where_the_budget_refuses():
    class Forbidden:
        def gaussian(self, scale, size):
            raise AssertionError("drawn")

    budget = Budget(epsilon=0.1, delta=1e-6)
    with pytest.raises(BudgetSpent):
        NoisyVector(squared_sensitivities=(2,), scales=(0.5,)).draw_release([[1]], budget, Forbidden())


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 20.0, 60.0])
@pytest.mark.parametrize("squares", [(1,), (2,) * 50, (10**8,)])
def test_what_is_calibrated_is_affordable(epsilon, squares):
    budget = Budget(epsilon=epsilon, delta=1e-6, slack=0.0)
    noisy = NoisyVector.for_budget(budget, squared_sensitivities=squares)
    noisy.draw_release([[0]] * len(squares), budget, SeededNoise(1)) if max(noisy.scales) < 1e5 else noisy._charge(
        budget
    )
    assert noisy.epsilon(delta=1e-6) <= epsilon * (1 + 1e-9)


def test_what_is_calibrated_is_affordable_where_delta_has_few_digits():
    """Small epsilons and deltas: a length that is smaller by a rounding may have a delta that is computed as larger."""
    chance = np.random.default_rng(0)
    for _ in range(60):
        epsilon, delta = chance.uniform(3e-4, 1e-3), 10 ** chance.uniform(-9, -6)
        budget = Budget(epsilon=epsilon, delta=delta, slack=0.0)
        noisy = NoisyVector.for_budget(budget, squared_sensitivities=(2, 2), shares=chance.uniform(0.1, 1, 2).tolist())
        noisy._charge(budget)  # not refused
        assert budget.spent_epsilon() <= epsilon


# ---------------------------------------------------------------- draws and refusals


def test_draws_have_the_scale_that_is_said(false_alarm):
    from scipy import stats

    noisy = NoisyVector(squared_sensitivities=(1, 1), scales=(3.0, 12.0))
    first, second = noisy.release([np.full(20_000, 7), np.full(20_000, -7)])
    for part, scale, centre in ((first, 3.0, 7), (second, 12.0, -7)):
        statistic = float(((part - centre) ** 2).sum() / scale**2)
        low, high = stats.chi2.ppf([false_alarm, 1 - false_alarm], 20_000)
        assert low * 0.99 < statistic < high * 1.01
        assert abs(part.mean() - centre) < 7 * scale / math.sqrt(20_000)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: NoisyVector(squared_sensitivities=(1,), scales=(1.0, 2.0)), "as many scales"),
        (lambda: NoisyVector(squared_sensitivities=(), scales=()), "at least one part"),
        (lambda: NoisyVector(squared_sensitivities=(0.5,), scales=(1.0,)), "squared sensitivity must be a whole"),
        (lambda: NoisyVector(squared_sensitivities=(1,), scales=(1.0,)).release([[0.5]]), "integer type"),
        (lambda: NoisyVector(squared_sensitivities=(1,), scales=(1.0,)).release([[1], [2]]), "1 parts, and 2"),
        (lambda: NoisyVector(squared_sensitivities=(1,), scales=(1.0,)).release([[2**62]]), r"within 2\*\*61"),
        (lambda: NoisyVector(squared_sensitivities=(1,), scales=(1.0,)).renyi(math.inf), "delta above 0"),
        (
            lambda: NoisyVector.for_budget(Budget(epsilon=1.0, delta=0.0), squared_sensitivities=(1,)),
            "delta above 0",
        ),
        (
            lambda: NoisyVector.calibrate(epsilon=1.0, delta=1e-6, squared_sensitivities=(1,), shares=(1.0, 1.0)),
            "as many shares",
        ),
    ],
)
def test_refusals(made, text):
    with pytest.raises(InvalidInput, match=text):
        made()


def test_no_noise_that_cannot_be_drawn():
    with pytest.raises(Infeasible, match="above 2"):
        NoisyVector.calibrate(epsilon=1e-3, delta=1e-6, squared_sensitivities=(2**62,))
