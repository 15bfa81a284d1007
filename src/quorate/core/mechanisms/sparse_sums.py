"""SparseSums publishes the keys of private rows whose noisy heads pass a threshold, and sums for these keys.

Claim (replace-one units; a unit has at most `keys_per_unit` keys, adds at most `head` to the head of each, and for
every choice of published keys moves all heads and all sums together by a squared length of at most
`squared_sensitivity`): one release costs order / 2 * squared_sensitivity / scale**2 plus -log(1 - slack) at every
order, with a tail event of probability `slack`. A key of a single unit is published with probability at most `slack`,
over all keys of that unit together. Proof: PROOF_sparse_sums.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.arrays import Integers
from quorate.core.checks import check_finite_order, validate_fields
from quorate.core.mechanisms.noisy_vector import NoisyVector, NoisyVectors
from quorate.core.mechanisms.sparse_histogram import noise_bound, single_key_chance
from quorate.core.privacy import Cost

_UP = 1 + 2.0**-40

SumsOfKeys = Callable[[Sequence[str]], Any]  # exact sums, as one vector of whole numbers, when these keys are published


@dataclass(frozen=True, kw_only=True)
class SparseSums:
    """Discrete Gaussian noise on the head of every key that occurs, and then on the sums of the keys that pass.

    >>> sums = SparseSums.for_slack(head=4, keys_per_unit=1, squared_sensitivity=64, scale=30.0, slack=1e-6)
    >>> heads = {"north": 4000, "a rare place": 4}
    >>> noisy, [total] = sums.release(heads, lambda keys: np.array([sum(heads[key] for key in keys)]))
    >>> list(noisy), bool(abs(total - 4000) < 300)
    (['north'], True)
    """

    head: int
    keys_per_unit: int
    squared_sensitivity: int
    scale: float
    threshold: int

    def __post_init__(self) -> None:
        validate_fields(self)

    @classmethod
    def for_slack(
        cls, *, head: int, keys_per_unit: int, squared_sensitivity: int, scale: float, slack: float
    ) -> "SparseSums":
        """Return the SparseSums of this noise with the lowest threshold that single keys pass with this probability."""
        return cls(
            head=head,
            keys_per_unit=keys_per_unit,
            squared_sensitivity=squared_sensitivity,
            scale=scale,
            threshold=head + noise_bound(keys=keys_per_unit, scale=scale, slack=slack),  # proof: step 2
        )

    @property
    def slack(self) -> float:
        """The probability that any key of a single unit passes, at most. Rounded up."""
        above = self.threshold - self.head
        return single_key_chance(columns=self.keys_per_unit, scale=self.scale, threshold=above + 1)  # proof: step 2

    def renyi(self, order: float) -> float:
        """Return an upper bound on the divergence of one release at this order, outside the tail event."""
        order = check_finite_order("a SparseSums", order)
        return (order / 2 * self.squared_sensitivity / self.scale**2 - math.log1p(-self.slack)) * _UP  # proof: step 3

    def release_cost(self, order: float) -> Cost:
        """Return the cost of one release."""
        return Cost(self.renyi(order), self.slack)

    def release(self, heads: Mapping[str, int], sums: SumsOfKeys) -> tuple[dict[str, int], Integers]:
        """Return the noisy heads of the keys that pass, in the order of the keys, and their noisy sums.

        Parameters
        ----------
        heads
            The exact head of each key that occurs, above 0.
        sums
            A function from the sequence of published keys to their exact sums, one vector of whole numbers.
        """
        return self.draw_release(heads, sums, None)

    def draw_release(
        self, heads: Mapping[str, int], sums: SumsOfKeys, noise: NoiseSource | None
    ) -> tuple[dict[str, int], Integers]:
        """Draw the noise of heads and sums from this source, and return what is published."""
        source = system_noise if noise is None else noise
        passed = self._passed({key: head for key, head in heads.items() if head > 0}, source)
        vector = NoisyVector(squared_sensitivities=(self.squared_sensitivity,), scales=(self.scale,))
        [noisy] = vector.draw_release([sums(tuple(passed))], None, source)  # proof: step 1
        return passed, noisy

    def _passed(self, heads: Mapping[str, int], source: NoiseSource) -> dict[str, int]:
        """Return the noisy heads above the threshold, sorted by key: proof: step 4."""
        keys = sorted(heads)
        exact = np.array([heads[key] for key in keys], dtype=np.int64)
        noisy: Integers = exact + source.gaussian(self.scale, len(keys))
        return {key: head for key, head in zip(keys, noisy.tolist(), strict=True) if head > self.threshold}

    @classmethod
    def release_within(
        cls,
        vectors: NoisyVectors,
        heads: Mapping[str, int],
        sums: SumsOfKeys,
        *,
        head: int,
        keys_per_unit: int,
        squared_sensitivity: int,
        slack: float,
        fraction: float,
    ) -> tuple[dict[str, int], Integers, "SparseSums"]:
        """Return what `release` does, paid with a fraction of what these vectors have left and a slack of their budget.

        The mechanism itself comes last: its scale and threshold are public.
        """
        scale = vectors.charge_thresholded(squared_sensitivity=squared_sensitivity, fraction=fraction, slack=slack)
        mechanism = cls.for_slack(  # proof: step 5
            head=head, keys_per_unit=keys_per_unit, squared_sensitivity=squared_sensitivity, scale=scale, slack=slack
        )
        vectors.describe_thresholded(squared_sensitivity, scale, keys=keys_per_unit, above=mechanism.threshold - head)
        return *mechanism.release(heads, sums), mechanism
