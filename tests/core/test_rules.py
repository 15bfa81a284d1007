"""Amplification, relabelling and groups, each against a direct computation on small cases."""

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


# Relabelling: every small data set of thresholds on a line, released as it is but for the changed row's label, so that
# the whole cost of choosing the hypothesis is visible.


def _dichotomies(points, domain_size):
    """Thresholds h_t(x) = [x >= t] and their complements, one representative for each labelling of the points."""
    seen = {}
    for t in range(domain_size + 1):
        for sign in (0, 1):
            labels = tuple(int(x >= t) ^ sign for x in points)
            seen.setdefault(labels, (t, sign))
    return seen


def _relabelled(labelled, unlabelled, kappa, domain_size, weight=None):
    """Return the law of the labels that all rows get."""
    rows = [x for x, _ in labelled] + list(unlabelled)
    points = sorted(set(rows)) if weight is None else sorted({x for x, _ in labelled})
    law = {}
    for labels in _dichotomies(points, domain_size):
        of = dict(zip(points, labels, strict=True))
        mistakes = sum(of[x] != y for x, y in labelled)
        key = tuple(of.get(x, 0) for x in rows)
        law[key] = law.get(key, 0.0) + math.exp(-kappa * mistakes / (2 if weight is None else weight))
    total = sum(law.values())
    return {key: value / total for key, value in law.items()}


def _loss(law, other, position, epsilon):
    """Return the largest log ratio of the law of A's output on both sides.

    A releases all labels but that of the changed row, and that one by randomised response: it is epsilon-DP for a
    changed row, and hides nothing else.
    """
    keep = 1 / (1 + math.exp(-epsilon))

    def output(law):
        out = {}
        for labels, probability in law.items():
            for released in (0, 1):
                shown = (*labels[:position], released, *labels[position + 1 :])
                chance = keep if released == labels[position] else 1 - keep
                out[shown] = out.get(shown, 0.0) + probability * chance
        return out

    first, second = output(law), output(other)
    return (
        max(abs(math.log(first[key] / second[key])) for key in first.keys() & second.keys())
        if (first.keys() == second.keys())
        else math.inf
    )


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0, 6.0])
def test_relabelling_term_bounds_every_small_case_and_is_nearly_reached(kappa):
    domain, epsilon, worst = 4, 0.3, 0.0
    claim = epsilon + relabelling_epsilon(kappa=kappa)
    for rows in itertools.product(itertools.product(range(domain), (0, 1)), repeat=3):
        law = _relabelled(rows, (), kappa, domain)
        for changed in itertools.product(range(domain), (0, 1)):
            other = _relabelled((changed, *rows[1:]), (), kappa, domain)
            worst = max(worst, _loss(law, other, 0, epsilon))
    assert worst <= claim + 1e-9
    assert worst >= 0.5 * claim  # not an idle bound


def test_relabelling_of_an_unlabelled_point():
    domain, epsilon, kappa, worst = 4, 0.3, 1.0, 0.0
    claim = epsilon + relabelling_epsilon(kappa=kappa, change="unlabelled")
    for rows in itertools.product(itertools.product(range(domain), (0, 1)), repeat=2):
        for x, changed in itertools.product(range(domain), repeat=2):
            law = _relabelled(rows, (x,), kappa, domain)
            other = _relabelled(rows, (changed,), kappa, domain)
            worst = max(worst, _loss(law, other, 2, epsilon))
    assert 0.3 * claim < worst <= claim + 1e-9


def test_planted_weights_without_the_half_are_caught():
    """exp(-kappa * mistakes) instead of exp(-kappa * mistakes / 2): the claim must not survive."""
    domain, epsilon, kappa, worst = 4, 0.3, 6.0, 0.0
    for rows in itertools.product(itertools.product(range(domain), (0, 1)), repeat=3):
        law = _relabelled(rows, (), 2 * kappa, domain)
        for changed in itertools.product(range(domain), (0, 1)):
            worst = max(worst, _loss(law, _relabelled((changed, *rows[1:]), (), 2 * kappa, domain), 0, epsilon))
    assert worst > epsilon + relabelling_epsilon(kappa=kappa)


def test_relabelling_refuses_an_unknown_change():
    with pytest.raises(InvalidInput, match="change must be 'labelled' or 'unlabelled', not 'both'"):
        relabelling_epsilon(kappa=1.0, change="both")
    assert relabelling_epsilon(kappa=1.0, rows=3) == pytest.approx(3 * relabelling_epsilon(kappa=1.0))
