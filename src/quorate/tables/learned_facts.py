"""What a schema learned from private rows has paid and found: its claim, and a noisy marginal of each column."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quorate.core.checks import set_validated
from quorate.core.errors import InvalidInput

__all__ = ["ColumnMarginal", "LearnedFacts"]


@dataclass(frozen=True)
class ColumnMarginal:
    """The noisy number of units in each cell of a column.

    counts
        Of a number or date: below the first cut, between cuts, and from the last cut on. Of a category: of each
        category in its order, then of all other texts.
    missing
        The noisy number of units without a value.
    scale
        The scale of the noise of one count.
    means
        Of a number or date: the mean value between each cut and the next, as far as the noisy counts tell.
    """

    counts: tuple[float, ...]
    missing: float
    scale: float
    means: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        set_validated(self, counts=tuple(float(count) for count in self.counts))
        set_validated(self, means=tuple(float(mean) for mean in self.means))
        set_validated(self, missing=float(self.missing), scale=float(self.scale))


@dataclass(frozen=True)
class LearnedFacts:
    """The guarantee of a learned schema and its noisy marginals, by column."""

    claim: str
    epsilon: float
    delta: float
    units: int
    marginals: Mapping[str, ColumnMarginal]
    notes: tuple[str, ...] = ()

    @classmethod
    def from_document(cls, document: Any) -> "LearnedFacts":
        """Return the facts that a JSON object describes."""
        try:
            marginals = {str(name): ColumnMarginal(**one) for name, one in document["marginals"].items()}
            claim, notes = str(document["claim"]), tuple(str(note) for note in document.get("notes", ()))
            numbers = float(document["epsilon"]), float(document["delta"]), int(document["units"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidInput(
                '"learned" must have claim, epsilon, delta, units and marginals, as Schema.from_private writes them'
            ) from None
        return cls(claim, *numbers, marginals, notes)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that describes these facts."""
        marginals = {
            name: asdict(one) | {"counts": list(one.counts), "means": list(one.means)}
            for name, one in self.marginals.items()
        }
        return {
            "claim": self.claim,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "units": self.units,
            "marginals": marginals,
            "notes": list(self.notes),
        }
