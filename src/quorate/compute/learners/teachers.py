"""The common parts of learners and fitted teachers: checked inputs, blocks of rows, and the two protocols.

Inputs are checked for shape and type; values of private rows never cause an error. Chunks of one shape are stacked into
one array, a block at a time. The shape of a chunk depends on its own rows alone: the number of usable rows and the
number of their classes. Filling rows are zero and have the weight 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.backends import Backend, choose_backend
from quorate.core.arrays import Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.rows import in_blocks


class Deal:
    """Rows dealt to teachers: each row to one teacher at most, and to a teacher any number of rows, none included.

    `rows` holds the row numbers, teacher after teacher; `sizes` says how many of them belong to each.
    """

    rows: Integers
    sizes: Integers

    def __init__(self, rows: Any, sizes: Any) -> None:
        self.rows, self.sizes = _integers("rows", rows), _integers("sizes", sizes)
        if self.sizes.size < 1 or self.sizes.min() < 0 or self.sizes.sum() != self.rows.size:
            raise InvalidInput("sizes must name at least 1 teacher, and sum to the number of rows that are dealt")
        if self.rows.size and self.rows.min() < 0:
            raise InvalidInput("rows must be row numbers of at least 0")
        if self.rows.size and np.bincount(self.rows).max() > 1:
            raise InvalidInput("each row must be dealt to one teacher at most: a row dealt twice would vote twice")

    @classmethod
    def of(cls, chunks: Sequence[Any]) -> "Deal":
        """Return the deal that gives the rows `chunks[j]` to teacher j."""
        parts = [_integers("a chunk", chunk) for chunk in chunks]
        rows = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        return cls(rows, np.array([part.size for part in parts], dtype=np.int64))

    @classmethod
    def by_assignment(cls, assignment: Any, *, teachers: int) -> "Deal":
        """Return the deal that gives row i to teacher `assignment[i]`, or to no teacher for -1."""
        teachers = check_count("teachers", teachers)
        owner = _integers("assignment", assignment)
        if owner.size and (owner.min() < -1 or owner.max() >= teachers):
            raise InvalidInput(f"assignment must have numbers from 0 to {teachers - 1}, or -1 for no teacher")
        rows = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner + 1, minlength=teachers + 1)
        return cls(rows[sizes[0] :], sizes[1:])

    @property
    def teachers(self) -> int:
        """The number of teachers, those without rows included."""
        return int(self.sizes.size)

    def __repr__(self) -> str:
        return f"Deal(teachers={self.teachers})"


def _integers(name: str, values: Any) -> Integers:
    vector = np.asarray(values)
    if vector.ndim != 1 or (vector.dtype.kind not in "iu" and vector.size > 0):
        raise InvalidInput(f"{name} must be a vector of integers, not {vector.dtype} of shape {vector.shape}")
    return vector.astype(np.int64, copy=False)


BLOCK_BYTES = 256 * 2**20
LARGEST = 1e38  # of a feature's magnitude in a usable row: fits single precision, and its powers fit double precision
MISSING = 3e38  # The value of a missing feature for learners that accept it: above every other.
NOT_FINITE = "queries must be finite numbers: fill in or leave out missing and infinite values first"

_SLICE = 2**12  # Rows per step: temporaries stay in the cache of a core.

Matrix = NDArray[np.float64]


def check_features(X: Any, *, name: str = "X") -> Matrix:
    """Return `X` as a matrix of 64-bit floats, one row a record and one column a feature."""
    matrix = np.asarray(X)
    if matrix.ndim != 2 or matrix.shape[1] < 1 or matrix.dtype.kind not in "fiub":
        raise InvalidInput(
            f"{name} must be a matrix of numbers with at least 1 column, not {matrix.dtype} of shape {matrix.shape}"
        )
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(matrix, dtype=np.float64)


def check_labels(y: Any, *, rows: int) -> NDArray[np.int64]:
    """Return `y` as 64-bit integer codes, one for each row."""
    labels = np.asarray(y)
    if labels.ndim != 1 or labels.shape[0] != rows or (labels.dtype.kind not in "iu" and labels.size > 0):
        raise InvalidInput(
            f"y must be {rows} integer codes, one for each row of X, not {labels.dtype} of {labels.shape}"
        )
    return labels.astype(np.int64, copy=False)


def check_queries(X: Any, *, features: int, missing: bool = False) -> Matrix:
    """Return queries as a matrix of finite 64-bit floats with the number of columns that the teachers were fitted on.

    A query belongs to its caller, so its values may cause an error. Magnitudes beyond `LARGEST` are
    counted as `LARGEST`. With `missing`, a nan is a value like others.
    """
    queries = check_columns(X, features=features)
    refused = np.isinf if missing else lambda part: ~np.isfinite(part)
    if any(in_blocks(lambda part: bool(refused(queries[part]).any()), len(queries), block=_SLICE)):
        raise InvalidInput(NOT_FINITE)
    return queries


def check_columns(X: Any, *, features: int) -> Matrix:
    """Return queries as `check_queries` does; the caller checks that they are finite."""
    queries = check_features(X, name="queries")
    if queries.shape[1] != features:
        raise InvalidInput(
            f"queries must have {features} columns, as the teachers were fitted on, not {queries.shape[1]}"
        )
    return queries


def usable_rows(X: Matrix, y: NDArray[np.int64], *, classes: int, missing: bool = False) -> NDArray[np.bool_]:
    """Return which rows a teacher can use: features of magnitude at most `LARGEST`, a label among the declared ones.

    With `missing`, a feature may be missing too. Other rows are left out by their own teacher, without a word: an error
    or a warning would speak of private values.
    """
    usable = (y >= 0) & (y < classes)
    with np.errstate(invalid="ignore"):
        for start in range(0, len(X), _SLICE):
            part = slice(start, start + _SLICE)
            sound = np.abs(X[part]) <= LARGEST
            usable[part] &= (sound | np.isnan(X[part]) if missing else sound).all(axis=1)
    return usable


@dataclass(frozen=True, repr=False)
class Block:
    """A stack of chunks of one shape; it may hold blank ones after those of `teachers`."""

    teachers: Integers  # which teachers these are
    features: Matrix  # (chunks, rows, features)
    weights: Matrix  # (chunks, rows): 1 for a row, 0 for filling
    codes: Integers  # (chunks, rows): labels as places in `class_codes`, 0 for filling
    class_codes: Integers  # (teachers, classes shown): the classes of each chunk, ascending

    def indicators(self) -> Matrix:
        """Return for each row and each class shown 1 if that is its label, else 0."""
        matches = self.codes[:, :, np.newaxis] == np.arange(self.class_codes.shape[1])
        indicators: Matrix = matches * self.weights[:, :, np.newaxis]
        return indicators


def count_usable(X: Matrix, y: Integers, deal: Deal, *, classes: int, missing: bool) -> tuple[Integers, Integers]:
    """Return the usable rows of a deal, teacher after teacher, and how many rows of each class each teacher has."""
    usable = usable_rows(X, y, classes=classes, missing=missing)[deal.rows]
    owners, rows = np.repeat(np.arange(deal.teachers), deal.sizes)[usable], deal.rows[usable]
    cells = np.bincount(owners * classes + y[rows], minlength=deal.teachers * classes)
    return rows, cells.reshape(deal.teachers, classes)


class Chunks:
    """The usable rows of every teacher, and how many they show of each class: `counts`, one row a teacher.

    With `fused`, rows are sent to a GPU that has room for them, and counted there.
    """

    def __init__(self, X: Any, y: Any, deal: Deal, *, classes: int, missing: bool = False, fused: bool = False) -> None:
        self.classes = check_count("classes", classes, least=2)
        self._X = check_features(X)
        self._y = check_labels(y, rows=len(self._X))
        if deal.rows.size and deal.rows.max() >= len(self._X):
            raise InvalidInput(f"the deal must name rows below {len(self._X)}, the number of rows of X")
        self.teachers, self.features = deal.teachers, self._X.shape[1]
        self._placed: Any = None
        if fused:
            from quorate.compute.learners._gpu import place_rows  # noqa: PLC0415  which imports this module

            self._placed = place_rows(self._X, self._y, deal, classes=classes, missing=missing)
        self.counts: Integers
        if self._placed is None:
            self._rows, self.counts = count_usable(self._X, self._y, deal, classes=classes, missing=missing)
        else:
            self.counts = self._placed.counts
        self._sizes = self.counts.sum(axis=1)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def majority(self) -> Integers:
        """Return the most frequent class of each teacher, the lowest of equals; class 0 for a teacher without rows."""
        labels: Integers = self.counts.argmax(axis=1)
        return labels

    def showing(self, classes: int) -> Integers:
        """Return the teachers whose rows have this number of classes."""
        return np.flatnonzero((self.counts > 0).sum(axis=1) == classes)

    def class_codes(self, teachers: Integers) -> Integers:
        """Return the classes that each of these teachers shows, ascending; all show the same number."""
        present = self.counts[teachers] > 0
        classes: Integers = present.nonzero()[1].reshape(len(teachers), int(present[:1].sum()))
        return classes

    @cached_property
    def _rows(self) -> Integers:
        """The usable rows, teacher after teacher. Where a kernel fits all teachers, they stay on the GPU."""
        rows: Integers = self._placed.rows.cpu().numpy()
        return rows

    def dealt(self) -> tuple[Any, Any, Any, Integers, Integers]:
        """Return features, labels, the usable rows teacher after teacher, and where each one's start and how many.

        The first three are tensors if they are on a GPU.
        """
        if self._placed is not None:
            return self._placed.X, self._placed.y, self._placed.rows, self._starts, self._sizes
        return self._X, self._y, self._rows, self._starts, self._sizes

    def blocks(
        self,
        backend: Backend,
        *,
        memory: int,
        cost: Callable[[int, int], int],
        without: Integers | None = None,
    ) -> Iterator[Block]:
        """Yield the teachers that show two classes or more, as many of one shape together as fit into `memory` bytes.

        A chunk of so many rows and classes needs `cost(rows, classes)` bytes. A steady backend fills a block up to a
        size of its own, whatever `memory` says.
        """
        class_counts = (self.counts > 0).sum(axis=1)
        if without is not None:
            class_counts[without] = 0
        rows = padded_rows(self._sizes)
        several = np.flatnonzero(class_counts >= 2)
        shapes = np.unique(np.stack([rows[several], class_counts[several]], axis=1), axis=0)
        room = backend.fit_bytes if backend.steady else min(memory, backend.fit_bytes)
        for height, width in shapes.tolist():
            alike = np.flatnonzero((rows == height) & (class_counts == width))
            height_limit = max(1, room // cost(height, width))  # proof: step 11
            for start in range(0, alike.size, height_limit):
                yield self._block(alike[start : start + height_limit], height, height_limit if backend.steady else 0)

    def _block(self, teachers: Integers, height: int, chunks: int) -> Block:
        seats = np.arange(height)
        filled = seats < self._sizes[teachers, np.newaxis]
        positions = self._rows[np.where(filled, self._starts[teachers, np.newaxis] + seats, 0)]
        features, codes = self._X[positions], self._y[positions]
        features[np.isnan(features)] = MISSING  # only where the learner takes them: other rows with a nan are left out
        present = self.counts[teachers] > 0
        codes = np.take_along_axis(present.cumsum(axis=1) - 1, codes, axis=1)
        if not filled.all():
            features[~filled], codes[~filled] = 0.0, 0
        class_codes = self.class_codes(teachers)
        weights = filled.astype(np.float64)
        blank = max(0, chunks - len(teachers))
        if blank:
            features, weights, codes = (
                np.concatenate([part, np.zeros((blank, *part.shape[1:]), part.dtype)])
                for part in (features, weights, codes)
            )
        return Block(teachers, features, weights, codes, class_codes)


def padded_rows(sizes: Integers) -> Integers:
    """Return the height to which a chunk of each size is filled up: at most a sixteenth more than its own."""
    grain = 2 ** np.maximum(np.frexp(sizes)[1].astype(np.int64) - 5, 0)
    padded: Integers = -(-sizes // grain) * grain
    return padded


DeviceName = Literal["auto", "cpu", "cuda", "torch"]  # as `choose_backend` takes them


_KINDS: dict[str, "type[Teachers]"] = {}


def teachers_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> "Teachers":
    """Return the teachers of any kind from their `arrays()`."""
    kind = str(arrays.get("kind"))
    if kind not in _KINDS:
        raise InvalidInput(f"arrays must be of the kind {', '.join(map(repr, _KINDS))}, not {kind!r}")
    return _KINDS[kind].from_arrays(arrays)


class Teachers(ABC):
    """Fitted teachers: plain arrays that can be counted and saved. Printing them shows only public numbers.

    Ballots are counted on `device`, in blocks of about `memory` bytes. They are the same on every device, and whatever
    the blocks (PROOF.md, steps 6 and 18).
    """

    kind: ClassVar[str]  # in files
    saved: ClassVar[dict[str, int]]  # the parameters of the constructor, and how many axes the array of each has
    teachers: int
    classes: int
    features: int
    device: DeviceName = "auto"
    memory: int = BLOCK_BYTES

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            _KINDS[cls.kind] = cls

    @abstractmethod
    def votes(self, X: Any) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class."""

    @abstractmethod
    def ballots(self, X: Any) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays: teachers built of them again are the same. They are private."""
        return {"kind": np.array(self.kind), **{name: np.asarray(getattr(self, name)) for name in self.saved}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the teachers that `arrays` describe."""
        sound = str(arrays.get("kind")) == cls.kind
        for name, axes in cls.saved.items():
            sound = sound and name in arrays and arrays[name].dtype.kind in "fiub" and arrays[name].ndim == axes
        if not sound:
            raise InvalidInput(f"arrays must be of the kind {cls.kind!r} and hold numbers as {', '.join(cls.saved)}")
        return cls(**{name: arrays[name] if axes else arrays[name].item() for name, axes in cls.saved.items()})

    def close(self) -> None:  # noqa: B027  most have nothing open
        """Do nothing: they stand in this process."""

    def __repr__(self) -> str:
        sizes = f"teachers={self.teachers}, classes={self.classes}, features={self.features}"
        return f"{type(self).__name__}({sizes})"


class Learner(ABC):
    """A description of how each teacher is fitted, on its own rows alone."""

    takes_missing: ClassVar[bool] = False  # Whether records and queries may miss values.
    memory: ClassVar[int] = BLOCK_BYTES  # that blocks of chunks may take while they are fitted

    def fit(
        self,
        X: Any,
        y: Any,
        deal: Deal,
        *,
        classes: int,
        device: DeviceName = "auto",
        one_scale: bool = False,
    ) -> Teachers:
        """Return one fitted teacher for each chunk of the deal; `y` holds codes from 0 to `classes` - 1.

        A teacher depends on its own rows and on nothing else, to the last bit. Rows with a feature that is missing
        (unless the learner takes those) or beyond `LARGEST`, or with a label that was not declared, are left out. A
        teacher whose rows show one class always votes for it, and one without rows for class 0. No private value causes
        an error. Where it is public that columns are of about `one_scale`, linear ballots are counted with one product
        instead of three.
        """
        backend = choose_backend(device)
        chunks = Chunks(X, y, deal, classes=classes, missing=self.takes_missing, fused=backend.fused)
        with np.errstate(all="ignore"):
            teachers = self._fit_chunks(backend, chunks, one_scale=one_scale)
        teachers.device = device
        return teachers

    def coefficients(self, features: int) -> int:
        """Return about how much there is to learn, in columns of a linear score: a plan gives teachers rows for it."""
        return features

    @abstractmethod
    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, one_scale: bool) -> Teachers:
        """Return the teachers of these chunks."""
