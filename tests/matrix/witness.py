"""Estimators that take note of what they are given: of which type, shape and index, in which calls, with which values.

They stand for whatever an estimator of somebody's own may look at. What one teacher is given must not depend on the
rows of another: the notes of two runs are compared call by call.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags

from quorate.auditing.replay import off_the_tape
from quorate.core.errors import InvalidInput
from quorate.core.estimator_calls import CALL

_LARGE = 20.0  # above it a row makes a teacher touchy, and far above it, it cannot be fitted or predicted
_LARGEST = 1000.0


class Call(NamedTuple):
    """One call of an estimator: what everybody could time or see of it, and the values, row by row."""

    kind: str
    layout: str
    rows: tuple[int, ...]


@dataclass
class Notes:
    """All calls so far, by the estimator that got them, in the order in which estimators first got one."""

    _calls: dict[int, list[Call]] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)  # so that no number of an object is given twice

    def add(self, estimator: Any, call: Call) -> None:
        """Take note of a call."""
        if id(estimator) not in self._calls:
            self._alive.append(estimator)
        self._calls.setdefault(id(estimator), []).append(call)

    def taken(self) -> list[tuple[Call, ...]]:
        """Return the calls since this was last asked: one entry for each estimator that had any."""
        calls_by_teacher = [tuple(calls) for calls in self._calls.values() if calls]
        for calls in self._calls.values():
            calls.clear()
        return calls_by_teacher


_notes: list[Notes] = []


@contextmanager
def noted_calls() -> Iterator[Notes]:
    """Take note of all calls of a `Witness` in this process while it lasts."""
    if _notes:
        raise InvalidInput("calls are being noted in this process already; end that first")
    _notes.append(Notes())
    try:
        yield _notes[0]
    finally:
        _notes.clear()


def layout_of(X: Any) -> str:
    """Return all that an estimator can see of its rows but their values: container, types, shape, index, order."""
    kind = type(X).__name__
    if isinstance(X, np.ndarray):
        order = "C" * X.flags.c_contiguous + "F" * X.flags.f_contiguous
        return f"{kind} {X.dtype} {X.shape} {order}"
    if hasattr(X, "iloc"):
        columns = ", ".join(f"{name}: {dtype}" for name, dtype in zip(X.columns, X.dtypes, strict=True))
        return f"{kind} ({columns}) {X.shape} {type(X.index).__name__} {X.index.dtype} {X.index.tolist()}"
    if hasattr(X, "schema"):
        return f"{kind} {X.schema} {X.shape}"
    return f"{kind} {np.shape(X)}"


def _row_codes(X: Any) -> tuple[int, ...]:
    """Return a number for each row that changes with its values."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
        return tuple(zlib.crc32(np.ascontiguousarray(row).tobytes()) for row in X)
    table = X.to_numpy(dtype=object) if hasattr(X, "iloc") else np.asarray(X, dtype=object)
    return tuple(zlib.crc32(repr(row.tolist()).encode()) for row in table)


class Witness(ClassifierMixin, BaseEstimator):
    """A classifier that does what the one within it does, and takes note of every call while `noted_calls` lasts."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> "Witness":
        """Take note, and fit. The global generator is part of the note: it must be the teacher's own."""
        state = zlib.crc32(np.random.get_state()[1].tobytes())  # type: ignore[index]  # noqa: NPY002
        self._note("fit", X, (*(int(label) for label in y), state))
        self.classes_ = np.unique(y)
        with off_the_tape():
            self.fitted_ = clone(self.estimator).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """Take note, and predict."""
        self._note("predict", X, ())
        with off_the_tape():
            return self.fitted_.predict(X)

    @staticmethod
    def call_rows() -> int:
        """Return the rows of a call, as of an estimator that is known to answer row by row: it is not copied."""
        return CALL

    def _note(self, kind: str, X: Any, more: tuple[int, ...]) -> None:
        if _notes:
            _notes[0].add(self, Call(kind, layout_of(X), (*_row_codes(X), *more)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


class Onlooker(ClassifierMixin, BaseEstimator):
    """A classifier whose labels depend on all that it can see beside the values: types, order, index."""

    def fit(self, X: Any, y: Any) -> "Onlooker":
        """Look at the rows."""
        self.classes_ = np.unique(y)
        self.seen_ = zlib.crc32(layout_of(X).encode())
        return self

    def predict(self, X: Any) -> Any:
        """Return labels that depend on how the teacher's rows looked, on the type of the query, and on its values."""
        types = X.dtype if isinstance(X, np.ndarray) else list(getattr(X, "dtypes", ()))
        looks = zlib.crc32(f"{self.seen_} {type(X).__name__} {types}".encode())
        return self.classes_[[(looks ^ code) % len(self.classes_) for code in _row_codes(X)]]


class CountsRows(Onlooker):
    """An onlooker that also counts the queries of its call, like a sum whose last bit depends on their number."""

    def predict(self, X: Any) -> Any:
        """Return other labels in a batch of an even number of queries."""
        said = super().predict(X)
        return said if len(X) % 2 else self.classes_[1 - np.searchsorted(self.classes_, said)]


class FailsOnLarge(ClassifierMixin, BaseEstimator):
    """A classifier by the first column that raises on very large values, and is touchy where it saw a large one.

    A touchy teacher cannot be asked about small values: so what one teacher saw decides whether it can answer.
    """

    def fit(self, X: Any, y: Any) -> "FailsOnLarge":
        """Fit the middle between the classes."""
        first = self._first(X)
        self.classes_ = np.unique(y)
        self.touchy_ = bool((first > _LARGE).any())
        self.middle_ = float(np.mean([first[y == label].mean() for label in self.classes_]))
        return self

    def predict(self, X: Any) -> Any:
        """Return the side of the middle, where it can be said."""
        first = self._first(X)
        if self.touchy_ and (first < self.middle_).any():
            raise ValueError("a value is too small")
        return self.classes_[(first > self.middle_).astype(np.int64) % len(self.classes_)]

    @staticmethod
    def _first(X: Any) -> Any:
        first = np.asarray(X, dtype=np.float64)[:, 0]
        if (np.abs(first) > _LARGEST).any():
            raise ValueError("a value is too large")
        return first
