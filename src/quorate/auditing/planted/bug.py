"""A planted bug: one mistake in a sound class, the sound twin, and the attack that tells them apart."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["By", "Caught", "PlantedBug"]

By = Literal["game", "enumeration", "replay", "state"]
Attack = Callable[[Any, int, int], "Caught"]


@dataclass(frozen=True)
class Caught:
    """What an attack saw: which one it was, the evidence in words, and whether that breaks the claim."""

    attack: str
    evidence: str
    found: bool


@dataclass(frozen=True)
class PlantedBug:
    """One way in which this field has gone wrong, made on purpose. Nothing here may ever answer for real records.

    `broken` and `sound` make the two twins, which differ in the mistake alone; `attack` takes either, with a number of
    plays and a seed, and must find the first and clear the second.
    """

    name: str
    what: str
    by: By
    broken: Callable[[], Any] = field(repr=False)
    sound: Callable[[], Any] = field(repr=False)
    attack: Attack = field(repr=False)

    def catch(self, plays: int = 1_000_000, *, seed: int = 0) -> Caught:
        """Attack the broken twin. Where the attack is no game, `plays` and `seed` do not matter."""
        return self.attack(self.broken(), plays, seed)

    def clear(self, plays: int = 1_000_000, *, seed: int = 0) -> Caught:
        """Attack the sound twin in the same way."""
        return self.attack(self.sound(), plays, seed)
