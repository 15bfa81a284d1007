"""What one release costs."""

from dataclasses import dataclass
from fractions import Fraction

from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.rounding import float_up

__all__ = ["Cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """An upper bound on the cost of one release, at the one order of the budget that pays for it.

    `renyi` is the Renyi divergence at that order (at order infinity, plain epsilon). `slack` is the probability of
    the tail event that the divergence leaves out; it is paid from the budget's share of delta.

    >>> Cost(renyi=0.25, slack=1e-9)
    Cost(renyi=0.25, slack=1e-09)
    """

    renyi: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.renyi < float("inf"):
            raise InvalidInput(f"renyi must be at least 0 and finite, not {self.renyi!r}")
        if not 0 <= self.slack < 1:
            raise InvalidInput(f"slack must be at least 0 and below 1, not {self.slack!r}")

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            float_up(Fraction(self.renyi) + Fraction(other.renyi)),
            float_up(Fraction(self.slack) + Fraction(other.slack)),
        )

    def times(self, count: int) -> "Cost":
        """Return the cost of `count` releases like this one, rounded up."""
        count = check_count("count", count, least=0)
        return Cost(float_up(Fraction(self.renyi) * count), float_up(Fraction(self.slack) * count))
