"""Ballots of linear teachers, a block of queries by a block of teachers at a time."""

from collections.abc import Iterator

import numpy as np

from quorate.learners.backends import Array, Backend
from quorate.learners.grid import gridded_queries
from quorate.learners.inputs import LARGEST, Matrix

__all__ = ["ballots_in_blocks", "block_shape", "winners"]

_QUERIES = 384  # counted together where they fit: few enough for a cache, and no power of 2, whose rows would share it
_BLOCKS = 16  # of queries that a block of teachers is asked in turn


def ballots_in_blocks(
    backend: Backend, scores: Matrix, queries: Matrix, *, quadratic: bool, memory: int
) -> Iterator[tuple[slice, slice, int, Array]]:
    """Yield which queries, which teachers, a label of at least 1, and who of them votes for it: one row a teacher.

    `scores` is (teachers, scores, columns + 1), with the intercept in the last column; coefficients are those of
    `gridded_coefficients` unless they are quadratic. Whoever votes for none of the labels yielded votes for 0.

    >>> from quorate.learners.backends import choose_backend
    >>> scores, queries = np.array([[[1.0, 0.0]], [[-1.0, 0.0]]]), np.array([[5.0], [-5.0]])
    >>> steps = ballots_in_blocks(choose_backend("numpy"), scores, queries, quadratic=False, memory=1024)
    >>> [(label, chosen.tolist()) for _, _, label, chosen in steps]
    [(1, [[True, False], [False, True]])]
    """
    teachers, several, columns = scores.shape
    cells = min(memory // (16 * several * (1 + quadratic) + 16), backend.count_cells)
    wide, high = block_shape(len(queries), teachers, cells=cells)
    table = backend.put(scores.reshape(teachers * several, columns))
    room = backend.put(np.empty(high * several * wide))
    multiply = _in_order if quadratic else backend.product
    together = wide * max(1, min(_BLOCKS, memory // (8 * columns * (1 + quadratic) * wide)))
    for start in range(0, len(queries), together):
        asked = [slice(left, left + wide) for left in range(start, min(start + together, len(queries)), wide)]
        across = [backend.put(_columns(queries[part], quadratic=quadratic)) for part in asked]
        for top in range(0, teachers, high):
            part = table[top * several : (top + high) * several]
            bars = backend.spread(-part[:, -1], wide)
            for place, features in zip(asked, across, strict=True):
                product = multiply(part[:, :-1], features, room)
                for label, chosen in winners(backend, product, bars[:, : features.shape[1]], several):
                    yield place, slice(top, top + len(chosen)), label, chosen


def _columns(queries: Matrix, *, quadratic: bool) -> Matrix:
    """Return what the coefficients of a score are multiplied by: one row a column, one column a query."""
    if not quadratic:
        return np.ascontiguousarray(gridded_queries(queries).T)
    clipped = np.clip(queries, -LARGEST, LARGEST).T
    return np.concatenate([clipped, clipped * clipped])


def _in_order(left: Array, right: Array, room: Array) -> Array:
    """Multiply two matrices so that each cell is the same steps of double precision, wherever it stands."""
    total = left[:, :1] * right[0]
    for column in range(1, len(right)):
        total += left[:, column : column + 1] * right[column]  # rounded before it is added: proof, step 4
    return total


def block_shape(queries: int, teachers: int, *, cells: int) -> tuple[int, int]:
    """Return how many queries and how many teachers to take together, for a block of so many cells at most.

    >>> block_shape(100_000, 10_000, cells=40_000), block_shape(1, 10_000, cells=40_000)
    ((384, 104), (1, 10000))
    """
    wide = max(1, min(queries, _QUERIES, cells))
    high = max(1, min(teachers, cells // wide))
    if high == teachers:
        wide = max(1, min(queries, cells // high))
    return wide, high


def winners(backend: Backend, product: Array, bars: Array, several: int) -> Iterator[tuple[int, Array]]:
    """Yield each label of at least 1 and where it wins: where its score is the largest and no lower label has it too.

    A score is the product less its bar, and each teacher has `several`, one row each. A single score stands for class 1
    against class 0, and wins where it is positive. The product is changed in place.

    >>> from quorate.learners.backends import choose_backend
    >>> product = np.array([[1.0, 2.0], [3.0, 2.0], [3.0, 4.0]])
    >>> [(label, chosen.tolist()) for label, chosen in winners(choose_backend("numpy"), product, 0 * product, 3)]
    [(1, [[True, False]]), (2, [[False, True]])]
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
