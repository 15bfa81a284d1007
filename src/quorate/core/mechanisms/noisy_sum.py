"""NoisySum releases a whole-number sum with discrete Gaussian noise added to it.

Claim (replace-one units; a unit moves the sum by at most `sensitivity`): one release has Renyi divergence at most
order * sensitivity**2 / (2 scale**2) at every order, with no tail event left out. Proof: PROOF_noisy_sum.md.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from quorate.core._noise import NoiseSource, system_noise
from quorate.core.checks import check_count, check_delta, check_finite_order, check_positive, validate_fields
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms.orders import refined_epsilon, smallest_epsilon
from quorate.core.privacy import Budget, Cost, best_order, gaussian_renyi, price_of_each
from quorate.core.privacy.claims import gaussian_release


@dataclass(frozen=True, kw_only=True)
class NoisySum:
    """A noisy sum: one unit changes it by at most `sensitivity`; `scale` is the noise scale.

    Both are in units of the sum.

    >>> noisy = NoisySum.calibrate(epsilon=1.0, delta=1e-6, sensitivity=100)
    >>> abs(noisy.release(250_000) - 250_000) < 10 * noisy.scale
    True
    """

    sensitivity: int
    scale: float

    def __post_init__(self) -> None:
        validate_fields(self)

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, sensitivity: int, releases: int = 1) -> "NoisySum":
        """Return the NoisySum of the smallest scale that can be released this often within (epsilon, delta).

        A budget opened with the same epsilon and delta and slack=0.0 pays for exactly this many releases.
        """
        epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta, zero=False)
        sensitivity, releases = check_count("sensitivity", sensitivity), check_count("releases", releases)
        order = best_order(epsilon=epsilon, delta=delta)
        price = price_of_each(epsilon, delta=delta, order=order, times=releases, quanta=2)
        scale = sensitivity * math.sqrt(order / (2 * price * (1 - 2.0**-30)))
        if scale > 2.0**40:
            raise Infeasible(
                f"{releases} releases of a sum of sensitivity {sensitivity} take noise of scale {scale:.3g}, above "
                "2**40; count in larger units, ask for fewer or raise epsilon"
            )
        return cls(sensitivity=sensitivity, scale=max(scale, 1e-6))

    def renyi(self, order: float) -> float:
        """Return an upper bound on the cost of one release at this order."""
        order = check_finite_order("a NoisySum", order)
        return gaussian_renyi(scale=self.scale, order=order, sensitivity=self.sensitivity)  # proof: step 1

    def release_cost(self, order: float) -> Cost:
        """Return the cost of one release."""
        return Cost(self.renyi(order))

    def epsilon(self, *, delta: float, releases: int = 1) -> float:
        """Return the epsilon of this many releases at `delta`."""
        releases, delta = check_count("releases", releases), check_delta(delta, zero=False)

        def renyi(order: float) -> float:
            return releases * self.renyi(order)

        return refined_epsilon(renyi, smallest_epsilon(renyi, delta=delta)[0], delta=delta)

    def describe(self, *, uses: int = 1) -> dict[str, Any]:
        """Return the description of this many releases, for a claim."""
        square = self.sensitivity**2
        return gaussian_release(squared_sensitivity=square, scale=self.scale, entries=1, uses=uses)

    def release(self, total: int, *, budget: Budget | None = None) -> int:
        """Return the sum with noise, charged to `budget` if there is one."""
        return self.releases([total], budget=budget)[0]

    def releases(self, totals: Iterable[int], *, budget: Budget | None = None) -> list[int]:
        """Return several sums with noise, charged to `budget` if there is one: all of them or none.

        One unit may change every one of these sums by `sensitivity`, and each is charged (PROOF_noisy_sum.md, step 2).
        """
        return self.draw_releases(totals, budget, system_noise)

    def draw_releases(self, totals: Iterable[int], budget: Budget | None, noise: NoiseSource) -> list[int]:
        """Charge for these sums, draw their noise from this source, and return the noisy sums."""
        sums = [_whole(total) for total in totals]
        if budget is not None:
            cost = self.release_cost(budget.order)
            budget.spend(cost, times=len(sums), releases=[self.describe(uses=len(sums))])  # charge, then draw
        noises = noise.gaussian(self.scale, len(sums)).tolist()
        return [total + error for total, error in zip(sums, noises, strict=True)]  # proof: step 1


def _whole(total: object) -> int:
    """Return the total as an int of any size. The text of the refusal says its type and not what it is."""
    if type(total) is int:
        return total
    if isinstance(total, bool) or not isinstance(total, Integral):
        raise InvalidInput(f"a total must be a whole number of an integer type, got {type(total).__name__}")
    return int(total)
