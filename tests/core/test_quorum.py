"""Quorum: its table in exact arithmetic, its figures, and what its constructor refuses."""

import dataclasses
import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.figures import BARS
from quorate import Infeasible, InvalidInput
from quorate.core.mechanisms import NO_QUORUM, Quorum
from quorate.core.mechanisms.base import distances
from quorate.core.mechanisms.distributions import gaussian_tail
from quorate.core.mechanisms.quorum import FLOOR, ONE, build_table, table_price


def decimal_price(table, order):
    """The price of a table in 60-digit arithmetic."""
    with localcontext() as context:
        context.prec = 60
        a, worst = Decimal(order), Decimal(0)
        for upper, lower in itertools.pairwise(table):
            p, q = Decimal(upper) / ONE, Decimal(lower) / ONE
            kept = Decimal(0) if p == 1 else (a * (1 - p).ln() + (1 - a) * (1 - q).ln()).exp()
            worst = max(worst, a * p.ln() + (1 - a) * q.ln() - (1 - kept).ln())
        return worst


@pytest.mark.parametrize(
    ("order", "price"), [(2.0, 0.5), (8.0, 3.0), (28.0, 0.7146), (23.4, 0.012), (150.0, 5.0), (1.5, 0.01)]
)
def test_table_price_is_above_the_price_in_sixty_digits_and_below_what_was_asked(order, price):
    table = build_table(order=order, price=price)
    exact = float(decimal_price(table, order))
    assert exact <= table_price(table, order=order) <= price
    assert exact >= price * (1 - 1e-6)  # nothing is given away
    assert table[0] == ONE
    assert table[-1] == FLOOR
    assert all(a > b for a, b in itertools.pairwise(table))


@pytest.mark.parametrize("order", [2, 5, 12])
def test_one_step_of_the_supermartingale_in_exact_fractions(order):
    """p^a q^(1-a) e^-s + (1-p)^a (1-q)^(1-a) <= 1 for every pair of levels, with e^s from 60 digits rounded down."""
    table = build_table(order=float(order), price=0.9)
    with localcontext() as context:
        context.prec = 60
        growth = Fraction(Decimal(table_price(table, order=float(order))).exp()) * (1 + Fraction(1, 10**50))
    for upper, lower in itertools.pairwise(table):
        p, q = Fraction(upper, ONE), Fraction(lower, ONE)
        for after in (p, q):
            kept = (1 - p) ** order * (1 - after) ** (1 - order) if p < 1 else 0
            assert p**order * after ** (1 - order) / growth + kept <= 1


@settings(max_examples=30)
@given(st.floats(1.2, 100), st.floats(0.01, 5), st.floats(1.05, 200))
def test_prices_at_other_orders_are_upper_bounds(order, price, other):
    table = build_table(order=order, price=price)[:60]
    assert float(decimal_price(table, other)) <= table_price(table, order=other)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 2**70), min_size=1, max_size=5, unique=True), st.floats(1.05, 200), st.booleans())
def test_price_of_any_table_is_above_sixty_digits(drops, order, near_one):
    """Levels a few units below 2**64 or a few above 0 included, where logarithms of doubles lose everything."""
    levels = sorted({max(1, ONE - drop % 2**20 if near_one else drop % ONE) for drop in drops} - {ONE}, reverse=True)
    table = (ONE, *levels)
    exact = decimal_price(table, order)
    assert float(exact) * (1 - 1e-15) <= table_price(table, order=order) <= float(exact) * (1 + 1e-9) + order * 1e-11


def test_the_table_is_the_smallest():
    """One unit less on any level, and the price is passed by a step into or out of it (up to the rounding margins)."""
    order, price = 12.0, 0.8
    table = build_table(order=order, price=price)
    for level in (1, 5, 20, 40):
        lower = list(table)
        lower[level] = int(lower[level] * (1 - 1e-6))
        assert float(decimal_price(tuple(lower[: level + 1]), order)) > price


FIGURES = {"c5": 5, "c20": 20, "c100": 100, "c1000": 1000}


@pytest.mark.parametrize("name", FIGURES)
def test_calibration_reaches_the_stated_distances(name):
    made = Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=8000, no_quorums=FIGURES[name])
    assert made.distance() <= BARS["mechanisms"][f"quorum.distance.{name}"][1]
    assert made.epsilon(delta=1e-6) <= 1.0
    assert made.slack >= gaussian_tail(made.threshold_scale, made.margin)
    assert made.answer_probability(made.distance()) >= 0.99 > made.answer_probability(made.distance() - 1)


@settings(max_examples=10)
@given(st.floats(0.2, 6), st.floats(1e-10, 1e-3), st.integers(1, 300))
def test_calibration_always_meets_its_target(epsilon, delta, no_quorums):
    made = Quorum.calibrate(epsilon=epsilon, delta=delta, teachers=10**6, no_quorums=no_quorums)
    assert made.epsilon(delta=delta) <= epsilon
    assert made.epsilon(delta=delta) >= epsilon * 0.97  # and spends it


@given(st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(lambda v: sum(v) > 0), st.data())
def test_the_distance_has_sensitivity_one_and_protects_the_label(votes, data):
    source = data.draw(st.sampled_from([i for i, v in enumerate(votes) if v > 0]))
    target = data.draw(st.integers(0, len(votes) - 1))
    moved = list(votes)
    moved[source] -= 1
    moved[target] += 1
    (label, other), (distance, after) = distances(np.array([votes, moved]))
    assert abs(int(distance) - int(after)) <= 1
    if distance >= 1 or after >= 1:
        assert label == other


@given(st.lists(st.integers(0, 12), min_size=2, max_size=4).filter(lambda v: sum(v) > 0))
def test_the_distance_counts_ballots(votes):
    """Moving fewer than D + 1 ballots never changes the top label; D + 1 can make it tie or change."""
    label, distance = (int(x[0]) for x in distances(np.array([votes])))
    rivals = [i for i in range(len(votes)) if i != label]
    strongest = max(rivals, key=lambda i: votes[i])
    gap = votes[label] - votes[strongest]
    assert distance == max(0, math.ceil(gap / 2) - 1)
    if distance:
        assert votes[label] - distance > votes[strongest] + distance


def test_off_the_tail_event_only_the_plurality_is_answered():
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-9, teachers=2001, no_quorums=200)
    assert quorum.slack < 1e-9  # the tail event, and so a false alarm, is no likelier than that
    votes = np.tile([1001, 1000], (200, 1))
    answers = quorum.answers(votes)
    assert (answers.labels == NO_QUORUM).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"price": 1e-6}, "table costs more than price=1e-06"),
        ({"slack": 1e-12}, "slack=1e-12 is below the probability that the threshold noise passes the margin"),
        ({"table": (ONE, 5, 7)}, "table must fall strictly from 2**64 to a positive level"),
        ({"table": (ONE - 1, 5)}, "table must fall strictly from 2**64"),
        ({"table": (ONE, ONE, 5)}, "table must fall strictly"),
        ({"price": 1e-9, "table": (ONE, ONE - 20181, 5)}, "table costs more than price"),
        ({"table": (ONE, 0)}, "a level of the table must be a whole number of at least 1"),
    ],
)
def test_a_false_claim_cannot_be_made(change, text):
    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=900, no_quorums=5)
    with pytest.raises(InvalidInput) as caught:
        dataclasses.replace(quorum, **change)
    assert text in str(caught.value)


def test_infeasible_targets_say_what_would_work():
    with pytest.raises(Infeasible, match=r"with teachers=100 .* it takes at least (\d+) teachers") as caught:
        Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=100, no_quorums=20)
    needed = int(str(caught.value).split("at least ")[1].split(" ")[0])
    made = Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=needed, no_quorums=20)
    assert made.answer_probability((needed + 1) // 2 - 1) >= 0.99
    with pytest.raises(InvalidInput, match="delta must"):
        Quorum.calibrate(epsilon=1.0, delta=0.0, teachers=100, no_quorums=20)
    with pytest.raises(Infeasible, match="out of reach"):
        made.distance(answer_rate=1.0)
    with pytest.raises(InvalidInput, match="finite order"):
        made.no_quorum_cost(math.inf)


def test_a_delta_below_what_doubles_hold_is_refused():
    with pytest.raises(Infeasible, match="too small to be computed; raise delta"):
        Quorum.calibrate(epsilon=1.0, delta=1e-300, teachers=1000, no_quorums=10)
    Quorum.calibrate(epsilon=1.0, delta=1e-100, teachers=10_000, no_quorums=1)
