"""What a unit may spend and the noise that this takes: whole numbers, fixed from public numbers at the fit."""

import math
from dataclasses import dataclass

from quorate.core.checks import check_count, check_delta, check_positive, check_scale, set_validated
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyVector
from quorate.core.mechanisms.noisy_vector import ROUNDING_VARIANCE, largest_length, smallest_excess
from quorate.models.knn.ballots import Ballot

_REPORTS = 16  # of wear, that are paid for at the fit
_REPORTED = 64  # reports of wear take at most this part of what answers take
_MOST = 2.0**62  # of what a unit may spend: sums are kept as 64-bit numbers
_UP = 1 + 2.0**-40


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The guarantee, and what it comes to in whole numbers.

    A unit may spend `capacity` on answers: the sum of the squares of what its votes add. A vote of full weight takes
    `full` of it. Each of `reports` reports of wear counts the unit with the weight `reported`. Noise has this `scale`
    everywhere. A unit changes at most `entries` of the numbers that are released. Where it is replaced by another, what
    is moved is `replacement` times as much.

    >>> from quorate.models.knn.ballots import Labels
    >>> terms = Terms.calibrate(epsilon=1.0, delta=1e-5, votes=30.0, top=32, ballot=Labels(range(10)))
    >>> terms.capacity == 30 * terms.full, round(terms.noise), round(terms.replaced_epsilon(), 2)
    (True, 21, 1.47)
    """

    epsilon: float
    delta: float
    full: int
    capacity: int
    reports: int
    reported: int
    scale: float
    entries: int
    replacement: int

    def __post_init__(self) -> None:
        names = ("full", "capacity", "reports", "reported", "entries", "replacement")
        counts = {name: check_count(name, getattr(self, name)) for name in names}
        epsilon, delta = check_positive("epsilon", self.epsilon), check_delta(self.delta, zero=False)
        set_validated(self, epsilon=epsilon, delta=delta, scale=check_scale("scale", self.scale), **counts)

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, votes: float, top: int, ballot: Ballot) -> "Terms":
        """Return the terms of the least noise by which a unit may cast this many votes of full weight."""
        full = top**2 * int(ballot.prices.max())
        if check_positive("votes", votes) > _MOST / full:
            raise InvalidInput(f"votes must be at most {math.floor(_MOST / full):,}, not {votes:g}")
        capacity = max(1, math.floor(votes * full))
        reported = max(1, math.isqrt(capacity // (_REPORTED * _REPORTS)))
        squares = capacity + _REPORTS * reported**2  # proof: step 4
        entries = ballot.changes(capacity) + _REPORTS  # proof: step 5
        length = largest_length(epsilon=epsilon, delta=delta, entries=entries)
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
            full=full,
            capacity=capacity,
            reports=_REPORTS,
            reported=reported,
            scale=scale,
            entries=entries,
            replacement=ballot.replacement,
        )

    @property
    def squares(self) -> int:
        """All that one unit may ever move what is released: the sum of the squares of whole numbers."""
        return self.capacity + self.reports * self.reported**2

    @property
    def votes(self) -> float:
        """How many votes of full weight a unit may cast."""
        return self.capacity / self.full

    @property
    def noise(self) -> float:
        """The deviation of the noise, in votes of full weight."""
        return self.scale / math.sqrt(self.full)

    @property
    def mechanism(self) -> NoisyVector:
        """What adds noise to a vector of counts."""
        return NoisyVector(squared_sensitivities=(self.squares,), scales=(self.scale,))

    def replaced_epsilon(self) -> float:
        """Return the epsilon, at the same delta, where a unit is replaced by another, not added or removed."""
        squares = self.replacement * self.squares  # proof: step 7
        length = math.sqrt(squares / (self.scale**2 - ROUNDING_VARIANCE)) * _UP
        return smallest_excess(length, delta=self.delta, entries=2 * self.entries)
