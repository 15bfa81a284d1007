"""How teachers whose scores are linear are fitted together, each from its own rows."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.backends import Array, Backend
from quorate.compute.learners.linear import NEVER, SLICES, SOUND, LinearTeachers, score_count
from quorate.compute.learners.teachers import Block, Chunks, Learner, Matrix, Teachers
from quorate.core.arrays import Integers


class LinearLearner(Learner):
    """A learner whose teachers have linear scores of `coefficients` columns; each kind says how a block is fitted."""

    quadratic: ClassVar[bool] = False  # whether scores also use the squares of the features

    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, memory: int, one_scale: bool) -> Teachers:
        return self._fit_linear(backend, chunks, memory=memory, one_scale=one_scale)

    def _fit_linear(self, backend: Backend, chunks: Chunks, *, memory: int, one_scale: bool) -> LinearTeachers:
        classes = chunks.classes
        scores = np.zeros((chunks.teachers, score_count(classes), self.coefficients(chunks.features) + 1))
        scores[:, :, -1] = _constant(chunks.majority(), classes)

        for teachers, shown, fitted in self._fitted(backend, chunks, memory):
            sound = (np.abs(fitted) <= SOUND).all(axis=(1, 2))
            scores[teachers[sound]] = _declared(fitted[sound], shown[sound], classes)
        slices = 1 if one_scale else SLICES
        return LinearTeachers(scores, classes=classes, quadratic=self.quadratic, slices=slices)

    def _fitted(self, backend: Backend, chunks: Chunks, memory: int) -> Iterator[tuple[Integers, Integers, Matrix]]:
        """Yield teachers, the classes that each shows, and their scores as `_fit_block` returns them."""

        def cost(rows: int, shown: int) -> int:
            return self._bytes(rows, chunks.features, shown)

        fused, fitted = self._fit_fused(chunks) if backend.fused else (None, None)
        if fused is not None and fitted is not None:
            yield fused, chunks.shown(fused), fitted
        for block in chunks.blocks(backend, memory=memory, cost=cost, without=fused):
            yield block.teachers, block.shown, backend.take(self._fit_block(backend, block))[: len(block.teachers)]

    def _fit_fused(self, chunks: Chunks) -> tuple[Integers, Matrix] | tuple[None, None]:
        """Return the teachers that a kernel of the GPU fits, if any, and their scores. Others are fitted in blocks."""
        return None, None

    @abstractmethod
    def _fit_block(self, backend: Backend, block: Block) -> Array:
        """Return scores (chunks, classes shown, columns + 1), the intercepts in the last column."""

    @abstractmethod
    def _bytes(self, rows: int, features: int, shown: int) -> int:
        """Return about how much memory `_fit_block` needs for one chunk of this shape."""


def _constant(labels: NDArray[np.int64], classes: int) -> Matrix:
    """Return intercepts with which each teacher always votes for its label."""
    if classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, np.newaxis]
    return np.where(labels[:, np.newaxis] == np.arange(classes), 0.0, NEVER)


def _declared(fitted: Matrix, shown: NDArray[np.int64], classes: int) -> Matrix:
    """Return the scores of the classes shown as scores of all declared classes."""
    if classes == 2:
        return fitted[:, 1:] - fitted[:, :1]
    scores = np.zeros((len(fitted), classes, fitted.shape[2]))
    scores[:, :, -1] = NEVER
    scores[np.arange(len(fitted))[:, np.newaxis], shown] = fitted
    return scores
