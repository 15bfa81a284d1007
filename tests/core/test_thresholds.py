"""StabilityTest and BetweenThresholds: tails, band prices and the papers' constants against brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.figures import BARS
from quorate import Infeasible, InvalidInput
from quorate.core.mechanisms import BetweenThresholds, StabilityTest
from quorate.core.mechanisms.between_thresholds import LEAST_WIDTH, band_log_ratio, band_price
from quorate.core.mechanisms.distributions import (
    gaussian_pmf,
    gaussian_tail,
    gaussian_tail_quantile,
    laplace_difference_tail,
    laplace_tail,
)


def laplace_pmf(scale, reach):
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(x) / scale)
    return weights * math.tanh(1 / (2 * scale))


@given(st.floats(0.3, 30), st.floats(0.3, 30), st.integers(0, 200))
def test_the_tail_of_a_difference_is_rounded_up_and_tight(first, second, threshold):
    reach = 3000
    y = np.arange(-reach, reach + 1)
    exact = float((laplace_pmf(second, reach) * laplace_tail(first, threshold + 1 + y)).sum())
    claimed = laplace_difference_tail(first, second, threshold)
    assert exact * (1 - 1e-9) <= claimed
    if abs(first - second) > 2e-3 * second:
        assert claimed <= exact * (1 + 1e-5) + 1e-12


@pytest.mark.parametrize(
    ("first", "second", "threshold"), [(1.0, 100.0, 1000), (100.0, 1.0, 1000), (1e10, 2e10, 7), (1e12, 1e9, 10**12)]
)
def test_tails_at_extreme_scales(first, second, threshold):
    """The sum of two exponential terms, from the continuous law where the scales are large."""
    a, b = first, second
    continuous = (a * a * math.exp(-threshold / a) - b * b * math.exp(-threshold / b)) / (2 * (a * a - b * b))
    claimed = laplace_difference_tail(first, second, threshold)
    assert claimed == pytest.approx(continuous, rel=0.01 if min(a, b) > 50 else 0.5)


@given(st.floats(0.2, 60), st.integers(0, 400))
def test_gaussian_tails_are_rounded_up(scale, threshold):
    x = np.arange(threshold + 1, threshold + int(45 * scale) + 50)
    total = np.exp(-(np.arange(-3000, 3001) ** 2) / (2 * scale**2)).sum()
    exact = math.fsum(np.exp(-(x**2) / (2 * scale**2))) / total
    assert exact <= gaussian_tail(scale, threshold) <= exact * (1 + 1e-6) + 1e-290
    assert gaussian_pmf(scale, 50).size == 101


@given(st.floats(0.5, 100), st.floats(1e-15, 0.4))
def test_tail_quantiles(scale, probability):
    threshold = gaussian_tail_quantile(scale, probability)
    assert gaussian_tail(scale, threshold) <= probability
    assert threshold == 0 or gaussian_tail(scale, threshold - 1) > probability * (1 - 1e-6)


def brute_price(scale, width, order, reach):
    """The price over every position of one band, far into both tails."""
    pmf = laplace_pmf(scale, reach)
    upto = np.concatenate([[0.0], np.cumsum(pmf)])
    above = np.concatenate([np.cumsum(pmf[::-1])[::-1], [0.0]])

    def laws(low, high):
        return np.array([upto[low + reach], upto[high + 1 + reach] - upto[low + reach], above[high + 1 + reach]])

    worst = -math.inf
    for low in range(-reach // 2, reach // 2 - width):
        high = low + width - 1
        p = laws(low, high)
        for move in (-1, 0, 1):
            q = laws(low + 1 + move, high - 1 + move)
            if p[1] < 1e-7 or q[1] < 1e-7:
                continue  # differences of sums are not exact enough further out
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(p > 0, np.exp(order * np.log(p) + (1 - order) * np.log(q)), 0.0)
            worst = max(worst, math.log(terms[1]) - math.log(1 - terms[0] - terms[2]))
    return worst


@settings(max_examples=12)
@given(st.floats(1.0, 12.0), st.integers(LEAST_WIDTH, 60), st.floats(1.3, 12.0))
def test_band_price_bounds_every_position_and_every_wider_band(scale, width, order):
    claim = band_price(scale=scale, width=width, order=order)
    exact = brute_price(scale, width, order, 400)
    assert exact <= claim * (1 + 1e-6)
    assert claim <= max(exact, 0) * (1 + 1e-4) + 1e-6
    for wider in (width + 1, width + 2, width + 7, 2 * width):
        assert brute_price(scale, wider, order, 400) <= claim * (1 + 1e-6)


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0, 100.0])
def test_a_very_wide_band_is_not_free(scale):
    """Where the far tail underflows, a price of nothing was once the result."""
    wide = [band_price(scale=scale, width=round(scale * factor), order=8.0) for factor in (40, 400, 745, 800, 5000)]
    assert min(wide) >= 0.99 * wide[0] > 0.01
    with pytest.raises(InvalidInput, match="too small for a certified price"):
        band_price(scale=0.005, width=50, order=8.0)


@settings(max_examples=40)
@given(st.floats(1.0, 12.0), st.integers(LEAST_WIDTH, 60))
def test_band_ratio_bounds_every_position(scale, width):
    pmf = laplace_pmf(scale, 400)
    upto = np.concatenate([[0.0], np.cumsum(pmf)])
    claim = band_log_ratio(scale=scale, width=width)
    low = np.arange(-150, 100)
    here = upto[low + width + 400] - upto[low + 400]
    for move in (-1, 0, 1):
        there = upto[low + width - 1 + move + 400] - upto[low + 1 + move + 400]
        safe = there > 1e-9
        assert np.log(here[safe] / there[safe]).max() <= claim + 1e-6


@pytest.mark.parametrize("no_quorums", [5, 20, *(pytest.param(each, marks=pytest.mark.long) for each in (100, 1000))])
def test_between_thresholds_reaches_its_distances(no_quorums):
    made = BetweenThresholds.calibrate(epsilon=1.0, delta=1e-6, teachers=10_000, no_quorums=no_quorums)
    assert made.distance() <= BARS["mechanisms"][f"between_thresholds.distance.c{no_quorums}"][1]
    assert made.epsilon(delta=1e-6) <= 1.0
    assert made.answer_probability(made.distance()) >= 0.99 > made.answer_probability(made.distance() - 1)


@pytest.mark.parametrize("teachers", [901, 900])
@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_parity_of_the_teachers_is_counted(teachers, calibration):
    made = BetweenThresholds.calibrate(
        epsilon=4.0, delta=1e-3, teachers=teachers, no_quorums=1, calibration=calibration
    )
    band = [v for v in range(-3000, 5000) if not (v < made._lower(made.cap) or v > made._upper(made.cap))]
    assert len(band) == made._width()
    assert made.epsilon(delta=1e-3) <= 4.0


@pytest.mark.parametrize(("no_quorums", "margin"), [(5, 2064), (20, 4127), (100, 9229), (1000, 29185)])
def test_the_constants_of_the_stability_paper(no_quorums, margin):
    made = StabilityTest.calibrate(
        epsilon=1.0, delta=1e-6, teachers=10**6, no_quorums=no_quorums, queries=1000, calibration="paper"
    )
    assert abs(made.margin - margin) <= 1
    assert made.query_scale == 2 * made.threshold_scale
    assert made.run_cost(made.order).slack <= 1e-6 / 3 * 1.01
    assert made.epsilon(delta=1e-6) <= 1.0


@pytest.mark.parametrize("no_quorums", [1, 5, 20, 100])
def test_the_constants_of_the_everlasting_paper(no_quorums):
    epsilon, delta = 1.0, 1e-6
    made = BetweenThresholds.calibrate(
        epsilon=epsilon, delta=delta, teachers=10**6, no_quorums=no_quorums, calibration="paper"
    )
    each, each_delta = 2 / made.threshold_scale, delta / (2 * no_quorums)
    total = math.sqrt(2 * no_quorums * math.log(1 / (no_quorums * each_delta))) * each
    assert total + no_quorums * each * math.expm1(each) <= epsilon * (1 + 1e-9)
    assert 2 * made.margin >= 12 / each * (math.log(10 / each) + math.log(1 / each_delta) + 1)
    assert made.epoch_epsilon <= each  # the paper's lemma for one epoch, by our own proof
    assert made.slack <= each_delta
    assert made.epsilon(delta=delta) <= epsilon


@pytest.mark.long
@settings(max_examples=8)
@given(st.floats(0.3, 5), st.floats(1e-9, 1e-3), st.integers(1, 200))
def test_tight_calibrations_meet_their_target(epsilon, delta, no_quorums):
    shared = {"epsilon": epsilon, "delta": delta, "teachers": 10**7, "no_quorums": no_quorums}
    for made in (StabilityTest.calibrate(**shared), BetweenThresholds.calibrate(**shared)):
        assert made.epsilon(delta=delta) <= epsilon


def test_published_constants_that_do_not_hold_are_refused():
    """They assume an epsilon that is small against log(1/delta), and no fewer queries than no-quorums."""
    shared = {"teachers": 10**6, "calibration": "paper"}
    for target in (
        {"epsilon": 50.0, "delta": 0.1, "no_quorums": 100, "queries": 1000},
        {"epsilon": 1.0, "delta": 1e-6, "no_quorums": 5, "queries": 1},
        {"epsilon": 8.0, "delta": 0.1, "no_quorums": 30, "queries": 2},
    ):
        with pytest.raises(Infeasible, match="the paper's constants do not keep"):
            StabilityTest.calibrate(**target, **shared)


def test_quorum_needs_less_than_its_rivals():
    from quorate.core.mechanisms import Quorum

    target = {"epsilon": 1.0, "delta": 1e-6, "teachers": 10**5, "no_quorums": 20}
    quorum, between, stability = (m.calibrate(**target).distance() for m in (Quorum, BetweenThresholds, StabilityTest))
    assert quorum < between < stability


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: StabilityTest.calibrate(epsilon=1.0, delta=1e-6, teachers=10**5, no_quorums=5, calibration="paper"),
            "needs queries=",
        ),
        (
            lambda: StabilityTest.calibrate(epsilon=1.0, delta=1e-6, teachers=10**5, no_quorums=5, calibration="x"),
            "calibration must be 'tight' or 'paper', got 'x'",
        ),
        (
            lambda: BetweenThresholds.calibrate(epsilon=1.0, delta=1e-6, teachers=10**5, no_quorums=5, calibration="x"),
            "calibration must be",
        ),
        (lambda: StabilityTest.calibrate(epsilon=1.0, delta=1e-6, teachers=100, no_quorums=5), "it takes at least"),
        (lambda: BetweenThresholds.calibrate(epsilon=1.0, delta=1e-6, teachers=100, no_quorums=5), "it takes at least"),
        (
            lambda: StabilityTest(
                teachers=9, no_quorums=1, order=2.0, threshold_scale=2.0, query_scale=4.0, margin=4, slack=1e-3
            ),
            "below the probability that a distance of 0 passes",
        ),
        (
            lambda: BetweenThresholds(
                teachers=9, no_quorums=1, order=2.0, threshold_scale=1.0, query_scale=4.0, margin=4, cap=3, slack=0.1
            ),
            "margin must be at least 7 with cap=3",
        ),
        (
            lambda: BetweenThresholds(
                teachers=9, no_quorums=1, order=2.0, threshold_scale=3.0, query_scale=4.0, margin=9, cap=3, slack=1e-3
            ),
            "threshold noise passes the cap",
        ),
    ],
)
def test_false_claims_and_nonsense_are_refused(call, text):
    with pytest.raises((InvalidInput, Infeasible)) as caught:
        call()
    assert text in str(caught.value)
