"""NoisyVector and NoisyVectors: their claims against exact laws and enumeration, charges and refusals."""

import copy
import itertools
import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from quorate import Budget, BudgetSpent, Cost, Infeasible, InvalidInput
from quorate.auditing._plays import PlayNoise, SeededNoise
from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVectors
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


PLACES = np.arange(-80, 81)
FIRST = 0.4  # the share of the first release; the second takes a share that depends on it
SECOND = {False: 0.5, True: 1.0}


def budget(epsilon=1.0, delta=1e-2):
    return Budget(epsilon=epsilon, delta=delta, slack=0.0)


def gaussian(mean, scale):
    law = np.exp(-((PLACES - mean) ** 2) / (2 * scale**2))
    return law / law.sum()


def transcripts(moved, scales):
    """The law of two releases where the second one's share, and so its noise, depends on the sign of the first."""
    first, second = scales
    law = gaussian(moved, first)
    rows = [law[place] * gaussian(moved, second[bool(PLACES[place] > 0)]) for place in range(len(PLACES))]
    return np.array(rows)


def scales_of(epsilon, delta):
    """The scales that NoisyVectors gives the two releases."""
    first, second = 0.0, {}
    for positive, fraction in SECOND.items():
        noisy = NoisyVectors(budget(epsilon, delta), entries=2)
        _, first = noisy.release(np.array([0]), squared_sensitivity=1, fraction=FIRST)
        second[positive] = noisy.scale(squared_sensitivity=1, fraction=fraction)
    return first, second


def excess(epsilon, scales):
    """The smallest delta for this epsilon, enumerated, over both directions."""
    one, other = transcripts(0, scales), transcripts(1, scales)
    return max(np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((one, other), (other, one)))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (0.5, 1e-3), (2.0, 1e-4)])
def test_an_adaptive_transcript_is_within_epsilon_and_delta(epsilon, delta):
    assert excess(epsilon, scales_of(epsilon, delta)) <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (0.5, 1e-3)])
def test_the_enumeration_catches_shares_that_are_not_taken_off(epsilon, delta):
    first, second = scales_of(epsilon, delta)
    whole = NoisyVectors(budget(epsilon, delta), entries=2).scale(squared_sensitivity=1, fraction=1.0)
    assert excess(epsilon, (whole, dict.fromkeys(second, whole))) > delta
    assert first > whole


def test_all_of_the_budget_is_charged_before_anything_is_released():
    account = budget()
    NoisyVectors(account, entries=3)
    assert account.remaining().renyi == 0
    with pytest.raises(BudgetSpent):
        NoisyVectors(account, entries=3)


def test_shares_never_add_up_to_more_than_one():
    noisy = NoisyVectors(budget(), entries=100)
    precisions = []
    for _ in range(50):
        _, scale = noisy.release(np.array([0]), squared_sensitivity=100, fraction=0.3)
        precisions.append(100 / (scale**2 - 1.5625))
    whole = NoisyVectors(budget(), entries=100).scale(squared_sensitivity=100, fraction=1.0)
    assert sum(precisions) <= 100 / (whole**2 - 1.5625) * (1 + 1e-9)
    noisy.release(np.array([0]), squared_sensitivity=100, fraction=1.0)
    with pytest.raises(BudgetSpent):
        noisy.release(np.array([0]), squared_sensitivity=100, fraction=1.0)


def test_more_entries_than_were_said_are_refused():
    noisy = NoisyVectors(budget(), entries=3)
    noisy.release(np.zeros(2, dtype=int), squared_sensitivity=1, fraction=0.5)
    with pytest.raises(InvalidInput, match="1 are left"):
        noisy.release(np.zeros(2, dtype=int), squared_sensitivity=1, fraction=0.5)
    with pytest.raises(InvalidInput, match="at most 1"):
        noisy.release(np.zeros(1, dtype=int), squared_sensitivity=1, fraction=1.5)
    with pytest.raises(InvalidInput, match="delta above 0"):
        NoisyVectors(Budget(epsilon=1.0, delta=0.0), entries=1)


def test_every_release_has_the_noise_that_it_says():
    """4,000 draws each: the mean square over the squared scale has a deviation of 0.022, and fails beyond six of it."""
    noisy = NoisyVectors(budget(), entries=12_000)
    part = np.arange(4000) * 10**6
    for sensitivity, fraction in ((100, 0.2), (10_000, 0.5), (400, 1.0)):
        released, scale = noisy.release(part, squared_sensitivity=sensitivity, fraction=fraction)
        noise = (released - part) / scale
        assert abs(np.mean(noise**2) - 1) < 6 * math.sqrt(2 / 4000)
        assert abs(noise.mean()) < 6 / math.sqrt(4000)
        assert abs(np.mean(noise[1:] * noise[:-1])) < 6 / math.sqrt(4000)  # an entry has its own


def test_a_release_is_the_part_and_draws_of_its_scale():
    part = np.arange(50)
    with entropy_tape(7) as drawn:
        noisy = NoisyVectors(budget(), entries=100)
        released, scales = zip(
            *(noisy.release(part, squared_sensitivity=9, fraction=fraction) for fraction in (0.3, 1.0)), strict=True
        )
    assert [draw for draw in drawn if draw[0] == "gaussian"] == [("gaussian", 50)] * 2
    tape = PlayNoise(7)
    for one, scale in zip(released, scales, strict=True):
        assert np.array_equal(one - part, tape.gaussian(scale, 50))


def test_a_copy_is_refused():
    noisy = NoisyVectors(budget(), entries=3)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a second time"):
            copied(noisy)


def test_releases_at_the_same_time_take_different_shares(monkeypatch):
    noisy = NoisyVectors(budget(), entries=64)
    share = NoisyVectors._share

    def slow(self, fraction):
        taken = share(self, fraction)
        time.sleep(0.002)  # long enough for another thread to come in where none is kept out
        return taken

    monkeypatch.setattr(NoisyVectors, "_share", slow)
    with ThreadPoolExecutor(8) as pool:
        scales = list(
            pool.map(lambda _: noisy.release(np.array([0]), squared_sensitivity=100, fraction=0.1)[1], range(16))
        )
    assert len(set(scales)) == 16
    assert noisy.entries == 48
