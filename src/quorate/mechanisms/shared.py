"""What two mechanisms have in common: noise on the counts of classes, and a table that a threshold looks up."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quorate.checks import validate_fields
from quorate.mechanisms.base import QueryMechanism, ThresholdMechanism
from quorate.noise import NoiseSource

__all__ = ["LookedUp", "NoisyCounts"]


@dataclass(frozen=True, kw_only=True)
class LookedUp(ThresholdMechanism):
    """One Gaussian threshold noise a run, and one look-up in a table of probabilities a query."""

    teachers: int
    no_quorums: int
    order: float
    price: float
    margin: int
    threshold_scale: float
    table: tuple[int, ...] = field(repr=False)  # thousands of numbers

    def draw_threshold_noise(self, noise: NoiseSource) -> int:
        """Draw the secret noise of a run's threshold."""
        return int(noise.gaussian(self.threshold_scale, 1)[0])

    @cached_property
    def last_words(self) -> NDArray[np.uint64]:
        """The largest word that means a no-quorum at each level; level 0 is certain and needs all of them."""
        words = np.array([level - 1 for level in self.table], dtype=np.uint64)
        words.flags.writeable = False
        return words


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(QueryMechanism):
    """Discrete Gaussian noise of one scale on the counts of so many classes."""

    teachers: int
    classes: int
    scale: float

    def __post_init__(self) -> None:
        validate_fields(self)

    def vote_columns(self) -> int:
        """Return how many classes the votes must have."""
        return self.classes
