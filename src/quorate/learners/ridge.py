"""Ridge classifiers of many chunks at once: least squares on targets of -1 and 1."""

from dataclasses import dataclass

from quorate.checks import check_positive
from quorate.learners.algebra import centred, damped_solve
from quorate.learners.backends import Array, Backend
from quorate.learners.linear import LinearLearner
from quorate.learners.teachers import Block

__all__ = ["BatchedRidge"]


@dataclass(frozen=True)
class BatchedRidge(LinearLearner):
    """Penalised least squares with scikit-learn's objective: squared errors plus alpha times the squared weights.

    Each class has a target of 1 on its own rows and -1 on the others. The intercept is not penalised. An alpha of 0
    is plain least squares.

    >>> from quorate.learners import Deal
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
