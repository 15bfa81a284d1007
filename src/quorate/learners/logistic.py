"""Logistic regression of many chunks at once."""

from dataclasses import dataclass

import numpy as np

from quorate.checks import check_positive
from quorate.learners.algebra import centred, row_space
from quorate.learners.backends import Array, Backend
from quorate.learners.linear import LinearLearner
from quorate.learners.losses import BinaryLoss, MultinomialLoss
from quorate.learners.newton import Loss, minimise
from quorate.learners.teachers import Block

__all__ = ["BatchedLogistic"]


@dataclass(frozen=True)
class BatchedLogistic(LinearLearner):
    """Logistic regression with scikit-learn's objective: C times the sum of log losses, plus half the squared weights.

    The intercept is not penalised. A chunk that shows two classes has one score; one that shows more is multinomial.

    >>> from quorate.learners import Deal
    >>> X, y = [[-2.0], [-1.0], [1.0], [2.0], [-3.0], [3.0]], [0, 0, 1, 1, 1, 0]
    >>> teachers = BatchedLogistic().fit(X, y, Deal.of([[0, 1, 2, 3], [4, 5]]), classes=2)
    >>> teachers.ballots([[-1.0], [1.0]]).tolist()
    [[0, 1], [1, 0]]
    """

    C: float = 1.0
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        check_positive("C", self.C)

    def _fit_block(self, backend: Backend, block: Block) -> Array:
        features, weights = backend.put(block.features), backend.put(block.weights)
        means = None
        if self.fit_intercept:
            features, means = centred(features, weights)
        design, basis = row_space(backend, features)
        found = self._minimum(backend, design, weights[:, :, None], block)
        coefficients = found[:, : design.shape[2]]
        if basis is not None:
            coefficients = basis @ coefficients
        intercepts = 0.0 * found[:, 0] if means is None else found[:, -1] - (means[:, None, :] @ coefficients)[:, 0]
        return backend.join([coefficients, intercepts[:, None, :]], 1).swapaxes(1, 2)

    def _minimum(self, backend: Backend, design: Array, weights: Array, block: Block) -> Array:
        """Return coefficients (chunks, columns, classes shown), the intercept in the last column if there is one."""
        penalties = np.ones((design.shape[2], 1))
        if self.fit_intercept:
            design, penalties = backend.join([design, weights], 2), np.append(penalties, [[0.0]], axis=0)
        target, penalties, weights = backend.put(block.indicators()), backend.put(penalties), self.C * weights
        if block.shown.shape[1] > 2:
            loss: Loss = MultinomialLoss(backend, design, weights, target, penalties)
            return minimise(backend, loss, outputs=block.shown.shape[1])
        loss = BinaryLoss(backend, design, weights, target[:, :, 1:], penalties)
        coefficients = minimise(backend, loss, outputs=1)
        return backend.join([0.0 * coefficients, coefficients], 2)

    def _bytes(self, rows: int, features: int, shown: int) -> int:
        columns = min(rows, features) + 1
        several = 6 * shown * (rows + columns) if shown > 2 else 0
        return 8 * (rows * (2 * features + 3 * columns + 8) + 4 * columns**2 + several)
