"""Shallow decision trees of many chunks at once: grown level by level, from whole numbers that are counted exactly."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Integers
from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.learners.backends import Backend
from quorate.learners.teachers import Block, Chunks, Learner, Matrix
from quorate.learners.tree_teachers import DEEPEST, NO_CUT, TreeTeachers

__all__ = ["BatchedTree"]

_LIKE_COLUMNS = 20  # of a linear score, in the rows that a teacher needs: measured on tables of 8 to 50 columns
_APART = 1e-7  # values closer than this are not split, as in scikit-learn


@dataclass(frozen=True)
class BatchedTree(Learner):
    """Trees of up to `max_depth` levels, each split the one that leaves the least Gini impurity, as in scikit-learn.

    Each side of a split has at least `min_samples_leaf` rows. With `class_weight="balanced"` the classes that a chunk
    shows weigh the same in it, whatever their share. Among equal splits the lowest feature and then the lowest
    threshold is taken, where scikit-learn draws the feature. A missing value is above every threshold.

    >>> from quorate.learners import Deal
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 1, 0]
    >>> teachers = BatchedTree(max_depth=2, min_samples_leaf=1).fit(X, y, Deal.of([range(4)]), classes=2)
    >>> teachers.ballots(X).ravel().tolist()  # no line tells these apart
    [0, 1, 1, 0]
    """

    max_depth: int = 4
    min_samples_leaf: int = 1
    class_weight: Literal["balanced"] | None = None

    takes_missing = True

    def __post_init__(self) -> None:
        if check_count("max_depth", self.max_depth) > DEEPEST:
            raise InvalidInput(f"max_depth must be at most {DEEPEST}, not {self.max_depth}")
        check_count("min_samples_leaf", self.min_samples_leaf)
        if self.class_weight not in (None, "balanced"):
            raise InvalidInput(f"class_weight must be None or 'balanced', not {self.class_weight!r}")

    def coefficients(self, features: int) -> int:
        """Return about how much there is to learn: whatever the features, a tree needs the rows of a score of 20."""
        return _LIKE_COLUMNS

    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, memory: int, one_scale: bool) -> TreeTeachers:
        nodes = 2**self.max_depth - 1
        feature = np.zeros((chunks.teachers, nodes), dtype=np.int64)
        threshold = np.full((chunks.teachers, nodes), NO_CUT)
        labels = np.repeat(chunks.majority()[:, np.newaxis], nodes + 1, axis=1)

        def cost(rows: int, shown: int) -> int:
            return int(8 * rows * (12 * chunks.features + 2 * shown + nodes))

        for block in chunks.blocks(backend, memory=memory, cost=cost):
            grown = _Grown(block, self)
            known = len(block.teachers)  # a block may be filled up with blank chunks
            feature[block.teachers], threshold[block.teachers] = grown.feature[:known], grown.threshold[:known]
            labels[block.teachers] = np.take_along_axis(block.shown, grown.leaves()[:known], axis=1)
        return TreeTeachers(feature, threshold, labels, classes=chunks.classes, features=chunks.features)


class _Grown:
    """The trees of one block. A node at place i of its level has children at the places 2i, below its cut, and 2i + 1.

    There is no product to speed up, so that every backend grows trees with NumPy. Over rows, only whole numbers are
    summed; what is computed of the counts is computed for each cut by itself (proof: step 15).
    """

    def __init__(self, block: Block, learner: BatchedTree) -> None:
        self._values = block.features.astype(np.float32).astype(np.float64)
        self._codes, self._taken = block.codes, block.weights > 0
        self._classes, self._least, self._depth = block.shown.shape[1], learner.min_samples_leaf, learner.max_depth
        self._node = np.where(self._taken, 0, 1).astype(np.int16)  # filling is in a node of its own, the last
        self._order = self._values.argsort(axis=1, kind="stable")
        sizes = self._per_node(self._node, 1)[:, 0]
        self._share = np.maximum(sizes, 1) if learner.class_weight == "balanced" else np.ones_like(sizes)
        self.feature = np.zeros((len(sizes), 2**self._depth - 1), dtype=np.int64)
        self.threshold = np.full((len(sizes), 2**self._depth - 1), NO_CUT)
        for level in range(self._depth):
            self._split(level)

    def _per_node(self, node: NDArray[np.integer], nodes: int) -> Integers:
        """Return how many rows of each class are in each of the first nodes: (chunks, nodes, classes)."""
        chunk = np.arange(len(node))[:, np.newaxis]
        cell = ((chunk * (nodes + 1) + np.where(self._taken, node, nodes)) * self._classes + self._codes).ravel()
        counts = np.bincount(cell, minlength=len(node) * (nodes + 1) * self._classes)
        kept: Integers = counts.reshape(len(node), nodes + 1, self._classes)[:, :nodes].astype(np.int64)
        return kept

    def _split(self, level: int) -> None:
        nodes = 2**level
        by_node = np.take_along_axis(self._node[:, :, np.newaxis], self._order, axis=1)
        together = by_node.argsort(axis=1, kind="stable")  # rows of a node side by side, each feature in its order
        self._order = np.take_along_axis(self._order, together, axis=1)
        ordered = np.take_along_axis(self._values, self._order, axis=1)
        place = np.sort(self._node, axis=1)[:, :-1].astype(np.int64)  # the node of each row but the last
        if place.shape[1]:
            self._keep_best(nodes, place, self._purity(nodes, place, ordered), ordered)
        self._descend(nodes)

    def _purity(self, nodes: int, place: Integers, ordered: Matrix) -> Matrix:
        """Return (chunks, places, features): squared class weights over their sum, added for both sides of each cut.

        The impurity is least where this is largest; it is -1 where there is no cut after this place.
        """
        totals = self._per_node(self._node, nodes)
        totals = np.concatenate([totals, np.zeros_like(totals[:, :1])], axis=1)  # of the filling
        before = totals.cumsum(axis=1) - totals
        labels = np.take_along_axis(self._codes[:, :, np.newaxis], self._order[:, :-1], axis=1)
        taken = np.take_along_axis(self._taken[:, :, np.newaxis], self._order[:, :-1], axis=1)
        squares, sums = [0.0, 0.0], [0.0, 0.0]
        for label in range(self._classes):
            passed = ((labels == label) & taken).cumsum(axis=1)  # proof: step 15
            left = passed - np.take_along_axis(before[:, :, label], place, axis=1)[:, :, np.newaxis]
            right = np.take_along_axis(totals[:, :, label], place, axis=1)[:, :, np.newaxis] - left
            for side, count in enumerate((left, right)):
                weight = count / self._share[:, label, np.newaxis, np.newaxis]
                squares[side], sums[side] = squares[side] + weight * weight, sums[side] + weight
        is_cut = (ordered[:, 1:] > ordered[:, :-1] + _APART) & self._enough(nodes, place)[:, :, np.newaxis]
        purity: Matrix = np.where(is_cut, squares[0] / sums[0] + squares[1] / sums[1], -1.0)
        return purity

    def _enough(self, nodes: int, place: Integers) -> NDArray[np.bool_]:
        """Return after which places a cut leaves enough rows of the node on both sides."""
        sizes = self._per_node(self._node, nodes).sum(axis=2)
        sizes = np.concatenate([sizes, np.zeros_like(sizes[:, :1])], axis=1)
        starts = np.take_along_axis(sizes.cumsum(axis=1) - sizes, place, axis=1)
        below = np.arange(1, place.shape[1] + 1) - starts
        above = np.take_along_axis(sizes, place, axis=1) - below
        enough: NDArray[np.bool_] = (below >= self._least) & (above >= self._least)
        return enough

    def _keep_best(self, nodes: int, place: Integers, purity: Matrix, ordered: Matrix) -> None:
        """Note the best cut of each node of a level: of equals, the lowest feature's, and the lowest of those."""
        chunk, cuts = np.arange(len(purity)), purity.shape[1]
        largest, key = purity.max(axis=2), purity.argmax(axis=2) * cuts + np.arange(cuts)
        for node in range(nodes):
            best = np.where(place == node, largest, -1.0)
            reached = best.max(axis=1)
            chosen = np.where(best == reached[:, np.newaxis], key, purity[0].size).min(axis=1)
            feature, after = chosen // cuts, chosen % cuts
            middle = ordered[chunk, after, feature] / 2.0 + ordered[chunk, after + 1, feature] / 2.0
            splits = reached >= 0
            self.feature[:, nodes - 1 + node] = np.where(splits, feature, 0)
            self.threshold[:, nodes - 1 + node] = np.where(splits, middle, NO_CUT)

    def _descend(self, nodes: int) -> None:
        """Send every row to the child that its value leads to."""
        at = np.minimum(nodes - 1 + self._node, 2 * nodes - 2)
        feature, threshold = (np.take_along_axis(part, at, axis=1) for part in (self.feature, self.threshold))
        value = np.take_along_axis(self._values, feature[:, :, np.newaxis], axis=2)[:, :, 0]
        self._node = np.where(self._taken, 2 * self._node + (value > threshold), 2 * nodes).astype(np.int16)

    def leaves(self) -> Integers:
        """Return the most weighty class of each leaf, the lowest of equals: (chunks, leaves)."""
        weights = self._per_node(self._node, 2**self._depth) / self._share[:, np.newaxis, :]
        labels: Integers = weights.argmax(axis=2)
        return labels
