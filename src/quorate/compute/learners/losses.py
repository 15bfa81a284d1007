"""The log losses of logistic regression, and the way down that Newton's method takes from a point.

Every array has the chunk as its first axis. `weights` is 0 for filling rows, and the inverse penalty C for the others.
"""

from collections.abc import Callable

import numpy as np

from quorate.compute.learners.algebra import damped_solve
from quorate.compute.learners.backends import Array, Backend
from quorate.compute.learners.newton import Loss

__all__ = ["BinaryLoss", "MultinomialLoss"]

_INNER = 200  # conjugate-gradient steps for one direction at most; ten are usual
_ENOUGH = 1e-4  # of the squared first residual: a direction within 1 percent leaves Newton's method as fast


class BinaryLoss(Loss):
    """Log loss of one score a row; `target` is 1 or 0."""

    def __init__(self, backend: Backend, design: Array, weights: Array, target: Array, penalties: Array) -> None:
        self._backend, self._weights, self._target = backend, weights, target
        self.design, self.penalties = design, penalties

    def value(self, scores: Array) -> Array:
        """Return the loss of each chunk: the sum over its rows of log(1 + exp(score)) - target * score."""
        losses = self._backend.log1p(self._backend.exp(-abs(scores)))
        losses = losses + self._backend.at_least(scores, 0.0) - self._target * scores
        return (self._weights * losses).sum(axis=(1, 2))

    def direction(self, coefficients: Array, scores: Array) -> tuple[Array, Array]:
        """Return Newton's direction and the gradient."""
        small = self._backend.exp(-abs(scores))
        chance = self._backend.where(scores >= 0, 1.0, small) / (1.0 + small)
        curvature = self._weights * small / (1.0 + small) ** 2
        across = self.design.swapaxes(1, 2)
        gradient = across @ (self._weights * (chance - self._target)) + self.penalties * coefficients
        hessian = across @ (curvature * self.design)
        return -damped_solve(self._backend, hessian, gradient, self.penalties[:, 0]), gradient

    def among(self, chunks: Array) -> "BinaryLoss":
        """Return the loss of some of the chunks."""
        design, weights, target = self.design[chunks], self._weights[chunks], self._target[chunks]
        return BinaryLoss(self._backend, design, weights, target, self.penalties)


class MultinomialLoss(Loss):
    """Log loss of one score a class and row; `target` is 1 for a row's class and 0 for the others.

    The matrix of second derivatives is never formed: with m classes it would be m times as wide as one class's.
    """

    def __init__(self, backend: Backend, design: Array, weights: Array, target: Array, penalties: Array) -> None:
        self._backend, self._weights, self._target = backend, weights, target
        self.design, self.penalties = design, penalties
        self._identity = backend.put(np.eye(design.shape[2]))
        self._squares = design.swapaxes(1, 2) @ (weights * design)

    def value(self, scores: Array) -> Array:
        """Return the loss of each chunk: the sum over its rows of log(sum of exp(scores)) - the label's score."""
        top = self._backend.largest(scores, 2)[:, :, None]
        total = self._backend.log(self._backend.exp(scores - top).sum(axis=2))[:, :, None] + top
        own = (self._target * scores).sum(axis=2)[:, :, None]
        return (self._weights * (total - own)).sum(axis=(1, 2))

    def direction(self, coefficients: Array, scores: Array) -> tuple[Array, Array]:
        """Return a direction close to Newton's, by conjugate gradients, and the gradient."""
        grown = self._backend.exp(scores - self._backend.largest(scores, 2)[:, :, None])
        chances = grown / grown.sum(axis=2)[:, :, None]
        across = self.design.swapaxes(1, 2)
        gradient = across @ (self._weights * (chances - self._target)) + self.penalties * coefficients

        def curved(direction: Array) -> Array:
            change = chances * (self.design @ direction)
            change = change - chances * change.sum(axis=2)[:, :, None]
            return across @ (self._weights * change) + self.penalties * direction

        spread = (self._weights * chances * (1.0 - chances)).sum(axis=(1, 2))
        rows = self._weights.sum(axis=(1, 2)) * chances.shape[2]
        average = (spread / (rows + (rows == 0)))[:, None, None]
        nearly = average * self._squares
        inverse = damped_solve(self._backend, nearly, self._identity + 0.0 * nearly, self.penalties[:, 0])
        return self._conjugate(-gradient, curved, inverse), gradient

    def among(self, chunks: Array) -> "MultinomialLoss":
        """Return the loss of some of the chunks."""
        design, weights, target = self.design[chunks], self._weights[chunks], self._target[chunks]
        return MultinomialLoss(self._backend, design, weights, target, self.penalties)

    def _conjugate(self, right: Array, curved: Callable[[Array], Array], inverse: Array) -> Array:
        """Solve `curved(x) = right` in each chunk, preconditioned by what one class would need on its own."""
        where = self._backend.where
        solution, residual = 0.0 * right, right
        search = eased = inverse @ residual
        size = (residual * eased).sum(axis=(1, 2))
        enough = _ENOUGH * size
        for _ in range(_INNER):
            bent = curved(search)
            bend = (search * bent).sum(axis=(1, 2))
            going = (size > enough) & (bend > 0)
            if not bool(going.any()):
                break
            length = (size / where(going, bend, 1.0))[:, None, None]
            solution = where(going[:, None, None], solution + length * search, solution)
            residual = residual - length * bent
            eased = inverse @ residual
            after = (residual * eased).sum(axis=(1, 2))
            search = eased + (after / where(going, size, 1.0))[:, None, None] * search
            size = where(going, after, 0.0)  # which keeps a chunk that has stopped where it is
        return solution
