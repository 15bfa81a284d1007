"""LaplaceSums releases sums with discrete Laplace noise: of public keys, or of keys whose noisy heads pass a threshold.

Claim (replace-one units; a unit moves all numbers together by at most `sensitivity`, the sum of absolute changes, for
every choice of published keys): a release of public keys is (sensitivity / scale, 0)-DP. Where keys are private and a
unit has at most `keys_per_unit` of them, with at most `head` in the head of each, one release costs sensitivity / scale
plus -log(1 - slack), with a tail event of probability `slack`. Proof: PROOF_laplace_sums.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_order, validate_fields
from quorate.core.errors import Infeasible
from quorate.core.mechanisms.distributions import laplace_tail, laplace_tail_quantile
from quorate.core.privacy import RENYI_QUANTA, Budget, Cost
from quorate.core.privacy.claims import Node, laplace_release

_UP = 1 + 2.0**-40  # above the rounding of the few operations before it
_LARGEST_SCALE = 2.0**40


@dataclass(frozen=True, kw_only=True)
class LaplaceSums:
    """Discrete Laplace noise on every number; with a threshold above 0, also on the head of every key that occurs.

    >>> budget = Budget(epsilon=1.0, delta=0.0)
    >>> sums = LaplaceSums.for_budget(budget, sensitivity=2)
    >>> noisy = sums.release(np.array([250, 730]), budget=budget)
    >>> bool((abs(noisy - [250, 730]) < 100).all()), round(sums.scale, 6)
    (True, 2.0)
    """

    sensitivity: int
    scale: float
    head: int = 1
    keys_per_unit: int = 1
    threshold: int = 0

    def __post_init__(self) -> None:
        validate_fields(self, threshold=check_count("threshold", self.threshold, least=0))

    @classmethod
    def for_budget(
        cls, budget: Budget, *, sensitivity: int, head: int = 1, keys_per_unit: int = 1, slack: float = 0.0
    ) -> "LaplaceSums":
        """Return the LaplaceSums of the least noise that all that is left of a budget of order infinity pays for.

        With a slack, the threshold is the lowest that the keys of a single unit pass with this probability.
        """
        price = budget.remaining().renyi + math.log1p(-slack) * _UP - 2 / RENYI_QUANTA
        if price <= 0 or sensitivity / price > _LARGEST_SCALE / 2:
            raise Infeasible("too little is left of the budget for this; raise epsilon or ask for less")
        scale = sensitivity / price * _UP
        above = _bound(scale, keys_per_unit, slack) if slack else 0  # proof: step 3
        threshold = (head + above) * bool(slack)
        return cls(sensitivity=sensitivity, scale=scale, head=head, keys_per_unit=keys_per_unit, threshold=threshold)

    @property
    def slack(self) -> float:
        """The probability that any key of a single unit passes, at most: 0 where keys are public. Rounded up."""
        return self.keys_per_unit * _tail(self.scale, self.threshold - self.head) if self.threshold else 0.0

    def release_cost(self, order: float) -> Cost:
        """Return the cost of one release, the same at every order."""
        check_order(order)
        return Cost(
            self.sensitivity / self.scale * _UP - math.log1p(-self.slack) * _UP, self.slack
        )  # proof: steps 1, 3

    def describe(self) -> Node:
        """Return the description of one release, for a claim."""
        keys = {"keys": self.keys_per_unit, "above": self.threshold - self.head} if self.threshold else {}
        return laplace_release(sensitivity=self.sensitivity, scale=self.scale, **keys)

    def release(self, vector: Any, *, budget: Budget | None = None) -> Integers:
        """Return a vector of whole numbers of public keys with noise, charged to `budget` if there is one."""
        return self.draw_release(np.asarray(vector, dtype=np.int64), budget, system_noise)

    def draw_release(self, vector: Integers, budget: Budget | None, noise: NoiseSource) -> Integers:
        """Charge for a vector, draw its noise from this source, and return the noisy vector."""
        if self.threshold:
            raise Infeasible("a threshold is for private keys; use release_keys")
        self._charge(budget)
        return self._add_noise(vector, noise)

    def release_keys(
        self,
        heads: Mapping[str, int],
        sums: Callable[[Sequence[str]], Any],
        *,
        budget: Budget | None = None,
    ) -> tuple[dict[str, int], Integers]:
        """Return the noisy heads of the keys that pass, in the order of the keys, and their noisy sums.

        Parameters
        ----------
        heads
            The exact head of each key that occurs, above 0.
        sums
            A function from the sequence of published keys to their exact sums, one vector of whole numbers.
        budget
            The budget to charge.
        """
        return self.draw_keys(heads, sums, budget, system_noise)

    def draw_keys(
        self,
        heads: Mapping[str, int],
        sums: Callable[[Sequence[str]], Any],
        budget: Budget | None,
        noise: NoiseSource,
    ) -> tuple[dict[str, int], Integers]:
        """Charge, draw the noise of heads and sums from this source, and return what is published."""
        if not self.threshold:
            raise Infeasible("private keys need a threshold; give for_budget a slack")
        self._charge(budget)
        passed = self._passed({key: head for key, head in heads.items() if head > 0}, noise)
        return passed, self._add_noise(np.asarray(sums(tuple(passed)), dtype=np.int64), noise)

    def _charge(self, budget: Budget | None) -> None:
        if budget is not None:
            budget.spend(self.release_cost(budget.order), releases=[self.describe()])  # charge, then draw

    def _passed(self, heads: Mapping[str, int], noise: NoiseSource) -> dict[str, int]:
        """Return the noisy heads above the threshold, sorted by key: proof: step 4."""
        keys = sorted(heads)
        noisy = np.array([heads[key] for key in keys], dtype=np.int64) + noise.laplace(self.scale, len(keys))
        return {key: head for key, head in zip(keys, noisy.tolist(), strict=True) if head > self.threshold}

    def _add_noise(self, vector: Integers, noise: NoiseSource) -> Integers:
        return vector + noise.laplace(self.scale, vector.size)  # proof: step 1


def _tail(scale: float, above: int) -> float:
    """Return P(noise > above), rounded up: proof: step 3."""
    return float(laplace_tail(scale, above + 1)) * _UP


def _bound(scale: float, keys: int, slack: float) -> int:
    """Return the least bound that the noise of one of this many keys of a unit passes with this probability."""
    return max(laplace_tail_quantile(scale, slack / keys / _UP**2), 0)
