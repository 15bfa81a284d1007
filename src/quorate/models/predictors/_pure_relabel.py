"""One answer, pure DP, from a relabelled sample (Dagan and Feldman 2020, Theorem 2), with every constant explicit.

Claim (replace-one units of at most `rows` rows): one answer is epsilon-DP with epsilon = ln F, where `log_factor` says
what ln F is. PROOF_CONCEPTS.md, steps 11 to 13, says why.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.ensemble import deal_units
from quorate.core.ballots import release_votes
from quorate.core.checks import check_count, check_positive, set_validated
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import SoftMajority
from quorate.core.privacy.cost import float_up
from quorate.models.concepts import Concept, Hypothesis
from quorate.models.predictors._stable import StableChoice, flip
from quorate.models.predictors.concept_classifier import NO_LABEL, UnitRows, fit_concept_teachers

_UP = 1 + 1e-12
_MOST = 500.0  # of epsilon that is made use of: its exponential is still a float
_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12, 0.08)  # of the scale, tried for the reach
_CLEAR = 4  # ballots for each unit of scale and of log(1/error): three in four agree then


@dataclass(frozen=True, kw_only=True)
class PureRelabelling:
    """The numbers of one answer, all public.

    `subset` of the `units` define the candidates; weights fall e-fold with `scale` mistaken units, and so does the
    weight of a label with `scale` ballots (in print both are eta * n). Two hypotheses that agree on a random subset
    differ on at most `reach` other units, but for a probability `miss`.
    """

    concept: Concept
    units: int
    subset: int
    scale: float
    reach: int
    teachers: int
    rows: int = 1

    def __post_init__(self) -> None:
        set_validated(self, units=check_count("units", self.units, least=2), subset=check_count("subset", self.subset))
        set_validated(self, scale=check_positive("scale", self.scale), reach=check_count("reach", self.reach, least=0))
        set_validated(self, teachers=check_count("teachers", self.teachers), rows=check_count("rows", self.rows))
        if self.subset >= self.units:
            raise InvalidInput(f"subset must be below units={self.units}, not {self.subset}")
        if self.teachers > self.units:
            raise InvalidInput(f"teachers must be at most units={self.units}, not {self.teachers}")

    @classmethod
    def calibrate(
        cls, concept: Concept, *, units: int, epsilon: float, teachers: int | None = None, rows: int = 1
    ) -> "PureRelabelling":
        """Return the numbers with the smallest error to be expected among those that keep epsilon."""
        units, epsilon = check_count("units", units, least=2), min(check_positive("epsilon", epsilon), _MOST)
        arguments: Any = {"teachers": teachers, "rows": check_count("rows", rows)}
        schemes = [
            scheme
            for step in range(120)
            for share in _SHARES
            if (
                scheme := _attempt(
                    concept, units=units, epsilon=epsilon, scale=3.3 / epsilon * 1.1**step, share=share, **arguments
                )
            )
            is not None
        ]
        best = min(schemes, key=lambda scheme: scheme.error, default=None)
        if best is None or best.error >= 0.5:
            raise Infeasible(
                f"{units} units are too few for relabelling at epsilon={epsilon:g}; method='stable' takes far fewer"
            )
        return best

    @property
    def log_miss(self) -> float:
        """The logarithm of a bound on the probability that a random subset tells too few hypotheses apart."""
        remaining = self.units - 1
        pairs = 2 * math.log(self.concept.growth(remaining * self.rows)) - math.log(2)
        missed = (self.reach + 1) * math.log1p(-(self.subset - 1) / remaining)  # proof: step 11
        return min(0.0, pairs + missed + 1e-9 * (pairs - missed))

    @property
    def log_factor(self) -> float:
        """Ln F, rounded up: the epsilon of one answer."""
        odds = math.log(self.subset / (self.units - self.subset))
        grown = self.rows * math.log(4) + 3 * (self.reach + 1) / self.scale  # proof: step 12
        exponent = grown + odds
        either = max(0.0, exponent) + math.log1p(math.exp(-abs(exponent)))  # log(1 + exp(exponent))
        return (either + 3 / self.scale) * _UP

    @property
    def flip_probability(self) -> Fraction:
        """With what probability the answer is turned, so that nothing is left to a delta: rounded up."""
        rate = float_up(Fraction(self.subset, self.units))
        rest = max(math.exp(self.log_miss) * rate * _UP, 2.0**-900)  # never 0, nor so small that it rounds to it
        return Fraction(min(0.5, rest / (math.expm1(self.log_factor) + 2 * rest) * _UP))  # proof: step 13

    @property
    def error(self) -> float:
        """About how much worse than the best hypothesis an answer is to be expected: a rule of thumb."""
        dimension, share = max(1, self.concept.vc_dimension), self.scale / self.units
        chosen = share * math.log(self.concept.growth(self.subset * self.rows))
        cover = dimension / self.subset
        chunks = 4 * dimension * self.teachers / self.units
        outvoted = math.exp(-self.teachers / (_CLEAR * self.scale))
        return chosen + cover + chunks + outvoted + float(self.flip_probability)

    @property
    def choice(self) -> StableChoice:
        """The choice of the hypothesis by which all units are relabelled."""
        epsilon = math.nextafter(2 / self.scale, 0)  # proof: step 12
        return StableChoice(concept=self.concept, units=self.units, subset=self.subset, epsilon=epsilon, rows=self.rows)

    @property
    def majority(self) -> SoftMajority:
        """The mechanism that counts the ballots of the answer."""
        return SoftMajority(teachers=self.teachers, epsilon=math.nextafter(1 / self.scale, 0))  # proof: step 12

    def draw(self, records: UnitRows, row: NDArray[np.float64], **fitting: Any) -> int:
        """Draw the answer to one query. It must be charged `log_factor` before."""
        label = self.count_vote(records, self.choice.draw(records), row, **fitting)
        return flip(label, self.flip_probability)  # proof: step 13

    def count_vote(self, records: UnitRows, hypothesis: Hypothesis, row: NDArray[np.float64], **fitting: Any) -> int:
        """Relabel all units, fit teachers on disjoint chunks and put the query to their vote."""
        used = records.labels != NO_LABEL
        labels = np.full(len(records.labels), NO_LABEL)
        labels[used] = hypothesis.predict(records.points[used])
        deal, _ = deal_units(records.owners, records.units, teachers=self.teachers)
        ensemble = fit_concept_teachers(self.concept, records.points, labels, deal, **fitting)
        return int(release_votes(ensemble, row[np.newaxis, :], self.majority.answers).labels[0])


def _attempt(
    concept: Concept, *, units: int, epsilon: float, scale: float, share: float, teachers: int | None, rows: int
) -> PureRelabelling | None:
    """Return the largest subset that keeps epsilon with this scale and this share of it for the reach, if there is."""
    reach, remaining = math.floor(share * scale), epsilon * (1 - 1e-9) - 3 / scale
    if remaining <= 0 or scale > units / 4:
        return None
    odds = math.expm1(remaining) * math.exp(-rows * math.log(4) - 3 * (reach + 1) / scale)
    largest = concept.largest_set(units * rows) // rows
    subset = min(int(odds / (1 + odds) * units), units - 1, largest)
    if subset < 2:
        return None
    wanted = math.ceil(_CLEAR * scale * math.log(units / scale)) if teachers is None else teachers
    wanted = max(wanted, math.ceil(units / largest))  # or a chunk would be more than the class can go through
    scheme = PureRelabelling(
        concept=concept,
        units=units,
        subset=subset,
        scale=scale,
        reach=reach,
        teachers=min(units, wanted),
        rows=rows,
    )
    return scheme if scheme.log_factor <= epsilon else None
