"""What has been spent so far, ex post:

core/privacy/PROOF.md, step 8, held against exact laws of adaptive interactions.
"""

import math
import random

import numpy as np
import pytest

from quorate import Budget, InvalidInput
from quorate.core.mechanisms import Quorum
from quorate.core.mechanisms.distributions import gaussian_pmf

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
