"""Teachers taken together: chunks of one shape stacked into one array, a block at a time.

A chunk's shape is decided by its own rows alone: how many it can use, and how many classes they show. Rows that fill
a chunk up to its shape are zero and carry the weight 0.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.learners.backends import Backend
from quorate.learners.deal import Deal
from quorate.learners.inputs import Matrix, check_features, check_labels, usable_rows

__all__ = ["Block", "Chunks", "padded_rows"]

Integers = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Block:
    """A stack of chunks of one shape; it may hold blank ones after those of `teachers`."""

    teachers: Integers  # which teachers these are
    features: Matrix  # (chunks, rows, features)
    weights: Matrix  # (chunks, rows): 1 for a row, 0 for filling
    codes: Integers  # (chunks, rows): labels as places in `shown`, 0 for filling
    shown: Integers  # (teachers, classes shown): the classes of each chunk, ascending

    def indicators(self) -> Matrix:
        """Return for each row and each class shown 1 if that is its label, else 0."""
        matches = self.codes[:, :, np.newaxis] == np.arange(self.shown.shape[1])
        indicators: Matrix = matches * self.weights[:, :, np.newaxis]
        return indicators


class Chunks:
    """The usable rows of every teacher, and how many they show of each class: `counts`, one row a teacher."""

    def __init__(self, X: Any, y: Any, deal: Deal, *, classes: int) -> None:
        classes = check_count("classes", classes, least=2)
        self._X = check_features(X)
        self._y = check_labels(y, rows=len(self._X))
        if deal.rows.size and deal.rows.max() >= len(self._X):
            raise InvalidInput(f"the deal must name rows below {len(self._X)}, the number of rows of X")
        usable = usable_rows(self._X, self._y, classes=classes)[deal.rows]
        owners = np.repeat(np.arange(deal.teachers), deal.sizes)[usable]
        self._rows = deal.rows[usable]
        self._sizes = np.bincount(owners, minlength=deal.teachers)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self.teachers, self.classes, self.features = deal.teachers, classes, self._X.shape[1]
        cells = np.bincount(owners * classes + self._y[self._rows], minlength=deal.teachers * classes)
        self.counts: Integers = cells.reshape(deal.teachers, classes)

    def majority(self) -> Integers:
        """Return the most frequent class of each teacher, the lowest of equals; class 0 for a teacher without rows."""
        labels: Integers = self.counts.argmax(axis=1)
        return labels

    def blocks(self, backend: Backend, *, memory: int, cost: Callable[[int, int], int]) -> Iterator[Block]:
        """Yield the teachers that show two classes or more, as many of one shape together as fit into `memory` bytes.

        A chunk of `rows` rows that show `shown` classes needs `cost(rows, shown)` bytes.
        """
        shown = (self.counts > 0).sum(axis=1)
        rows = padded_rows(self._sizes)
        several = np.flatnonzero(shown >= 2)
        shapes = np.unique(np.stack([rows[several], shown[several]], axis=1), axis=0)
        room = min(memory, backend.fit_bytes)
        for height, width in shapes.tolist():
            alike = np.flatnonzero((rows == height) & (shown == width))
            most = max(1, min(room // cost(height, width), 1 << (self.teachers - 1).bit_length()))
            for start in range(0, alike.size, most):
                yield self._block(alike[start : start + most], height, most if backend.steady else 0)

    def _block(self, teachers: Integers, height: int, chunks: int) -> Block:
        seats = np.arange(height)
        taken = seats < self._sizes[teachers, np.newaxis]
        places = self._rows[np.where(taken, self._starts[teachers, np.newaxis] + seats, 0)]
        features, codes = self._X[places], self._y[places]
        present = self.counts[teachers] > 0
        codes = np.take_along_axis(present.cumsum(axis=1) - 1, codes, axis=1)
        if not taken.all():
            features[~taken], codes[~taken] = 0.0, 0
        shown = present.nonzero()[1].reshape(len(teachers), -1)
        weights = taken.astype(np.float64)
        blank = max(0, chunks - len(teachers))
        if blank:
            features, weights, codes = (
                np.concatenate([part, np.zeros((blank, *part.shape[1:]), part.dtype)])
                for part in (features, weights, codes)
            )
        return Block(teachers, features, weights, codes, shown)


def padded_rows(sizes: Integers) -> Integers:
    """Return the height to which a chunk of each size is filled up: at most a sixteenth more than its own."""
    grain = 2 ** np.maximum(np.frexp(sizes)[1].astype(np.int64) - 5, 0)
    padded: Integers = -(-sizes // grain) * grain
    return padded
