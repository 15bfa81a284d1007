"""SharpMajority answers with the leading of two labels, as reliably as its price per query allows.

Claim (replace-one units, one ballot per unit): one query has Renyi divergence at most `renyi(order)`, for all votes.
Among rules that answer a query from its own votes alone and cost no more at the order of the table, for every query,
none is right more often at any lead, averaged over which label leads, up to the rounding of the table. This says
nothing about rules priced at another order, or about those that do not pay for every query, such as Quorum. Proof:
PROOF.md.
"""

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_rate, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts, QueryMechanism
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.mechanisms.rounding import exceeds, stable_up
from quorate.core.mechanisms.sharp_majority.table import FLOOR, HALF, ONE, build_table, table_cost
from quorate.core.noise import NoiseSource
from quorate.core.privacy import RENYI_QUANTA, Cost, best_order, to_capacity, to_epsilon

__all__ = ["SharpMajority"]

_FACTORS = (0.8, 1.3, 2.0, 4.0, 16.0)  # of the usual order, tried where tables are short; infinity always is
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

    teachers: int
    order: float
    price: float
    table: tuple[int, ...] = field(repr=False)  # thousands of numbers

    def __post_init__(self) -> None:
        validate_fields(self)
        table = self.table
        whole = isinstance(table, tuple) and len(table) > 0 and all(type(level) is int for level in table)
        if not whole or max(table) > HALF or min(table) < FLOOR:
            raise InvalidInput("table must be a tuple of whole numbers from 2**24 to 2**63; build it with build_table")
        if any(after > before for before, after in itertools.pairwise(table)):
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
        others = [1 + (usual - 1) * factor for factor in _FACTORS] if len(best.table) <= _SHORT else []
        if _pure_errors(epsilon / queries, teachers) < best.expected_errors():  # else its table, a long one, is spared
            others.append(math.inf)
        for other in others:
            if to_capacity(epsilon, delta=delta, order=other) > queries / RENYI_QUANTA:
                candidate = cls._at(other, epsilon, delta, teachers, queries)
                best = min(best, candidate, key=cls.expected_errors)
        return best

    @classmethod
    def _at(cls, order: float, epsilon: float, delta: float, teachers: int, queries: int) -> "SharpMajority":
        each = to_capacity(epsilon, delta=delta, order=order) / queries - 1 / RENYI_QUANTA  # each is rounded up
        if each <= 0:
            raise Infeasible(f"{queries} queries leave less than one quantum for each; ask fewer")
        return cls(
            teachers=teachers, order=order, price=each, table=build_table(teachers=teachers, order=order, price=each)
        )

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
        own = plain
        if self.order < math.inf:
            own = to_epsilon(queries * self.renyi(self.order), order=self.order, delta=delta)
        return min(plain, own, smallest_epsilon(lambda order: queries * self.renyi(order), delta=delta)[0])

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
    """Return a lower bound on the expected errors of the table at order infinity (PROOF.md, step 6), unbuilt."""
    price = min(price, 700.0)
    first = 0.5 if teachers % 2 == 0 else 1 / (1 + math.exp(price))
    return first * math.expm1(-price * (teachers // 2 + 1)) / math.expm1(-price) * (1 - 2.0**-30)


@lru_cache(maxsize=4096)
def _cost(table: tuple[int, ...], teachers: int, order: float) -> float:
    return table_cost(table, teachers=teachers, order=order)
