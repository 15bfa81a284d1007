"""DistributedMax: each site adds a share of discrete Gaussian noise to its counts, and the largest total wins.

Claim (replace-one units, one ballot per unit, at an honest site): the noisy totals, together with all that up to
`corrupt` of the sites know, are a release of Renyi divergence at most `renyi(order)`. The label is post-processing of
the totals and costs nothing more. No central party is trusted with a count. Proof: PROOF_distributed_max.md.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.checks import check_count, check_delta, check_finite_order, check_positive, validate_fields
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.base import Answers, Counts, check_votes_batch
from quorate.core.mechanisms.noisy_max import NoisyCounts
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.privacy import Budget, Cost, best_order, gaussian_renyi, price_of_each

_LEAST_SCALE = 0.5  # of a share: below it the bound on sums of shares says nothing
_MOST_SITES = 2**20
_UP = 1 + 2.0**-40


def share_distance(scale: float, shares: int) -> float:
    """Bound the log ratio between the distribution of a sum of shares and the discrete Gaussian of its variance.

    The bound holds at every whole number; it is 0 for one share, which has that distribution.
    """
    return sum(map(_step, (scale**2 * k / (k + 1) for k in range(1, shares)))) * _UP  # proof: step 2


def _step(variance: float) -> float:
    """Return what one more share adds: the theta function of this variance is all but constant. proof: step 1."""
    first = math.exp(-2 * math.pi**2 * variance)
    ripple = 2 * first / (1 - first**3)
    return math.log1p(ripple) - math.log1p(-ripple)


class NoisyTotals(np.ndarray):
    """Totals of counts to which every site has added its share of noise. Counts without noise do not qualify."""


@dataclass(frozen=True, kw_only=True)
class DistributedMax(NoisyCounts):
    """Discrete Gaussian noise of this scale from each site; up to `corrupt` sites may leave theirs out.

    A site applies `add_share` to its counts; `answers` takes the totals.

    >>> mechanism = DistributedMax.calibrate(
    ...     epsilon=1.0, delta=1e-6, teachers=2000, classes=2, queries=100, sites=20, corrupt=5
    ... )
    >>> alone = DistributedMax.calibrate(
    ...     epsilon=1.0, delta=1e-6, teachers=2000, classes=2, queries=100, sites=1, corrupt=0
    ... )
    >>> round(alone.scale / mechanism.scale, 3)  # fifteen honest sites share the noise of one
    3.873
    """

    sites: int
    corrupt: int = 0

    def __post_init__(self) -> None:
        sites, corrupt = check_count("sites", self.sites), check_count("corrupt", self.corrupt, least=0)
        if sites > _MOST_SITES or corrupt >= sites:
            raise InvalidInput(f"corrupt must be below sites={sites}, and sites at most {_MOST_SITES}, got {corrupt}")
        validate_fields(self, sites=sites, corrupt=corrupt)
        if self.scale < _LEAST_SCALE:
            raise InvalidInput(f"the scale of a share must be at least {_LEAST_SCALE}, got {self.scale!r}")

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float, teachers: int, classes: int, queries: int, sites: int, corrupt: int = 0
    ) -> "DistributedMax":
        """Return the DistributedMax with the least noise that can answer this many queries within (epsilon, delta)."""
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        queries = check_count("queries", queries)
        order = best_order(epsilon=epsilon, delta=delta)
        price = price_of_each(epsilon, delta=delta, order=order, times=queries, quanta=2)
        settings = {"teachers": teachers, "classes": classes, "sites": sites, "corrupt": corrupt}
        smallest = cls(scale=_LEAST_SCALE, **settings)
        scale = max(_LEAST_SCALE, math.sqrt(order / (price * smallest.honest)))
        while smallest.renyi_of(scale, order) > price:
            scale *= 1 + 2.0**-12
        return cls(scale=scale, **settings)

    @property
    def honest(self) -> int:
        """The least number of sites whose noise is in the totals."""
        return self.sites - self.corrupt

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in a total when every site adds its share."""
        return self.scale * math.sqrt(self.sites)

    def renyi_of(self, scale: float, order: float) -> float:
        """Return what one query would cost with shares of this scale."""
        order = check_finite_order("Gaussian noise", order)
        plain = gaussian_renyi(scale=scale * math.sqrt(self.honest), order=order)
        beyond = (2 * order - 1) / (order - 1) * share_distance(scale, self.honest)
        return 2 * (plain + beyond) * _UP  # one ballot moves two totals; proof: step 3

    def query_cost(self, order: float) -> Cost:
        """Return the cost of the noisy totals of one query."""
        return Cost(self.renyi_of(self.scale, order))

    def epsilon(self, *, delta: float, queries: int = 1) -> float:
        """Return the epsilon of this many adaptively chosen queries at `delta`."""
        queries = check_count("queries", queries)
        return smallest_epsilon(lambda order: queries * self.renyi(order), delta=delta)[0]

    def add_share(self, votes: Any, *, teachers: int) -> Counts:
        """Return the counts of one site with this many teachers, with the site's share of noise added to each."""
        return self.draw_share(check_votes_batch(votes, teachers=teachers, classes=self.classes), system_noise)

    def draw_share(self, counts: Counts, noise: NoiseSource) -> Counts:
        """Add a share that is drawn from this noise."""
        noisy: Counts = counts + noise.gaussian(self.scale, counts.size).reshape(counts.shape)  # proof: step 3
        return noisy

    def answers(self, votes: Any, *, budget: Budget | None = None) -> Answers:
        """Answer a batch of queries from noisy totals, charged to `budget` if there is one.

        Counts without noise are refused: the label would depend on them alone.
        """
        if not isinstance(votes, NoisyTotals) or votes.ndim != 2 or votes.shape[1] != self.classes:
            raise InvalidInput(f"DistributedMax takes the noisy totals of sites, one column for {self.classes} classes")
        return self.draw_answers(np.asarray(votes, dtype=np.int64), budget, system_noise)

    def answer(self, votes: Any, *, budget: Budget | None = None) -> int | None:
        """Answer one query from its noisy totals."""
        return int(self.answers(votes[np.newaxis, :], budget=budget).labels[0])

    def draw_labels(self, counts: Counts, noise: NoiseSource) -> NDArray[np.int64]:
        """Return the largest of each row. Nothing is drawn: the noise is in the totals. proof: step 4."""
        winners: NDArray[np.int64] = counts.argmax(axis=1)
        return winners
