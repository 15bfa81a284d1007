"""Conversions, amplification and curves against an accounting library, direct computation and each other."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate import Infeasible, InvalidInput
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.privacy import (
    amplify,
    amplify_inverse,
    best_order,
    exponential_renyi,
    gaussian_renyi,
    pure_renyi,
    relabelling_epsilon,
    to_capacity,
    to_epsilon,
)

ORDERS = [1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
orders = st.floats(1.05, 500)
deltas = st.floats(1e-12, 0.1)
epsilons = st.floats(0.01, 20)


def _accountant(event, count=1):
    dp_accounting = pytest.importorskip("dp_accounting")
    accountant = dp_accounting.rdp.RdpAccountant(ORDERS, dp_accounting.NeighboringRelation.REPLACE_ONE)
    return accountant.compose(event, count)


def _library_renyi(event):
    return dict(zip(ORDERS, _accountant(event)._rdp, strict=True))


def assert_held_against(ours, library):
    """Never lower than the library, at most 2% higher."""
    for order, theirs in library.items():
        assert theirs * (1 - 1e-9) <= ours(order) <= theirs * 1.02 + 1e-12


@pytest.mark.parametrize("scale", [1.0, 5.0, 40.0])
def test_gaussian_agrees_with_the_library(scale):
    import dp_accounting

    library = _library_renyi(dp_accounting.GaussianDpEvent(scale))
    assert_held_against(lambda order: gaussian_renyi(scale=scale, order=order), library)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_randomised_response_agrees_with_the_library(epsilon):
    import dp_accounting

    noise = 2 / (1 + math.exp(epsilon))  # the library flips to a uniform bucket
    event = dp_accounting.RandomizedResponseDpEvent(noise, 2)
    assert_held_against(lambda order: pure_renyi(epsilon, order=order), _library_renyi(event))


@pytest.mark.parametrize(("scale", "count"), [(20.0, 1), (30.0, 100), (100.0, 2000)])
def test_epsilon_of_gaussians_is_above_the_loss_distribution_and_within_reason(scale, count):
    """The library's privacy-loss distribution is the truth for the Gaussian; a single order costs a few per cent."""
    import dp_accounting

    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(scale), count)
    truth = dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(1e-6)
    ours, _ = smallest_epsilon(lambda order: count * gaussian_renyi(scale=scale, order=order), delta=1e-6)
    theirs = dp_accounting.rdp.RdpAccountant(list(np.linspace(1.1, 200, 2000))).compose(event).get_epsilon(1e-6)
    assert truth <= ours <= theirs * 1.02


@given(st.floats(0.001, 10), orders)
def test_pure_renyi_is_below_both_simple_bounds(epsilon, order):
    value = pure_renyi(epsilon, order=order)
    assert 0 < value <= min(epsilon, order * epsilon**2 / 2)
    assert exponential_renyi(epsilon, order=order) <= value


@given(st.floats(0.01, 5), orders, st.floats(0, 1))
def test_exponential_renyi_bounds_every_two_point_pair_of_that_range(epsilon, order, share):
    """Two outcomes whose log ratios are t and t - epsilon: the extreme points of bounded range."""
    t = share * epsilon
    if t < 1e-6 or t > epsilon - 1e-6:
        return
    q = -math.expm1(t - epsilon) / (math.exp(t) - math.exp(t - epsilon))
    exponent = max(order * t, order * (t - epsilon))
    moment = exponent + math.log(
        q * math.exp(order * t - exponent) + (1 - q) * math.exp(order * (t - epsilon) - exponent)
    )
    assert moment / (order - 1) <= exponential_renyi(epsilon, order=order) * (1 + 1e-9) + 1e-9 / (order - 1)


@given(epsilons, orders, deltas)
def test_capacity_and_epsilon_are_inverse_with_safe_rounding(epsilon, order, delta):
    capacity = to_capacity(epsilon, delta=delta, order=order)
    if capacity <= 0:
        return
    back = to_epsilon(capacity, order=order, delta=delta)
    assert back <= epsilon
    assert back >= epsilon * (1 - 1e-9) - 1e-9


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), orders, st.floats(1e-6, 0.5))
def test_conversion_bounds_the_true_hockey_stick(weights, order, delta):
    """For random pairs of laws the converted epsilon keeps its delta, also after removing mass."""
    half = len(weights) // 2
    p = np.array(weights) / sum(weights)
    q = np.roll(p, half)
    for kept in (p, np.where(np.arange(p.size) == 0, 0.0, p)):  # a law, and a sub-measure of it
        positive = kept > 0
        exponents = order * np.log(kept[positive]) + (1 - order) * np.log(q[positive])
        if exponents.max() > 600:
            return
        moment = np.exp(exponents).sum()
        epsilon = to_epsilon(max(0.0, math.log(moment)) / (order - 1), order=order, delta=delta)
        assert np.maximum(kept - math.exp(epsilon) * q, 0).sum() <= delta * (1 + 1e-9)


def test_extremes_do_not_overflow():
    assert to_epsilon(math.inf, order=2.0, delta=1e-6) == math.inf


def test_best_order_is_best():
    best = best_order(epsilon=1.0, delta=1e-6)
    here = to_capacity(1.0, delta=1e-6, order=best) / best
    for order in np.linspace(2, 200, 1000):
        assert to_capacity(1.0, delta=1e-6, order=float(order)) / order <= here * (1 + 1e-6)
    assert best_order(epsilon=1.0, delta=0.0) == math.inf


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: to_epsilon(1.0, order=1.0, delta=1e-6), "order must be a Renyi order: above 1, or infinity, got 1.0"),
        (lambda: to_epsilon(math.nan, order=2.0, delta=1e-6), "renyi must be a Renyi divergence"),
        (lambda: to_epsilon(-1.0, order=2.0, delta=1e-6), "renyi must be a Renyi divergence of at least 0, got -1.0"),
        (lambda: to_epsilon(1.0, order=2.0, delta=0.0), "delta must be above 0 and below 1, got 0.0"),
        (lambda: to_capacity(-1.0, delta=1e-6, order=2.0), "epsilon must be a positive finite number, got -1.0"),
        (lambda: to_capacity(math.nan, delta=1e-6, order=2.0), "epsilon must be a positive finite number, got nan"),
        (lambda: to_capacity("1", delta=1e-6, order=2.0), "epsilon must be a positive finite number, got '1'"),
        (lambda: gaussian_renyi(scale=0.0, order=2.0), "scale must be a positive finite number, got 0.0"),
    ],
)
def test_bad_parameters_are_named(call, text):
    with pytest.raises(InvalidInput) as caught:
        call()
    assert text in str(caught.value)


def test_nothing_to_spend_is_said():
    with pytest.raises(Infeasible, match="mechanism's own slack"):
        smallest_epsilon(lambda order: order, delta=1e-6, slack=1e-5)


@given(st.floats(0.05, 3), st.integers(2, 6), st.data())
def test_amplification_bounds_randomised_response_on_a_sample(epsilon, units, data):
    """A sample of the bits is released by randomised response on their sum's parity: compare the whole law."""
    taken = data.draw(st.integers(1, units))
    flip = 1 / (1 + math.exp(epsilon))

    def law(bits):
        parity = np.mean([sum(bits[i] for i in chosen) % 2 for chosen in itertools.combinations(range(units), taken)])
        one = parity * (1 - flip) + (1 - parity) * flip
        return np.array([1 - one, one])

    bits = data.draw(st.lists(st.integers(0, 1), min_size=units, max_size=units))
    changed = [1 - bits[0], *bits[1:]]
    loss = np.abs(np.log(law(bits) / law(changed))).max()
    assert loss <= amplify(epsilon=epsilon, delta=0.0, rate=taken / units)[0] + 1e-12


def test_amplification_is_tight_for_a_counting_mechanism():
    """One unit decides: with it in the sample the answer is randomised, without it a fixed coin of the same noise."""
    epsilon, rate = 1.0, 0.2
    yes = math.exp(epsilon) / (1 + math.exp(epsilon))
    p, q = rate * yes + (1 - rate) * (1 - yes), 1 - yes
    assert math.log(p / q) == pytest.approx(amplify(epsilon=epsilon, delta=0.0, rate=rate)[0], rel=1e-12)


@given(st.floats(0.01, 5), st.floats(0, 0.01), st.floats(0.01, 1))
def test_amplification_and_its_inverse(epsilon, delta, rate):
    inner = amplify_inverse(epsilon=epsilon, delta=delta, rate=rate)
    back = amplify(epsilon=inner[0], delta=inner[1], rate=rate)
    assert epsilon * (1 - 1e-9) <= back[0] <= epsilon * (1 + 1e-12)
    assert back[1] <= delta * (1 + 1e-12)
    assert amplify(epsilon=epsilon, delta=delta, rate=rate)[0] <= epsilon


def test_amplification_of_a_huge_epsilon():
    assert amplify(epsilon=800.0, delta=0.0, rate=0.5)[0] == pytest.approx(800.0 - math.log(2), rel=1e-9)
    assert amplify_inverse(epsilon=800.0, delta=0.0, rate=0.5)[0] == pytest.approx(800.0 + math.log(2), rel=1e-9)
    below, above = (amplify(epsilon=e, delta=0.0, rate=0.01)[0] for e in (29.999999, 30.000001))
    assert below == pytest.approx(above, rel=1e-6)


def test_relabelling_refuses_an_unknown_change():
    with pytest.raises(InvalidInput, match="change must"):
        relabelling_epsilon(kappa=1.0, change="both")
    assert relabelling_epsilon(kappa=1.0, rows=3) == pytest.approx(3 * relabelling_epsilon(kappa=1.0))
