"""ExponentialChoice picks a candidate with probability proportional to exp(-epsilon * mistakes / 2).

Claim (replace-one units; the candidates do not depend on the private rows; a unit moves the number of mistakes of each
candidate by at most `sensitivity`): one choice is epsilon-DP, and its Renyi divergence is at most
order * epsilon**2 / 8. If the candidates are the dichotomies of the private points themselves, this claim does not
hold, and the choice must stay inside a mechanism that accounts for it, such as relabelling. Proof:
PROOF_exponential.md.
"""

import decimal
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_delta, check_positive
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.concept import Hypothesis, Tally
from quorate.core.mechanisms.orders import largest_epsilon, smallest_epsilon
from quorate.core.privacy import RENYI_QUANTA, Budget, Cost, exponential_renyi
from quorate.core.privacy.claims import exponential_release
from quorate.core.privacy.cost import float_down, float_up


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
        epsilon_each = float_down(Fraction(quanta, RENYI_QUANTA))
        if epsilon_each == 0:
            raise Infeasible(f"{choices} choices leave less than one quantum for each; ask for fewer")
        if delta > 0:

            def fits(trial: float) -> bool:
                return cls(epsilon=trial).epsilon(delta=delta, choices=choices) <= epsilon

            epsilon_each = largest_epsilon(epsilon_each, epsilon, fits)
        return cls(epsilon=epsilon_each, sensitivity=sensitivity)

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

    def describe(self, *, uses: int = 1) -> dict[str, Any]:
        """Return the description of this many choices, for a claim."""
        return exponential_release(rate=self.rate, sensitivity=self.sensitivity, uses=uses)

    def choose(self, tally: Tally, *, budget: Budget | None = None) -> Hypothesis:
        """Return one candidate of the tally, charged to `budget` if there is one."""
        return self.draw_choice(tally, budget, system_noise)

    def draw_choice(self, tally: Tally, budget: Budget | None, noise: NoiseSource) -> Hypothesis:
        """Charge for a choice, draw it with this noise, and return the candidate."""
        if not isinstance(tally, Tally):
            raise InvalidInput(f"a choice is made from a Tally, not from {type(tally).__name__}")
        if budget is not None:
            budget.spend(self.choice_cost(budget.order), releases=[self.describe()])  # charge, then draw
        mistakes = draw_level(tally.counts, self.rate, noise)  # proof: steps 2 and 3
        return tally.pick(mistakes, draw_below(int(tally.counts[mistakes]), noise))  # proof: step 4

    def choose_score(self, scores: Any, *, budget: Budget | None = None) -> int:
        """Return the position of one of some whole numbers, drawn with probability proportional to exp(rate * score).

        A unit moves each score by at most `sensitivity`. The choice is charged to `budget` if there is one.

        >>> ExponentialChoice(epsilon=1.0, sensitivity=2).choose_score([0, 900, 100])
        1
        """
        return self.draw_score(scores, budget, system_noise)

    def draw_score(self, scores: Any, budget: Budget | None, noise: NoiseSource) -> int:
        """Charge for a choice, draw it with this noise, and return the position."""
        integers = np.asarray(scores)
        if integers.ndim != 1 or integers.size == 0 or integers.dtype.kind != "i":
            raise InvalidInput("scores must be a list of at least 1 whole number")
        integers = np.clip(integers.astype(np.int64), -_FARTHEST_SCORE, _FARTHEST_SCORE)  # proof: step 5
        if budget is not None:
            budget.spend(self.choice_cost(budget.order), releases=[self.describe()])  # charge, then draw
        return noise.choice(integers.tolist(), float_up(1 / self.rate))  # proof: step 5


def _times(choices: int, divergence: float) -> float:
    return math.nextafter(choices * divergence, math.inf)


_MOST_CANDIDATES = 2**62
_FARTHEST_SCORE = 2**52  # from 0
_SCALE = 61  # bits of the largest sum of proposal weights, but for the margin
_MARGIN = 2.0**-20  # by which a proposal weight exceeds its floating-point value: far above all rounding (step 2)


def draw_below(bound: int, noise: NoiseSource) -> int:
    """Return a uniform integer from 0 to `bound` - 1."""
    bits = (bound - 1).bit_length()
    while True:
        number = 0
        for word in noise.words((bits + 63) // 64).tolist():
            number = number << 64 | word
        number &= (1 << bits) - 1
        if number < bound:
            return number


def enclose_exp(exponent: Fraction, *, digits: int) -> tuple[Fraction, Fraction]:
    """Return two fractions around exp(-exponent), closer to each other the more digits are asked for."""
    largest = 1000 * digits  # beyond, the number itself would fill the memory; more digits reach further
    if exponent > largest:
        return Fraction(0), enclose_exp(Fraction(largest), digits=digits)[1]
    down, up = _context(digits, decimal.ROUND_FLOOR), _context(digits, decimal.ROUND_CEILING)
    top, bottom = decimal.Decimal(exponent.numerator), decimal.Decimal(exponent.denominator)
    # exp is rounded to the nearest, whatever the context says: one step outwards encloses it
    low = up.divide(top, bottom).copy_negate().exp(down).next_minus(down)
    high = down.divide(top, bottom).copy_negate().exp(up).next_plus(up)
    return max(Fraction(low), Fraction(0)), min(Fraction(high), Fraction(1))


def _context(digits: int, rounding: str) -> decimal.Context:
    """Return a decimal context of this many digits, with the widest exponents, that never raises."""
    return decimal.Context(prec=digits, rounding=rounding, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[])


def happens(factor: Fraction, exponent: Fraction, noise: NoiseSource) -> bool:
    """Return whether an event of probability factor * exp(-exponent), which is at most 1, takes place."""
    bits = 0
    for step in itertools.count(1):
        bits = bits << 64 | int(noise.words(1)[0])  # the uniform number lies between bits and bits + 1, over unit
        unit = 1 << 64 * step
        if exponent == 0:
            low = high = factor
        else:
            low, high = (factor * end for end in enclose_exp(exponent, digits=24 * step + 6))
        if bits + 1 <= low * unit:  # proof: step 3
            return True
        if bits >= high * unit:
            return False
    raise AssertionError("the loop above has no end but a decision")


def proposal_weights(counts: Integers, rate: Fraction) -> tuple[Integers, int]:
    """Return whole numbers at least counts * exp(-rate * (m - least)) * 2**shift, barely more, and shift."""
    fewest = int(np.flatnonzero(counts)[0])
    with np.errstate(over="ignore", under="ignore"):
        fading = np.exp(-float(rate) * np.arange(counts.size - fewest))
    weights = counts[fewest:] * fading
    shift = _SCALE - int(np.frexp(weights.sum())[1])
    bounds = np.zeros(counts.size, dtype=np.int64)
    bounds[fewest:] = np.floor(np.ldexp(weights * (1 + _MARGIN), shift)).astype(np.int64) + 1  # proof: step 2
    bounds[counts == 0] = 0
    return bounds, shift


def draw_level(counts: Integers, rate: Fraction, noise: NoiseSource) -> int:
    """Return m with probability proportional to counts[m] * exp(-rate * m)."""
    total = sum(int(part.sum()) for part in np.array_split(counts, counts.size // 2**20 + 1))
    if not 0 < total < _MOST_CANDIDATES:
        raise InvalidInput("a choice is among at least one candidate and fewer than 2**62")
    bounds, shift = proposal_weights(counts, rate)
    upto, fewest = np.cumsum(bounds), int(np.flatnonzero(counts)[0])
    while True:
        level = int(np.searchsorted(upto, draw_below(int(upto[-1]), noise), side="right"))
        factor = Fraction(int(counts[level]) << max(shift, 0), int(bounds[level]) << max(-shift, 0))
        if happens(factor, rate * (level - fewest), noise):
            return level
