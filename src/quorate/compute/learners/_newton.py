"""Newton's method and the linear algebra of learners on many chunks at once, each by its own rows alone.

Arrays have the chunk as their first axis: `found` is (chunks, columns, outputs), `scores` is (chunks, rows, outputs).
A converged chunk keeps its coefficients to the last bit while others continue.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from quorate.compute.learners.backends import Array, Backend

_TRACE = 1e-12  # of a diagonal: far above rounding, far below what moves a ballot
_TINY = 1e-300


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
    """Return the objective of each chunk as a function of its step."""
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
