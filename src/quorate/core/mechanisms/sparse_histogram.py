"""SparseHistogram publishes the keys of private lists whose noisy counts pass a threshold, with these counts.

Claim (replace-one units; a unit has at most one key in each of `columns` lists): one release costs
order * columns / scale**2 plus -log(1 - slack) at every order, with a tail event of probability `slack`; and alone it
is (epsilon, `delta(epsilon=epsilon)`)-DP. A key of a single unit is published with probability at most `slack`, over
all lists together. Proof: PROOF_sparse_histogram.md.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_delta, check_finite_order, check_positive, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.distributions import gaussian_tail, gaussian_tail_quantile
from quorate.core.mechanisms.noisy_vector import ROUNDING_VARIANCE, NoisyVectors, discrete_delta
from quorate.core.privacy import Budget, Cost

_UP = 1 + 2.0**-40
_LARGEST_TABLE_SCALE = 2.0**16  # up to which the tail is a sum over the law; above it a bound takes its place
_SLACK_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)  # of delta, tried by `calibrate`
_HALVINGS = 48


@dataclass(frozen=True, kw_only=True)
class SparseHistogram:
    """Discrete Gaussian noise on the count of every key that occurs; a key is published above the threshold.

    >>> histogram = SparseHistogram.calibrate(epsilon=1.0, delta=1e-6, columns=1)
    >>> histogram.release([{"red": 5000, "green": 4000, "a name": 1}])[0].keys()
    dict_keys(['green', 'red'])
    """

    columns: int
    scale: float
    threshold: int

    def __post_init__(self) -> None:
        validate_fields(self)

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, columns: int) -> "SparseHistogram":
        """Return the SparseHistogram of the lowest threshold that can be released once within (epsilon, delta)."""
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        columns = check_count("columns", columns)
        histograms = [cls._with_slack(epsilon, delta, columns, delta * share) for share in _SLACK_SHARES]
        sound = [histogram for histogram in histograms if histogram is not None]
        if not sound:
            raise Infeasible(f"no noise below 2**20 keeps epsilon={epsilon}, delta={delta}; raise either")
        return min(sound, key=lambda histogram: histogram.threshold)

    @classmethod
    def _with_slack(cls, epsilon: float, delta: float, columns: int, slack: float) -> "SparseHistogram | None":
        """Return the smallest noise within (epsilon, delta) where single keys pass with probability `slack`."""
        low, high = 1.0, 2.0**20
        best = None
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            tried = cls.for_slack(columns=columns, scale=middle, slack=slack)
            if tried.delta(epsilon=epsilon) <= delta:
                best, high = tried, middle
            else:
                low = middle
        return best

    @classmethod
    def for_slack(cls, *, columns: int, scale: float, slack: float) -> "SparseHistogram":
        """Return the histogram of this noise with the lowest threshold that single keys pass with this probability."""
        return cls(columns=columns, scale=scale, threshold=1 + noise_bound(keys=columns, scale=scale, slack=slack))

    @property
    def slack(self) -> float:
        """The probability that any key of a single unit passes, at most. Rounded up."""
        return single_key_chance(columns=self.columns, scale=self.scale, threshold=self.threshold)

    @property
    def squared_sensitivity(self) -> int:
        """The squared length by which a replaced unit moves the counts: two keys in each list."""
        return 2 * self.columns  # proof: step 1

    def renyi(self, order: float) -> float:
        """Return an upper bound on the divergence of one release at this order, outside the tail event."""
        order = check_finite_order("a SparseHistogram", order)
        return (order / 2 * self.squared_sensitivity / self.scale**2 - math.log1p(-self.slack)) * _UP  # proof: step 3

    def release_cost(self, order: float) -> Cost:
        """Return the cost of one release."""
        return Cost(self.renyi(order), self.slack)

    def delta(self, *, epsilon: float) -> float:
        """Return the delta of one release and nothing else at this epsilon: the worst case over keys of one unit."""
        variance = self.scale**2 - ROUNDING_VARIANCE
        if variance <= 0:
            return 1.0
        log_hidden = math.log1p(-_tail(self.scale, self.threshold - 1))  # of the chance that a single key is dropped
        worst = 0.0
        for added in range(self.columns + 1):
            for removed in range(self.columns + 1):  # proof: step 4
                changed = self.squared_sensitivity - added - removed
                revealed = -math.expm1(added * log_hidden) * _UP
                excess = epsilon + (removed - added) * log_hidden
                shared = (
                    discrete_delta(excess, math.sqrt(changed / variance) * _UP, entries=changed) if changed else 0.0
                )
                if excess < 0:
                    shared = 1.0
                worst = max(worst, revealed + shared)
        return min(1.0, worst)

    def release(
        self,
        lists: Sequence[Mapping[str, int]],
        *,
        known: Sequence[Collection[str]] = (),
        budget: Budget | None = None,
    ) -> list[dict[str, int]]:
        """Return the noisy counts of the keys that pass, by list, in the order of the keys.

        `known` has for each list the keys that are public: they are published whatever their count.
        """
        return self.draw_release(lists, known, budget, None)

    def draw_release(
        self,
        lists: Sequence[Mapping[str, int]],
        known: Sequence[Collection[str]],
        budget: Budget | None,
        noise: NoiseSource | None,
    ) -> list[dict[str, int]]:
        """Charge for the lists, draw their noise from this source, and return what passes."""
        if len(lists) > self.columns or (known and len(known) != len(lists)):
            raise InvalidInput(
                f"this mechanism has {self.columns} lists, got {len(lists)} and {len(known)} of known keys"
            )
        if budget is not None:
            budget.spend(self.release_cost(budget.order))  # charge, then draw
        source = system_noise if noise is None else noise
        public = known or [()] * len(lists)
        return [self._passed(counts, always, source) for counts, always in zip(lists, public, strict=True)]

    def _passed(self, counts: Mapping[str, int], always: Collection[str], source: NoiseSource) -> dict[str, int]:
        """Return the noisy counts above the threshold, and those of public keys, sorted: proof: step 1."""
        raw = {key: count for key, count in counts.items() if count > 0} | {key: counts.get(key, 0) for key in always}
        keys = sorted(raw)  # proof: step 5: the order of private rows must not show
        noisy: Integers = np.array([raw[key] for key in keys], dtype=np.int64) + source.gaussian(self.scale, len(keys))
        public = frozenset(always)
        pairs = zip(keys, noisy.tolist(), strict=True)
        return {key: count for key, count in pairs if count > self.threshold or key in public}

    @classmethod
    def release_within(
        cls,
        vectors: NoisyVectors,
        lists: Sequence[Mapping[str, int]],
        *,
        slack: float,
        fraction: float,
        known: Sequence[Collection[str]] = (),
    ) -> tuple[list[dict[str, int]], "SparseHistogram"]:
        """Return what passes, paid with a fraction of what is left of these vectors and a slack of their budget."""
        scale = vectors.charge_thresholded(squared_sensitivity=2 * len(lists), fraction=fraction, slack=slack)
        histogram = cls.for_slack(columns=len(lists), scale=scale, slack=slack)  # proof: step 6
        vectors.describe_thresholded(2 * len(lists), scale, keys=len(lists), above=histogram.threshold - 1)
        return histogram.release(lists, known=known), histogram


def noise_bound(*, keys: int, scale: float, slack: float) -> int:
    """Return the least bound that the noise of one of this many keys of a unit passes with this probability."""
    tail = -math.expm1(math.log1p(-check_delta(slack, zero=False)) / check_count("keys", keys)) / _UP  # proof: step 2
    if scale <= _LARGEST_TABLE_SCALE:
        bound = gaussian_tail_quantile(scale, tail / _UP)
    else:
        bound = 1 + math.ceil(scale * math.sqrt(2 * math.log(1 / tail)) * _UP)
    while single_key_chance(columns=keys, scale=scale, threshold=bound + 1) > slack:
        bound += 1
    return bound


def single_key_chance(*, columns: int, scale: float, threshold: int) -> float:
    """Return the probability that one of `columns` keys of one unit each passes, rounded up."""
    return min(1.0, -math.expm1(columns * math.log1p(-_tail(scale, threshold - 1))) * _UP)  # proof: step 2


def _tail(scale: float, threshold: int) -> float:
    """Return P(noise > threshold), rounded up and below 1."""
    if scale > _LARGEST_TABLE_SCALE:  # the discrete Gaussian is sub-Gaussian
        return min(0.5, math.exp(-((threshold + 1) ** 2) / (2 * scale**2)) * _UP)
    return min(0.75, gaussian_tail(scale, max(threshold, 0)))
