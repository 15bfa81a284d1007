"""Quorum answers with the top label if it is far enough from changing, and with "no quorum" otherwise.

Claim (replace-one units, one ballot per unit): a run of any number of adaptively chosen queries that stops after
`no_quorums` no-quorums has Renyi divergence at most `renyi(order)` at every order, outside a tail event of
probability at most `slack`. An answer is free; opening the run and each no-quorum are paid. Proof: PROOF_quorum.md.
"""

import itertools
import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial

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
    validate_fields,
)
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts, Decide, Labels, ThresholdMechanism, check_teachers, distances
from quorate.core.mechanisms.distributions import (
    gaussian_tail,
    gaussian_tail_quantile,
    is_gaussian_tail_above,
    least_charge,
    stable_levels,
    stable_up,
)
from quorate.core.mechanisms.orders import search_grid
from quorate.core.privacy import RENYI_QUANTA, Cost, best_order, exceeds, gaussian_renyi, to_capacity
from quorate.core.requests import NO_QUORUM

ONE = 2**64
FLOOR = 2**24  # in units of 2**-64: a clear ballot still misses its quorum once in 10**12
_LOG_ONE = 64 * math.log(2)
# Both are above the error of a price in doubles: the tests compare with exact arithmetic.
_MARGIN, _ROUNDING = 2.0**-34, 2.0**-40
_BELOW = 1 - 2.0**-44  # A table is built this far below its price, so that another processor accepts it.
_CUTS = (0.0, 1e-9, 1e-7, 1e-5, 1e-3)  # of the price, tried until the table costs no more


def _log_survival(log_level: Floats) -> Floats:
    """Return log(1 - exp(log_level)) without cancellation."""
    with np.errstate(divide="ignore"):
        return np.where(log_level > -0.7, np.log(-np.expm1(log_level)), np.log1p(-np.exp(log_level)))


def _price(log_p: Floats, log_q: Floats, order: Floats) -> tuple[Floats, Floats]:
    """Return the price of going from level p to level q, and the exponent of the answers' term."""
    survival = order * _log_survival(log_p) - (order - 1) * _log_survival(log_q)
    with np.errstate(divide="ignore"):
        return order * log_p - (order - 1) * log_q - np.log(-np.expm1(survival)), survival


def _next_level(log_p: Floats, order: Floats, price: Floats, fall: Floats | None = None) -> Floats:
    """Return the log of the smallest level that can follow `log_p` at this price, elementwise.

    Newton's method on a convex decreasing function. `asymptote` lies left of its root, from where all steps stay left;
    a guess at the fall from `log_p`, taken from the step before, saves half of the steps.
    """
    asymptote = log_p + np.maximum(log_p - price, -price - np.log(order)) / (order - 1)
    log_q = asymptote if fall is None else np.maximum(asymptote, log_p - fall)
    for _ in range(60):
        value, survival = _price(log_p, log_q, order)
        slope = (order - 1) * (np.exp(survival + log_q - _log_survival(log_q)) / -np.expm1(survival) - 1)
        step = (value - price) / slope
        log_q = np.maximum(asymptote, log_q - step)
        if np.all(np.abs(step) <= 2.0**-26 * (log_p - log_q)):  # quadratic convergence: the next step would be 2**-52
            break
    return log_q


def _next_level_of_one(log_p: float, order: float, price: float, fall: float) -> float:
    """Do what `_next_level` does for a single table, forty times as fast: a table may have ten thousand levels."""
    asymptote = log_p + max(log_p - price, -price - math.log(order)) / (order - 1)
    log_q = max(asymptote, log_p - fall)
    kept_p = -math.inf if log_p == 0 else order * math.log1p(-math.exp(log_p))
    for _ in range(60):
        level = math.exp(log_q)
        survival = kept_p - (order - 1) * math.log1p(-level)
        lost = -math.expm1(survival)
        value = order * log_p - (order - 1) * log_q - math.log(lost)
        step = (value - price) / ((order - 1) * (math.exp(survival) * level / (1 - level) / lost - 1))
        log_q = max(asymptote, log_q - step)
        if abs(step) <= 2.0**-26 * (log_p - log_q):
            break
    return log_q


def build_table(*, order: float, price: float) -> tuple[int, ...]:
    """Return the levels from `ONE` down to `FLOOR`, each rounded up to a multiple of 2**-64."""
    inner = (price - order * _ROUNDING) / (1 + 2 * _MARGIN)
    if inner <= 0:
        raise InvalidInput(f"price={price!r} is too small to tell from rounding at order {order!r}")
    for cut in _CUTS:  # a level is found to half the digits only, which shows where the price is tiny
        table = _fall(order, inner * (1 - cut))
        if table_price(table, order=order) <= price * _BELOW:
            return table
    raise InvalidInput(f"price={price!r} is too small to tell from rounding at order {order!r}")


def _fall(order: float, price: float) -> tuple[int, ...]:
    """Return the levels, each so far below the one before that the step costs this price, but for rounding."""
    levels, log_level, fall = [ONE], 0.0, math.inf
    while levels[-1] > FLOOR:
        log_next = _next_level_of_one(log_level, order, price, fall)
        level = math.ceil(math.exp(log_next + _LOG_ONE) * (1 + 2.0**-44)) + 1
        levels.append(min(max(level, FLOOR), levels[-1] - 1))
        log_next = math.log(levels[-1]) - _LOG_ONE
        log_level, fall = log_next, 1.1 * (log_level - log_next)
    return tuple(levels)


def _exact_logs(level: int) -> tuple[float, float]:
    """Return log G and log(1 - G) for a level, from the integers: neither is lost to rounding near 0 or near 1."""
    part, rest = level / ONE, (ONE - level) / ONE
    if rest == 0:
        return 0.0, -math.inf
    return (math.log1p(-rest), math.log(rest)) if rest < 0.5 else (math.log(part), math.log1p(-part))


def table_price(table: tuple[int, ...], *, order: float) -> float:
    """Return the price of this table at this order, rounded up: the worst step between two consecutive levels."""
    logs, survival = np.array([_exact_logs(level) for level in table]).T
    if len(logs) < 2:
        return 0.0
    answers = order * survival[:-1] - (order - 1) * survival[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = order * logs[:-1] - (order - 1) * logs[1:] - np.log(-np.expm1(answers))
    if not np.isfinite(steps).all():
        raise InvalidInput("table must fall strictly from 2**64 to a positive level")
    return max(0.0, float(steps.max())) * (1 + _MARGIN) + order * _ROUNDING


def check_table(table: tuple[int, ...], *, order: float, price: float) -> None:
    """Refuse a table that does not fall from certainty, or costs more than its price at this order."""
    if not table or table[0] != ONE or any(a <= b for a, b in itertools.pairwise(table)):
        raise InvalidInput("table must fall strictly from 2**64 to a positive level")
    if exceeds(table_price(table, order=order), price):
        raise InvalidInput(f"table costs more than price={price!r} at order {order!r}; build it with build_table")


def levels_needed(order: Floats, price: Floats, *, miss: float, start: Floats | None = None) -> Floats:
    """Return, elementwise, how many levels down the probability of no quorum is `miss`, interpolated to thousandths.

    With `start`, only the smallest `start + 2 * levels` matters: the search stops when no other can be smaller, and
    leaves those at infinity.
    """
    log_level, target = np.zeros(order.shape), math.log(miss)
    needed = np.full(order.shape, np.inf)
    fall: Floats | None = None
    for level in itertools.count(1):
        below = _next_level(log_level, order, price, fall)
        reached = np.isinf(needed) & (below <= target)
        needed[reached] = level - 1 + (log_level[reached] - target) / (log_level[reached] - below[reached])
        waiting = np.isinf(needed)
        if start is not None and not waiting.all():
            waiting &= start + 2 * level < (start + 2 * needed).min()
        if not waiting.any():
            return stable_levels(needed)
        fall = 1.1 * (log_level - below)
        log_level = np.maximum(below, target - 1.0)  # candidates that are done idle
    raise AssertionError


@dataclass(frozen=True, kw_only=True)
class LookedUp(ThresholdMechanism):
    """One Gaussian threshold noise per run, and one look-up in a table of probabilities per query."""

    price: float
    margin: int
    threshold_scale: float
    table: tuple[int, ...] = field(repr=False)  # thousands of numbers

    def opening_cost(self, order: float) -> Cost:
        """Return the cost of the one threshold noise of a run."""
        order = check_finite_order(f"a {type(self).__name__}", order)
        return Cost(gaussian_renyi(scale=self.threshold_scale, order=order))  # proof: step 2; PROOF_dissent.md, step 2

    def no_quorum_cost(self, order: float) -> Cost:
        """Return the cost of one no-quorum."""
        order = check_finite_order(f"a {type(self).__name__}", order)
        price = self.price if order == self.order else stable_up(table_price(self.table, order=order))
        return Cost(price / (order - 1))  # proof: step 5; PROOF_dissent.md, step 5

    def least_no_quorum_charge(self, order: float) -> Cost:
        """Return the least that any processor charges for one no-quorum: at the order of the table, its price."""
        cost = self.no_quorum_cost(order)
        return cost if order == self.order else least_charge(cost)

    def draw_threshold_noise(self, noise: NoiseSource) -> int:
        """Draw the secret noise of a run's threshold."""
        return int(noise.gaussian(self.threshold_scale, 1)[0])

    @cached_property
    def last_words(self) -> NDArray[np.uint64]:
        """The largest word that means a no-quorum at each level; level 0 is certain and needs all of them."""
        words = np.array([level - 1 for level in self.table], dtype=np.uint64)
        words.flags.writeable = False
        return words


@dataclass(frozen=True, kw_only=True)
class Quorum(LookedUp):
    """A threshold mechanism: one threshold noise per run, one table look-up per query.

    Use `Quorum.calibrate`.

    `order` and `price` are the Renyi order of the table and its price s; `margin` is h and `threshold_scale` the scale
    of the discrete Gaussian mu in the threshold h - mu; `slack` bounds P(mu > h); `table` holds the probabilities of no
    quorum in units of 2**-64.

    >>> quorum = Quorum.calibrate(epsilon=1.0, delta=1e-6, teachers=5000, no_quorums=100)
    >>> quorum.distance() <= 538 * 1.03
    True
    >>> quorum.answers([[5000, 0, 0], [0, 100, 4900]]).labels
    array([0, 2])
    """

    slack: float

    def __post_init__(self) -> None:
        validate_fields(self, table=tuple(check_count("a level of the table", level) for level in self.table))
        check_table(self.table, order=self.order, price=self.price)  # proof: step 4
        if is_gaussian_tail_above(self.threshold_scale, self.margin, self.slack):  # proof: step 1
            raise InvalidInput(
                f"slack={self.slack!r} is below the probability that the threshold noise passes the margin"
            )

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, teachers: int, no_quorums: int) -> "Quorum":
        """Return the Quorum that answers at the smallest distance among those within (epsilon, delta)."""
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        teachers, no_quorums = check_count("teachers", teachers), check_count("no_quorums", no_quorums)
        best = best_settings(epsilon=epsilon, delta=delta, no_quorums=no_quorums)
        table = build_table(order=best.order, price=best.price)
        quorum = cls(teachers=teachers, no_quorums=no_quorums, table=table, **asdict(best))
        check_teachers(quorum)
        return quorum

    def opening_cost(self, order: float) -> Cost:
        """Return the cost of the one threshold noise of a run, with the slack for its tail."""
        return replace(super().opening_cost(order), slack=self.slack)  # proof: step 2

    def answer_probability(self, distance: int, *, threshold_noise: int = 0) -> float:
        """Return the probability that a query at this distance is answered. Depends on nothing private."""
        level = self.table_levels(np.array([distance]), threshold_noise)[0]
        return 1.0 - self.table[int(level)] / ONE

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which a query is answered at this rate, at threshold noise 0."""
        miss = 1.0 - check_rate("answer_rate", answer_rate)
        level = next((i for i, level in enumerate(self.table) if level <= miss * ONE), None)
        if level is None:
            raise Infeasible(f"answer_rate={answer_rate} is out of reach: the table ends at {1 - self.table[-1] / ONE}")
        return self.margin + 2 * level - 1

    def table_levels(self, distance: Labels, threshold_noise: int) -> Labels:
        """Return the level of the table at each distance: level i at 2i - 1 and 2i past the threshold."""
        beyond = distance + (threshold_noise - self.margin + 1)
        beyond >>= 1
        return np.clip(beyond, 0, len(self.table) - 1, out=beyond)

    def draw_decisions(self, counts: Counts, noise: NoiseSource) -> Decide:
        """Draw the noise of each query, and return the rule that gives it a label."""
        labels, distance = distances(counts)
        words = noise.words(len(counts))

        def decide(queries: slice, threshold_noise: int) -> Labels:
            last = self.last_words.take(self.table_levels(distance[queries], threshold_noise))
            return np.where(words[queries] > last, labels[queries], NO_QUORUM)  # proof: step 1

        return decide


_MISS = 0.01  # the distance is measured where 99 in 100 queries are answered at threshold noise 0
_PASSES = (  # factors tried around the best settings so far: order, share of the opening, share of slack
    ((0.6, 0.8, 1.0, 1.25, 1.6, 2.0), (0.2, 0.45, 1.0, 2.0, 3.5), (0.2, 1.0, 3.0)),
    ((0.86, 0.93, 1.0, 1.08, 1.16), (0.7, 0.85, 1.0, 1.2, 1.4), (0.5, 0.75, 1.0, 1.5)),
    ((0.96, 0.98, 1.0, 1.02, 1.04), (0.9, 0.95, 1.0, 1.05, 1.1), (0.8, 0.9, 1.0, 1.1, 1.25)),
)


@dataclass(frozen=True)
class Settings:
    """Public parameters of a Quorum that meets a target."""

    order: float
    threshold_scale: float
    margin: int
    slack: float
    price: float


def _settings(
    order: float, opening: float, slack: float, *, epsilon: float, delta: float, no_quorums: int
) -> Settings | None:
    """Return the settings that spend the whole target, or None where this order has nothing to spend."""
    capacity = to_capacity(epsilon, delta=delta * (1 - slack), order=order)
    if capacity <= 0:
        return None
    scale = math.sqrt(order / (2 * opening * capacity))
    margin = gaussian_tail_quantile(scale, delta * slack)
    tail = gaussian_tail(scale, margin)
    capacity = to_capacity(epsilon, delta=delta - tail, order=order)  # what the tail did not use goes back
    capacity -= (no_quorums + 1) / RENYI_QUANTA  # each charge is rounded up
    price = (capacity - gaussian_renyi(scale=scale, order=order)) * (order - 1) / no_quorums
    return Settings(order, scale, margin, tail, price * (1 - 2.0**-40)) if price > 0 else None


def best_settings(*, epsilon: float, delta: float, no_quorums: int) -> Settings:
    """Return the settings with the smallest distance for 99% answers, found on a grid refined twice."""

    def find_distances(tried: list[Settings]) -> Floats:
        orders, prices, margins = (
            np.array([float(getattr(settings, name)) for settings in tried]) for name in ("order", "price", "margin")
        )
        return margins + 2 * levels_needed(orders, prices, miss=_MISS, start=margins) - 1

    centre = (best_order(epsilon=epsilon, delta=delta * 0.9), 0.1, 0.1)
    settle = partial(_settings, epsilon=epsilon, delta=delta, no_quorums=no_quorums)
    return search_grid(centre, _PASSES, settle, find_distances)
