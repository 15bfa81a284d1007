"""BetweenThresholds answers 1 above an upper noisy threshold, 0 below a lower one, and "no quorum" in between.

With v votes for class 1, noise nu for each query and mu for the thresholds: 0 if v + nu < ceil(k/2) - h + mu, 1 if
v + nu > floor(k/2) + h - mu. Claim (replace-one units, one ballot per unit): calibration="tight" keeps one Gaussian mu
for the run and pays a price for each no-quorum, as Quorum does; calibration="paper" redraws a Laplace mu after each
no-quorum and composes the epochs. Either holds outside a tail event of probability `slack`. Proof: PROOF.md.
"""

import math
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_rate, validate_fields
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.base import Counts, Decide, Labels, ThresholdMechanism, check_paper, too_few_teachers
from quorate.core.mechanisms.between_thresholds.calibrate import paper_settings, tight_settings
from quorate.core.mechanisms.between_thresholds.cost import LEAST_WIDTH, band_log_ratio, band_price
from quorate.core.mechanisms.distributions import is_gaussian_tail_above, laplace_tail, laplace_tail_quantile
from quorate.core.mechanisms.rounding import least_charge
from quorate.core.noise import NoiseSource
from quorate.core.privacy import Cost, gaussian_renyi, pure_renyi
from quorate.core.requests import NO_QUORUM

__all__ = ["BetweenThresholds"]


@dataclass(frozen=True, kw_only=True)
class BetweenThresholds(ThresholdMechanism):
    """A threshold mechanism for two classes, one shared noise per query.

    Use `BetweenThresholds.calibrate`.

    `margin` is h, `cap` the largest threshold noise mu that the claim covers, `slack` bounds P(mu > cap): for the run
    (tight) or for each epoch (paper).

    >>> between = BetweenThresholds.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, no_quorums=20)
    >>> between.answers([[2000, 0], [0, 2000]]).labels
    array([0, 1])
    """

    teachers: int
    no_quorums: int
    order: float
    threshold_scale: float
    query_scale: float
    margin: int
    cap: int
    slack: float
    calibration: Literal["tight", "paper"] = "tight"

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.calibration not in ("tight", "paper"):
            raise InvalidInput(f"calibration must be 'tight' or 'paper', not {self.calibration!r}")
        if self._width() < LEAST_WIDTH:
            least = self.cap + (LEAST_WIDTH + self.teachers % 2) // 2
            raise InvalidInput(f"margin must be at least {least} with cap={self.cap}, not {self.margin!r}")
        if self._is_tail_above_slack():  # proof: step 1
            raise InvalidInput(f"slack={self.slack!r} is below the probability that the threshold noise passes the cap")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        teachers: int,
        no_quorums: int,
        calibration: Literal["tight", "paper"] = "tight",
    ) -> "BetweenThresholds":
        """Return a BetweenThresholds within (epsilon, delta), with our constants or with published ones.

        calibration="paper" uses those of "Private Everlasting Prediction" (Naor, Nissim, Stemmer and Yan 2023), which
        go back to Bun, Steinke and Ullman (2016).
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        teachers, no_quorums = check_count("teachers", teachers), check_count("no_quorums", no_quorums)
        if calibration not in ("tight", "paper"):
            raise InvalidInput(f"calibration must be 'tight' or 'paper', not {calibration!r}")
        settings = (tight_settings if calibration == "tight" else paper_settings)(epsilon, delta, no_quorums)
        mechanism = cls(teachers=teachers, no_quorums=no_quorums, calibration=calibration, **asdict(settings))
        if calibration == "paper":
            check_paper(mechanism, epsilon, delta)
        if mechanism.answer_probability((teachers + 1) // 2 - 1) < 0.5:
            raise too_few_teachers(mechanism, 2 * mechanism.distance() + 1)
        return mechanism

    @property
    def redraws(self) -> bool:  # type: ignore[override]
        """Whether the threshold noise is redrawn after each no-quorum."""
        return self.calibration == "paper"

    @property
    def epoch_epsilon(self) -> float:
        """The epsilon of one epoch of a redrawn threshold."""
        ratio = band_log_ratio(scale=self.query_scale, width=self._width())
        return (1 / self.threshold_scale + ratio) * (1 + 2.0**-50)  # proof: step 6

    def opening_cost(self, order: float) -> Cost:
        """Return the cost of the threshold noise of the run, or of the first epoch."""
        if self.redraws:
            return Cost(pure_renyi(self.epoch_epsilon, order=order), self.slack)
        return Cost(gaussian_renyi(scale=self.threshold_scale, order=order), self.slack)  # proof: step 2

    def no_quorum_cost(self, order: float) -> Cost:
        """Return the cost of one no-quorum, or of the epoch it opens."""
        if self.redraws:
            return self.opening_cost(order)
        if check_order(order) == math.inf:
            raise InvalidInput("a run with one Gaussian threshold is charged at a finite order; allow a delta above 0")
        return Cost(band_price(scale=self.query_scale, width=self._width(), order=order) / (order - 1))  # proof: step 3

    def least_no_quorum_charge(self, order: float) -> Cost:
        """Return the least that any processor charges for one no-quorum."""
        cost = self.no_quorum_cost(order)
        return cost if self.redraws else least_charge(cost)

    def answer_probability(self, distance: int, *, threshold_noise: int = 0) -> float:
        """Return the probability that the top label is answered at this distance.

        For planning: nothing private.
        """
        votes = self.teachers // 2 + distance + 1  # the fewest votes with that distance
        needed = max(self._upper(threshold_noise) + 1, self._lower(threshold_noise))  # neither, where they cross
        return float(laplace_tail(self.query_scale, needed - votes))

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which the top label is answered at this rate, at threshold noise 0."""
        needed = self._upper(0) + 1 - laplace_tail_quantile(self.query_scale, check_rate("answer_rate", answer_rate))
        return max(0, needed - self.teachers // 2 - 1)

    def _lower(self, threshold_noise: int) -> int:
        return (self.teachers + 1) // 2 - self.margin + threshold_noise

    def _upper(self, threshold_noise: int) -> int:
        return self.teachers // 2 + self.margin - threshold_noise

    def _width(self) -> int:
        """Return the number of integers in the narrowest band that the claim covers."""
        return self._upper(self.cap) - self._lower(self.cap) + 1

    def _is_tail_above_slack(self) -> bool:
        """Return whether P(mu > cap) is above the slack; the paper's slack is rounded up twice as far as this tail."""
        if self.redraws:
            return float(laplace_tail(self.threshold_scale, self.cap + 1)) * (1 + 2.0**-40) > self.slack
        return is_gaussian_tail_above(self.threshold_scale, self.cap, self.slack)

    def vote_columns(self) -> int:
        """Return how many classes the votes must have."""
        return 2

    def draw_threshold_noise(self, noise: NoiseSource) -> int:
        """Draw the secret noise of a run's threshold."""
        draw = noise.laplace if self.redraws else noise.gaussian
        return int(draw(self.threshold_scale, 1)[0])

    def draw_decisions(self, counts: Counts, noise: NoiseSource) -> Decide:
        """Draw the noise of each query, and return the rule that gives it a label."""
        noisy = counts[:, 1] + noise.laplace(self.query_scale, len(counts))

        def decide(queries: slice, threshold_noise: int) -> Labels:
            low, high = self._lower(threshold_noise), self._upper(threshold_noise)
            below, above = noisy[queries] < low, noisy[queries] > high
            return np.where(below & ~above, 0, np.where(above & ~below, 1, NO_QUORUM))

        return decide
