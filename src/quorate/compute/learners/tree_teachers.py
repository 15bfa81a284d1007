"""Fitted shallow trees: every cut of every teacher is compared with a block of queries, and leaves are picked."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.linear import block_shape
from quorate.compute.learners.teachers import (
    LARGEST,
    MEMORY,
    MISSING,
    DeviceName,
    Matrix,
    Teachers,
    check_arrays,
    check_memory,
    check_queries,
)
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

DEEPEST = 6  # levels
NO_CUT = float(np.finfo(np.float32).max)  # a threshold that nothing is above: the node is a leaf

_AXES = {"classes": 0, "features": 0, "feature": 2, "threshold": 2, "label": 2}
_CELLS = 2**17  # teachers times queries taken together: few enough for a cache


class TreeTeachers(Teachers):
    """Each teacher is a tree of a few levels: `feature` and `threshold` of its cuts, and the `label` of its leaves.

    Cuts are in the order of the levels: the children of cut i are 2i + 1, for values up to its threshold, and 2i + 2.
    As in scikit-learn's trees, a query's features are compared in single precision. A missing one is above.
    """

    def __init__(self, feature: Any, threshold: Any, label: Any, *, classes: int, features: int) -> None:
        self.classes, self.features = check_count("classes", classes, least=2), check_count("features", features)
        self._feature, self._label = (np.asarray(part).astype(np.int64) for part in (feature, label))
        self._threshold = np.asarray(threshold, dtype=np.float64)
        cuts = self._feature.shape
        levels = [2**depth - 1 for depth in range(1, DEEPEST + 1)]
        if len(cuts) != 2 or cuts[0] < 1 or cuts[1] not in levels or self._threshold.shape != cuts:
            raise InvalidInput(
                "feature and threshold must be matrices: one row a teacher, one column a cut of its tree"
            )
        if self._label.shape != (cuts[0], cuts[1] + 1):
            raise InvalidInput("label must be a matrix with one column more than there are cuts, one for each leaf")
        known = self._label.min() >= 0 and self._label.max() < classes
        if self._feature.min() < 0 or self._feature.max() >= features or not known:
            raise InvalidInput("feature must be of column numbers, and label of declared classes")
        if not np.isfinite(self._threshold).all():
            raise InvalidInput("threshold must be of finite numbers")
        self.teachers = int(cuts[0])
        self._votes = self._label.astype(np.min_scalar_type(classes - 1))

    def votes(self, X: Any, *, device: DeviceName | None = None, memory: int = MEMORY) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class.

        There is no product to speed up, so that ballots are counted with NumPy on every device.
        """
        queries = check_queries(X, features=self.features, missing=True)
        totals = np.zeros((self.classes, len(queries)), dtype=np.int64)
        for asked, _, chosen in self._blocks(queries, check_memory(memory)):
            for label in range(1, self.classes):
                totals[label, asked] += np.count_nonzero(chosen == label, axis=0)
        totals[0] = self.teachers - totals[1:].sum(axis=0)
        return np.ascontiguousarray(totals.T)

    def ballots(self, X: Any, *, device: DeviceName | None = None, memory: int = MEMORY) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        queries = check_queries(X, features=self.features, missing=True)
        result = np.empty((len(queries), self.teachers), dtype=self._votes.dtype)
        for asked, part, chosen in self._blocks(queries, check_memory(memory)):
            result[asked, part] = chosen.T
        return result

    def _blocks(self, queries: Matrix, memory: int) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
        """Yield which queries, which teachers, and their ballots: one row a teacher."""
        cells = min(_CELLS, memory // (32 + 16 * DEEPEST))
        wide, high = block_shape(len(queries), self.teachers, cells=cells)
        wide = max(1, min(wide, memory // (32 * self.features)))
        for left in range(0, len(queries), wide):
            asked = slice(left, min(left + wide, len(queries)))
            across = np.ascontiguousarray(_rounded(queries[asked]).T)
            for top in range(0, self.teachers, high):
                part = slice(top, min(top + high, self.teachers))
                yield asked, part, self._walk(0, part, across)

    def _walk(self, cut: int, part: slice, across: Matrix) -> NDArray[Any]:
        """Return the ballots of those who come to this cut, as if all did. Nothing but comparisons: proof, step 16."""
        leaf = cut - self._feature.shape[1]
        if leaf >= 0:
            return np.broadcast_to(self._votes[part, leaf, np.newaxis], (part.stop - part.start, across.shape[1]))
        below, above = (self._walk(2 * cut + side, part, across) for side in (1, 2))
        passed = across[self._feature[part, cut]] > self._threshold[part, cut, np.newaxis]
        return np.where(passed, above, below)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays. They are private."""
        sizes = np.array(self.classes), np.array(self.features)
        parts = (*sizes, self._feature, self._threshold, self._label)
        return {"kind": np.array("tree"), **dict(zip(_AXES, parts, strict=True))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "TreeTeachers":
        """Return the teachers that `arrays` describe."""
        check_arrays(arrays, kind="tree", axes=_AXES)
        parts = (arrays[name] for name in ("feature", "threshold", "label"))
        return cls(*parts, classes=int(arrays["classes"]), features=int(arrays["features"]))


def _rounded(queries: Matrix) -> Matrix:
    """Return queries in single precision, a missing value as `MISSING`."""
    clipped = np.where(np.isnan(queries), MISSING, np.clip(queries, -LARGEST, LARGEST))
    return clipped.astype(np.float32).astype(np.float64)
