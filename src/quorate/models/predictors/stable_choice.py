"""A hypothesis drawn so that no single unit matters much (Dagan and Feldman 2020, Theorem 1).

Claim (replace-one units of at most `rows` rows): the law of the drawn hypothesis, and so of whatever is computed from
it, moves by at most `gamma` in total variation. PROOF_CONCEPTS.md, steps 6 and 7, says why.
"""

import math
import os
import secrets
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count, check_positive, set_validated
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.hypotheses.sealed import sealed
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy.cost import float_up
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.predictors.unit_rows import UnitRows

Calibration = Literal["tight", "paper"]
_DOWN = 1 - 1e-9


def check_calibration(calibration: str) -> None:
    """Refuse a calibration that is neither "tight" nor "paper"."""
    if calibration not in ("tight", "paper"):
        raise InvalidInput(f"calibration must be 'tight' or 'paper', not {calibration!r}")


def check_gamma(gamma: object) -> float:
    """Return `gamma` as a float if it lies between 0 and 1, both excluded."""
    value = check_positive("gamma", gamma)
    if value >= 1:
        raise InvalidInput(f"gamma must be above 0 and below 1, not {gamma!r}")
    return value


def secret_subset(count: int, size: int) -> NDArray[np.int64]:
    """Return `size` of the numbers below `count`, all subsets equally likely, by the system's randomness."""
    while True:
        words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        chosen = np.flatnonzero(words <= np.partition(words, size - 1)[size - 1])  # by position, never by content
        if chosen.size == size:  # else words tie at the border: draw again
            return chosen


def flip(label: int, probability: Fraction) -> int:
    """Return the label, or with this probability the other one: randomised response on one bit.

    The draw is exact, a whole number below another. PROOF_CONCEPTS.md, steps 10 and 13, says what it buys.
    """
    if not 0 <= probability <= 1 or label not in (0, 1):
        raise InvalidInput("flip takes a label, 0 or 1, and a probability")
    return label ^ (secrets.randbelow(probability.denominator) < probability.numerator)


@dataclass(frozen=True, kw_only=True)
class StableChoice:
    """A secret random subset of `subset` of the `units` defines the candidates; all units choose among them."""

    concept: Concept
    units: int
    subset: int
    epsilon: float
    rows: int = 1

    def __post_init__(self) -> None:
        units, subset = check_count("units", self.units), check_count("subset", self.subset)
        if subset > units:
            raise InvalidInput(f"subset must be at most units={units}, not {subset}")
        set_validated(self, units=units, subset=subset, epsilon=check_positive("epsilon", self.epsilon))
        set_validated(self, rows=check_count("rows", self.rows))
        self.concept.check_size(self.subset * self.rows)

    @classmethod
    def calibrate(
        cls,
        concept: Concept,
        *,
        units: int,
        gamma: float,
        subset: int | None = None,
        rows: int = 1,
        calibration: Calibration = "tight",
    ) -> "StableChoice":
        """Return the choice whose law moves by at most `gamma`.

        Half of gamma goes to the subset unless its size is given, and the rest to the exponential mechanism. With
        calibration="paper" its parameter is gamma / 4, eight times less than is needed.
        """
        gamma, units = check_gamma(gamma), check_count("units", units)
        check_calibration(calibration)
        size = math.floor(Fraction(gamma) / 2 * units) if subset is None else check_count("subset", subset)
        if size < 1:
            needed = math.ceil(2 / Fraction(gamma))
            raise Infeasible(f"gamma={gamma:g} takes at least {needed} units, and there are {units}; raise gamma")
        rate = Fraction(size, units)
        if rate > Fraction(gamma) * Fraction(999_999, 1_000_000):
            raise Infeasible(
                f"a subset of {size} of {units} units alone moves a prediction by {float(rate):.3g}, which leaves "
                f"nothing of gamma={gamma:g}; take a smaller subset"
            )
        if calibration == "paper":
            epsilon = gamma / 4
        else:
            epsilon = 4 * math.atanh(float((Fraction(gamma) - rate) / (1 - rate))) * _DOWN  # proof: step 7
        choice = cls(concept=concept, units=units, subset=size, epsilon=epsilon, rows=rows)
        if choice.gamma > gamma:
            raise Infeasible(f"gamma={gamma:g} is too near to 1 to be kept; lower it")
        return choice

    @property
    def rate(self) -> float:
        """The share of units in the subset, rounded up."""
        return float_up(Fraction(self.subset, self.units))

    @property
    def gamma(self) -> float:
        """By how much the law of the hypothesis moves when one unit is replaced, at most, rounded up."""
        moved = self.rate + (1 - self.rate) * math.tanh(self.epsilon / 4)  # proof: step 7
        return min(1.0, moved * (1 + 1e-12))

    @property
    def mechanism(self) -> ExponentialChoice:
        """The choice among the candidates."""
        return ExponentialChoice(epsilon=self.epsilon, sensitivity=self.rows)  # proof: step 6

    def draw(self, records: UnitRows) -> Hypothesis:
        """Draw a hypothesis. It is no release: only what is computed from it may leave, as often as is accounted."""
        return self.draw_from(records, secret_subset(records.units, self.subset))

    def draw_from(self, records: UnitRows, units: NDArray[np.int64]) -> Hypothesis:
        """Draw a hypothesis among the candidates that these units define."""
        defining = records.points[records.places(units)]  # points alone, never a label: proof, step 6
        candidates = sealed(self.concept).dichotomies(defining)  # proof: step 0
        return self.mechanism.choose(candidates.tally(records.points, records.labels))
