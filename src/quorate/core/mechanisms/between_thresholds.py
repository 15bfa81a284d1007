"""BetweenThresholds answers 1 above an upper noisy threshold, 0 below a lower one, and "no quorum" in between.

With v votes for class 1, noise nu for each query and mu for the thresholds: 0 if v + nu < ceil(k/2) - h + mu, 1 if
v + nu > floor(k/2) + h - mu. Claim (replace-one units, one ballot per unit): calibration="tight" keeps one Gaussian mu
for the run and pays a price for each no-quorum, as Quorum does; calibration="paper" redraws a Laplace mu after each
no-quorum and composes the epochs. Either holds outside a tail event of probability `slack`. Proof:
PROOF_between_thresholds.md.
"""

import bisect
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource
from quorate.core.arrays import Floats
from quorate.core.checks import (
    check_count,
    check_delta,
    check_finite_order,
    check_positive,
    check_rate,
)
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.base import Counts, Decide, Labels, ThresholdMechanism, check_paper, check_teachers
from quorate.core.mechanisms.distributions import (
    TAIL_BITS,
    gaussian_tail,
    gaussian_tail_quantile,
    is_gaussian_tail_above,
    laplace_tail,
    laplace_tail_quantile,
    least_charge,
    stable_up,
)
from quorate.core.mechanisms.orders import search_grid
from quorate.core.privacy import RENYI_QUANTA, Cost, best_order, gaussian_renyi, pure_renyi, to_capacity
from quorate.core.privacy.cost import halve_interval
from quorate.core.requests import NO_QUORUM


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

    threshold_scale: float
    query_scale: float
    margin: int
    cap: int
    slack: float
    calibration: Literal["tight", "paper"] = "tight"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.calibration not in ("tight", "paper"):
            raise InvalidInput(f"calibration must be 'tight' or 'paper', got {self.calibration!r}")
        if self._width() < LEAST_WIDTH:
            fewest = self.cap + (LEAST_WIDTH + self.teachers % 2) // 2
            raise InvalidInput(f"margin must be at least {fewest} with cap={self.cap}, got {self.margin!r}")
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
        settings = (tight_settings if calibration == "tight" else paper_settings)(epsilon, delta, no_quorums)
        mechanism = cls(teachers=teachers, no_quorums=no_quorums, calibration=calibration, **settings)
        if calibration == "paper":
            check_paper(mechanism, epsilon, delta)
        check_teachers(mechanism)
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
        order = check_finite_order("a Gaussian threshold", order)
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


LEAST_WIDTH = 7  # below, neither end of the band need lie in the tail, and step 4 does not apply
_MARGIN = 2.0**-30


def _mass(scale: float, low: NDArray[np.int64], high: NDArray[np.int64]) -> Floats:
    """Return P(low <= noise <= high) without cancellation: taken on the side of 0 where the band mostly lies."""
    flip = low + high < 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    decay = math.exp(-1 / scale)
    inside = -np.expm1(-(high - low + 1) / scale) * np.exp(-np.maximum(low, 1) / scale) / (1 + decay)
    straddling = 1 - laplace_tail(scale, 1 - low) - laplace_tail(scale, high + 1)
    return np.where(low >= 1, inside, straddling)


@lru_cache(maxsize=4096)
def band_price(*, scale: float, width: int, order: float) -> float:
    """Return the price s of a no-quorum, rounded up: the worst over all positions of a band of at least `width`."""
    # A narrower band costs more (step 4), and its tails do not underflow.
    width = min(width, max(LEAST_WIDTH, math.ceil(40 * scale)))
    low = np.arange(-(width // 2) - 2, 4, dtype=np.int64)  # the other half is the mirror image, with the moves mirrored
    high = low + width - 1
    zero, one = laplace_tail(scale, 1 - low), laplace_tail(scale, high + 1)
    band = _mass(scale, low, high)
    worst = 0.0
    for move in (-1, 0, 1):
        zero_after, one_after = laplace_tail(scale, -low - move), laplace_tail(scale, high + move)
        band_after = _mass(scale, low + 1 + move, high - 1 + move)
        # 1 - sum over labels of p**a q**(1-a): each label's term is p (p/q)**(a-1), and 1 = band + zero + one
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = sum(-p * np.expm1((order - 1) * np.log(p / q)) for p, q in ((zero, zero_after), (one, one_after)))
            price = order * np.log(band) - (order - 1) * np.log(band_after) - np.log(band + lost)
        if not np.isfinite(price).all():
            raise InvalidInput(f"query_scale={scale!r} is too small for a certified price; use at least 0.02")
        worst = max(worst, float(price.max()))
    return stable_up(worst * (1 + _MARGIN) + order * 2.0**-36)


def band_log_ratio(*, scale: float, width: int) -> float:
    """Return the largest log ratio of the probabilities of no quorum between neighbours (step 6), rounded up."""
    return (2 / scale + math.log(-math.expm1(-width / scale) / -math.expm1(-(width - 2) / scale))) * (1 + 2.0**-40)


_PASSES = (  # factors tried around the best settings so far: order, share of the opening, share of slack
    ((0.7, 1.0, 1.4), (0.25, 1.0, 2.5), (0.3, 1.0)),
    ((0.85, 1.0, 1.2), (0.6, 1.0, 1.5), (0.6, 1.0, 1.7)),
    ((0.93, 1.0, 1.08), (0.8, 1.0, 1.25), (1.0,)),
)


Settings = dict[str, Any]  # public parameters of a BetweenThresholds that meets a target


def _narrowest(scale: float, price: float, order: float) -> int | None:
    """Return the smallest width at which a no-quorum costs at most `price`, or None where no width does."""

    def fits(width: int) -> bool:
        return band_price(scale=scale, width=width, order=order) <= price

    widths = range(LEAST_WIDTH, math.ceil(40 * scale) + LEAST_WIDTH + 1)
    return widths[bisect.bisect_left(widths, True, key=fits)] if fits(widths[-1]) else None


def _best_band(price: float, order: float, hint: float | None) -> tuple[float, float, int] | None:
    """Return (reach, scale, width) with the smallest reach: half the width, and the noise that 99 in 100 stay below.

    `hint` is a scale times the square root of its price that was best for a price nearby.
    """
    best: tuple[float, float, int] | None = None
    centre, factor, rounds = (4.0, 1.6, 5) if hint is None else (hint, 1.08, 2)
    centre /= math.sqrt(price)
    for _ in range(rounds):
        for step in (0, -1, 1) if hint is not None else (0, -3, -2, -1, 1, 2, 3):
            scale = centre * factor**step
            width = _narrowest(scale, price, order)
            if width is not None and (best is None or width / 2 + math.log(50) * scale < best[0]):
                best = (width / 2 + math.log(50) * scale, scale, width)
        if best is None:
            centre *= factor**4
        else:
            centre, factor = best[1], math.sqrt(factor)
    return best


def tight_settings(epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return the settings with the smallest distance for 99% answers, found on a grid refined twice."""
    best: tuple[float, Settings, float] | None = None

    def settle(order: float, opening: float, slack: float) -> tuple[float, Settings, float] | None:
        nonlocal best
        hint = None if best is None else best[2]
        settings = _tight(order, opening, slack, epsilon=epsilon, delta=delta, no_quorums=no_quorums, hint=hint)
        if settings is not None and (best is None or settings[0] < best[0]):
            best = settings
        return settings

    centre = (best_order(epsilon=epsilon, delta=delta * 0.9), 0.1, 0.1)
    return search_grid(centre, _PASSES, settle, lambda tried: [reach for reach, _, _ in tried])[1]


def _tight(
    order: float, opening: float, slack: float, *, epsilon: float, delta: float, no_quorums: int, hint: float | None
) -> tuple[float, Settings, float] | None:
    capacity = to_capacity(epsilon, delta=delta * (1 - slack), order=order)
    if capacity <= 0:
        return None
    threshold_scale = math.sqrt(order / (2 * opening * capacity))
    cap = gaussian_tail_quantile(threshold_scale, delta * slack)
    tail = gaussian_tail(threshold_scale, cap)
    capacity = to_capacity(epsilon, delta=delta - tail, order=order) - (no_quorums + 1) / RENYI_QUANTA
    price = (capacity - gaussian_renyi(scale=threshold_scale, order=order)) * (order - 1) / no_quorums * (1 - 2.0**-40)
    band = _best_band(price, order, hint) if price > 0 else None
    if band is None:
        return None
    reach, scale, width = band
    margin = cap + (width + 1) // 2  # an odd number of teachers makes the band one narrower
    settings = {"order": order, "threshold_scale": threshold_scale, "query_scale": scale}
    return cap + reach, settings | {"margin": margin, "cap": cap, "slack": tail}, scale * math.sqrt(price)


def paper_settings(epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return the constants of Naor, Nissim, Stemmer and Yan (2023).

    Noise of scale 2/e0 and 6/e0 and a gap of (12/e0)(log(10/e0) + log(1/d0) + 1) with d0 = delta / 2c, where e0 solves
    sqrt(2 c log(1/(c d0))) e0 + c e0 (exp(e0) - 1) = epsilon, at most 1: their Observation 1, corrected.
    """
    each_delta = delta / (2 * no_quorums)
    root = math.sqrt(2 * no_quorums * math.log(1 / (no_quorums * each_delta)))
    low, _ = halve_interval(0.0, 1.0, lambda e: root * e + no_quorums * e * math.expm1(e) <= epsilon, steps=100)
    threshold_scale, query_scale = 2 / low, 6 / low
    gap = 12 / low * (math.log(10 / low) + math.log(1 / each_delta) + 1)
    cap = max(0, math.ceil(threshold_scale * math.log(1 / each_delta)))  # P(mu > cap) < exp(-cap / scale) / 2
    tail = stable_up(float(laplace_tail(threshold_scale, cap + 1)) * (1 + 2.0**-39), bits=TAIL_BITS)
    order = best_order(epsilon=epsilon, delta=delta * 0.9)
    settings = {"order": order, "threshold_scale": threshold_scale, "query_scale": query_scale}
    return settings | {"margin": math.ceil(gap / 2), "cap": cap, "slack": tail}
