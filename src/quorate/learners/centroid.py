"""Nearest centroids of many chunks at once."""

from dataclasses import dataclass

from quorate.learners.algebra import centred
from quorate.learners.backends import Array, Backend
from quorate.learners.linear import LinearLearner
from quorate.learners.teachers import Block

__all__ = ["BatchedCentroid"]


@dataclass(frozen=True)
class BatchedCentroid(LinearLearner):
    """The class whose mean is nearest in Euclidean distance; the lowest class of equals.

    The distance to a mean is linear in the query but for a term that all classes share.

    >>> from quorate.learners import Deal
    >>> X, y = [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], [0, 1, 2]
    >>> teachers = BatchedCentroid().fit(X, y, Deal.of([[0, 1, 2]]), classes=3)
    >>> teachers.ballots([[1.0, 1.0], [3.0, 0.0], [1.0, 9.0]]).ravel().tolist()
    [0, 1, 2]
    """

    def _fit_block(self, backend: Backend, block: Block) -> Array:
        features, means = centred(backend.put(block.features), backend.put(block.weights))
        indicators = backend.put(block.indicators())
        sizes = backend.at_least(indicators.sum(axis=1), 1.0)[:, :, None]
        centroids = (indicators.swapaxes(1, 2) @ features) / sizes
        intercepts = -((means[:, None, :] + 0.5 * centroids) * centroids).sum(axis=2)
        return backend.join([centroids, intercepts[:, :, None]], 2)

    def _bytes(self, rows: int, features: int, shown: int) -> int:
        return 8 * (3 * rows * features + 2 * rows * shown + 4 * shown * features)
