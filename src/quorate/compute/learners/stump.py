"""Decision stumps of many chunks at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.backends import Array, Backend
from quorate.compute.learners.stump_teachers import StumpTeachers
from quorate.compute.learners.teachers import Block, Chunks, Learner

__all__ = ["BatchedStump"]

_APART = 1e-7  # values closer than this are not split, as in scikit-learn


@dataclass(frozen=True)
class BatchedStump(Learner):
    """The one split of one feature that leaves the least Gini impurity, as a scikit-learn tree of depth 1.

    Among equal splits the lowest feature and then the lowest threshold is taken, where scikit-learn draws the feature.

    >>> from quorate.compute.learners import Deal
    >>> X, y = np.array([[5.0, 1.0], [6.0, 2.0], [5.5, 3.0], [5.2, 4.0]]), np.array([0, 0, 1, 1])
    >>> teachers = BatchedStump().fit(X, y, Deal.of([[0, 1, 2, 3]]), classes=2)
    >>> teachers.ballots([[5.0, 2.4], [5.0, 2.6]]).ravel().tolist()
    [0, 1]
    """

    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, memory: int, one_scale: bool) -> StumpTeachers:
        feature, threshold = np.zeros(chunks.teachers, dtype=np.int64), np.zeros(chunks.teachers)
        below, above = chunks.majority(), chunks.majority()

        def cost(rows: int, shown: int) -> int:
            return int(8 * rows * (8 * chunks.features + 2 * shown))

        for block in chunks.blocks(backend, memory=memory, cost=cost):
            split = [backend.take(part)[: len(block.teachers)] for part in _best_split(backend, block)]
            splits = split[0] >= 0  # rows that cannot be told apart have none: their most frequent class is the vote
            who, shown = block.teachers[splits], block.shown[splits]
            feature[who], threshold[who] = split[1][splits], split[2][splits]
            below[who], above[who] = (_pick(shown, part[splits]) for part in split[3:])
        return StumpTeachers(feature, threshold, below, above, classes=chunks.classes, features=chunks.features)


def _pick(shown: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.take_along_axis(shown, places[:, np.newaxis], axis=1)[:, 0]


def _best_split(backend: Backend, block: Block) -> tuple[Array, Array, Array, Array, Array]:
    """Return each chunk's purity (-1 if nothing can be split), feature, threshold, and the places of its two labels."""
    rounded = block.features.astype(np.float32).astype(np.float64)
    rounded[block.weights == 0] = np.inf  # filling comes last
    values, indicators = backend.put(rounded), backend.put(block.indicators())
    ordered, places = backend.sort(values, 1)
    totals = indicators.sum(axis=1)
    purity = _purity(backend, ordered, places, backend.put(block.codes), totals)
    cuts, columns = purity.shape[1:]
    purity = purity.swapaxes(1, 2).reshape(-1, columns * cuts)
    ordered = ordered.swapaxes(1, 2).reshape(-1, columns * (cuts + 1))
    best = backend.argmax(purity, 1)[:, None]
    feature = best // cuts
    lower = feature * (cuts + 1) + best % cuts
    threshold = backend.gather(ordered, lower, 1) / 2.0 + backend.gather(ordered, lower + 1, 1) / 2.0
    own = backend.gather(values, 0 * places[:, :, :1] + feature[:, :, None], 2)[:, :, 0]
    left = ((own <= threshold)[:, :, None] * indicators).sum(axis=1)
    labels = backend.argmax(left, 1), backend.argmax(totals - left, 1)
    return backend.gather(purity, best, 1)[:, 0], feature[:, 0], threshold[:, 0], *labels


def _purity(backend: Backend, ordered: Array, places: Array, codes: Array, totals: Array) -> Array:
    """Return (chunks, cuts, features): the squared class counts over the size, summed over both sides of each cut.

    The impurity is least where this is largest; it is -1 where two neighbouring values are no cut.
    """
    labels = backend.gather(codes[:, :, None] + 0 * places, places, 1)
    low, high = 0.0, 0.0
    for label in range(totals.shape[1]):
        left = (labels == label)[:, :-1].cumsum(1)
        right = totals[:, label, None, None] - left
        low, high = low + left * left, high + right * right
    size = totals.sum(axis=1)[:, None, None]
    taken = backend.put(np.arange(1.0, ordered.shape[1]))[None, :, None]
    is_cut = (ordered[:, 1:] > ordered[:, :-1] + _APART) & (taken < size)
    return backend.where(is_cut, low / taken + high / backend.at_least(size - taken, 1.0), -1.0)
