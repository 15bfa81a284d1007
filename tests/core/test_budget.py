"""The budget is a filter: capacity is never passed, and what was spent is said by exact laws (PROOF.md, step 8)."""

import copy
import math
import pickle
import random
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted.bug import run_together
from quorate import Budget, BudgetSpent, Cost, InvalidInput
from quorate.core.mechanisms import Quorum
from quorate.core.mechanisms.distributions import gaussian_pmf
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


TARGET = {"epsilon": 2.0, "delta": 0.02}


class Interaction:
    """A Quorum asked adaptively and stopped at will: the law of all that is released, on two neighbouring data sets."""

    def __init__(self, quorum, chance, *, depth):
        self.quorum, self.chance, self.depth = quorum, chance, depth
        reach = math.ceil(9 * quorum.threshold_scale) + 1
        self.noises = range(-reach, reach + 1)
        self.weights = gaussian_pmf(quorum.threshold_scale, reach)
        self.leaves = []  # (p, q, no-quorums met)

    def answered(self, distance):
        return np.array([self.quorum.answer_probability(distance, threshold_noise=n) for n in self.noises])

    def play(self, p, q, met=0, asked=0):
        """Ask one more query, whatever came out, or stop: both are decided by the transcript, here at random."""
        stop = asked > 0 and self.chance.random() < 0.15
        if stop or asked == self.depth or met == self.quorum.no_quorums:
            self.leaves.append((float(p.sum()), float(q.sum()), met))
            return
        distance = self.chance.randint(1, 45)
        first, second = self.answered(distance), self.answered(distance + self.chance.choice((-1, 1)))
        self.play(p * first, q * second, met, asked + 1)
        self.play(p * (1 - first), q * (1 - second), met + 1, asked + 1)

    def delta(self, spent):
        return sum(max(0.0, p - math.exp(spent(met)) * q) for p, q, met in self.leaves)


def reading(quorum):
    def spent(met):
        budget = Budget(**TARGET, order=quorum.order, slack=quorum.slack)
        budget.spend(quorum.opening_cost(quorum.order))
        budget.spend(quorum.no_quorum_cost(quorum.order), times=met)
        return budget.spent_epsilon()

    values = [spent(met) for met in range(quorum.no_quorums + 1)]
    assert values == sorted(values)
    assert values[-1] <= TARGET["epsilon"]
    return values.__getitem__


@pytest.mark.parametrize("no_quorums", [1, 3])
def test_no_adaptive_interaction_passes_what_is_read(no_quorums):
    quorum = Quorum.calibrate(**TARGET, teachers=200, no_quorums=no_quorums)
    spent = reading(quorum)
    largest = 0.0
    for seed in range(40):
        game = Interaction(quorum, random.Random(seed), depth=8)
        game.play(game.weights, game.weights)
        assert math.isclose(sum(p for p, _, _ in game.leaves), 1.0, abs_tol=1e-9)
        assert game.delta(spent) <= TARGET["delta"]
        largest = max(largest, game.delta(lambda met: 0.0))
    assert largest > TARGET["delta"], "an interaction that tells nothing would test nothing"


def test_order_infinity_with_a_delta():
    """A budget may keep (epsilon, delta) at order infinity: plain epsilons add up, and delta is not needed."""
    budget = Budget(epsilon=1.0, delta=1e-6, order=math.inf, slack=0.0)
    assert budget.capacity().renyi == 1.0
    assert budget.spent_epsilon() == 0.0
    with pytest.raises(InvalidInput, match="finite order"):
        Quorum.calibrate(**TARGET, teachers=200, no_quorums=1).open(budget)
    assert budget.spent_epsilon() == 0.0
