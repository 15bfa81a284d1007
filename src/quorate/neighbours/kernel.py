"""The weight of a record's vote: a whole number, by the squared distance between two points (PROOF.md, step 2)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quorate.checks import check_count, set_validated
from quorate.errors import InvalidInput
from quorate.neighbours.points import LONGEST, Points, Space

__all__ = ["Kernel", "Shape", "squares_of"]

Shape = Literal["flat", "linear"]


def squares_of(points: Points) -> NDArray[np.float32]:
    """Return the squared length of each point, which a 32-bit float holds exactly."""
    return np.asarray(np.einsum("ij,ij->i", points, points))


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """Weights from `top`, at no distance, to 0, at the radius and beyond.

    "linear" weights fall in proportion to the squared distance (Epanechnikov's kernel); "flat" ones are all `top`.

    >>> kernel = Kernel(shape="linear", squared_radius=100, top=32)
    >>> squared_distances = np.array([0, 1, 50, 99, 100, 400], dtype=np.float32)
    >>> kernel.weigh(kernel.squared_radius - squared_distances).tolist()
    [32.0, 31.0, 16.0, 0.0, 0.0, 0.0]
    """

    shape: Shape
    squared_radius: int
    top: int

    def __post_init__(self) -> None:
        if self.shape not in ("flat", "linear"):
            raise InvalidInput(f"kernel must be one of flat, linear, not {self.shape!r}")
        squared = check_count("squared_radius", self.squared_radius)
        if squared > (2 * LONGEST) ** 2:
            raise InvalidInput(f"squared_radius is at most {(2 * LONGEST) ** 2}, the square of the largest distance")
        set_validated(self, squared_radius=squared, top=check_count("top", self.top))

    @classmethod
    def within(cls, radius: float, space: Space, *, shape: Shape, top: int) -> "Kernel":
        """Return the kernel of a radius in the units of a space's rows or directions."""
        squared = round(min(radius * space.unit, 2.0 * LONGEST) ** 2)
        return cls(shape=shape, squared_radius=max(1, squared), top=top)

    def weigh(self, short: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights in the place of what squared distances fall short of the squared radius by."""
        if self.shape == "flat":
            np.clip(short, 0, 1, out=short)  # whole numbers: 1 within the radius, 0 elsewhere
            return np.multiply(short, np.float32(self.top), out=short)
        np.multiply(short, np.float32(self.top) / np.float32(self.squared_radius), out=short)
        np.floor(short, out=short)
        return np.clip(short, 0, self.top, out=short)  # proof: step 2
