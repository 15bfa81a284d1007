"""The base of mechanisms with noise on the counts of classes."""

from dataclasses import dataclass

from quorate.core.checks import validate_fields
from quorate.core.mechanisms.base import QueryMechanism


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(QueryMechanism):
    """Discrete Gaussian noise of one scale on the counts of all classes."""

    teachers: int
    classes: int
    scale: float

    def __post_init__(self) -> None:
        validate_fields(self)

    def vote_columns(self) -> int:
        """Return how many classes the votes must have."""
        return self.classes
