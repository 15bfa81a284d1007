"""Shallow decision trees of many chunks at once: grown level by level, from whole numbers that are counted exactly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.backends import Backend
from quorate.compute.learners.linear import block_shape
from quorate.compute.learners.teachers import (
    LARGEST,
    MISSING,
    Block,
    Chunks,
    Learner,
    Matrix,
    Teachers,
    check_queries,
)
from quorate.core.arrays import Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

DEEPEST = 6  # levels
NO_CUT = float(np.finfo(np.float32).max)  # a threshold that nothing is above: the node is a leaf

_CELLS = 2**17  # teachers times queries taken together: few enough for a cache


class TreeTeachers(Teachers):
    """Each teacher is a tree of a few levels: `feature` and `threshold` of its cuts, and the `label` of its leaves.

    Cuts are in the order of the levels: the children of cut i are 2i + 1, for values up to its threshold, and 2i + 2.
    As in scikit-learn's trees, a query's features are compared in single precision. A missing one is above.
    """

    kind = "tree"
    saved: ClassVar[dict[str, int]] = {"classes": 0, "features": 0, "feature": 2, "threshold": 2, "label": 2}

    def __init__(self, feature: Any, threshold: Any, label: Any, *, classes: int, features: int) -> None:
        self.classes, self.features = check_count("classes", classes, least=2), check_count("features", features)
        self.feature, self.label = (np.asarray(part).astype(np.int64) for part in (feature, label))
        self.threshold = np.asarray(threshold, dtype=np.float64)
        self._check_shapes()
        declared = self.label.min() >= 0 and self.label.max() < classes
        if self.feature.min() < 0 or self.feature.max() >= features or not declared:
            raise InvalidInput("feature must be of column numbers, and label of declared classes")
        if not np.isfinite(self.threshold).all():
            raise InvalidInput("threshold must be of finite numbers")
        self.teachers = len(self.feature)
        self._votes = self.label.astype(np.min_scalar_type(classes - 1))

    def _check_shapes(self) -> None:
        cuts = self.feature.shape
        levels = [2**depth - 1 for depth in range(1, DEEPEST + 1)]
        if len(cuts) != 2 or cuts[0] < 1 or cuts[1] not in levels or self.threshold.shape != cuts:
            raise InvalidInput(
                "feature and threshold must be matrices: one row a teacher, one column a cut of its tree"
            )
        if self.label.shape != (cuts[0], cuts[1] + 1):
            raise InvalidInput("label must be a matrix with one column more than there are cuts, one for each leaf")

    def votes(self, X: Any) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class.

        There is no product to speed up, so that ballots are counted with NumPy on every device.
        """
        queries = check_queries(X, features=self.features, missing=True)
        totals = np.zeros((self.classes, len(queries)), dtype=np.int64)
        for rows, _, chosen in self._blocks(queries):
            for label in range(1, self.classes):
                totals[label, rows] += np.count_nonzero(chosen == label, axis=0)
        totals[0] = self.teachers - totals[1:].sum(axis=0)
        return np.ascontiguousarray(totals.T)

    def ballots(self, X: Any) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        queries = check_queries(X, features=self.features, missing=True)
        result = np.empty((len(queries), self.teachers), dtype=self._votes.dtype)
        for rows, part, chosen in self._blocks(queries):
            result[rows, part] = chosen.T
        return result

    def _blocks(self, queries: Matrix) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
        """Yield which queries, which teachers, and their ballots: one row a teacher."""
        cells = min(_CELLS, self.memory // (32 + 16 * DEEPEST))
        wide, high = block_shape(len(queries), self.teachers, cells=cells)
        wide = max(1, min(wide, self.memory // (32 * self.features)))
        for start in range(0, len(queries), wide):
            rows = slice(start, min(start + wide, len(queries)))
            across = np.ascontiguousarray(_round_queries(queries[rows]).T)
            for top in range(0, self.teachers, high):
                part = slice(top, min(top + high, self.teachers))
                yield rows, part, self._walk(0, part, across)

    def _walk(self, cut: int, part: slice, across: Matrix) -> NDArray[Any]:
        """Return the ballots of those who come to this cut, as if all did. Nothing but comparisons: proof, step 16."""
        leaf = cut - self.feature.shape[1]
        if leaf >= 0:
            return np.broadcast_to(self._votes[part, leaf, np.newaxis], (part.stop - part.start, across.shape[1]))
        below, above = (self._walk(2 * cut + side, part, across) for side in (1, 2))
        passed = across[self.feature[part, cut]] > self.threshold[part, cut, np.newaxis]
        return np.where(passed, above, below)


def _round_queries(queries: Matrix) -> Matrix:
    """Return queries in single precision, a missing value as `MISSING`."""
    clipped = np.where(np.isnan(queries), MISSING, np.clip(queries, -LARGEST, LARGEST))
    return clipped.astype(np.float32).astype(np.float64)


_LIKE_COLUMNS = 20  # of a linear score, in the rows that a teacher needs: measured on tables of 8 to 50 columns
_APART = 1e-7  # values closer than this are not split, as in scikit-learn


@dataclass(frozen=True)
class BatchedTree(Learner):
    """Trees of up to `max_depth` levels, each split the one that leaves the least Gini impurity, as in scikit-learn.

    Each side of a split has at least `min_samples_leaf` rows. With `class_weight="balanced"` the classes that a chunk
    shows weigh the same in it, whatever their share. Among equal splits the lowest feature and then the lowest
    threshold is taken, where scikit-learn draws the feature. A missing value is above every threshold.

    >>> from quorate.compute.learners import Deal
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
        """Return the approximate number of parameters: for any features, a tree needs the rows of a score of 20."""
        return _LIKE_COLUMNS

    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, one_scale: bool) -> TreeTeachers:
        nodes = 2**self.max_depth - 1
        feature = np.zeros((chunks.teachers, nodes), dtype=np.int64)
        threshold = np.full((chunks.teachers, nodes), NO_CUT)
        labels = np.repeat(chunks.majority()[:, np.newaxis], nodes + 1, axis=1)

        def cost(rows: int, classes: int) -> int:
            return int(8 * rows * (3 * chunks.features + 6 * classes + nodes + 16))

        for block in chunks.blocks(backend, memory=self.memory, cost=cost):
            grown = _Grown(block, self)
            count = len(block.teachers)  # a block may be filled up with blank chunks
            feature[block.teachers], threshold[block.teachers] = grown.feature[:count], grown.threshold[:count]
            labels[block.teachers] = np.take_along_axis(block.class_codes, grown.leaves()[:count], axis=1)
        return TreeTeachers(feature, threshold, labels, classes=chunks.classes, features=chunks.features)


class _Grown:
    """The trees of one block. A node at place i of its level has children at the places 2i, below its cut, and 2i + 1.

    There is no product to speed up, so that every backend grows trees with NumPy. Over rows, only whole numbers are
    summed; what is computed of the counts is computed for each cut by itself (proof: step 15). Features are taken one
    after the other, each as an array of (chunks, rows) that stays in the caches; a row is known by its place in that
    array, flattened.
    """

    def __init__(self, block: Block, learner: BatchedTree) -> None:
        self._codes, self._taken = block.codes, block.weights > 0
        self._classes, self._least, self._depth = (
            block.class_codes.shape[1],
            learner.min_samples_leaf,
            learner.max_depth,
        )
        self._balanced = learner.class_weight == "balanced"
        self._values = np.ascontiguousarray(block.features.transpose(2, 0, 1), dtype=np.float32)
        self._values[:, ~self._taken] = np.inf  # filling comes last
        self._first = np.arange(0, self._codes.size, self._codes.shape[1])[:, np.newaxis]  # places of first rows
        self._order = self._values.argsort(axis=2, kind="stable") + self._first
        self._node = np.where(self._taken, 0, 1).astype(np.uint8)  # Filling rows are in a separate node, the last.
        sizes = self._per_node(1)[:, 0]
        self._share = np.maximum(sizes, 1) if self._balanced else np.ones_like(sizes)
        self._is_class = [(self._taken & (self._codes == label)).ravel() for label in range(self._classes)]
        self.feature = np.zeros((len(sizes), 2**self._depth - 1), dtype=np.int64)
        self.threshold = np.full((len(sizes), 2**self._depth - 1), NO_CUT)
        for level in range(self._depth):
            self._split(2**level)

    def _per_node(self, nodes: int) -> Integers:
        """Return how many rows of each class are in each of the first nodes: (chunks, nodes, classes)."""
        chunks = len(self._node)
        chunk = np.arange(chunks)[:, np.newaxis]
        cell = ((chunk * (nodes + 1) + np.where(self._taken, self._node, nodes)) * self._classes + self._codes).ravel()
        counts = np.bincount(cell, minlength=chunks * (nodes + 1) * self._classes)
        per_node: Integers = counts.reshape(chunks, nodes + 1, self._classes)[:, :nodes].astype(np.int64)
        return per_node

    def _split(self, nodes: int) -> None:
        node = np.sort(self._node, axis=1)[:, :-1].astype(np.int64)  # the node of each row but the last
        cuts = _Cuts(self._per_node(nodes), node, self._share if self._balanced else None, self._least)
        best, feature = np.full(node.shape, -1.0), np.zeros(node.shape, dtype=np.int64)
        for number, values in enumerate(self._values):
            order = self._by_node(number, sort=nodes > 1)
            ordered = values.ravel()[order].astype(np.float64)
            separates = ordered[:, 1:] > ordered[:, :-1] + _APART
            passed = [flags[order[:, :-1]].cumsum(axis=1) for flags in self._is_class[1:]]
            purity = np.where(separates & cuts.enough, cuts.purity(passed), -1.0)
            better = purity > best  # of equals, the lowest feature's
            best, feature = np.where(better, purity, best), np.where(better, number, feature)
        if node.shape[1]:
            self._keep_best(nodes, node, best, feature)
        self._descend(nodes)

    def _by_node(self, number: int, *, sort: bool) -> Integers:
        """Return the rows in the order of a feature, those of a node side by side."""
        order: Integers = self._order[number]
        if sort:
            together = self._node.ravel()[order].argsort(axis=1, kind="stable")
            order[:] = order.ravel()[together + self._first]
        return order

    def _keep_best(self, nodes: int, nodes_of_rows: Integers, purity: Matrix, by_place: Integers) -> None:
        """Note the best cut of each node of a level: of equals, the lowest feature's, and the lowest of those."""
        chunk, cuts = np.arange(len(purity)), purity.shape[1]
        key, last = by_place * cuts + np.arange(cuts), len(self._values) * cuts
        values = self._values.reshape(len(self._values), -1)
        for node in range(nodes):
            best = np.where(nodes_of_rows == node, purity, -1.0)
            reached = best.max(axis=1)
            chosen = np.where(best == reached[:, np.newaxis], key, last).min(axis=1)
            feature, position = chosen // cuts, chosen % cuts
            below, above = (
                values[feature, self._order[feature, chunk, side]].astype(np.float64)
                for side in (position, position + 1)
            )
            splits = reached >= 0
            self.feature[:, nodes - 1 + node] = np.where(splits, feature, 0)
            self.threshold[:, nodes - 1 + node] = np.where(splits, below / 2.0 + above / 2.0, NO_CUT)

    def _descend(self, nodes: int) -> None:
        at = np.minimum(nodes - 1 + self._node.astype(np.int64), 2 * nodes - 2)
        feature, threshold = (np.take_along_axis(part, at, axis=1) for part in (self.feature, self.threshold))
        rows = np.arange(self._node.size).reshape(self._node.shape)
        right = self._values.reshape(len(self._values), -1)[feature, rows] > threshold
        self._node = np.where(self._taken, 2 * self._node + right, 2 * nodes).astype(np.uint8)

    def leaves(self) -> Integers:
        """Return the most weighty class of each leaf, the lowest of equals: (chunks, leaves)."""
        weights = self._per_node(2**self._depth) / self._share[:, np.newaxis, :]
        labels: Integers = weights.argmax(axis=2)
        return labels


class _Cuts:
    """The places of a level after which a node may be cut, and how pure a cut there leaves both sides.

    `totals` counts rows by chunk, node and class; `node` is the node of each row but the last. `share`, if there is
    one, divides the counts of each class.
    """

    def __init__(self, totals: Integers, node: Integers, share: Integers | None, leaf_rows: int) -> None:
        totals = np.concatenate([totals, np.zeros_like(totals[:, :1])], axis=1)  # of the filling
        earlier = totals.cumsum(axis=1) - totals
        self._before, self._totals = (
            [np.take_along_axis(part[:, :, label], node, axis=1) for label in range(part.shape[2])]
            for part in (earlier, totals)
        )
        self._below: Any = np.arange(1, node.shape[1] + 1) - sum(self._before)
        self._above: Any = sum(self._totals) - self._below
        self._share = share
        self.enough: NDArray[np.bool_] = (self._below >= leaf_rows) & (self._above >= leaf_rows)

    def purity(self, passed: Sequence[Integers]) -> Matrix:
        """Return squared class weights over their sum, added for both sides of each cut: the impurity is least there.

        `passed` counts the rows of each class but the first up to each place, in the order of a feature. What is said
        of a place without enough rows has no meaning.
        """
        passed_here = [
            count - earlier for count, earlier in zip(passed, self._before[1:], strict=True)
        ]  # proof: step 15
        passed_here = [self._below - sum(passed_here), *passed_here]
        right = [total - count for total, count in zip(self._totals, passed_here, strict=True)]
        return np.asarray(self._half(passed_here, self._below) + self._half(right, self._above))

    def _half(self, counts: Sequence[Any], size: Any) -> Any:
        if self._share is None:
            return sum(count * count for count in counts) / size
        weights = [count / self._share[:, label, np.newaxis] for label, count in enumerate(counts)]
        return sum(weight * weight for weight in weights) / sum(weights)
