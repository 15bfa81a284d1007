"""Newton's method on many chunks at once, the log losses of logistic regression, and learners of linear scores.

Every array has the chunk as its first axis, and each chunk is computed from its own rows alone. `weights` is 0 for
filling rows, and the inverse penalty C for the others. A converged chunk keeps its coefficients to the last bit while
others continue.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.backends import Array, Backend
from quorate.compute.learners.linear import NEVER, SLICES, SOUND, LinearTeachers, score_count
from quorate.compute.learners.teachers import Block, Chunks, Learner, Matrix, Teachers
from quorate.core.arrays import Integers
from quorate.core.checks import check_positive
from quorate.core.rows import in_blocks

_TRACE = 1e-12  # of a diagonal: far above rounding, far below what moves a ballot
_TINY = 1e-300
_WRITTEN = 2**13  # teachers whose scores are written together


def centred(features: Array, weights: Array) -> tuple[Array, Array]:
    """Return each chunk's features less their own mean, and that mean. Filling stays zero."""
    rows = weights.sum(axis=1)[:, None, None]
    mean = (weights[:, None, :] @ features) / (rows + (rows == 0))
    return (features - mean) * weights[:, :, None], mean[:, 0, :]


def row_space(backend: Backend, features: Array) -> tuple[Array, Array | None]:
    """Return features with no more columns than rows, and the orthonormal basis that leads back, if one was needed.

    A penalised linear model of few rows and many features lies in the span of its rows; turning the axes into that
    span changes neither the penalty nor the scores.
    """
    if features.shape[2] <= features.shape[1]:
        return features, None
    basis, upper = backend.functions.linalg.qr(features.swapaxes(1, 2))
    return upper.swapaxes(1, 2), basis


def damped_solve(backend: Backend, matrices: Array, right: Array, penalties: Array | float = 0.0) -> Array:
    """Solve many symmetric systems whose diagonals are first raised by the penalties and by a trace of themselves.

    So a singular matrix gives a finite solution instead of an error. The matrices are changed in place.
    """
    size = matrices.shape[1]
    diagonals = matrices.reshape(-1, size * size)[:, :: size + 1]
    diagonals[:] = (diagonals + penalties) * (1.0 + _TRACE) + _TINY
    return backend.solve(matrices, right)


STEPS = 60  # of Newton's method at most; five or six are usual
HALVINGS = 40
STILL = 0.02  # a step that moves no score of the chunk's own rows by more leaves an error of about its square


@dataclass(frozen=True, repr=False)
class Loss(ABC):
    """A convex loss of each chunk's scores on its own rows; `penalties` weigh half the squares of the coefficients."""

    backend: Backend
    design: Array  # (chunks, rows, columns)
    weights: Array  # (chunks, rows, 1)
    target: Array  # (chunks, rows, outputs)
    penalties: Array  # (columns, 1)

    @abstractmethod
    def value(self, scores: Array) -> Array:
        """Return the loss of each chunk, without the penalty."""

    @abstractmethod
    def direction(self, coefficients: Array, scores: Array) -> tuple[Array, Array]:
        """Return the way down that each chunk takes from here, and the gradient of its loss and penalty."""

    def among(self, chunks: Array) -> Self:
        """Return the loss of some of the chunks."""
        return replace(self, design=self.design[chunks], weights=self.weights[chunks], target=self.target[chunks])


def minimise(loss: Loss, *, outputs: int) -> Array:
    """Return each chunk's coefficients that minimise its loss and penalty, from a start at zero."""
    chunks, rows, columns = loss.design.shape
    coefficients, scores = (loss.backend.put(np.zeros((chunks, size, outputs))) for size in (columns, rows))
    return _descend(loss, coefficients, scores, loss.value(scores), steps=STEPS)


def _descend(loss: Loss, coefficients: Array, scores: Array, value: Array, *, steps: int) -> Array:
    backend, active = loss.backend, value >= 0
    for step_number in range(1, steps + 1):
        direction, gradient = loss.direction(coefficients, scores)
        change = loss.design @ direction
        objective = _along(loss, coefficients, scores, direction, change)
        slope = (gradient * direction).sum(axis=(1, 2))
        step, value = _step_lengths(backend, objective, value, slope, active)
        moves, step = (active & (step > 0))[:, None, None], step[:, None, None]
        coefficients = backend.functions.where(moves, coefficients + step * direction, coefficients)
        scores = backend.functions.where(moves, scores + step * change, scores)
        active = moves[:, 0, 0] & (backend.functions.amax(abs(step * change), (1, 2)) > STILL)
        remaining = int(active.sum())
        if remaining == 0:
            break
        if 2 * remaining < len(active) and not backend.steady:  # Drop the converged majority.
            rest = active.nonzero()[0]
            coefficients[rest] = _descend(
                loss.among(rest), coefficients[rest], scores[rest], value[rest], steps=steps - step_number
            )
            break
    return coefficients


def _along(loss: Loss, coefficients: Array, scores: Array, direction: Array, change: Array) -> Callable[[Array], Array]:
    still = 0.5 * (loss.penalties * coefficients * coefficients).sum(axis=(1, 2))
    linear = (loss.penalties * coefficients * direction).sum(axis=(1, 2))
    square = 0.5 * (loss.penalties * direction * direction).sum(axis=(1, 2))
    return lambda step: loss.value(scores + step[:, None, None] * change) + still + step * (linear + step * square)


def _step_lengths(
    backend: Backend, objective: Callable[[Array], Array], value: Array, slope: Array, active: Array
) -> tuple[Array, Array]:
    """Return each chunk's first step among 1, 1/2, 1/4, ... that lowers its objective enough, and the objective there.

    A chunk whose objective no step lowers gets the step 0; one that is not active is not waited for. `slope` is the
    derivative of the objective at step 0.
    """
    step = 0.0 * value + 1.0
    for _ in range(HALVINGS):
        lowered_value = objective(step)
        lowered = ~active | (lowered_value <= value + 1e-4 * step * slope + 1e-12 * abs(value))
        if bool(lowered.all()):
            break
        step = backend.functions.where(lowered, step, 0.5 * step)
    return backend.functions.where(lowered, step, 0.0), lowered_value


class LinearLearner(Learner):
    """A learner whose teachers have linear scores of `coefficients` columns; subclasses fit a block."""

    quadratic: ClassVar[bool] = False  # whether scores also use the squares of the features

    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, one_scale: bool) -> Teachers:
        return self._fit_linear(backend, chunks, one_scale=one_scale)

    def _fit_linear(self, backend: Backend, chunks: Chunks, *, one_scale: bool) -> LinearTeachers:
        classes = chunks.classes
        scores = np.zeros((chunks.teachers, score_count(classes), self.coefficients(chunks.features) + 1))
        scores[:, :, -1] = _constant(chunks.majority(), classes)

        for teachers, class_codes, fitted in self._fit_teachers(backend, chunks):
            _put_scores(scores, teachers, class_codes, fitted, classes=classes)
        slices = 1 if one_scale else SLICES
        return LinearTeachers(scores, classes=classes, quadratic=self.quadratic, slices=slices)

    def _fit_teachers(self, backend: Backend, chunks: Chunks) -> Iterator[tuple[Integers, Integers, Matrix]]:
        """Yield teachers, the classes that each shows, and their scores as `_fit_block` returns them."""

        def cost(rows: int, classes: int) -> int:
            return self._bytes(rows, chunks.features, classes)

        fused, fitted = self._fit_fused(chunks) if backend.fused else (None, None)
        if fused is not None and fitted is not None:
            yield fused, chunks.class_codes(fused), fitted
        for block in chunks.blocks(backend, memory=self.memory, cost=cost, without=fused):
            yield (
                block.teachers,
                block.class_codes,
                backend.take(self._fit_block(backend, block))[: len(block.teachers)],
            )

    def _fit_fused(self, chunks: Chunks) -> tuple[Integers, Matrix] | tuple[None, None]:
        """Return the teachers that a kernel of the GPU fits, if any, and their scores. Others are fitted in blocks."""
        return None, None

    @abstractmethod
    def _fit_block(self, backend: Backend, block: Block) -> Array:
        """Return scores (chunks, classes shown, columns + 1), the intercepts in the last column."""

    @abstractmethod
    def _bytes(self, rows: int, features: int, classes: int) -> int:
        """Return about how much memory `_fit_block` needs for one chunk of this shape."""


def _constant(labels: NDArray[np.int64], classes: int) -> Matrix:
    if classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, np.newaxis]
    return np.where(labels[:, np.newaxis] == np.arange(classes), 0.0, NEVER)


def _put_scores(scores: Matrix, teachers: Integers, class_codes: Integers, fitted: Matrix, *, classes: int) -> None:
    """Write the fitted scores of these teachers; a teacher whose scores are not all sound stays constant."""

    def put_part(part: slice) -> None:
        sound = (np.abs(fitted[part]) <= SOUND).all(axis=(1, 2))
        scores[teachers[part][sound]] = _spread_scores(fitted[part][sound], class_codes[part][sound], classes)

    in_blocks(put_part, len(teachers), block=_WRITTEN)


def _spread_scores(fitted: Matrix, class_codes: NDArray[np.int64], classes: int) -> Matrix:
    if classes == 2:
        return fitted[:, 1:] - fitted[:, :1]
    scores = np.zeros((len(fitted), classes, fitted.shape[2]))
    scores[:, :, -1] = NEVER
    scores[np.arange(len(fitted))[:, np.newaxis], class_codes] = fitted
    return scores


_INNER = 200  # conjugate-gradient steps for one direction at most; ten are usual
_ENOUGH = 1e-4  # of the squared first residual: a direction within 1 percent leaves Newton's method as fast


class BinaryLoss(Loss):
    """Log loss of one score a row; `target` is 1 or 0."""

    def value(self, scores: Array) -> Array:
        """Return the loss of each chunk: the sum over its rows of log(1 + exp(score)) - target * score."""
        functions = self.backend.functions
        losses = functions.log1p(functions.exp(-abs(scores))) + functions.clip(scores, 0.0, None)
        losses = losses - self.target * scores
        return (self.weights * losses).sum(axis=(1, 2))

    def direction(self, coefficients: Array, scores: Array) -> tuple[Array, Array]:
        """Return Newton's direction and the gradient."""
        small = self.backend.functions.exp(-abs(scores))
        chance = self.backend.functions.where(scores >= 0, 1.0, small) / (1.0 + small)
        curvature = self.weights * small / (1.0 + small) ** 2
        across = self.design.swapaxes(1, 2)
        gradient = across @ (self.weights * (chance - self.target)) + self.penalties * coefficients
        hessian = across @ (curvature * self.design)
        return -damped_solve(self.backend, hessian, gradient, self.penalties[:, 0]), gradient


class MultinomialLoss(Loss):
    """Log loss of one score a class and row; `target` is 1 for a row's class and 0 for the others.

    The matrix of second derivatives is never formed: with m classes it would be m times as wide as one class's.
    """

    @cached_property
    def _squares(self) -> Array:
        return self.design.swapaxes(1, 2) @ (self.weights * self.design)

    def value(self, scores: Array) -> Array:
        """Return the loss of each chunk: the sum over its rows of log(sum of exp(scores)) - the label's score."""
        functions = self.backend.functions
        top = functions.amax(scores, 2)[:, :, None]
        total = functions.log(functions.exp(scores - top).sum(axis=2))[:, :, None] + top
        of_class = (self.target * scores).sum(axis=2)[:, :, None]
        return (self.weights * (total - of_class)).sum(axis=(1, 2))

    def direction(self, coefficients: Array, scores: Array) -> tuple[Array, Array]:
        """Return a direction close to Newton's, by conjugate gradients, and the gradient."""
        grown = self.backend.functions.exp(scores - self.backend.functions.amax(scores, 2)[:, :, None])
        chances = grown / grown.sum(axis=2)[:, :, None]
        across = self.design.swapaxes(1, 2)
        gradient = across @ (self.weights * (chances - self.target)) + self.penalties * coefficients

        def curved(direction: Array) -> Array:
            change = chances * (self.design @ direction)
            change = change - chances * change.sum(axis=2)[:, :, None]
            return across @ (self.weights * change) + self.penalties * direction

        spread = (self.weights * chances * (1.0 - chances)).sum(axis=(1, 2))
        rows = self.weights.sum(axis=(1, 2)) * chances.shape[2]
        average = (spread / (rows + (rows == 0)))[:, None, None]
        nearly = average * self._squares
        identity = self.backend.put(np.eye(self.design.shape[2]))
        inverse = damped_solve(self.backend, nearly, identity + 0.0 * nearly, self.penalties[:, 0])
        return self._conjugate(-gradient, curved, inverse), gradient

    def _conjugate(self, right: Array, curved: Callable[[Array], Array], inverse: Array) -> Array:
        """Solve `curved(x) = right` in each chunk, preconditioned by what one class would need on its own."""
        where = self.backend.functions.where
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
            squared = (residual * eased).sum(axis=(1, 2))
            search = eased + (squared / where(going, size, 1.0))[:, None, None] * search
            size = where(going, squared, 0.0)  # which keeps a chunk that has stopped where it is
        return solution


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
        sizes = backend.functions.clip(indicators.sum(axis=1), 1.0, None)[:, :, None]
        centroids = (indicators.swapaxes(1, 2) @ features) / sizes
        intercepts = -((means[:, None, :] + 0.5 * centroids) * centroids).sum(axis=2)
        return backend.functions.concatenate([centroids, intercepts[:, :, None]], 2)

    def _bytes(self, rows: int, features: int, classes: int) -> int:
        return 8 * (3 * rows * features + 2 * rows * classes + 4 * classes * features)


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
        return backend.functions.concatenate([coefficients, intercepts[:, None, :]], 1).swapaxes(1, 2)

    def _least_squares(self, backend: Backend, features: Array, target: Array) -> Array:
        across = features.swapaxes(1, 2)
        if features.shape[2] <= features.shape[1]:
            return damped_solve(backend, across @ features, across @ target, self.alpha)
        return across @ damped_solve(backend, features @ across, target, self.alpha)

    def _bytes(self, rows: int, features: int, classes: int) -> int:
        return 8 * (4 * rows * (features + classes) + 4 * min(rows, features) ** 2 + 2 * features * classes)


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
        sizes = backend.functions.clip(indicators.sum(axis=1), 1.0, None)[:, :, None]
        rows = backend.functions.clip(weights.sum(axis=1), 1.0, None)[:, None]
        centres = (across @ features) / sizes
        away = (features - indicators @ centres) * weights[:, :, None]
        widest = backend.functions.amax((features * features).sum(axis=1) / rows, 1)[:, None, None]
        # A chunk of equal rows has no variance; any common variance leaves the decision to the priors.
        spread = backend.functions.where(widest > 0, self.var_smoothing * widest, 1.0)
        variances = backend.functions.clip((across @ (away * away)) / sizes + spread, _LEAST, None)
        centres = centres + means[:, None, :]
        linear = centres / variances
        constants = backend.functions.log(2.0 * math.pi * variances) + centres * linear
        intercepts = backend.functions.log(sizes[:, :, 0] / rows) - 0.5 * constants.sum(axis=2)
        return backend.functions.concatenate([linear, -0.5 / variances, intercepts[:, :, None]], 2)

    def _bytes(self, rows: int, features: int, classes: int) -> int:
        return 8 * (5 * rows * features + 3 * rows * classes + 10 * classes * features)
