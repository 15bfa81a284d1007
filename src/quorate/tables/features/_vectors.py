"""The vectors of an embedded column as numbers in [0, 1]: each place rises between two ends.

The features of a row depend on the ends, on the embedder and on the text of that row alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables._embedded import Embedded
from quorate.tables.containers import raw_values
from quorate.tables.values import read_texts

_SIDE = 4.0  # standard deviations of a place of vectors of length 1, to either side
_ENDS = (0.005, 0.995)  # the public quantiles between which a place rises
_ARRAYS = ("low", "high")


@dataclass(frozen=True, eq=False)
class Vectors:
    """An embedded column: `kind.width` numbers, each rising from `low` to `high`."""

    name: str
    kind: Embedded
    low: Floats
    high: Floats

    @classmethod
    def of(cls, name: str, kind: Embedded, public: Any = None) -> "Vectors":
        """Return the block of a declared column, with its ends at quantiles of public texts where there are any."""
        side = np.full(kind.width, _SIDE / np.sqrt(kind.width))
        block = cls(name, kind, -side, side)
        if public is None:
            return block
        low, high = np.quantile(block.read(public), _ENDS, axis=0)
        is_flat = low >= high
        return cls(name, kind, np.where(is_flat, -side, low), np.where(is_flat, side, high))

    @property
    def names(self) -> list[str]:
        """The names of the numbers it becomes."""
        return [f"{self.name} embedded {place}" for place in range(self.kind.width)]

    def read(self, values: Any) -> Floats:
        """Return the vector of each text."""
        return self.kind.embed(read_texts(raw_values(values), ()).to_pylist())

    def spread(self, read: Floats) -> Floats:
        """Return a row of numbers in [0, 1] for each vector."""
        return np.asarray(np.clip((read - self.low) / (self.high - self.low), 0.0, 1.0))

    def atoms(self) -> list[Floats]:
        """Return values of each place, about as far apart as those of usual texts."""
        return [np.array([[0.25], [0.5], [0.75]])] * self.kind.width

    @property
    def octaves(self) -> NDArray[np.int64]:
        """Which places are shrunk together: all."""
        return np.zeros(self.kind.width, dtype=np.int64)

    def document(self) -> dict[str, Any]:
        """Return the plain values among its parts: of the embedder its name alone."""
        kind = self.kind
        return {"name": self.name, "embedder": kind.embedder, "width": kind.width, "characters": kind.characters}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays among its parts."""
        return {part: getattr(self, part) for part in _ARRAYS}

    @classmethod
    def from_document(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "Vectors":
        """Return the block that `document` and `arrays` describe."""
        kind = Embedded(document["embedder"], document["width"], document["characters"])
        ends = [np.asarray(arrays[part], dtype=np.float64) for part in _ARRAYS]
        if any(end.shape != (kind.width,) or not np.isfinite(end).all() for end in ends) or (ends[0] >= ends[1]).any():
            raise InvalidInput("the columns of the model are damaged or were changed")
        return cls(str(document["name"]), kind, *ends)
