"""NoisyMax adds discrete Gaussian noise to the counts and answers with the largest.

Claim (replace-one units, one ballot per unit): one query has Renyi divergence at most `renyi(order)`, for all votes.
Only the winning label is released, so only its divergence is charged, not that of the noisy counts. Proof:
PROOF_noisy_max.md.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

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
from quorate.core.errors import Infeasible
from quorate.core.mechanisms.base import Counts, QueryMechanism
from quorate.core.mechanisms.distributions import excess, gaussian_pmf, stable_up
from quorate.core.mechanisms.orders import smallest_epsilon, smallest_scale
from quorate.core.privacy import Cost, best_order, gaussian_renyi, price_of_each, to_epsilon


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(QueryMechanism):
    """Discrete Gaussian noise of one scale on the counts of all classes."""

    classes: int
    scale: float


def one_winner_renyi(*, classes: int, scale: float, order: float) -> float:
    """Return the divergence of one winner's name."""
    order = check_finite_order("Gaussian noise", order)
    return binary_winner_renyi(scale, order) if classes == 2 else winner_renyi(scale, order)


def likely_winner_renyi(*, scale: float, order: float) -> float:
    """Return a cheap stand-in for the winner's cost, within a few per cent: to choose an order by, not to charge."""
    exact = scale <= 128 or (scale <= 512 and order > scale / 4)  # elsewhere the limit for much noise is near enough
    return binary_winner_renyi(scale, order) if exact else 2 / math.pi * order / scale**2


def draw_winners(counts: Counts, scale: float, noise: NoiseSource) -> NDArray[np.int64]:
    """Return the noisy winner of each row."""
    noisy = counts + noise.gaussian(scale, counts.size).reshape(counts.shape)
    winners: NDArray[np.int64] = noisy.argmax(axis=1)  # the first of those that tie; proof: step 2
    return winners


@dataclass(frozen=True, kw_only=True)
class NoisyMax(NoisyCounts):
    """Discrete Gaussian noise of this scale on every count, and the largest wins.

    >>> noisy_max = NoisyMax(teachers=250, classes=10, scale=40.0)
    >>> noisy_max.renyi(8.0) < 8.0 / 40.0**2
    True
    >>> noisy_max = NoisyMax.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, classes=2, queries=1000)
    >>> noisy_max.distance() <= 333
    True
    """

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, teachers: int, classes: int, queries: int) -> "NoisyMax":
        """Return the NoisyMax with the least noise that can answer this many queries within (epsilon, delta)."""
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        queries, classes = check_count("queries", queries), check_count("classes", classes, least=2)
        order = best_order(epsilon=epsilon, delta=delta)
        price = price_of_each(epsilon, delta=delta, order=order, times=queries)
        scale = smallest_scale(
            lambda scale: one_winner_renyi(classes=classes, scale=scale, order=order),
            target=price,
            guess=math.sqrt(0.642 * order / price),
        )
        mechanism = cls(teachers=teachers, classes=classes, scale=scale)
        while mechanism.epsilon(delta=delta, queries=queries) > epsilon:  # which may look at another order
            mechanism = replace(mechanism, scale=mechanism.scale * 1.002)
        return mechanism

    def query_cost(self, order: float) -> Cost:
        """Return the cost of one winner."""
        return Cost(one_winner_renyi(classes=self.classes, scale=self.scale, order=order))

    def epsilon(self, *, delta: float, queries: int = 1) -> float:
        """Return the epsilon of this many adaptively chosen queries at `delta`."""
        queries = check_count("queries", queries)
        _, order = smallest_epsilon(
            lambda order: queries * likely_winner_renyi(scale=self.scale, order=order), delta=delta
        )
        return to_epsilon(queries * self.renyi(order), order=order, delta=delta)

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which the top label beats one rival at this rate."""
        rate = check_rate("answer_rate", answer_rate)
        if rate == 1:
            raise Infeasible("answer_rate=1 is out of reach: Gaussian noise has no bound")
        if self.scale <= 200:
            law = gaussian_pmf(self.scale, math.ceil(12 * self.scale))
            lead = np.convolve(law, law)
        else:  # the sum of two has all but the law of one, wider by the square root of 2
            lead = gaussian_pmf(self.scale * math.sqrt(2), math.ceil(20 * self.scale))
        # P(lead of the noise > t) for t = 0, 1, ...; a gap of t + 1 loses this often. The tail is summed from its far
        # end: the smallest rate below 1 leaves 2**-53, and what the table leaves out is below exp(-90).
        losses = np.cumsum(lead[: lead.size // 2])[::-1]
        return (int(np.flatnonzero(losses <= 1 - rate)[0]) + 1) // 2  # distance d holds the gaps 2d + 1 and 2d + 2

    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw an answer to each query."""
        return draw_winners(counts, self.scale, noise)


_FINE, _COARSE = 1e-4, 4e-3  # relative widths at which the search stops
_MANY = 60_000  # squares, above which the width is coarse
_LEAST_ORDER = 1 + 2.0**-20  # below, the cost at this order is charged: divergence does not fall with the order
_LEAST_SCALE = 0.25  # below, tails underflow before they are negligible (step 4)
_LARGEST_EXPONENT = 600.0  # of the plain moment: above, a double overflows
_LARGEST_BINARY = 512.0  # the law of a difference is a convolution, quadratic in the scale

Offsets = NDArray[np.int64]


def log_mass_bound(mass: Floats | float, *, scale: float, order: float) -> Floats:
    """Return a bound on the log of the sum of p**order * q**(1 - order) over points whose total q is at most `mass`.

    Hoelder's inequality with the best exponent, for discrete Gaussian noise on two counts that each move by 1 (step 4).
    """
    unit = 1 / scale**2
    with np.errstate(divide="ignore"):
        length = -np.log(np.minimum(np.asarray(mass, dtype=np.float64), 1.0))
    power = np.maximum(1.0, np.sqrt(length / unit) / order)
    with np.errstate(invalid="ignore"):
        bound = -length * (1 - 1 / power) + order * (order * power - 1) * unit
    return np.minimum(np.where(np.isinf(length), -np.inf, bound), order * (order - 1) * unit)


def _rare(mass: Floats, *, scale: float, order: float) -> Floats:
    """Return a bound on the excess of an outcome of probability at most `mass` under q."""
    with np.errstate(over="ignore"):
        return np.exp(log_mass_bound(mass, scale=scale, order=order)) + (order - 1) * mass


def _reach(scale: float, order: float) -> int:
    """Return a radius outside of which noise adds less than 2**-40 of the cost to the moment."""
    small = math.log(2.0**-44 * min(1.0, order * (order - 1) / (2 * scale**2)))
    width = 8.0
    while True:
        tail = 4 * math.exp(-(width**2) / 2)
        if width > 36 or float(log_mass_bound(math.sqrt(tail), scale=scale, order=order)) < small:
            return math.ceil(width * scale) + 2
        width += 1.0


@lru_cache(maxsize=4096)
def binary_winner_renyi(scale: float, order: float) -> float:
    """Return the divergence of the winner of two (step 6): exact up to a scale of 512, where three serve as a bound."""
    if _is_plain(scale, order):
        return _plain(scale, order)
    if scale > _LARGEST_BINARY:
        return winner_renyi(scale, order)
    order = max(order, _LEAST_ORDER)
    radius = _reach(scale, order)
    law = gaussian_pmf(scale, radius)
    lead = np.convolve(law, law)  # of the difference of two noises
    above, below = np.cumsum(lead[::-1])[::-1], np.cumsum(lead)
    here = np.stack([above[1:-2], below[:-3]])  # P(lead >= t) and P(lead <= t - 1), at t
    there = np.stack([above[3:], below[2:-1]])  # the same at t + 2: one ballot moved
    excess = max(_largest_excess(here, there, scale, order), _largest_excess(there, here, scale, order))
    return _certified(excess, radius=radius, scale=scale, order=order)


def _plain(scale: float, order: float) -> float:
    """Return the cost of the noisy counts themselves, rounded up."""
    return gaussian_renyi(scale=scale, order=order, sensitivity=math.sqrt(2))


def _is_plain(scale: float, order: float) -> bool:
    """Return whether the plain Gaussian cost order / scale**2 is all that can be said: it is then nearly the truth."""
    return order == math.inf or scale < _LEAST_SCALE or order * (order - 1) > _LARGEST_EXPONENT * scale**2


def _largest_excess(p: Floats, q: Floats, scale: float, order: float) -> float:
    """Return the largest excess over the columns of p and q, each outcome (row) capped by what its mass allows."""
    return float(np.minimum(excess(p, q, order), _rare(q, scale=scale, order=order)).sum(axis=0).max())


def _certified(excess: float, *, radius: int, scale: float, order: float) -> float:
    """Return the divergence for the largest excess found, with everything outside and all rounding added."""
    tail = 4 * math.exp(-((radius - 1) ** 2) / (2 * scale**2))
    rare = math.sqrt(tail)
    addition = 3 * math.exp(float(log_mass_bound(rare, scale=scale, order=order)))  # step 4
    shift = 2 * (order - 1) * rare
    rounding = max(2.0**-20, 200 * scale**2 * 2.0**-53)  # step 5
    moment_excess = excess * (1 + rounding) * math.exp(shift) + math.expm1(shift) + addition
    return min(_plain(scale, order), stable_up(math.log1p(moment_excess) / (order - 1)))


class _Choice:
    """Probabilities of {a, b, other} at pairs of offsets; a wins ties against b, and other loses all ties (step 2)."""

    def __init__(self, scale: float, radius: int) -> None:
        self._radius = radius
        self._law = gaussian_pmf(scale, radius)
        self._upto = np.concatenate([[0.0], np.cumsum(self._law)])  # at i: P(noise < i - radius)

    def below(self, value: Offsets | int) -> Floats:
        """Return P(noise <= value)."""
        below: Floats = self._upto.take(np.clip(np.asarray(value) + self._radius + 1, 0, self._upto.size - 1))
        return below

    def __call__(self, x: Offsets, y: Offsets) -> tuple[Floats, Floats, Floats]:
        a, b = np.empty(x.size), np.empty(x.size)
        lead = x - y
        noise = np.arange(-self._radius, self._radius + 1)
        by_lead = np.argsort(lead, kind="stable")
        starts = np.flatnonzero(np.diff(lead[by_lead], prepend=lead[by_lead[0]] - 1))
        for group in np.split(by_lead, starts[1:]):
            ahead = int(lead[group[0]])
            # a wins with noise s where s + x >= 1 and b's noise is at most s + x - y; b likewise, and loses the tie
            wins = np.cumsum((self._law * self.below(noise + ahead))[::-1])[::-1]
            a[group] = self._from(wins, 1 - x[group])
            wins = np.cumsum((self._law * self.below(noise - ahead - 1))[::-1])[::-1]
            b[group] = self._from(wins, 1 - y[group])
        return a, b, self.below(-x) * self.below(-y)

    def _from(self, sums: Floats, first: Offsets) -> Floats:
        index = first + self._radius
        return np.where(index >= sums.size, 0.0, sums[np.clip(index, 0, sums.size - 1)])


def _corner(choice: _Choice, x: Offsets, y: Offsets) -> tuple[Floats, Floats]:
    """Return p and q (one row an outcome) at offsets (x, y) and at the neighbour's (x + 1, y - 1)."""
    return np.stack(choice(x, y)), np.stack(choice(x + 1, y - 1))


@lru_cache(maxsize=1024)
def winner_renyi(scale: float, order: float) -> float:
    """Return the divergence of the winner of three or more, with noise of this scale on each count."""
    if _is_plain(scale, order):
        return _plain(scale, order)
    order = max(order, _LEAST_ORDER)
    radius = _reach(scale, order)
    choice = _Choice(scale, radius)
    side = max(1, round(scale / 2))
    edges = np.arange(-radius - 2, 3 * radius + 2, side)
    x, y = (grid.ravel() for grid in np.meshgrid(edges, edges))
    clamped = np.minimum(x, y) <= radius + 1  # step 4: beyond, only x - y matters, and x or y can be moved here
    x, y = x[clamped], y[clamped]
    best, dropped = 0.0, 0.0
    while True:
        upper, inner = _bounds(choice, x, y, side=side, scale=scale, order=order)
        best = max(best, inner)
        width = _COARSE if x.size > _MANY else _FINE
        if side == 1 or upper.max() <= best * (1 + width):
            break
        keep = upper > best * (1 + width / 2)
        dropped = max(dropped, float(upper[~keep].max(initial=0.0)))
        x, y = x[keep], y[keep]
        half = side // 2
        x, y = np.concatenate([x, x + half, x, x + half]), np.concatenate([y, y, y + half, y + half])
        side -= half
    excess = max(dropped, float(upper.max()))
    return _certified(excess, radius=radius, scale=scale, order=order)


def _bounds(choice: _Choice, x: Offsets, y: Offsets, *, side: int, scale: float, order: float) -> tuple[Floats, float]:
    """Return for each square of offsets a bound on the excess inside, and the largest value seen at a corner."""
    last = side - 1
    low_p, low_q = _corner(choice, x, y + last)  # every ratio p/q is smallest here (step 3)
    high_p, high_q = _corner(choice, x + last, y)  # and largest here
    pairs = ((low_p, low_q), (low_q, low_p), (high_p, high_q), (high_q, high_p))
    seen = max(_largest_excess(p, q, scale, order) for p, q in pairs)
    most_p = np.stack([high_p[0], low_p[1], choice.below(-x) * choice.below(-y)])
    most_q = np.stack([high_q[0], low_q[1], choice.below(-x - 1) * choice.below(1 - y)])
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = low_p / low_q, high_p / high_q
    forward, backward = np.zeros(x.size), np.zeros(x.size)
    for outcome in range(3):
        ends = low[outcome], high[outcome]
        forward += _outcome_bound(most_q[outcome], ends, scale, order)
        with np.errstate(divide="ignore", invalid="ignore"):
            backward += _outcome_bound(most_p[outcome], (1 / ends[0], 1 / ends[1]), scale, order)
    return np.maximum(forward, backward), seen


def _outcome_bound(mass: Floats, ratios: tuple[Floats, Floats], scale: float, order: float) -> Floats:
    by_ratio = np.zeros(mass.size)
    for ratio in ratios:
        with np.errstate(invalid="ignore", over="ignore"):
            by_ratio = np.maximum(by_ratio, excess(mass * ratio, mass, order))
    return np.minimum(by_ratio, _rare(mass, scale=scale, order=order))
