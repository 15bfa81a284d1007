"""Teachers whose scores are linear, counted as one matrix product in blocks.

Numbers are rounded to a grid, so that a product of matrices sums them exactly in any order (PROOF.md). A query
is rounded to 26 bits below its largest feature, the coefficients of a score to 27 bits below the sum of their
magnitudes. Every sum of their products is then a whole number of grid steps of at most 2**53, which a double holds
exactly. If this is not precise enough, the rounding error is rounded to a finer grid as a second slice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners.backends import Array, Backend, choose_backend, loops_along_rows
from quorate.compute.learners.teachers import (
    LARGEST,
    Matrix,
    Teachers,
    check_columns,
    check_queries,
)
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.core.rows import in_blocks

SOUND = 1e200  # of a coefficient's magnitude: beyond, a score could overflow

QUERY_BITS = 26
_COEFFICIENT_BITS = 27  # together 53, the bits of a double
FINEST = 500  # no grid has steps below 2**-500: the product of two steps is a normal number
_CELLS = 2**18  # coefficients rounded together


def gridded_queries(queries: Matrix) -> Matrix:
    """Return queries rounded to a grid, each to one of its own: whole numbers of up to 2**26 times a power of 2.

    A largest magnitude is the same in any order, and all else is done to each number by itself: so a rounded query does
    not depend on its company. Magnitudes must be at most 1e76, the square of `LARGEST`.
    """
    exponents = _exponents(np.abs(queries).max(axis=1, keepdims=True), QUERY_BITS)
    rounded: Matrix = np.rint(queries * np.ldexp(1.0, exponents)) * np.ldexp(1.0, -exponents)  # proof: step 2
    return rounded


def gridded_coefficients(coefficients: Matrix) -> Matrix:
    """Return coefficients (teachers, scores, columns) rounded to a grid, those of each teacher to one of its own.

    Each score's are whole numbers whose magnitudes sum to 2**27 at most, times a power of 2. Rounding again changes
    nothing. Magnitudes beyond 1e200 are counted as 1e200.
    """
    return sliced_coefficients(coefficients, 1)[0]


def sliced_coefficients(coefficients: Matrix, slices: int) -> list[Matrix]:
    """Return coefficients as this many slices of `gridded_coefficients`, each of what the one before rounded off."""
    rounded = [np.empty(coefficients.shape) for _ in range(slices)]

    def put_part(part: slice) -> None:
        for whole, values in zip(rounded, sliced(_gridded_teachers, coefficients[part], slices), strict=True):
            whole[part] = values

    teachers, scores, columns = coefficients.shape
    in_blocks(put_part, teachers, block=max(1, _CELLS // (scores * columns)))
    return rounded


def _gridded_teachers(coefficients: Matrix) -> Matrix:
    clipped = np.clip(coefficients, -SOUND, SOUND)
    exponents = _exponents(np.abs(clipped).max(axis=(1, 2), keepdims=True), _COEFFICIENT_BITS)
    for _ in range(coefficients.shape[2].bit_length()):  # halving so often is enough for every teacher: proof, step 1
        sums = np.abs(np.rint(clipped * np.ldexp(1.0, exponents))).sum(axis=2, keepdims=True)  # of whole numbers: exact
        exponents = exponents - (sums.max(axis=1, keepdims=True) > 2.0**_COEFFICIENT_BITS)
    rounded: Matrix = np.rint(clipped * np.ldexp(1.0, exponents)) * np.ldexp(1.0, -exponents)  # proof: step 1
    return rounded


def _exponents(largest: Matrix, bits: int) -> NDArray[np.int64]:
    """Return the finest grids, as numbers of binary buffers, on which `largest` is at most 2**bits steps."""
    mantissas, exponents = np.frexp(largest)
    shifts: NDArray[np.int64] = np.minimum(bits - exponents + (mantissas == 0.5), FINEST)
    return shifts


def sliced(gridded: Callable[[Matrix], Matrix], values: Matrix, slices: int) -> list[Matrix]:
    """Return values as this many slices, each of what the one before rounded off."""
    parts = [gridded(values)]
    while len(parts) < slices:
        values = values - parts[-1]
        parts.append(gridded(values))
    return parts


_FEW, _MANY = 312, 1000  # queries counted together, by the number of columns: loops along many cost less
_PANEL = 2**17  # features of all queries that are counted together: few enough for a cache
_BYTE = 255  # The largest value of a byte.
_LEAST = 2500  # teachers times queries of a block, however many scores they have: fewer do not pay for the calls


class _Room(NamedTuple):
    """Where the scores of a block of one shape stand, with views that need not be made again for every block."""

    product: Array  # one row for each label from 1 on and each teacher; before it stand zeros, for label 0
    adjacent: list[tuple[Array, Array]]  # every two labels that follow each other: (teachers, queries) each
    lower: Array  # (labels, teachers, queries): all labels but the last
    last: Array
    spare: Array  # room for another product of this shape, if one is needed
    flags: Array  # of the shape of `lower`
    beyond: Array  # the same as bytes

    @classmethod
    def of(cls, backend: Backend, buffers: Sequence[Array], labels: int, high: int, wide: int) -> "_Room":
        """Return a room in these buffers. Products of every shape begin alike: the zeros before them stay zeros."""
        cells, begin = high * wide, buffers[0].shape[0] // labels
        first, last = (memory[begin - cells : begin + (labels - 1) * cells] for memory in (buffers[0], buffers[-1]))
        scores, second = first.reshape(labels, high, wide), last[cells:].reshape(-1, wide)
        flags, product, adjacent = scores[1:] > scores[:-1], scores[1:].reshape(-1, wide), list(pairwise(scores))
        return cls(product, adjacent, scores[:-1], scores[-1], second, flags, backend.as_bytes(flags))


def _multiply(
    backend: Backend, room: _Room, rows: Sequence[Array], columns: Sequence[Array], pairs: Sequence[tuple[int, int]]
) -> None:
    """Put the sum of the products of these pairs of slices into the room."""
    product = backend.product(rows[0], columns[0], out=room.product)
    for row, column in pairs[1:]:
        product += backend.product(rows[row], columns[column], out=room.spare)


def ballots_in_blocks(
    backend: Backend, coefficients: Sequence[Sequence[Matrix]], intercepts: Matrix, queries: Matrix, *, memory: int
) -> Iterator[tuple[slice, slice, Array]]:
    """Yield which queries, which teachers, and who of them votes beyond each label but the last: 0 or 1, as (labels,
    teachers, queries), in room that the next block will use again.

    `intercepts` is (teachers, scores), of the labels from 1 on. `coefficients` holds those of the features and then, if
    there are any, of their squares: each as slices of `gridded_coefficients`, one row a score and one column a feature.
    Queries are sliced as often. Blocks of the same queries follow each other, of as many teachers as memory has room
    for the rows of.
    """
    (teachers, several), features = intercepts.shape, queries.shape[1]
    powers, slices = len(coefficients), len(coefficients[0])
    pairs = _pairs(powers, slices)
    limit = memory // (8 * several * (1 + min(2, len(pairs))) + 2 * several + 16)
    cells, usual = min(limit, max(_LEAST, backend.count_scores // several)), max(_FEW, min(_MANY, _PANEL // features))
    wide, high = block_shape(len(queries), teachers, cells=cells, usual=usual)
    wide = max(1, min(wide, memory // (64 * features * powers * slices)))
    tables = [backend.put(table).reshape(teachers, several, -1) for pair in coefficients for table in pair]
    buffers = [backend.put(_aligned_zeros((1 + several) * high * wide)) for _ in pairs[:2]]
    rooms: dict[tuple[int, int], _Room] = {}  # By shape: blocks at the edges are smaller.
    together = high * max(1, memory // (16 * several * features * powers * slices * high))
    for first in range(0, teachers, together):
        tops = range(first, min(first + together, teachers), high)
        parts: Iterable[tuple[slice, list[Array], Array]] = (
            (part, [_by_label(table[part]) for table in tables], backend.put(-intercepts[part].T.reshape(-1, 1)))
            for part in (slice(top, min(top + high, teachers)) for top in tops)
        )
        parts = list(parts) if len(queries) > wide else parts  # Later blocks of queries need them again.
        for start in range(0, len(queries), wide):
            span = slice(start, start + wide)
            columns = _columns(backend, queries[span], powers, slices)
            width = columns[0].shape[1]
            for part, rows, bars in parts:
                shape = part.stop - part.start, width
                if shape not in rooms:
                    rooms[shape] = _Room.of(backend, buffers, 1 + several, *shape)
                _multiply(backend, rooms[shape], rows, columns, pairs)
                yield span, part, _votes_beyond(backend, rooms[shape], backend.spread(bars, width))


def counted_in_blocks(
    backend: Backend, blocks: Iterator[tuple[slice, slice, Array]]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield which queries, and how many more teachers vote beyond each label but the last: (labels, queries).

    Ballots of different teachers are added up seat by seat, as single bytes, before they are added up over the seats.
    """
    for rows, parts in groupby(blocks, key=itemgetter(0)):
        sums: Array = None
        times = 0  # how many blocks of teachers the sums are of
        for _, _, beyond in parts:
            if times == 0:
                sums = beyond + 0
            elif beyond.shape == sums.shape:
                sums += beyond
            else:  # the last teachers
                sums[:, : beyond.shape[1]] += beyond
            times += 1
            if times == _BYTE:
                yield rows, backend.take(backend.count(sums, times))
                times = 0
        if times:
            yield rows, backend.take(backend.count(sums, times))


def _by_label(tables: Array) -> Array:
    """Return (teachers, labels, columns) as a matrix: the rows of all teachers for the first label, then the next."""
    return tables.swapaxes(0, 1).reshape(tables.shape[0] * tables.shape[1], -1)


def _pairs(powers: int, slices: int) -> list[tuple[int, int]]:
    """Return which slices of coefficients and queries are multiplied, in the order in which they are added up.

    Each product is exact, and they are added up in one order (proof: step 4). Products of two slices that were rounded
    off are left out: they are below the last bit of the others.
    """
    return [
        (power * slices + rank, power * slices + other)
        for power in range(powers)
        for rank in range(slices)
        for other in range(slices - rank)
    ]


def _columns(backend: Backend, queries: Matrix, powers: int, slices: int) -> list[Array]:
    """Return the slices of the features, then those of their squares: one row a feature and one column a query."""
    clipped = np.clip(queries, -LARGEST, LARGEST)
    parts = [part for power in (clipped, clipped * clipped)[:powers] for part in sliced(gridded_queries, power, slices)]
    return [backend.put(np.ascontiguousarray(part.T)) for part in parts]


def _aligned_zeros(count: int) -> Matrix:
    """Return zeros that begin where a cache line does: vectors of NumPy's own arrays lie across two lines."""
    room = np.zeros(count + 7)
    start = -room.ctypes.data // room.itemsize % 8
    return room[start : start + count]


def block_shape(queries: int, teachers: int, *, cells: int, usual: int = _FEW) -> tuple[int, int]:
    """Return how many queries and how many teachers to take together, for a block of at most this many cells.

    More than the usual number of queries are taken where there are few teachers. If it takes several blocks, they are
    of about one size, an odd multiple of 8: rows of a power of 2 would share few buffers of a cache. An even number of
    teachers lets a product be made in halves.
    """
    even = -(-queries // max(1, -(-queries // usual)))
    wide = max(1, min(queries, 8 * (-(-even // 8) | 1), cells))
    high = max(1, min(teachers, cells // wide // 2 * 2))
    if high == teachers:
        wide = max(1, min(queries, cells // high))
    return wide, high


def _votes_beyond(backend: Backend, room: _Room, bars: Array) -> Array:
    """Return who votes for a label above each but the last: (labels, teachers, queries). The lowest of equals wins.

    The bars are still to be subtracted from the product: one row for each label and teacher. Scores are changed in
    place.
    """
    product = room.product
    if len(room.adjacent) == 1:
        backend.functions.greater(product, bars, out=room.flags[0])
        return room.beyond
    product -= bars
    for previous, label in room.adjacent:
        backend.functions.maximum(label, previous, out=label)
    # Whether the largest up to a label is not the largest of all: proof, step 5.
    backend.functions.not_equal(room.lower, room.last, out=room.flags)
    return room.beyond


NEVER = -1e300  # the intercept of a class that a teacher never votes for
_ABOVE = 2.0**-1000  # the score of the lowest class that a teacher votes for, where this is not class 0
SLICES = 2  # where columns may be of any size, and for quadratic scores


def _check_scores(scores: Any, several: int, parts: int) -> Matrix:
    """Return scores as an array: so many for each teacher, of columns that stand in so many parts of one size."""
    table = np.asarray(scores, dtype=np.float64)
    columns = table.shape[2] - 1 if table.ndim == 3 else 0
    if table.ndim != 3 or len(table) < 1 or table.shape[1] != several or columns < parts or columns % parts:
        raise InvalidInput(f"scores must be of shape (teachers, {several}, columns + 1), not {table.shape}")
    if not np.isfinite(table).all():
        raise InvalidInput("scores must be finite numbers")
    return table


class LinearTeachers(Teachers):
    """One linear score for each class, or one for class 1 against class 0 if there are two. The largest score wins.

    `scores` is (teachers, scores, columns + 1): coefficients, then the intercept. The columns are the features, and
    after them their squares if the scores are `quadratic`. The lowest class wins among equals. Scores of more than two
    classes are kept relative to those of class 0, and saved so.

    A ballot is a function of its teacher and its query to the last bit, whatever the batch, the blocks, the backend and
    the number of threads (PROOF.md, steps 1 to 6). For this, coefficients and queries are rounded relative to the
    largest of a row, so that scores can be summed exactly in any order: in one slice of 26 bits, which is right where
    columns are of about one size, or in two, of 52 bits. Quadratic scores, whose terms cancel, have two.
    """

    kind = "linear"
    saved: ClassVar[dict[str, int]] = {"classes": 0, "quadratic": 0, "slices": 0, "scores": 3}

    def __init__(self, scores: Any, *, classes: int, quadratic: bool = False, slices: int = 1) -> None:
        self.classes, self.quadratic = check_count("classes", classes, least=2), bool(quadratic)
        self.slices = SLICES if self.quadratic else check_count("slices", slices)
        several, parts = score_count(classes), 1 + self.quadratic
        table = _check_scores(scores, several, parts)
        self.teachers, self.features = len(table), (table.shape[2] - 1) // parts
        table = table if several == 1 else _relative(table)[:, 1:]
        self._intercepts = np.ascontiguousarray(table[:, :, -1])
        coefficients, single = table[:, :, :-1], self.slices == 1
        self._coefficients = gridded_coefficients(coefficients) if single else coefficients.copy()
        powers = np.split(self._coefficients, parts, axis=2)
        pairs = [powers] if single else [sliced_coefficients(power, self.slices) for power in powers]
        self._tables = [[part.reshape(self._intercepts.size, -1) for part in pair] for pair in pairs]

    def votes(self, X: Any) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class.

        Beside the result and the teachers themselves, no more than about `memory` bytes are in use at a time.
        """
        arrays = choose_backend(self.device)
        if arrays.fused:
            none = np.empty((0, self.classes), dtype=np.int64)
            return np.concatenate([none, *self.votes_each([X])])
        queries = check_queries(X, features=self.features)
        totals = np.zeros((self.classes, len(queries)), dtype=np.int64)
        with loops_along_rows(len(queries)):
            for rows, counts in counted_in_blocks(arrays, self._blocks(arrays, queries)):
                totals[1:, rows] += counts
        totals[0] = self.teachers  # Votes beyond the previous label.
        totals[:-1] -= totals[1:]
        return np.ascontiguousarray(totals.T)

    def votes_each(self, batches: Iterable[Any]) -> Iterator[NDArray[np.int64]]:
        """Yield the votes on these queries, some after the others. A GPU counts the next while these are used."""
        if not choose_backend(self.device).fused:
            yield from map(self.votes, batches)
            return
        from quorate.compute.learners._gpu import on_gpus  # noqa: PLC0415  which imports this module

        checked = (check_columns(X, features=self.features) for X in batches)  # it looks there whether they are finite
        for counts in on_gpus(self).votes_each(checked):
            votes = np.empty((counts.shape[1], self.classes), dtype=np.int64)
            votes[:, 0], votes[:, 1:] = self.teachers - counts.sum(axis=0), counts.T
            yield votes

    def ballots(self, X: Any) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher.

        The result has a byte for each ballot (two where there are more than 256 classes); `votes` needs no such room.
        """
        arrays, queries = choose_backend(self.device), check_queries(X, features=self.features)
        result = np.zeros((len(queries), self.teachers), dtype=np.min_scalar_type(self.classes - 1))
        with loops_along_rows(len(queries)):
            for rows, part, beyond in self._blocks(arrays, queries):
                result[rows, part] = arrays.take(beyond).sum(axis=0, dtype=result.dtype).T
        return result

    def tables(self) -> tuple[list[list[Matrix]], Matrix]:
        """Return coefficients and intercepts as `ballots_in_blocks` takes them. They are private."""
        return self._tables, self._intercepts

    def _blocks(self, backend: Backend, queries: Matrix) -> Iterator[tuple[slice, slice, Array]]:
        return ballots_in_blocks(backend, self._tables, self._intercepts, queries, memory=self.memory // 2)

    @property
    def scores(self) -> Matrix:
        """The coefficients and intercepts of every class. They are private."""
        scores = np.concatenate([self._coefficients, self._intercepts[:, :, np.newaxis]], axis=2)
        return np.pad(scores, ((0, 0), (score_count(self.classes) - scores.shape[1], 0), (0, 0)))


def score_count(classes: int) -> int:
    """Return how many scores a teacher has: one for each class, or one where there are two."""
    return 1 if classes == 2 else classes


def _relative(scores: Matrix) -> Matrix:
    """Return scores (teachers, classes, columns + 1) less those of class 0, of which zeros are left (proof: step 5).

    Where a teacher never votes for class 0, those of the lowest class that it votes for are taken off, and this class
    gets the least score above 0. Doing so again changes nothing.
    """
    bounds = np.append(np.full(scores.shape[2] - 1, SOUND), -NEVER)
    clipped = np.clip(scores, -bounds, bounds)
    votable = clipped[:, :, -1] > NEVER
    lowest, teachers = votable.argmax(axis=1), np.arange(len(scores))
    relative: Matrix = clipped - clipped[teachers, lowest][:, np.newaxis]
    relative[~votable], relative[~votable, -1] = 0.0, NEVER
    relative[:, 0] = 0.0
    relative[teachers, lowest, -1] = np.where(lowest > 0, _ABOVE, 0.0)
    return relative
