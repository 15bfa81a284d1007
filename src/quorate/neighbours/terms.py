"""What a unit may spend and the noise that this takes: whole numbers, fixed from public numbers at the fit."""

import math
from dataclasses import dataclass

from quorate.checks import check_count, check_delta, check_positive, check_scale, set_validated
from quorate.errors import Infeasible
from quorate.mechanisms import NoisyVector
from quorate.mechanisms.noisy_vector.analytic import ROUNDING_VARIANCE, largest_length, smallest_excess

__all__ = ["Terms"]

_REPORTS = 16  # of wear, that are paid for at the fit
_REPORTED = 64  # reports of wear take at most this part of what answers take
_UP = 1 + 2.0**-40


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The guarantee, and what it comes to in whole numbers.

    A unit may spend `capacity` on answers: the sum of the squares of its weights. Each of `reports` reports of wear
    counts it with the weight `reported`. Noise has this `scale` everywhere. Of two classes the difference is released,
    which is one number with one noise; of more, the count of each.

    >>> terms = Terms.calibrate(epsilon=1.0, delta=1e-5, votes=30.0, top=32, classes=10)
    >>> terms.capacity == 30 * 32**2, round(terms.scale / 32), round(terms.replaced_epsilon(), 2)
    (True, 21, 1.47)
    """

    epsilon: float
    delta: float
    top: int
    capacity: int
    reports: int
    reported: int
    scale: float
    classes: int

    def __post_init__(self) -> None:
        whole = {name: check_count(name, getattr(self, name)) for name in ("top", "capacity", "reports", "reported")}
        whole["classes"] = check_count("classes", self.classes, least=2)
        epsilon, delta = check_positive("epsilon", self.epsilon), check_delta(self.delta, zero=False)
        set_validated(self, epsilon=epsilon, delta=delta, scale=check_scale("scale", self.scale), **whole)

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, votes: float, top: int, classes: int) -> "Terms":
        """Return the terms of the least noise by which a unit may cast this many votes of full weight."""
        capacity = max(1, math.floor(check_positive("votes", votes) * top**2))
        reported = max(1, math.isqrt(capacity // (_REPORTED * _REPORTS)))
        squares = capacity + _REPORTS * reported**2  # proof: step 4
        length = largest_length(epsilon=epsilon, delta=delta, entries=squares)  # proof: step 5
        if length <= 0:
            raise Infeasible("this epsilon and delta allow no votes; raise epsilon, or plan for fewer votes of a unit")
        scale = math.sqrt(squares / length**2 + ROUNDING_VARIANCE) * _UP
        if scale > 2.0**40:
            raise Infeasible(
                "this takes noise of a scale above 2**40; raise epsilon, or plan for fewer votes of a unit"
            )
        return cls(
            epsilon=epsilon,
            delta=delta,
            top=top,
            capacity=capacity,
            reports=_REPORTS,
            reported=reported,
            scale=scale,
            classes=classes,
        )

    @property
    def squares(self) -> int:
        """All that one unit may ever move what is released: the sum of the squares of whole numbers."""
        return self.capacity + self.reports * self.reported**2

    @property
    def mechanism(self) -> NoisyVector:
        """What adds noise to a vector of counts."""
        return NoisyVector(squared_sensitivities=(self.squares,), scales=(self.scale,))

    def replaced_epsilon(self) -> float:
        """Return the epsilon, at the same delta, where a unit is replaced by another, not added or removed."""
        squares = (4 if self.classes == 2 else 2) * self.squares  # proof: step 7
        length = math.sqrt(squares / (self.scale**2 - ROUNDING_VARIANCE)) * _UP
        return smallest_excess(length, delta=self.delta, entries=squares)
