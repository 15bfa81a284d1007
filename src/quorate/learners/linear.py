"""Teachers whose scores are linear: fitted together, and counted as one matrix product in blocks."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quorate.checks import check_count
from quorate.errors import InvalidInput
from quorate.learners.backends import Array, Backend, choose_backend
from quorate.learners.blocks import Block, Chunks
from quorate.learners.counting import ballots_in_blocks
from quorate.learners.grid import SOUND, gridded_coefficients, sliced
from quorate.learners.inputs import MEMORY, Matrix, check_memory, check_queries
from quorate.learners.teachers import BackendName, Learner, Teachers, check_arrays

__all__ = ["LinearLearner", "LinearTeachers"]

_NEVER = -1e300  # the intercept of a class that a teacher never votes for
_SLICES = 2  # where columns may be of any size, and for quadratic scores


class LinearTeachers(Teachers):
    """One linear score for each class, or one for class 1 against class 0 if there are two. The largest score wins.

    `scores` is (teachers, scores, columns + 1): coefficients, then the intercept. The columns are the features, and
    after them their squares if the scores are `quadratic`. The lowest class wins among equals.

    A ballot is a function of its teacher and its query to the last bit, whatever the batch, the blocks, the backend and
    the number of threads (PROOF.md, steps 1 to 6). For this, coefficients and queries are rounded relative to the
    largest of a row, so that scores can be summed exactly in any order: in one slice of 26 bits, which is right where
    columns are of about one size, or in two, of 52 bits. Quadratic scores, whose terms cancel, have two.
    """

    def __init__(self, scores: Any, *, classes: int, quadratic: bool = False, slices: int = 1) -> None:
        self.classes, self.quadratic = check_count("classes", classes, least=2), bool(quadratic)
        self.slices = _SLICES if self.quadratic else check_count("slices", slices)
        given = np.asarray(scores, dtype=np.float64)
        shape, several, parts = given.shape, _several(classes), 1 + self.quadratic
        if len(shape) != 3 or shape[0] < 1 or shape[1] != several or shape[2] < 1 + parts or (shape[2] - 1) % parts:
            raise InvalidInput(f"scores must be of shape (teachers, {several}, columns + 1), not {shape}")
        if not np.isfinite(given).all():
            raise InvalidInput("scores must be finite numbers")
        self.teachers, self.features = shape[0], (shape[2] - 1) // parts
        self._intercepts = np.ascontiguousarray(given[:, :, -1])
        coefficients, single = given[:, :, :-1], self.slices == 1
        self._coefficients = gridded_coefficients(coefficients) if single else coefficients.copy()
        powers = np.split(self._coefficients, parts, axis=2)
        pairs = [powers] if single else [sliced(gridded_coefficients, power, self.slices) for power in powers]
        self._tables = [[part.reshape(shape[0] * several, -1) for part in pair] for pair in pairs]

    def votes(self, X: Any, *, backend: BackendName = "numpy", memory: int = MEMORY) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class.

        Beside the result and the teachers themselves, no more than about `memory` bytes are in use at a time.
        """
        arrays, queries = choose_backend(backend), check_queries(X, features=self.features)
        totals = np.zeros((self.classes, len(queries)), dtype=np.int64)
        with np.errstate(all="ignore"):
            for asked, _, label, chosen in self._blocks(arrays, queries, memory):
                totals[label, asked] += arrays.take(arrays.count(chosen))
        totals[0] = self.teachers - totals[1:].sum(axis=0)
        return np.ascontiguousarray(totals.T)

    def ballots(self, X: Any, *, backend: BackendName = "numpy", memory: int = MEMORY) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher.

        The result has a byte for each ballot (two where there are more than 256 classes); `votes` needs no such room.
        """
        arrays, queries = choose_backend(backend), check_queries(X, features=self.features)
        result = np.zeros((len(queries), self.teachers), dtype=np.min_scalar_type(self.classes - 1))
        with np.errstate(all="ignore"):
            for asked, part, label, chosen in self._blocks(arrays, queries, memory):
                result[asked, part][arrays.take(chosen).T] = label
        return result

    def _blocks(self, backend: Backend, queries: Matrix, memory: int) -> Iterator[tuple[slice, slice, int, Array]]:
        room = check_memory(memory) // 2
        return ballots_in_blocks(backend, self._tables, self._intercepts, queries, memory=room)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays: teachers built of them again are the same. They are private."""
        return {
            "kind": np.array("linear"),
            "classes": np.array(self.classes),
            "quadratic": np.array(self.quadratic),
            "slices": np.array(self.slices),
            "scores": np.concatenate([self._coefficients, self._intercepts[:, :, np.newaxis]], axis=2),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "LinearTeachers":
        """Return the teachers that `arrays` describe."""
        check_arrays(arrays, kind="linear", axes={"classes": 0, "quadratic": 0, "scores": 3})
        return cls(
            arrays["scores"],
            classes=int(arrays["classes"]),
            quadratic=bool(arrays["quadratic"]),
            slices=int(arrays.get("slices", _SLICES)),  # the first release kept scores as they were fitted
        )


class LinearLearner(Learner):
    """A learner whose teachers have linear scores; each kind says how the scores of a block are found."""

    quadratic: ClassVar[bool] = False  # whether scores also use the squares of the features

    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, memory: int, one_scale: bool) -> LinearTeachers:
        classes = chunks.classes
        scores = np.zeros((chunks.teachers, _several(classes), chunks.features * (1 + self.quadratic) + 1))
        scores[:, :, -1] = _constant(chunks.majority(), classes)

        def cost(rows: int, shown: int) -> int:
            return self._bytes(rows, chunks.features, shown)

        for block in chunks.blocks(backend, memory=memory, cost=cost):
            fitted = backend.take(self._fit_block(backend, block))[: len(block.teachers)]
            sound = (np.abs(fitted) <= SOUND).all(axis=(1, 2))
            scores[block.teachers[sound]] = _declared(fitted[sound], block.shown[sound], classes)
        slices = 1 if one_scale else _SLICES
        return LinearTeachers(scores, classes=classes, quadratic=self.quadratic, slices=slices)

    @abstractmethod
    def _fit_block(self, backend: Backend, block: Block) -> Array:
        """Return scores (chunks, classes shown, columns + 1), the intercepts in the last column."""

    @abstractmethod
    def _bytes(self, rows: int, features: int, shown: int) -> int:
        """Return about how much memory `_fit_block` needs for one chunk of this shape."""


def _several(classes: int) -> int:
    return 1 if classes == 2 else classes


def _constant(labels: NDArray[np.int64], classes: int) -> Matrix:
    """Return intercepts with which each teacher always votes for its label."""
    if classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, np.newaxis]
    return np.where(labels[:, np.newaxis] == np.arange(classes), 0.0, _NEVER)


def _declared(fitted: Matrix, shown: NDArray[np.int64], classes: int) -> Matrix:
    """Return the scores of the classes shown as scores of all declared classes."""
    if classes == 2:
        return fitted[:, 1:] - fitted[:, :1]
    scores = np.zeros((len(fitted), classes, fitted.shape[2]))
    scores[:, :, -1] = _NEVER
    scores[np.arange(len(fitted))[:, np.newaxis], shown] = fitted
    return scores
