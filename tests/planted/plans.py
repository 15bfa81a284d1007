"""Mistakes about what a plan pays: a table charged at an order that is not its own, and a spent epsilon that forgets.

Both are attacked by exact enumeration. Several queries are asked with the same votes; what is released on two
neighbouring data sets has a law that can be written down, and the claim is held against it.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planted.bug import Caught, maker_bug
from planted.exact import law_of_code
from quorate.core.arrays import Floats
from quorate.core.mechanisms import Quorum, SharpMajority
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.core.mechanisms.sharp_majority import build_table
from quorate.core.privacy import Budget, Cost

_TEACHERS = 6
_ORDER, _PRICE = 4.0, 0.02
_EPSILON, _QUERIES = 1.0, 40


class PriceOfAnotherOrder(SharpMajority):
    """Charges the price of its table at every order. Broken: the table is for one order, and larger ones cost more."""

    def query_cost(self, order: float) -> Cost:
        return Cost(self.price)


class ForgetsTheOpening(Budget):
    """Leaves the first charge, the opening of a run, out of what has been spent. Broken: answers tell by themselves."""

    __slots__ = ("_first",)

    def spend(self, cost: Cost, *, times: int = 1, releases: Sequence[Mapping[str, Any]] | None = None) -> None:
        if not hasattr(self, "_first"):
            self._first = cost
        super().spend(cost, times=times, releases=releases)

    def spent_epsilon(self) -> float:
        rest = Budget(epsilon=self.epsilon, delta=self.delta, order=self.order, slack=self.slack)
        left = self.spent().renyi - getattr(self, "_first", Cost(0.0)).renyi
        if left > 0:
            rest.spend(Cost(left))
        return rest.spent_epsilon()


@dataclass(frozen=True)
class _Reading:
    """A Quorum, and the kind of budget whose `spent_epsilon` is read when asking stops."""

    quorum: Quorum
    kind: type[Budget]

    def spent(self, no_quorums: int) -> float:
        quorum = self.quorum
        budget = self.kind(epsilon=2.0, delta=0.02, order=quorum.order, slack=quorum.slack)
        budget.spend(quorum.opening_cost(quorum.order))
        budget.spend(quorum.no_quorum_cost(quorum.order), times=no_quorums)
        return budget.spent_epsilon()


def _sharp(kind: type[SharpMajority]) -> SharpMajority:
    table = build_table(teachers=_TEACHERS, order=_ORDER, price=_PRICE)
    return kind(teachers=_TEACHERS, order=_ORDER, price=_PRICE, table=table)


def _reading(kind: type[Budget]) -> _Reading:
    return _Reading(Quorum.calibrate(epsilon=2.0, delta=0.02, teachers=200, no_quorums=1), kind)


def _beyond(p: Floats, q: Floats, epsilon: Floats | float) -> float:
    """Return by how much P exceeds e**epsilon Q: the smallest delta, the epsilon being that of each outcome."""
    return float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum())


def _pays_for_too_many(target: SharpMajority, plays: int, seed: int) -> Caught:
    """Ask as many queries as a budget of this epsilon and delta = 0 pays for, all with the same votes."""
    budget = Budget(epsilon=_EPSILON, delta=0.0)
    asked = budget.affordable(target.query_cost(budget.order))
    release = law_of_code(target, classes=2)
    ones = [float(release.outcomes((_TEACHERS - v, v)).ravel()[1]) for v in range(_TEACHERS + 1)]
    counts = np.arange(asked + 1)
    ways = np.array([math.comb(asked, int(count)) for count in counts])

    def law(one: float) -> Floats:
        return np.asarray(ways * one**counts * (1 - one) ** (asked - counts), dtype=np.float64)

    pairs = [(v, w) for v in range(_TEACHERS + 1) for w in (v - 1, v + 1) if 0 <= w <= _TEACHERS]
    delta = max(_beyond(law(ones[v]), law(ones[w]), _EPSILON) for v, w in pairs)
    text = f"{asked} queries at epsilon {_EPSILON:g} need a delta of {delta:.3g}, and 0 is claimed"
    return Caught("exact enumeration", text, found=delta > 1e-12)


def _run_laws(quorum: Quorum) -> Iterator[Floats]:
    """Yield, for one distance after another, the law of the number of answers before the first no-quorum."""
    reach = math.ceil(9 * quorum.threshold_scale) + 1
    noises, weights = range(-reach, reach + 1), gaussian_pmf(quorum.threshold_scale, reach)
    answers = np.arange(_QUERIES + 1)
    for distance in range(60):
        answered = np.array([quorum.answer_probability(distance, threshold_noise=noise) for noise in noises])
        each = answered[:, np.newaxis] ** answers
        each[:, :-1] *= 1 - answered[:, np.newaxis]  # the last outcome: all of them are answered
        yield weights @ each


def _spends_more_than_it_reads(target: _Reading, plays: int, seed: int) -> Caught:
    """Ask up to the first no-quorum, and hold what was spent, outcome by outcome, against both laws."""
    epsilon = np.full(_QUERIES + 1, target.spent(1))
    epsilon[-1] = target.spent(0)
    laws = list(_run_laws(target.quorum))
    pairs = [(a, b) for before, after in itertools.pairwise(laws) for a, b in ((before, after), (after, before))]
    delta = max(_beyond(p, q, epsilon) for p, q in pairs)
    text = f"what is read, {epsilon[-1]:.3g} or {epsilon[0]:.3g}, needs a delta of {delta:.3g} ex post, and has 0.02"
    return Caught("exact enumeration", text, found=delta > 0.02)


PLANS = (
    maker_bug("price_of_another_order", "enumeration", _sharp, PriceOfAnotherOrder, SharpMajority, _pays_for_too_many),
    maker_bug(
        "spent_forgets_the_opening", "enumeration", _reading, ForgetsTheOpening, Budget, _spends_more_than_it_reads
    ),
)
