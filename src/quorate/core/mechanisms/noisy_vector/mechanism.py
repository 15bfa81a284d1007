"""NoisyVector releases vectors of whole numbers with discrete Gaussian noise on every entry.

Claim (replace-one units; a unit moves part i by whole numbers whose squares add up to at most
`squared_sensitivities[i]`): one release has Renyi divergence at most order / 2 * the sum of
squared_sensitivities[i] / scales[i]**2 at every order, with no tail event left out; and alone it is
(`epsilon(delta=d)`, d)-DP, a smaller epsilon than that divergence implies. Proof: PROOF.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_delta, check_order, check_positive, check_scale, set_validated
from quorate.core.errors import Infeasible, InvalidInput, QuorateError
from quorate.core.mechanisms.noisy_vector.analytic import (
    ROUNDING_VARIANCE,
    discrete_delta,
    largest_length,
    smallest_excess,
)
from quorate.core.mechanisms.orders import smallest_epsilon
from quorate.core.noise import NoiseSource, system_noise
from quorate.core.privacy import RENYI_QUANTA, Budget, Cost, best_order, to_capacity, to_epsilon
from quorate.core.privacy.budget import SLACK_QUANTA
from quorate.core.privacy.cost import float_down

__all__ = ["NoisyVector", "largest_whole_epsilon", "rest_of_delta"]

_LARGEST_ENTRY = 2**61  # noise and entry together stay within 64 bits
_LARGEST_WHOLE = 4096.0  # epsilon up to which the whole of a budget is a number of quanta that a float holds exactly
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
        is never less than what makes it a rounded Gaussian (PROOF.md, step 2): for a caller whose proof needs more than
        that the release is (epsilon, delta)-DP.
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
        if budget.order == math.inf:
            raise InvalidInput("a NoisyVector is charged at a finite order; open the budget at one, with delta above 0")
        if fraction == 1.0 and budget.spent() == Cost(0.0) and budget.epsilon <= _LARGEST_WHOLE:
            return cls.calibrate(
                epsilon=budget.epsilon,
                delta=rest_of_delta(budget),
                squared_sensitivities=squares,
                shares=shares,
            )
        each = budget.remaining().renyi * check_positive("fraction", fraction) - 2 / RENYI_QUANTA
        if each <= 0:
            raise Infeasible("less than one quantum is left for this; open a budget with a larger epsilon")
        pairs = list(zip(squares, _shares(shares, squares), strict=True))
        return cls(squared_sensitivities=squares, scales=tuple(_renyi_scales(pairs, budget.order, each)))

    def renyi(self, order: float) -> float:
        """Return an upper bound on the cost of one release at this order."""
        if check_order(order) == math.inf:
            raise InvalidInput("a NoisyVector is charged at a finite order; open the budget at one, with delta above 0")
        pairs = zip(self.squared_sensitivities, self.scales, strict=True)
        return order / 2 * math.fsum(square / scale**2 for square, scale in pairs) * _UP  # proof: step 1

    def release_cost(self, order: float) -> Cost:
        """Return the cost of one release."""
        return Cost(self.renyi(order))

    def epsilon(self, *, delta: float) -> float:
        """Return an upper bound on the epsilon, at `delta`, of one release and nothing else."""
        delta = check_delta(delta, zero=False)
        entries = sum(self.squared_sensitivities)
        least = smallest_excess(self._length(), delta=delta, entries=entries)  # proof: step 3
        least = min(least, smallest_epsilon(self.renyi, delta=delta)[0])
        for _ in range(3):  # the best order for an epsilon close by gives a closer one
            try:
                order = best_order(epsilon=least, delta=delta)
            except QuorateError:  # too small or too large an epsilon for any order to matter
                break
            least = min(least, to_epsilon(self.renyi(order), order=order, delta=delta))
        return least

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
            self._charge(budget)  # charge, then draw
        source = system_noise if noise is None else noise
        pairs = zip(vectors, self.scales, strict=True)
        return [vector + source.gaussian(scale, vector.size) for vector, scale in pairs]  # proof: step 1

    def _charge(self, budget: Budget) -> None:
        """Spend the cost at the budget's order, or else the whole of a budget that nothing was spent from."""
        cost = self.release_cost(budget.order)
        whole = budget.epsilon <= _LARGEST_WHOLE and budget.affordable(cost) < 1
        if whole and _holds(self.squared_sensitivities, self.scales, budget.epsilon, rest_of_delta(budget)):
            cost = Cost(budget.capacity().renyi)  # refused unless all of it is there: proof: step 5
        budget.spend(cost)


def _length_of(squares: Sequence[int], scales: Sequence[float]) -> float:
    """Return the longest change in units of the noise less the rounding variance, rounded up: proof, step 3."""
    moved = [(square, scale**2 - ROUNDING_VARIANCE) for square, scale in zip(squares, scales, strict=True) if square]
    if any(left <= 0 for _, left in moved):
        return math.inf
    return math.sqrt(math.fsum(square / left for square, left in moved)) * (1 + 2.0**-45)


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


def _renyi_scales(pairs: Sequence[tuple[int, float]], order: float, each: float) -> list[float]:
    """Return the scales at which parts of these squares and shares cost `each` together, rounded up."""
    return [max(math.sqrt(order * square / share / (2 * each)) * (1 + 2.0**-30), 1e-6) for square, share in pairs]


def rest_of_delta(budget: Budget) -> float:
    """Return the part of delta that the budget has not set aside for tail events, rounded down."""
    return float_down(Fraction(budget.delta) - Fraction(budget.quanta()[1], SLACK_QUANTA))


def largest_whole_epsilon() -> float:
    """Return the epsilon up to which the whole of a budget is a number of quanta that a float holds exactly."""
    return _LARGEST_WHOLE


def _squares(given: Sequence[int]) -> tuple[int, ...]:
    squares = tuple(check_count("squared sensitivity", square, least=0) for square in given)
    if not squares:
        raise InvalidInput("a NoisyVector has at least one part")
    return squares


def _shares(given: Sequence[float] | None, squares: Sequence[int]) -> list[float]:
    """Return the shares rounded so that those of parts that a unit moves do not add up to more than 1."""
    values = [1.0] * len(squares) if given is None else [check_positive("share", share) for share in given]
    if len(values) != len(squares):
        raise InvalidInput(f"{len(squares)} parts need as many shares, not {len(values)}")
    moved = [value for value, square in zip(values, squares, strict=True) if square]
    total = math.fsum(moved or values) * _UP
    return [value / total for value in values]


def _whole(part: Any) -> Integers:
    """Return a vector of whole numbers. The text of the refusal says its type and not what it holds."""
    vector = np.asarray(part)
    if vector.ndim != 1 or vector.dtype.kind not in "iu":
        raise InvalidInput(f"a part must be a vector of an integer type, not {vector.dtype} of shape {vector.shape}")
    if vector.size and (vector.max() > _LARGEST_ENTRY or int(vector.min()) < -_LARGEST_ENTRY):
        raise InvalidInput("the entries of a part must lie within 2**61")
    return vector.astype(np.int64)
