"""Gaussian naive Bayes of many chunks at once."""

import math
from dataclasses import dataclass

from quorate.checks import check_positive
from quorate.learners.algebra import centred
from quorate.learners.backends import Array, Backend
from quorate.learners.linear import LinearLearner
from quorate.learners.teachers import Block

__all__ = ["BatchedNaiveBayes"]

_LEAST = 1e-100  # of a variance


@dataclass(frozen=True)
class BatchedNaiveBayes(LinearLearner):
    """Independent Gaussian features in each class, priors from the chunk, as in scikit-learn.

    Every variance is raised by `var_smoothing` times the largest variance of a feature in the chunk. The score is
    linear in the features and their squares.

    >>> from quorate.learners import Deal
    >>> X, y = [[-0.1], [0.1], [-5.0], [5.0], [4.0]], [0, 0, 1, 1, 1]
    >>> teachers = BatchedNaiveBayes().fit(X, y, Deal.of([range(5)]), classes=2)
    >>> teachers.ballots([[-3.0], [0.0], [3.0]]).ravel().tolist()
    [1, 0, 1]
    """

    var_smoothing: float = 1e-9

    quadratic = True

    def __post_init__(self) -> None:
        check_positive("var_smoothing", self.var_smoothing)

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
