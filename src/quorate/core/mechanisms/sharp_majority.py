"""SharpMajority answers with the leading of two labels, as reliably as its price per query allows.

Claim (replace-one units, one ballot per unit): one query has Renyi divergence at most `renyi(order)`, for all votes.
Among rules that answer a query from its own votes alone and cost no more at the order of the table, for every query,
none is right more often at any lead, averaged over which label leads, up to the rounding of the table. This says
nothing about rules priced at another order, or about those that do not pay for every query, such as Quorum. Proof:
PROOF_sharp_majority.md.
"""

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource
from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts, QueryMechanism
from quorate.core.mechanisms.distributions import stable_up
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.privacy import RENYI_QUANTA, Cost, best_order, exceeds, price_of_each, to_capacity, to_epsilon
from quorate.core.privacy.cost import halve_interval

_FACTORS = ((0.8,), (1.3, 2.0, 4.0, 16.0))  # of the usual order, downwards and upwards, tried where tables are short
_SHORT = 400  # levels


@dataclass(frozen=True, kw_only=True)
class SharpMajority(QueryMechanism):
    """One table look-up and one random word per query. Use `SharpMajority.calibrate`.

    `table` holds the probabilities of the wrong label in units of 2**-64, by lead. `order` is the Renyi order for which
    it is best, and `price` the largest cost of a query at it: charge it to a budget of that order.

    >>> sharp = SharpMajority.calibrate(epsilon=1.0, delta=1e-6, teachers=2000, queries=1000)
    >>> sharp.distance() < 210
    True
    >>> sharp.answers([[2000, 0], [100, 1900]]).labels
    array([0, 1])
    """

    order: float
    price: float
    table: tuple[int, ...] = field(repr=False)  # thousands of numbers

    def __post_init__(self) -> None:
        super().__post_init__()
        table = self.table
        integral = isinstance(table, tuple) and len(table) > 0 and all(type(level) is int for level in table)
        if not integral or max(table) > HALF or min(table) < FLOOR:
            raise InvalidInput("table must be a tuple of whole numbers from 2**24 to 2**63; build it with build_table")
        if any(following > current for current, following in itertools.pairwise(table)):
            raise InvalidInput("table must fall with the lead; build it with build_table")
        if self.teachers % 2 == 0 and table[0] != HALF:  # proof: step 1
            raise InvalidInput("table must start at 2**63, a fair coin, where an even number of teachers may tie")
        if exceeds(_cost(self.table, self.teachers, self.order), self.price):  # proof: step 2
            raise InvalidInput(f"table costs more than price={self.price!r} at order {self.order!r}")

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float, teachers: int, queries: int, order: float | None = None
    ) -> "SharpMajority":
        """Return the SharpMajority that can answer this many queries within (epsilon, delta). Delta may be 0.

        The order is the one given, or the one of several with the fewest `expected_errors`; infinity, whose table needs
        no delta, is always among them.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
        teachers, queries = check_count("teachers", teachers), check_count("queries", queries)
        if order is not None or delta == 0:
            order = math.inf if order is None else check_order(order)
            return cls._at(order, epsilon, delta, teachers, queries)
        usual = best_order(epsilon=epsilon, delta=delta)
        best = cls._at(usual, epsilon, delta, teachers, queries)
        walks = [[1 + (usual - 1) * factor for factor in factors] for factors in _FACTORS]
        if len(best.table) > _SHORT:
            walks = []
        if _pure_errors(epsilon / queries, teachers) < best.expected_errors():  # else its table, a long one, is spared
            walks.append([math.inf])
        for walk in walks:
            for other in walk:  # errors fall and then rise with the order: the first that is no better ends the walk
                if to_capacity(epsilon, delta=delta, order=other) <= queries / RENYI_QUANTA:
                    continue
                candidate = cls._at(other, epsilon, delta, teachers, queries, most_errors=best.expected_errors())
                if candidate.expected_errors() >= best.expected_errors():
                    break
                best = candidate
        return best

    @classmethod
    def _at(
        cls,
        order: float,
        epsilon: float,
        delta: float,
        teachers: int,
        queries: int,
        *,
        most_errors: float = math.inf,
    ) -> "SharpMajority":
        price = price_of_each(epsilon, delta=delta, order=order, times=queries)
        table = build_table(teachers=teachers, order=order, price=price, most_errors=most_errors)
        return cls(teachers=teachers, order=order, price=price, table=table)

    def expected_errors(self) -> float:
        """Return the sum, over all leads that these teachers can have, of the probability of the wrong label.

        `calibrate` keeps it small. No single lead would do: the tables of two orders may cross.
        """
        levels = self.teachers // 2 + 1
        return (sum(self.table) + (levels - len(self.table)) * self.table[-1]) / ONE

    def query_cost(self, order: float) -> Cost:
        """Return the cost of one answer."""
        cost = stable_up(_cost(self.table, self.teachers, check_order(order)))
        return Cost(min(cost, self.price) if order == self.order else cost)

    def epsilon(self, *, delta: float, queries: int = 1) -> float:
        """Return the epsilon of this many adaptively chosen queries at `delta`."""
        queries = check_count("queries", queries)
        plain = queries * self.renyi(math.inf)
        if check_delta(delta) == 0:
            return plain
        at_own_order = plain
        if self.order < math.inf:
            at_own_order = to_epsilon(queries * self.renyi(self.order), order=self.order, delta=delta)
        return min(plain, at_own_order, smallest_epsilon(lambda order: queries * self.renyi(order), delta=delta)[0])

    def answer_probability(self, lead: int) -> float:
        """Return the probability that a label with this lead is answered. Depends on nothing private."""
        lead = check_count("lead", lead, least=0)
        if lead > self.teachers or lead % 2 != self.teachers % 2:
            raise InvalidInput(f"with teachers={self.teachers} nobody leads by {lead}")
        return 1.0 - self.table[min(lead // 2, len(self.table) - 1)] / ONE

    def distance(self, *, answer_rate: float = 0.99) -> int:
        """Return the smallest distance at which the leading label is answered at this rate."""
        miss = (1.0 - check_rate("answer_rate", answer_rate)) * ONE
        level = next((i for i, wrong in enumerate(self.table) if wrong <= miss), None)
        if level is None:
            raise Infeasible(f"answer_rate={answer_rate} is out of reach with teachers={self.teachers}")
        return max(0, math.ceil((2 * level + self.teachers % 2) / 2) - 1)

    def vote_columns(self) -> int:
        """Return how many classes the votes must have."""
        return 2

    @cached_property
    def _levels(self) -> NDArray[np.uint64]:
        return np.array(self.table, dtype=np.uint64)

    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Draw an answer to each query."""
        lead = counts[:, 1] - counts[:, 0]
        wrong = self._levels.take(np.abs(lead) >> 1, mode="clip")
        errs = noise.words(len(counts)) < wrong  # proof: step 1
        labels: NDArray[np.int64] = ((lead > 0) ^ errs).astype(np.int64)
        return labels


def _pure_errors(price: float, teachers: int) -> float:
    """Return a lower bound on the expected errors of the table at order infinity (PROOF_sharp_majority.md, step 6),
    unbuilt.
    """
    price = min(price, 700.0)
    first = 0.5 if teachers % 2 == 0 else 1 / (1 + math.exp(price))
    return first * math.expm1(-price * (teachers // 2 + 1)) / math.expm1(-price) * (1 - 2.0**-30)


@lru_cache(maxsize=4096)
def _cost(table: tuple[int, ...], teachers: int, order: float) -> float:
    return table_cost(table, teachers=teachers, order=order)


ONE = 2**64
HALF = 2**63
FLOOR = 2**24  # in units of 2**-64: the wrong label still comes up once in 10**12
_MARGIN, _ROUNDING = 2.0**-30, 2.0**-60  # above the error of a divergence in doubles; tests hold it against decimals
_BELOW = 1 - 2.0**-44  # A table is built this far below its price, so that another processor accepts it.
_ENOUGH = 2.0**-18  # A Newton step of this relative size leaves an error of its square.
_LEAST_PRICE = 2.0**-44
_MOST_PRICE = 27.0  # at which a single ballot leads from one end of the table to the other


class _Coins:
    """The probabilities of a wrong and of a right answer, level by level, each from the integers, rounded once."""

    def __init__(self, levels: list[int]) -> None:
        self.wrong = np.array([level / ONE for level in levels])
        self.right = np.array([(ONE - level) / ONE for level in levels])


def _log_ratio(p: Floats, q: Floats, change: Floats) -> Floats:
    """Return log(after / before), where `change` is their difference, unrounded: without cancellation either way."""
    near = np.abs(change) <= p / 2
    ratio: Floats = np.where(near, np.log1p(np.where(near, change, 0.0) / p), np.log(q) - np.log(p))
    return ratio


def _log_sums(coins: _Coins, changes: Floats, order: float) -> Floats:
    """Return log sum P**order Q**(1 - order) for each coin P and the next one Q, and with their roles exchanged.

    Where it is small, one is taken out of the sum term by term, so that nothing cancels but their first orders.
    """
    first = slice(None, -1), slice(1, None)
    sums = []
    for (p, q), change in ((first, changes), (first[::-1], -changes)):
        wrong, right = coins.wrong[p], coins.right[p]
        log_wrong = (1 - order) * _log_ratio(wrong, coins.wrong[q], change)
        log_right = (1 - order) * _log_ratio(right, coins.right[q], -change)
        with np.errstate(over="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(wrong * np.expm1(log_wrong) + right * np.expm1(log_right), 0.0))
        large = np.logaddexp(np.log(wrong) + log_wrong, np.log(right) + log_right)
        sums.append(np.where(np.maximum(log_wrong, log_right) < 1.0, small, large))
    worst: Floats = np.maximum(*sums)
    return worst


def table_cost(table: tuple[int, ...], *, teachers: int, order: float) -> float:
    """Return the divergence of one answer at this order, rounded up: the worst step that a ballot can make."""
    levels = list(table) if teachers % 2 == 0 else [ONE - table[0], *table]
    if len(levels) < 2:
        return 0.0
    coins = _Coins(levels)
    changes = np.array([(following - level) / ONE for level, following in itertools.pairwise(levels)])
    if math.isinf(order):
        wrong = _log_ratio(coins.wrong[:-1], coins.wrong[1:], changes)
        right = _log_ratio(coins.right[:-1], coins.right[1:], -changes)
        worst = float(np.maximum(np.abs(wrong), np.abs(right)).max())
    else:
        worst = float(_log_sums(coins, changes, order).max()) / (order - 1)
    return worst * (1 + _MARGIN) + _ROUNDING


def _guess_fall(falls: tuple[float, float, float], wrong: float, order: float, price: float) -> float:
    """Return the next fall by those before it: its logarithm follows a parabola, or a line where there are two."""
    first, second, third = falls
    if third:
        return first * (first / second) ** 2 * (third / second)
    return first * first / second if second else math.sqrt(2 * price / order * (1 - wrong) / wrong)


def _next_fall(wrong: float, order: float, price: float, guess: float) -> float:
    """Return about the largest fall of log(wrong) that this price allows, at a finite order.

    The logarithm of the cost is nearly linear in the logarithm of the fall, where Newton's method is exact: from a
    guess by the falls before, one step is enough. Where a step leaves the bracket, the bracket is halved.
    """
    low, high, fall = 0.0, math.log(wrong * ONE / FLOOR) + 1.0, guess
    for _ in range(200):
        if not low < fall < high:
            fall = (low + high) / 2
        cost, slope = _cost_of_fall(wrong, fall, order)
        low, high = (fall, high) if cost <= price else (low, fall)
        if cost <= 0 or slope <= 0:
            fall *= 2.0
            continue
        step = math.log(price / cost) * cost / (slope * fall)
        if abs(step) <= _ENOUGH:
            return min(fall * math.exp(step), high * (1 + _ENOUGH))
        fall *= math.exp(min(step, 1.0))
    return low


def _cost_of_fall(wrong: float, fall: float, order: float) -> tuple[float, float]:
    """Return the divergence of (wrong, 1 - wrong) from the next coin, and its derivative by the fall, to build by.

    It is the larger of both directions, since the next coin is the less even one; `table_cost` charges for either.
    """
    next_wrong, right = wrong * math.exp(-fall), 1 - wrong
    growth = (order - 1) * fall
    if growth > 500:
        return (math.log(wrong) + growth) / (order - 1), 1.0
    grown = math.expm1(growth)
    shrunk = math.expm1((1 - order) * math.log1p(-wrong * math.expm1(-fall) / right))
    excess = wrong * grown + right * shrunk
    slope = (wrong * (1 + grown) - right * (1 + shrunk) * next_wrong / (1 - next_wrong)) / (1 + excess)
    return math.log1p(max(excess, 0.0)) / (order - 1), slope


def _cost_of_swap(u: float, order: float) -> float:
    """Return about the divergence of the coins (u, 1 - u) and (1 - u, u): to build by, not to charge."""
    growth = (order - 1) * (math.log1p(-u) - math.log(u))
    if growth > 500:
        return (math.log1p(-u) + growth) / (order - 1)  # and next to nothing
    return math.log1p(max(0.0, u * math.expm1(-growth) + (1 - u) * math.expm1(growth))) / (order - 1)


def _first(order: float, price: float) -> float:
    """Return the smallest probability u for which (u, 1 - u) and (1 - u, u) are within this price."""
    if math.isinf(order):
        return 1 / (1 + math.exp(price))
    return halve_interval(0.0, 0.5, lambda u: _cost_of_swap(u, order) > price, steps=200)[1]


def _levels(teachers: int, order: float, price: float, most_errors: float) -> tuple[int, ...]:
    levels = [HALF if teachers % 2 == 0 else max(FLOOR, _up(_first(order, price)))]
    falls, errors = (0.0, 0.0, 0.0), 0.0  # the last three falls of the logarithm, the latest first
    while levels[-1] > FLOOR and len(levels) <= teachers // 2 and errors <= most_errors:
        wrong = levels[-1] / ONE
        errors += wrong
        if math.isinf(order):
            following = max(wrong * math.exp(-price), 1 - (1 - wrong) * math.exp(price))
        else:
            following = wrong * math.exp(-_next_fall(wrong, order, price, _guess_fall(falls, wrong, order, price)))
        levels.append(min(max(_up(following), FLOOR), levels[-1] - 1))
        falls = (math.log(wrong * ONE / levels[-1]), falls[0], falls[1])
    return tuple(levels)


@lru_cache(maxsize=64)
def build_table(*, teachers: int, order: float, price: float, most_errors: float = math.inf) -> tuple[int, ...]:
    """Return the levels from a tie, or a lead of one, down to `FLOOR`, each rounded up to a multiple of 2**-64.

    The table ends early once its levels add up to more than `most_errors`.
    """
    if price <= _LEAST_PRICE:
        raise InvalidInput(f"price={price!r} is too small to tell from rounding")
    spare = 4 * _MARGIN
    while True:  # what is built by a quick cost is held against the certified one
        table = _levels(teachers, order, (min(price, _MOST_PRICE) - _ROUNDING) * (1 - spare), most_errors)
        if _cost(table, teachers, order) <= price * _BELOW:
            return table
        spare *= 4


def _up(probability: float) -> int:
    return min(HALF, math.ceil(probability * ONE * (1 + 2.0**-48)))
