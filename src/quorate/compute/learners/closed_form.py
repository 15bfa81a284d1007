"""Batched learners whose linear scores have a closed form: nearest centroids, ridge, naive Bayes."""

import math
from dataclasses import dataclass

from quorate.compute.learners.algebra import centred, damped_solve
from quorate.compute.learners.backends import Array, Backend
from quorate.compute.learners.linear_learner import LinearLearner
from quorate.compute.learners.teachers import Block
from quorate.core.checks import check_positive

__all__ = ["BatchedCentroid", "BatchedNaiveBayes", "BatchedRidge"]


@dataclass(frozen=True)
class BatchedCentroid(LinearLearner):
    """The class whose mean is nearest in Euclidean distance; the lowest class of equals.

    The distance to a mean is linear in the query but for a term that all classes share.

    >>> from quorate.compute.learners import Deal
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


@dataclass(frozen=True)
class BatchedRidge(LinearLearner):
    """Penalised least squares with scikit-learn's objective: squared errors plus alpha times the squared weights.

    Each class has a target of 1 on its own rows and -1 on the others. The intercept is not penalised. An alpha of 0
    is plain least squares.

    >>> from quorate.compute.learners import Deal
    >>> X, y = [[-2.0], [-1.0], [1.0], [2.0], [-3.0], [3.0]], [0, 0, 1, 1, 1, 0]
    >>> teachers = BatchedRidge(alpha=0.1).fit(X, y, Deal.of([[0, 1, 2, 3], [4, 5]]), classes=2)
    >>> teachers.ballots([[-1.0], [1.0]]).tolist()
    [[0, 1], [1, 0]]
    """

    alpha: float = 1.0
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        if self.alpha != 0:
            check_positive("alpha", self.alpha)

    def _fit_block(self, backend: Backend, block: Block) -> Array:
        features, weights = backend.put(block.features), backend.put(block.weights)
        target = (2.0 * backend.put(block.indicators()) - 1.0) * weights[:, :, None]
        if self.fit_intercept:
            features, means = centred(features, weights)
            target, levels = centred(target, weights)
        coefficients = self._least_squares(backend, features, target)
        intercepts = 0.0 * coefficients[:, 0]
        if self.fit_intercept:
            intercepts = levels - (means[:, None, :] @ coefficients)[:, 0]
        return backend.join([coefficients, intercepts[:, None, :]], 1).swapaxes(1, 2)

    def _least_squares(self, backend: Backend, features: Array, target: Array) -> Array:
        across = features.swapaxes(1, 2)
        if features.shape[2] <= features.shape[1]:
            return damped_solve(backend, across @ features, across @ target, self.alpha)
        return across @ damped_solve(backend, features @ across, target, self.alpha)

    def _bytes(self, rows: int, features: int, shown: int) -> int:
        return 8 * (4 * rows * (features + shown) + 4 * min(rows, features) ** 2 + 2 * features * shown)


_LEAST = 1e-100  # of a variance


@dataclass(frozen=True)
class BatchedNaiveBayes(LinearLearner):
    """Independent Gaussian features in each class, priors from the chunk, as in scikit-learn.

    Every variance is raised by `var_smoothing` times the largest variance of a feature in the chunk. The score is
    linear in the features and their squares.

    >>> from quorate.compute.learners import Deal
    >>> X, y = [[-0.1], [0.1], [-5.0], [5.0], [4.0]], [0, 0, 1, 1, 1]
    >>> teachers = BatchedNaiveBayes().fit(X, y, Deal.of([range(5)]), classes=2)
    >>> teachers.ballots([[-3.0], [0.0], [3.0]]).ravel().tolist()
    [1, 0, 1]
    """

    var_smoothing: float = 1e-9

    quadratic = True

    def __post_init__(self) -> None:
        check_positive("var_smoothing", self.var_smoothing)

    def coefficients(self, features: int) -> int:
        """Return how many columns a score has: the features and their squares."""
        return 2 * features

    def _fit_block(self, backend: Backend, block: Block) -> Array:
        weights = backend.put(block.weights)
        features, means = centred(backend.put(block.features), weights)
        indicators = backend.put(block.indicators())
        across = indicators.swapaxes(1, 2)
        sizes = backend.at_least(indicators.sum(axis=1), 1.0)[:, :, None]
        rows = backend.at_least(weights.sum(axis=1), 1.0)[:, None]
        centres = (across @ features) / sizes
        away = (features - indicators @ centres) * weights[:, :, None]
        widest = backend.largest((features * features).sum(axis=1) / rows, 1)[:, None, None]
        # A chunk whose rows are all alike has no variance to measure by: any common one leaves it to the priors.
        spread = backend.where(widest > 0, self.var_smoothing * widest, 1.0)
        variances = backend.at_least((across @ (away * away)) / sizes + spread, _LEAST)
        centres = centres + means[:, None, :]
        linear = centres / variances
        constants = backend.log(2.0 * math.pi * variances) + centres * linear
        intercepts = backend.log(sizes[:, :, 0] / rows) - 0.5 * constants.sum(axis=2)
        return backend.join([linear, -0.5 / variances, intercepts[:, :, None]], 2)

    def _bytes(self, rows: int, features: int, shown: int) -> int:
        return 8 * (5 * rows * features + 3 * rows * shown + 10 * shown * features)
