"""NoisyVector releases vectors of whole numbers with discrete Gaussian noise on every entry.

Claim (replace-one units; a unit moves part i by whole numbers whose squares add up to at most
`squared_sensitivities[i]`): one release has Renyi divergence at most order / 2 * the sum of
squared_sensitivities[i] / scales[i]**2 at every order, with no tail event left out; and alone it is
(`epsilon(delta=d)`, d)-DP, a smaller epsilon than that divergence implies. Proof: PROOF_noisy_vector.md.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_delta, check_finite_order, check_positive, check_scale, set_validated
from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput
from quorate.core.mechanisms.orders import refined_epsilon, smallest_epsilon
from quorate.core.privacy import RENYI_QUANTA, Budget, Cost, best_order, to_capacity
from quorate.core.privacy.budget import SLACK_QUANTA
from quorate.core.privacy.claims import Node, budget_node, gaussian_release, thresholded_release
from quorate.core.privacy.cost import float_down, halve_interval

_LARGEST_ENTRY = 2**61  # noise and entry together stay within 64 bits
LARGEST_WHOLE_EPSILON = 4096.0  # above it a float does not hold the whole of a budget as a number of quanta
_UP = 1 + 2.0**-40  # above the rounding of the few operations before it; also makes up for _length, rounded up


@dataclass(frozen=True, kw_only=True)
class NoisyVector:
    """Vectors ("parts") with given squared L2 sensitivities, each with noise of its own scale.

    >>> noisy = NoisyVector.calibrate(epsilon=1.0, delta=1e-6, squared_sensitivities=(2,))
    >>> [table] = noisy.release([np.array([250, 730])])
    >>> bool((abs(table - [250, 730]) < 10 * noisy.scales[0]).all())
    True
    """

    squared_sensitivities: tuple[int, ...]
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        squares = _squares(self.squared_sensitivities)
        scales = tuple(check_scale("scale", scale) for scale in self.scales)
        if len(squares) != len(scales):
            raise InvalidInput(f"{len(squares)} squared sensitivities need as many scales, not {len(scales)}")
        set_validated(self, squared_sensitivities=squares, scales=scales)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        squared_sensitivities: Sequence[int],
        shares: Sequence[float] | None = None,
        rounded: bool = False,
    ) -> "NoisyVector":
        """Return the NoisyVector of the smallest scales that can be released once, alone, within (epsilon, delta).

        `shares` divides the privacy loss among the parts (equally by default): the squared scale of a part of share p
        is proportional to its squared sensitivity over p, and a part that no unit changes takes nothing. A fresh
        `Budget` of the same epsilon and delta and slack=0.0 pays for it with all that it has. With `rounded`, the noise
        is never less than what makes it a rounded Gaussian (PROOF_noisy_vector.md, step 2): for a caller whose proof
        needs more than that the release is (epsilon, delta)-DP.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        squares = _squares(squared_sensitivities)
        pairs = list(zip(squares, _shares(shares, squares), strict=True))
        scales = _whole_scales(pairs, epsilon, delta)
        order = best_order(epsilon=epsilon, delta=delta)
        capacity = to_capacity(epsilon, delta=delta, order=order) - 2 / RENYI_QUANTA
        if capacity > 0 and not rounded:  # where the noise is small, less of it is needed by the one-order cost
            scales = min(scales, _renyi_scales(pairs, order, capacity), key=max)
        if max(scales) > 2.0**40:
            raise Infeasible(f"this takes noise of scale {max(scales):.3g}, above 2**40; raise epsilon or ask for less")
        return cls(squared_sensitivities=squares, scales=tuple(scales))

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        squared_sensitivities: Sequence[int],
        shares: Sequence[float] | None = None,
        fraction: float = 1.0,
    ) -> "NoisyVector":
        """Return the NoisyVector of the smallest scales that a fraction of this budget pays for now.

        If all of a fresh budget is used, `calibrate` is used; otherwise the cost at the budget's order.
        """
        squares = _squares(squared_sensitivities)
        check_finite_order("a NoisyVector", budget.order)
        if fraction == 1.0 and budget.spent() == Cost(0.0) and budget.epsilon <= LARGEST_WHOLE_EPSILON:
            return cls.calibrate(
                epsilon=budget.epsilon,
                delta=rest_of_delta(budget),
                squared_sensitivities=squares,
                shares=shares,
            )
        price = budget.remaining().renyi * check_positive("fraction", fraction) - 2 / RENYI_QUANTA
        if price <= 0:
            raise Infeasible("less than one quantum is left for this; open a budget with a larger epsilon")
        pairs = list(zip(squares, _shares(shares, squares), strict=True))
        return cls(squared_sensitivities=squares, scales=tuple(_renyi_scales(pairs, budget.order, price)))

    def renyi(self, order: float) -> float:
        """Return an upper bound on the cost of one release at this order."""
        order = check_finite_order("a NoisyVector", order)
        pairs = zip(self.squared_sensitivities, self.scales, strict=True)
        return order / 2 * math.fsum(square / scale**2 for square, scale in pairs) * _UP  # proof: step 1

    def release_cost(self, order: float) -> Cost:
        """Return the cost of one release."""
        return Cost(self.renyi(order))

    def epsilon(self, *, delta: float) -> float:
        """Return an upper bound on the epsilon, at `delta`, of one release and nothing else."""
        delta = check_delta(delta, zero=False)
        entries = sum(self.squared_sensitivities)
        smallest = smallest_excess(self._length(), delta=delta, entries=entries)  # proof: step 3
        return refined_epsilon(self.renyi, min(smallest, smallest_epsilon(self.renyi, delta=delta)[0]), delta=delta)

    def _length(self) -> float:
        return _length_of(self.squared_sensitivities, self.scales)

    def release(self, parts: Sequence[Any], *, budget: Budget | None = None) -> list[Integers]:
        """Return the parts with noise, charged to `budget` if there is one: all of them or none."""
        return self.draw_release(parts, budget, None)

    def draw_release(self, parts: Sequence[Any], budget: Budget | None, noise: NoiseSource | None) -> list[Integers]:
        """Charge for these vectors, draw their noise from this source, and return the noisy vectors."""
        vectors = [_whole(part) for part in parts]
        if len(vectors) != len(self.scales):
            raise InvalidInput(f"this mechanism has {len(self.scales)} parts, and {len(vectors)} were given")
        if budget is not None:
            self._charge(budget, self.describe([vector.size for vector in vectors]))  # charge, then draw
        source = system_noise if noise is None else noise
        pairs = zip(vectors, self.scales, strict=True)
        return [vector + source.gaussian(scale, vector.size) for vector, scale in pairs]  # proof: step 1

    def describe(self, sizes: Sequence[int]) -> list[dict[str, Any]]:
        """Return the descriptions, for a claim, of parts with these numbers of entries."""
        parts = zip(self.squared_sensitivities, self.scales, sizes, strict=True)
        return [
            gaussian_release(squared_sensitivity=square, scale=scale, entries=size) for square, scale, size in parts
        ]

    def _charge(self, budget: Budget, releases: Sequence[Node] | None = None) -> None:
        """Spend the cost at the budget's order, or else the whole of a budget that nothing was spent from."""
        cost = self.release_cost(budget.order)
        takes_all = budget.epsilon <= LARGEST_WHOLE_EPSILON and budget.affordable(cost) < 1
        if takes_all and _holds(self.squared_sensitivities, self.scales, budget.epsilon, rest_of_delta(budget)):
            cost = Cost(budget.capacity().renyi)  # refused unless all of it is there: proof: step 5
        budget.spend(cost, releases=releases)


def _length_of(squares: Sequence[int], scales: Sequence[float]) -> float:
    """Return the longest change in units of the noise less the rounding variance, rounded up: proof, step 3."""
    moved = [(square, scale**2 - ROUNDING_VARIANCE) for square, scale in zip(squares, scales, strict=True) if square]
    if any(variance <= 0 for _, variance in moved):
        return math.inf
    return math.sqrt(math.fsum(square / variance for square, variance in moved)) * (1 + 2.0**-45)


def _holds(squares: Sequence[int], scales: Sequence[float], epsilon: float, delta: float) -> bool:
    """Return whether one release, and nothing else, is seen to be within (epsilon, delta): proof, step 3."""
    return discrete_delta(epsilon, _length_of(squares, scales), entries=sum(squares)) <= delta


def _whole_scales(pairs: Sequence[tuple[int, float]], epsilon: float, delta: float) -> list[float]:
    """Return the scales at which one release takes all of (epsilon, delta); infinite where there are none.

    They are seen to hold as they are when a budget is charged: a small delta has too few digits to go by the length.
    """
    squares = [square for square, _ in pairs]
    length, step = largest_length(epsilon=epsilon, delta=delta, entries=sum(squares)), 2.0**-40
    while length > 0:
        scales = [math.sqrt(square / share / length**2 + ROUNDING_VARIANCE) * _UP for square, share in pairs]
        if _holds(squares, scales, epsilon, delta):
            return scales
        length, step = length * (1 - step), 2 * step
    return [math.inf] * len(pairs)


def _renyi_scales(pairs: Sequence[tuple[int, float]], order: float, price: float) -> list[float]:
    """Return the scales at which parts of these squares and shares cost `price` together, rounded up."""
    return [max(math.sqrt(order * square / share / (2 * price)) * (1 + 2.0**-30), 1e-6) for square, share in pairs]


def rest_of_delta(budget: Budget) -> float:
    """Return the part of delta that the budget has not set aside for tail events, rounded down."""
    return float_down(Fraction(budget.delta) - Fraction(budget.quanta()[1], SLACK_QUANTA))


def _squares(sensitivities: Sequence[int]) -> tuple[int, ...]:
    squares = tuple(check_count("squared sensitivity", square, least=0) for square in sensitivities)
    if not squares:
        raise InvalidInput("a NoisyVector has at least one part")
    return squares


def _shares(fractions: Sequence[float] | None, squares: Sequence[int]) -> list[float]:
    """Return the shares rounded so that those of parts that a unit moves do not add up to more than 1."""
    values = [1.0] * len(squares) if fractions is None else [check_positive("share", share) for share in fractions]
    if len(values) != len(squares):
        raise InvalidInput(f"{len(squares)} parts need as many shares, not {len(values)}")
    moved = [value for value, square in zip(values, squares, strict=True) if square]
    total = math.fsum(moved or values) * _UP
    return [value / total for value in values]


def _whole(part: Any) -> Integers:
    """Return a vector of whole numbers. The text of the refusal says its type and not what it holds."""
    vector = np.asarray(part)
    if vector.ndim != 1 or vector.dtype.kind not in "iu":
        raise InvalidInput(f"a part must be a vector of an integer type, got {vector.dtype} of shape {vector.shape}")
    if vector.size and (vector.max() > _LARGEST_ENTRY or int(vector.min()) < -_LARGEST_ENTRY):
        raise InvalidInput("the entries of a part must lie within 2**61")
    return vector.astype(np.int64)


_SHARES = 2**40  # shares are counted in whole numbers


class NoisyVectors:
    """Adaptively chosen releases that use the whole of a fresh budget.

    `entries` is the largest number of entries that all releases together may have; `spent` is their total cost.

    >>> noisy = NoisyVectors(Budget(epsilon=1.0, delta=1e-6, slack=0.0), entries=4)
    >>> first, scale = noisy.release(np.array([250, 730]), squared_sensitivity=2, fraction=0.5)
    >>> second, same = noisy.release(np.array([int(first[0]), 5]), squared_sensitivity=2, fraction=1.0)
    >>> round(scale / same, 6)
    1.0
    """

    def __init__(self, budget: Budget, *, entries: int) -> None:
        self.entries = check_count("entries", entries)
        if budget.order == math.inf or budget.epsilon > LARGEST_WHOLE_EPSILON:
            raise InvalidInput("NoisyVectors take a budget with delta above 0 and a smaller epsilon")
        # What a thresholded release adds to a log ratio comes off epsilon: PROOF_sparse_histogram.md, step 6.
        epsilon = (budget.epsilon + math.log1p(-budget.slack) * _UP) / (_UP if budget.slack else 1.0)
        self._length = 0.0
        if epsilon > 0:
            self._length = largest_length(epsilon=epsilon, delta=rest_of_delta(budget), entries=self.entries)
        if self._length <= 0:
            raise Infeasible("this epsilon and delta allow no release of so many entries; raise epsilon")
        self.spent = Cost(budget.capacity().renyi)
        budget.spend(self.spent, releases=())  # all of it, or refused: proof: step 6
        self._budget = budget  # its slack pays for thresholded releases; it keeps the descriptions of all releases
        self._left = _SHARES
        self._lock = threading.Lock()

    def scale(self, *, squared_sensitivity: int, fraction: float) -> float:
        """Return the noise scale of the next release if it takes this fraction of what is left."""
        share = self._share(fraction)
        if share < 1:
            raise BudgetSpent("nothing is left for another release")
        needed = squared_sensitivity * _SHARES / (share * self._length**2) + ROUNDING_VARIANCE
        return math.sqrt(needed) * _UP

    def release(self, part: Any, *, squared_sensitivity: int, fraction: float) -> tuple[NDArray[np.int64], float]:
        """Return a vector of whole numbers with noise on every entry, and the noise's scale."""
        return self.draw_release(part, None, squared_sensitivity=squared_sensitivity, fraction=fraction)

    def draw_release(
        self, part: Any, noise: NoiseSource | None, *, squared_sensitivity: int, fraction: float
    ) -> tuple[NDArray[np.int64], float]:
        """Charge for a vector, draw its noise from this source, and return the noisy vector and the noise's scale."""
        scale = self._take_share(int(np.size(part)), squared_sensitivity, fraction)
        noisy = NoisyVector(squared_sensitivities=(squared_sensitivity,), scales=(scale,))
        self._budget.describe_releases(noisy.describe([int(np.size(part))]))
        return noisy.draw_release([part], None, noise)[0], scale

    def release_rest(
        self, parts: Sequence[Any], *, squared_sensitivities: Sequence[int], shares: Sequence[float]
    ) -> tuple[list[NDArray[np.int64]], list[float]]:
        """Return several noisy vectors, which divide all that is left by these shares, and their noise scales."""
        noisy, scales = [], []
        for index, (part, square) in enumerate(zip(parts, squared_sensitivities, strict=True)):
            fraction = 1.0 if index + 1 == len(parts) else min(1.0, shares[index] / math.fsum(shares[index:]))
            values, scale = self.release(part, squared_sensitivity=square, fraction=fraction)
            noisy.append(values)
            scales.append(scale)
        return noisy, scales

    def claim_part(self) -> Node:
        """Return all releases that were made so far, as a part of a claim."""
        return budget_node(self._budget)

    def charge_thresholded(self, *, squared_sensitivity: int, fraction: float, slack: float) -> float:
        """Charge for a release of which only entries above a threshold are published, and return its noise scale.

        The tail event takes `slack` of the budget. The number of entries is private; a unit changes at most
        `squared_sensitivity` of them.
        """
        self._budget.spend(Cost(0.0, slack), releases=())
        return self._take_share(squared_sensitivity, squared_sensitivity, fraction)

    def describe_thresholded(self, squared_sensitivity: int, scale: float, *, keys: int, above: int) -> None:
        """Describe, for a claim, a release for which `charge_thresholded` has charged."""
        described = thresholded_release(squared_sensitivity=squared_sensitivity, scale=scale, keys=keys, above=above)
        self._budget.describe_releases([described])

    def _take_share(self, size: int, squared_sensitivity: int, fraction: float) -> float:
        """Take the entries and the share of a release, before it is drawn, and return its scale: proof: step 6."""
        with self._lock:  # no two releases are paid with one share
            scale = self.scale(squared_sensitivity=squared_sensitivity, fraction=fraction)
            if size > self.entries:
                raise InvalidInput(f"{size} entries are to be released, and {self.entries} are left")
            self.entries -= size
            self._left -= self._share(fraction)
        return scale

    def __reduce__(self) -> NoReturn:
        raise TypeError("NoisyVectors cannot be copied or pickled: a copy would be spent a second time")

    def _share(self, fraction: float) -> int:
        """Return the share of the next release in whole numbers, rounded down."""
        if check_positive("fraction", fraction) > 1:
            raise InvalidInput(f"fraction must be at most 1, got {fraction:g}")
        return self._left if fraction == 1 else int(self._left * fraction)


ROUNDING_VARIANCE = 1.5625  # of each scale, given up for the step from continuous to discrete noise (step 2)
_DISTANCE = 2.0001 * math.exp(-2 * math.pi**2 * ROUNDING_VARIANCE)  # step 2: eta, about 8e-14
_MARGIN = 1e-10  # relative, above the rounding of the formula below where its arguments are below 100 (step 4)


def _below(point: float) -> float:
    """Return the probability that a standard Gaussian is below this place."""
    return math.erfc(-point / math.sqrt(2)) / 2


def gaussian_delta(epsilon: float, length: float) -> float:
    """Return the delta of Gaussian noise for a change of this length in units of the noise (Balle and Wang 2018)."""
    if length <= 0:
        return 0.0
    first, second = -epsilon / length + length / 2, -epsilon / length - length / 2
    if max(abs(first), abs(second)) > 100:  # too far out for the margin below: the tail alone is a bound
        return 1.0 if first > 0 else max(_below(max(first, -37.0)), 1e-300)
    if epsilon > 700 or second < -37:  # no float holds exp, or holds the tail to a few digits only: leave it out
        return min(1.0, _below(first) * (1 + _MARGIN) + 1e-300)
    largest = _below(first)
    return min(1.0, largest - math.exp(epsilon) * _below(second) + _MARGIN * largest + 1e-300)


def discrete_loss(entries: int) -> float:
    """Return what the step from continuous to discrete noise adds to a log ratio where at most `entries` change."""
    return 4 * _DISTANCE * entries


def discrete_delta(epsilon: float, length: float, *, entries: int) -> float:
    """Return the delta of discrete Gaussian noise where at most `entries` entries change.

    `length` is the change in units of the noise less the rounding variance: step 3.
    """
    loss = discrete_loss(entries)
    if loss >= epsilon:
        return 1.0
    return min(1.0, gaussian_delta(epsilon - loss, length) * math.exp(loss))  # proof: step 3


def largest_length(*, epsilon: float, delta: float, entries: int) -> float:
    """Return the longest change that (epsilon, delta) allows, 0.0 where it allows none. It was seen to hold."""
    low, high = 0.0, 2.0
    while discrete_delta(epsilon, high, entries=entries) <= delta and high < 2.0**20:
        low, high = high, 2 * high
    return halve_interval(low, high, lambda length: discrete_delta(epsilon, length, entries=entries) <= delta)[0]


def smallest_excess(length: float, *, delta: float, entries: int) -> float:
    """Return the epsilon that a change of this length takes at `delta`, rounded up."""
    low, high = 0.0, 1.0
    while discrete_delta(high, length, entries=entries) > delta:
        low, high = high, 2 * high
        if high > 2.0**20:
            return math.inf
    return halve_interval(low, high, lambda epsilon: discrete_delta(epsilon, length, entries=entries) > delta)[1]
