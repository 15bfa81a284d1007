"""The budget is a filter: whatever is asked, in whatever order, capacity is never passed."""

import copy
import math
import pickle
import random
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.bug import run_together
from quorate import Budget, BudgetSpent, Cost, InvalidInput
from quorate.core.privacy import to_capacity, to_epsilon


def test_capacity_is_that_of_the_conversion_rounded_down():
    budget = Budget(epsilon=1.0, delta=1e-6, order=20.0, slack=1e-7)
    exact = to_capacity(1.0, delta=9e-7, order=20.0)
    assert exact - 2.0**-40 <= budget.capacity().renyi <= exact
    assert budget.capacity().slack <= 1e-7


def test_pure_budget_adds_epsilons():
    budget = Budget(epsilon=1.0, delta=0.0)
    assert budget.order == math.inf
    for _ in range(4):
        budget.spend(Cost(renyi=0.25))
    with pytest.raises(BudgetSpent):
        budget.spend(Cost(renyi=1e-12))
    assert budget.spent_epsilon() == 1.0


def test_the_tenth_of_ten_tenths_is_refused_rather_than_lost_to_rounding():
    """0.1 is a double slightly above a tenth: ten of them do not fit into 1, and adding floats would say they do."""
    budget = Budget(epsilon=1.0, delta=0.0)
    for _ in range(9):
        budget.spend(Cost(renyi=0.1))
    with pytest.raises(BudgetSpent):
        budget.spend(Cost(renyi=0.1))


def test_what_does_not_fit_charges_nothing():
    budget = Budget(epsilon=1.0, delta=1e-6)
    before = budget.remaining()
    with pytest.raises(BudgetSpent, match=r"the budget has .* left at order"):
        budget.spend(Cost(renyi=10.0))
    with pytest.raises(BudgetSpent):
        budget.spend(Cost(renyi=0.0, slack=1e-6))
    assert budget.remaining() == before


def _adversary(generator, budget):
    """Spend as a greedy or erratic adversary might: near what is left, tiny, huge, many at once, never settled."""
    exact, slack = Fraction(0), Fraction(0)
    for _ in range(generator.randrange(1, 12)):
        left = budget.remaining()
        kind = generator.randrange(7)
        if kind == 0:
            cost = Cost(left.renyi * generator.random())
        elif kind == 1:
            cost = Cost(left.renyi, left.slack)
        elif kind == 2:
            cost = Cost(math.nextafter(left.renyi, math.inf), 0.0)
        elif kind == 3:
            cost = Cost(generator.random() * 1e-13, generator.random() * 1e-31)
        elif kind == 4:
            cost = Cost(generator.random() * 10)
        elif kind == 5:
            cost = Cost(left.renyi * generator.random(), left.slack * generator.random() * 1.5)
        else:
            cost = Cost(left.renyi / generator.randrange(1, 9))
        times = generator.choice([1, 1, 2, 3, 1000])
        used = times
        try:
            reservation = budget.reserve(cost, times=times)
        except BudgetSpent:
            continue
        if generator.random() < 0.5:
            used = generator.randrange(times + 1)
            reservation.settle(used)
        exact += Fraction(cost.renyi) * used
        slack += Fraction(cost.slack) * used
    return exact, slack


@pytest.mark.parametrize("sequences", [4000, pytest.param(100_000, marks=pytest.mark.long)])
def test_adversarial_spending_never_passes_capacity(sequences):
    """Sequences of charges, summed exactly as fractions."""
    generator = random.Random(sequences)
    capacities = [
        (Budget(epsilon=1.0, delta=1e-6).epsilon, 1e-6, 22.0, 1e-7),
        (0.1, 1e-9, 400.0, 5e-10),
        (3.0, 0.0, None, None),
    ]
    granted = 0
    for trial in range(sequences):
        epsilon, delta, order, slack = capacities[trial % 3]
        budget = Budget(epsilon=epsilon, delta=delta, order=order, slack=slack)
        allowed = to_capacity(epsilon, delta=delta - (slack or 0), order=budget.order) if delta else epsilon
        exact, tail = _adversary(generator, budget)
        granted += exact > 0
        assert exact <= Fraction(allowed)
        assert tail <= Fraction(slack or 0)
    assert granted > 0.8 * sequences  # the adversary did spend


def test_a_filter_that_adds_floats_and_tolerates_rounding_is_caught():
    """The planted bug: float sums with a tolerance. The same check as above sees it pass capacity."""
    spent, capacity, exact = 0.0, 1.0, Fraction(0)
    while spent + 0.1 <= capacity + 1e-9:
        spent += 0.1
        exact += Fraction(0.1)
    assert exact > Fraction(capacity)


@given(st.floats(0.05, 8), st.floats(1e-10, 1e-2), st.floats(0.01, 1))
def test_spent_epsilon_never_passes_epsilon(epsilon, delta, share):
    budget = Budget(epsilon=epsilon, delta=delta)
    budget.spend(Cost(budget.capacity().renyi * share))
    assert 0 < budget.spent_epsilon() <= epsilon
    whole = to_epsilon(budget.spent().renyi, order=budget.order, delta=delta - budget.slack)
    assert budget.spent_epsilon() <= whole * (1 + 1e-12)  # what is set aside is rounded up to a whole quantum


def test_threads_share_one_budget():
    budget = Budget(epsilon=1.0, delta=0.0)
    granted = []

    def spend():
        with suppress(BudgetSpent):
            for _ in range(300):
                budget.spend(Cost(renyi=1 / 1024))
                granted.append(1)

    run_together(8, spend)
    assert len(granted) == 1024


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_budget_cannot_be_duplicated(duplicate):
    with pytest.raises(TypeError, match="spent a second time"):
        duplicate(Budget(epsilon=1.0, delta=0.0))
    with pytest.raises(TypeError, match="settled a second time"):
        duplicate(Budget(epsilon=1.0, delta=0.0).reserve(Cost(renyi=0.1)))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"epsilon": 0.0, "delta": 1e-6}, "epsilon must be a positive finite number"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be at least 0 and below 1"),
        ({"epsilon": 1.0, "delta": 1e-6, "slack": 1e-6}, "slack must be below delta=1e-06"),
        ({"epsilon": 1.0, "delta": 0.0, "order": 2.0}, "order must be infinity for delta = 0, got 2.0"),
        ({"epsilon": 0.1, "delta": 1e-6, "order": 2.0}, "order 2 leaves nothing to spend"),
        ({"epsilon": True, "delta": 1e-6}, "epsilon must be a positive finite number, got True"),
    ],
)
def test_bad_budgets_are_refused(arguments, text):
    with pytest.raises(InvalidInput) as caught:
        Budget(**arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize("cost", [(-1.0, 0.0), (math.inf, 0.0), (math.nan, 0.0), (0.0, -1e-9), (0.0, 1.0)])
def test_bad_costs_are_refused(cost):
    with pytest.raises(InvalidInput):
        Cost(*cost)


def test_the_order_is_chosen_for_what_is_planned():
    flat = Budget(epsilon=1.0, delta=1e-6, renyi=lambda order: 1.0)
    steep = Budget(epsilon=1.0, delta=1e-6, renyi=lambda order: order**2)
    usual = Budget(epsilon=1.0, delta=1e-6)
    assert steep.order < usual.order < flat.order


def test_a_budget_has_at_least_one_quantum():
    """Of none, what is charged all of it would be paid again and again: here order 11.42 has 5e-5 quanta to spend."""
    order = 11.424822401060684
    with pytest.raises(InvalidInput, match="leaves nothing to spend"):
        Budget(epsilon=1.0, delta=1e-6, slack=0.0, order=order)
    assert Budget(epsilon=1.0, delta=1e-6, slack=0.0, order=order * (1 + 1e-6)).quanta()[0] >= 1
