"""Ballots of linear teachers, a block of queries by a block of teachers at a time."""

from collections.abc import Iterator

import numpy as np

from quorate.learners.backends import Array, Backend
from quorate.learners.inputs import LARGEST, Matrix

__all__ = ["ballots_in_blocks", "block_shape", "winners"]

_QUERIES = 384  # counted together where they fit: few enough for a cache, and no power of 2, whose rows would share it


def ballots_in_blocks(
    backend: Backend, scores: Matrix, queries: Matrix, *, quadratic: bool, memory: int
) -> Iterator[tuple[slice, slice, int, Array]]:
    """Yield which queries, which teachers, a label of at least 1, and who of them votes for it: one row a teacher.

    `scores` is (teachers, scores, columns + 1), with the intercept in the last column. Whoever votes for none of the
    labels yielded votes for 0.

    >>> from quorate.learners.backends import choose_backend
    >>> scores, queries = np.array([[[1.0, 0.0]], [[-1.0, 0.0]]]), np.array([[5.0], [-5.0]])
    >>> steps = ballots_in_blocks(choose_backend("numpy"), scores, queries, quadratic=False, memory=1024)
    >>> [(label, chosen.tolist()) for _, _, label, chosen in steps]
    [(1, [[True, False], [False, True]])]
    """
    teachers, several, columns = scores.shape
    cells = min(memory // (8 * several + 16), backend.count_cells)
    wide, high = block_shape(len(queries), teachers, cells=cells)
    table = backend.put(scores.reshape(teachers * several, columns))
    room = backend.put(np.empty(high * several * wide))
    for left in range(0, len(queries), wide):
        asked = np.clip(queries[left : left + wide], -LARGEST, LARGEST)
        parts = [asked, asked * asked] if quadratic else [asked]
        across = backend.put(np.concatenate([*parts, np.ones((len(asked), 1))], axis=1).T.copy())
        for top in range(0, teachers, high):
            product = backend.product(table[top * several : (top + high) * several], across, room)
            for label, chosen in winners(backend, product.reshape(-1, several, len(asked))):
                yield slice(left, left + len(asked)), slice(top, top + len(chosen)), label, chosen


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


def winners(backend: Backend, product: Array) -> Iterator[tuple[int, Array]]:
    """Yield each label of at least 1 and where it wins: where its score is the largest and no lower label has it too.

    A single score stands for class 1 against class 0, and wins where it is positive.

    >>> from quorate.learners.backends import choose_backend
    >>> product = np.array([[[1.0, 2.0], [3.0, 2.0], [3.0, 4.0]]])
    >>> [(label, chosen.tolist()) for label, chosen in winners(choose_backend("numpy"), product)]
    [(1, [[True, False]]), (2, [[False, True]])]
    """
    if product.shape[1] == 1:
        yield 1, product[:, 0] > 0
        return
    best = backend.largest(product, 1)
    taken = product[:, 0] == best
    for label in range(1, product.shape[1]):
        chosen = (product[:, label] == best) & ~taken
        taken = taken | chosen
        yield label, chosen
