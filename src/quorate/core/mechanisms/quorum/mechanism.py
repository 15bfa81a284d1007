"""Quorum answers with the top label if it is far enough from changing, and with "no quorum" otherwise.

Claim (replace-one units, one ballot per unit): a run of any number of adaptively chosen queries that stops after
`no_quorums` no-quorums has Renyi divergence at most `renyi(order)` at every order, outside a tail event of
probability at most `slack`. An answer is free; opening the run and each no-quorum are paid. Proof: PROOF.md.
"""

from dataclasses import asdict, dataclass

import numpy as np

from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_rate, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.base import Counts, Decide, Labels, distances, too_few_teachers
from quorate.core.mechanisms.distributions import is_gaussian_tail_above
from quorate.core.mechanisms.quorum.calibrate import best_settings
from quorate.core.mechanisms.quorum.table import ONE, LookedUp, build_table, check_table, table_price
from quorate.core.mechanisms.rounding import stable_up
from quorate.core.noise import NoiseSource
from quorate.core.privacy import Cost, gaussian_renyi
from quorate.core.requests import NO_QUORUM

__all__ = ["Quorum"]


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
        if quorum.answer_probability((teachers + 1) // 2 - 1) < 0.5:
            raise too_few_teachers(quorum, 2 * quorum.distance() + 1)
        return quorum

    def opening_cost(self, order: float) -> Cost:
        """Return the cost of the one threshold noise of a run."""
        self._check_finite(order)
        return Cost(gaussian_renyi(scale=self.threshold_scale, order=order), self.slack)  # proof: step 2

    def no_quorum_cost(self, order: float) -> Cost:
        """Return the cost of one no-quorum."""
        self._check_finite(order)
        price = self.price if order == self.order else stable_up(table_price(self.table, order=order))
        return Cost(price / (order - 1))  # proof: step 5

    def _check_finite(self, order: float) -> None:
        if check_order(order) == np.inf:
            raise InvalidInput("a Quorum is charged at a finite order; open the budget at one, with delta above 0")

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
