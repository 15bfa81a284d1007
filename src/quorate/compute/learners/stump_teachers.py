"""Fitted decision stumps: counted by looking thresholds up, not by asking each teacher."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.teachers import (
    LARGEST,
    MEMORY,
    DeviceName,
    Matrix,
    Teachers,
    check_arrays,
    check_memory,
    check_queries,
)
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput

__all__ = ["StumpTeachers"]

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
            own = np.flatnonzero(self._feature == feature)
            own = own[np.argsort(self._threshold[own], kind="stable")]
            votes = np.zeros((own.size + 1, self.classes), dtype=np.int64)
            votes[0] = np.bincount(self._below[own], minlength=self.classes)
            places = np.arange(1, own.size + 1)
            np.add.at(votes, (places, self._above[own]), 1)
            np.add.at(votes, (places, self._below[own]), -1)
            tables.append((feature, self._threshold[own], votes.cumsum(axis=0)))
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
