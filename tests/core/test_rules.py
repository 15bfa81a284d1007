"""Amplification by sampling against a direct computation on small cases; test_relabel has the term of relabelling."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate import InvalidInput
from quorate.core.privacy import amplify, amplify_inverse, relabelling_epsilon


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
