"""One answer, pure DP, from a stable choice and a turned label (Dagan and Feldman 2020, Corollary 1).

Claim (replace-one units of at most `rows` rows): one answer is epsilon-DP. PROOF_CONCEPTS.md, step 10, says why. The
corollary in print turns the label often enough to cover for the subset and for the exponential mechanism; here the
mechanism's own privacy is used as it is, and the label covers for the subset alone.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count, check_positive
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.privacy.cost import float_up
from quorate.models.concepts import Concept
from quorate.models.predictors.stable_choice import StableChoice, flip
from quorate.models.predictors.unit_rows import UnitRows

_MOST = 500.0  # of epsilon that is made use of: its exponential is still a float
_SHARES = tuple(0.5 * 0.9**step for step in range(140))


def check_alpha(alpha: object) -> float:
    """Return `alpha` as a float if it is a probability with which a label may be turned: above 0 and below 1/2."""
    value = check_positive("alpha", alpha)
    if value >= 0.5:
        raise InvalidInput(f"alpha must be 'auto', or above 0 and below 0.5, not {alpha!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class PureStable:
    """A stable choice, and the probability with which its label is turned."""

    choice: StableChoice
    turned: Fraction

    @property
    def epsilon(self) -> float:
        """The epsilon of one answer, rounded up: the smaller of two bounds."""
        turned, rate = float(self.turned), self.choice.rate
        moved = math.log1p((1 - 2 * turned) * self.choice.gamma / turned)  # proof: step 10, first bound
        parts = max(self.choice.epsilon, math.log1p((1 - 2 * turned) * rate / turned))  # proof: step 10, second bound
        return min(moved, parts) * (1 + 1e-12)

    @classmethod
    def calibrate(
        cls,
        concept: Concept,
        *,
        units: int,
        epsilon: float,
        alpha: float | None = None,
        subset: int | None = None,
        rows: int = 1,
    ) -> "PureStable":
        """Return the choice and the probability that keep epsilon; `alpha` is the latter, where it is given."""
        units, epsilon = check_count("units", units), min(check_positive("epsilon", epsilon), _MOST)
        grown, inner = math.expm1(epsilon) * (1 - 1e-9), epsilon * (1 - 1e-9)
        if subset is not None:
            sizes = {check_count("subset", subset)}
        elif alpha is not None:
            sizes = {int(check_alpha(alpha) * grown / (1 - 2 * alpha) * units)}
        else:
            sizes = {int(share * units) for share in _SHARES}
        largest = concept.largest_set(units * rows) // rows
        schemes = [
            cls(
                choice=StableChoice(concept=concept, units=units, subset=size, epsilon=inner, rows=rows),
                turned=_flip_probability(Fraction(size, units), grown),
            )
            for size in {min(size, units, largest) for size in sizes} - {0}
        ]
        if not schemes:
            raise Infeasible(f"{units} units are too few for epsilon={epsilon:g}; raise epsilon or alpha")
        best = min(schemes, key=lambda scheme: scheme.error)
        if best.epsilon > epsilon:
            raise Infeasible(f"epsilon={epsilon:g} cannot be kept with a subset of {best.choice.subset} units")
        return best

    @classmethod
    def printed(cls, concept: Concept, *, units: int, epsilon: float, alpha: float, rows: int = 1) -> "PureStable":
        """Return the constants in print: gamma = epsilon alpha / 2, and the label turned with probability alpha."""
        gamma = check_positive("epsilon", epsilon) * check_alpha(alpha) / 2
        choice = StableChoice.calibrate(concept, units=units, gamma=gamma, rows=rows, calibration="paper")
        scheme = cls(choice=choice, turned=Fraction(alpha))
        if scheme.epsilon > epsilon:
            raise Infeasible(f"the paper's constants do not keep epsilon={epsilon:g}; use calibration='tight'")
        return scheme

    @property
    def error(self) -> float:
        """About how much worse than the best hypothesis an answer is to be expected: a rule of thumb."""
        choice = self.choice
        dimension, rows = max(1, choice.concept.vc_dimension), choice.subset * choice.rows
        cover = dimension / choice.subset
        chosen = math.log(choice.concept.growth(rows)) / float(choice.mechanism.rate) / (choice.units * choice.rows)
        return float(self.turned) + cover + chosen

    def draw(self, records: UnitRows, row: NDArray[np.float64]) -> int:
        """Draw the answer to one query. It must be charged `epsilon` before."""
        return flip(int(self.choice.draw(records).predict(row[np.newaxis, :])[0]), self.turned)


def _flip_probability(rate: Fraction, grown: float) -> Fraction:
    """Return how often a label must be turned so that a subset of this rate is covered for: q / (F - 1 + 2 q), up."""
    return Fraction(float_up(rate / (Fraction(grown) + 2 * rate)))  # proof: step 10
