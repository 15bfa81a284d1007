"""Linear teachers of all products of two features: a public map in front of the scores, value by value."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import LARGEST, MEMORY, DeviceName, Matrix, Teachers, check_memory, check_queries
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput


def product_count(features: int) -> int:
    """Return how many columns `with_products` makes of so many features."""
    return features * (features + 3) // 2


def with_products(features: Matrix) -> Matrix:
    """Return the features and after them the product of every two, squares included, along the last axis.

    The order is that of scikit-learn's `PolynomialFeatures`. A product is rounded once, by itself (proof: step 17).

    >>> with_products(np.array([[2.0, 3.0]])).tolist()
    [[2.0, 3.0, 4.0, 6.0, 9.0]]
    """
    left, right = np.triu_indices(features.shape[-1])
    clipped = np.clip(features, -LARGEST, LARGEST)
    products = np.clip(clipped[..., left] * clipped[..., right], -LARGEST, LARGEST)
    return np.concatenate([clipped, products], axis=-1)


class QuadraticTeachers(Teachers):
    """Teachers whose scores are linear in the features and in their products: `linear`, asked with products."""

    def __init__(self, linear: LinearTeachers, *, features: int) -> None:
        self._linear, self.features = linear, check_count("features", features)
        self.teachers, self.classes = linear.teachers, linear.classes
        columns = product_count(features)
        if linear.features != columns:
            raise InvalidInput(f"scores of {features} features must have {columns} coefficients, not {linear.features}")

    def votes(self, X: Any, *, device: DeviceName | None = None, memory: int = MEMORY) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class."""
        totals = np.zeros((len(X), self.classes), dtype=np.int64)
        for asked, columns in self._blocks(X, memory):
            totals[asked] = self._linear.votes(columns, device=device or self.device, memory=memory)
        return totals

    def ballots(self, X: Any, *, device: DeviceName | None = None, memory: int = MEMORY) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        result = np.zeros((len(X), self.teachers), dtype=np.min_scalar_type(self.classes - 1))
        for asked, columns in self._blocks(X, memory):
            result[asked] = self._linear.ballots(columns, device=device or self.device, memory=memory)
        return result

    def _blocks(self, X: Any, memory: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield which queries, and these with their products: as many together as fit into a part of the memory."""
        queries = check_queries(X, features=self.features)
        together = max(1, check_memory(memory) // (64 * self._linear.features))
        for start in range(0, len(queries), together):
            asked = slice(start, min(start + together, len(queries)))
            yield asked, with_products(queries[asked])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays. They are private."""
        return self._linear.arrays() | {"kind": np.array("quadratic"), "features": np.array(self.features)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "QuadraticTeachers":
        """Return the teachers that `arrays` describe."""
        if "features" not in arrays or np.asarray(arrays["features"]).ndim:
            raise InvalidInput("arrays must be of the kind 'quadratic' and hold a number as features")
        linear = LinearTeachers.from_arrays({**arrays, "kind": np.array("linear")})
        return cls(linear, features=int(arrays["features"]))
