"""ExponentialChoice picks a candidate with probability proportional to exp(-epsilon * mistakes / 2).

Claim (replace-one units; the candidates do not depend on the private rows; a unit moves the number of mistakes of each
candidate by at most `sensitivity`): one choice is epsilon-DP, and its Renyi divergence is at most
order * epsilon**2 / 8. If the candidates are the dichotomies of the private points themselves, this claim does not
hold, and the choice must stay inside a mechanism that accounts for it, such as relabelling. Proof: PROOF.md.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from quorate.core.checks import check_count, check_delta, check_positive
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses import Hypothesis, Tally
from quorate.core.mechanisms.exponential.exact import draw_below, draw_level
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.noise import NoiseSource, system_noise
from quorate.core.privacy import RENYI_QUANTA, Budget, Cost, exponential_renyi
from quorate.core.privacy.cost import float_down, float_up

__all__ = ["ExponentialChoice"]


@dataclass(frozen=True, init=False)
class ExponentialChoice:
    """The exponential mechanism on numbers of mistakes, drawn exactly.

    >>> from quorate.models.concepts import Thresholds
    >>> cover = Thresholds().dichotomies([1.0, 2.0, 3.0])  # of public points
    >>> ExponentialChoice(epsilon=1.0).choose(cover.tally([2.1] * 100 + [2.9] * 100, [0] * 100 + [1] * 100))
    Threshold(cut=2.5, upward=True)
    """

    epsilon_per_choice: float
    sensitivity: int

    def __init__(self, *, epsilon: float, sensitivity: int = 1) -> None:
        object.__setattr__(self, "epsilon_per_choice", check_positive("epsilon", epsilon))
        object.__setattr__(self, "sensitivity", check_count("sensitivity", sensitivity))

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float = 0.0, choices: int = 1, sensitivity: int = 1
    ) -> "ExponentialChoice":
        """Return the ExponentialChoice that can choose this often within (epsilon, delta).

        It is rounded down.

        `epsilon(delta=..., choices=...)` gives the guarantee. A `Budget` of the same epsilon and delta = 0
        affords all the choices. With delta > 0 a budget uses one order for all costs and reserves a part of delta, so
        it affords slightly fewer: 99 of 100 at (1, 1e-6), all of them with `slack=0`, and none of a single choice that
        costs all of epsilon. Check `Budget.affordable`, or calibrate for a few more.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
        choices = check_count("choices", choices)
        quanta = math.floor(Fraction(epsilon) / choices * RENYI_QUANTA)  # a whole number of them is charged
        each = float_down(Fraction(quanta, RENYI_QUANTA))
        if each == 0:
            raise Infeasible(f"{choices} choices leave less than one quantum for each; ask for fewer")
        if delta > 0:
            low, high = each, epsilon
            while high - low > 1e-6 * low:
                middle = (low + high) / 2
                fits = cls(epsilon=middle).epsilon(delta=delta, choices=choices) <= epsilon
                low, high = (middle, high) if fits else (low, middle)
            each = low
        return cls(epsilon=each, sensitivity=sensitivity)

    @property
    def rate(self) -> Fraction:
        """The rate at which a weight falls with each mistake, exactly."""
        return Fraction(self.epsilon_per_choice) / (2 * self.sensitivity)  # proof: step 1

    def choice_cost(self, order: float) -> Cost:
        """Return the cost of one choice."""
        return Cost(self.renyi(order))

    def renyi(self, order: float) -> float:
        """Return an upper bound on the cost of one choice at this order."""
        return exponential_renyi(self.epsilon_per_choice, order=order)  # proof: step 1

    def epsilon(self, *, delta: float = 0.0, choices: int = 1) -> float:
        """Return the epsilon of this many adaptively made choices at `delta`, rounded up."""
        exact = Fraction(self.epsilon_per_choice) * check_count("choices", choices)
        plain = float_up(exact) if exact < 2**1000 else math.inf
        if check_delta(delta) == 0:
            return plain
        return min(plain, smallest_epsilon(lambda order: _times(choices, self.renyi(order)), delta=delta)[0])

    def choose(self, tally: Tally, *, budget: Budget | None = None) -> Hypothesis:
        """Return one candidate of the tally, charged to `budget` if there is one."""
        return self.draw_choice(tally, budget, system_noise)

    def draw_choice(self, tally: Tally, budget: Budget | None, noise: NoiseSource) -> Hypothesis:
        """Charge for a choice, draw it with this noise, and return the candidate."""
        if not isinstance(tally, Tally):
            raise InvalidInput(f"a choice is made from a Tally, not from {type(tally).__name__}")
        if budget is not None:
            budget.spend(self.choice_cost(budget.order))  # charge, then draw
        mistakes = draw_level(tally.counts, self.rate, noise)  # proof: steps 2 and 3
        return tally.pick(mistakes, draw_below(int(tally.counts[mistakes]), noise))  # proof: step 4


def _times(choices: int, divergence: float) -> float:
    return math.nextafter(choices * divergence, math.inf)
