"""Decision stumps of many chunks at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.backends import Array, Backend
from quorate.compute.learners.teachers import (
    LARGEST,
    MEMORY,
    Block,
    Chunks,
    DeviceName,
    Learner,
    Matrix,
    Teachers,
    check_arrays,
    check_memory,
    check_queries,
)
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

_APART = 1e-7  # values closer than this are not split, as in scikit-learn


_AXES = {"classes": 0, "features": 0, "feature": 1, "threshold": 1, "below": 1, "above": 1}


class StumpTeachers(Teachers):
    """Each teacher looks at one feature: it votes `below` up to its threshold and `above` beyond it.

    As in scikit-learn's trees, a query's features are compared in single precision.
    """

    def __init__(self, feature: Any, threshold: Any, below: Any, above: Any, *, classes: int, features: int) -> None:
        self.classes, self.features = check_count("classes", classes, least=2), check_count("features", features)
        self._feature, self._below, self._above = (
            np.asarray(part).astype(np.int64) for part in (feature, below, above)
        )
        self._threshold = np.asarray(threshold, dtype=np.float64)
        parts = (self._feature, self._threshold, self._below, self._above)
        if any(part.ndim != 1 or part.size < 1 or part.size != parts[0].size for part in parts):
            raise InvalidInput("feature, threshold, below and above must be vectors, one entry for each teacher")
        labels = np.concatenate([self._below, self._above])
        if self._feature.min() < 0 or self._feature.max() >= features or labels.min() < 0 or labels.max() >= classes:
            raise InvalidInput("feature must be of column numbers, and below and above of declared classes")
        if not np.isfinite(self._threshold).all():
            raise InvalidInput("threshold must be of finite numbers")
        self.teachers = int(self._feature.size)

    @cached_property
    def _tables(self) -> list[tuple[int, Matrix, NDArray[np.int64]]]:
        """For each feature in use: the thresholds in order, and the votes by how many of them a query has passed."""
        tables = []
        for feature in np.unique(self._feature).tolist():
            teachers = np.flatnonzero(self._feature == feature)
            teachers = teachers[np.argsort(self._threshold[teachers], kind="stable")]
            votes = np.zeros((teachers.size + 1, self.classes), dtype=np.int64)
            votes[0] = np.bincount(self._below[teachers], minlength=self.classes)
            ranks = np.arange(1, teachers.size + 1)
            np.add.at(votes, (ranks, self._above[teachers]), 1)
            np.add.at(votes, (ranks, self._below[teachers]), -1)
            tables.append((feature, self._threshold[teachers], votes.cumsum(axis=0)))
        return tables

    def votes(self, X: Any, *, device: DeviceName | None = None, memory: int = MEMORY) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class.

        There is no product to speed up, so that ballots are counted with NumPy on every device.
        """
        queries = check_queries(X, features=self.features)
        totals = np.zeros((len(queries), self.classes), dtype=np.int64)
        for part, values in _in_blocks(queries, check_memory(memory) // (16 * (self.features + self.classes))):
            for feature, thresholds, votes in self._tables:
                totals[part] += votes[np.searchsorted(thresholds, values[:, feature], side="left")]
        return totals

    def ballots(self, X: Any, *, device: DeviceName | None = None, memory: int = MEMORY) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        queries = check_queries(X, features=self.features)
        result = np.empty((len(queries), self.teachers), dtype=np.min_scalar_type(self.classes - 1))
        for part, values in _in_blocks(queries, check_memory(memory) // (24 * (self.features + self.teachers))):
            result[part] = np.where(values[:, self._feature] <= self._threshold, self._below, self._above)
        return result

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays. They are private."""
        sizes = np.array(self.classes), np.array(self.features)
        parts = (*sizes, self._feature, self._threshold, self._below, self._above)
        return {"kind": np.array("stump"), **dict(zip(_AXES, parts, strict=True))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "StumpTeachers":
        """Return the teachers that `arrays` describe."""
        check_arrays(arrays, kind="stump", axes=_AXES)
        parts = (arrays[name] for name in ("feature", "threshold", "below", "above"))
        return cls(*parts, classes=int(arrays["classes"]), features=int(arrays["features"]))


def _in_blocks(queries: Matrix, rows: int) -> Iterator[tuple[slice, Matrix]]:
    """Yield blocks of queries, rounded to single precision."""
    for start in range(0, len(queries), max(1, rows)):
        part = slice(start, start + max(1, rows))
        yield part, np.clip(queries[part], -LARGEST, LARGEST).astype(np.float32).astype(np.float64)


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


def _pick(shown: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.take_along_axis(shown, positions[:, np.newaxis], axis=1)[:, 0]


def _best_split(backend: Backend, block: Block) -> tuple[Array, Array, Array, Array, Array]:
    """Return each chunk's purity (-1 if nothing can be split), feature, threshold, and the places of its two labels."""
    rounded = block.features.astype(np.float32).astype(np.float64)
    rounded[block.weights == 0] = np.inf  # filling comes last
    values, indicators = backend.put(rounded), backend.put(block.indicators())
    ordered, positions = backend.sort(values, 1)
    totals = indicators.sum(axis=1)
    purity = _purity(backend, ordered, positions, backend.put(block.codes), totals)
    cuts, columns = purity.shape[1:]
    purity = purity.swapaxes(1, 2).reshape(-1, columns * cuts)
    ordered = ordered.swapaxes(1, 2).reshape(-1, columns * (cuts + 1))
    best = backend.argmax(purity, 1)[:, None]
    feature = best // cuts
    lower = feature * (cuts + 1) + best % cuts
    threshold = backend.gather(ordered, lower, 1) / 2.0 + backend.gather(ordered, lower + 1, 1) / 2.0
    column = backend.gather(values, 0 * positions[:, :, :1] + feature[:, :, None], 2)[:, :, 0]
    below = ((column <= threshold)[:, :, None] * indicators).sum(axis=1)
    labels = backend.argmax(below, 1), backend.argmax(totals - below, 1)
    return backend.gather(purity, best, 1)[:, 0], feature[:, 0], threshold[:, 0], *labels


def _purity(backend: Backend, ordered: Array, positions: Array, codes: Array, totals: Array) -> Array:
    """Return (chunks, cuts, features): the squared class counts over the size, summed over both sides of each cut.

    The impurity is least where this is largest; it is -1 where two neighbouring values are no cut.
    """
    labels = backend.gather(codes[:, :, None] + 0 * positions, positions, 1)
    low, high = 0.0, 0.0
    for label in range(totals.shape[1]):
        below = (labels == label)[:, :-1].cumsum(1)
        right = totals[:, label, None, None] - below
        low, high = low + below * below, high + right * right
    size = totals.sum(axis=1)[:, None, None]
    ranks = backend.put(np.arange(1.0, ordered.shape[1]))[None, :, None]
    is_cut = (ordered[:, 1:] > ordered[:, :-1] + _APART) & (ranks < size)
    return backend.where(is_cut, low / ranks + high / backend.at_least(size - ranks, 1.0), -1.0)
