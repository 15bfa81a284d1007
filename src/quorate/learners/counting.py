"""Ballots of linear teachers, a block of queries by a block of teachers at a time."""

from collections.abc import Iterator, Sequence

import numpy as np

from quorate.learners.backends import Array, Backend
from quorate.learners.grid import gridded_queries, sliced
from quorate.learners.inputs import LARGEST, Matrix

__all__ = ["ballots_in_blocks", "block_shape", "winners"]

_QUERIES = 384  # counted together where they fit: few enough for a cache, and no power of 2, whose rows would share it
_BLOCKS = 16  # of queries that a block of teachers is asked in turn


def ballots_in_blocks(
    backend: Backend, coefficients: Sequence[Sequence[Matrix]], intercepts: Matrix, queries: Matrix, *, memory: int
) -> Iterator[tuple[slice, slice, int, Array]]:
    """Yield which queries, which teachers, a label of at least 1, and who of them votes for it: one row a teacher.

    `intercepts` is (teachers, scores). `coefficients` holds those of the features and then, if there are any, of their
    squares: each as slices of `gridded_coefficients`, one row a score and one column a feature. Queries are sliced as
    often. A teacher that votes for none of the labels yielded votes for 0.
    """
    (teachers, several), features = intercepts.shape, queries.shape[1]
    powers, slices = len(coefficients), len(coefficients[0])
    rooms = min(2, powers * slices)
    cells = min(memory // (8 * several * (1 + rooms) + 16), backend.count_cells)
    wide, high = block_shape(len(queries), teachers, cells=cells)
    tables = [[backend.put(table) for table in pair] for pair in coefficients]
    room = [backend.put(np.empty(high * several * wide)) for _ in range(rooms)]
    together = wide * max(1, min(_BLOCKS, memory // (16 * features * powers * slices * wide)))
    for start in range(0, len(queries), together):
        asked = [slice(left, left + wide) for left in range(start, min(start + together, len(queries)), wide)]
        across = [_columns(backend, queries[part], powers, slices) for part in asked]
        for top in range(0, teachers, high):
            parts = [[table[top * several : (top + high) * several] for table in pair] for pair in tables]
            bars = backend.spread(backend.put(-intercepts[top : top + high].ravel()), wide)
            for place, columns in zip(asked, across, strict=True):
                product = _product(backend, parts, columns, room)
                for label, chosen in winners(backend, product, bars[:, : product.shape[1]], several):
                    yield place, slice(top, top + len(chosen)), label, chosen


def _columns(backend: Backend, queries: Matrix, powers: int, slices: int) -> list[list[Array]]:
    """Return the features and their squares as slices, one row a feature and one column a query."""
    clipped = np.clip(queries, -LARGEST, LARGEST)
    parts = [sliced(gridded_queries, power, slices) for power in (clipped, clipped * clipped)[:powers]]
    return [[backend.put(np.ascontiguousarray(part.T)) for part in pair] for pair in parts]


def _product(backend: Backend, parts: list[list[Array]], columns: list[list[Array]], room: list[Array]) -> Array:
    """Return the sum of products of slices: each is exact, and they are added up in one order (proof: step 4).

    Products of two slices that were rounded off are left out: they are below the last bit of the others.
    """
    pairs = (
        (left, right)
        for pair, across in zip(parts, columns, strict=True)
        for rank, left in enumerate(pair)
        for right in across[: len(pair) - rank]
    )
    total = backend.product(*next(pairs), room[0])
    for left, right in pairs:
        total += backend.product(left, right, room[1])
    return total


def block_shape(queries: int, teachers: int, *, cells: int) -> tuple[int, int]:
    """Return how many queries and how many teachers to take together, for a block of at most this many cells."""
    wide = max(1, min(queries, _QUERIES, cells))
    high = max(1, min(teachers, cells // wide))
    if high == teachers:
        wide = max(1, min(queries, cells // high))
    return wide, high


def winners(backend: Backend, product: Array, bars: Array, several: int) -> Iterator[tuple[int, Array]]:
    """Yield each label of at least 1 and where it wins: where its score is the largest and no lower label has it too.

    A score is the product less its bar, and each teacher has `several`, one row each. A single score stands for class 1
    against class 0, and wins where it is positive. The product is changed in place.
    """
    if several == 1:
        yield 1, product > bars
        return
    product -= bars
    scores = product.reshape(-1, several, product.shape[1])
    best = backend.largest(scores, 1)
    taken = scores[:, 0] == best
    for label in range(1, several):
        chosen = (scores[:, label] == best) & ~taken
        taken = taken | chosen
        yield label, chosen
