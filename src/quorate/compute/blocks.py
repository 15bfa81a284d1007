"""One engine for sums over private rows: a function is mapped over blocks of whole units, and what it returns is added.

    rows in memory          `RowBlocks`                     threads of this process
    rows spilled to disk    `ensemble.sources.SpilledRows`  threads of this process, a piece of a file at a time
    rows on a cluster       `ensemble.clusters.ClusterRows` workers of Dask or Ray, each next to its rows

The function returns whole numbers, and these alone leave the rows. Their sum has the same bits whatever the blocks are,
whoever counts them, and however often a lost block is counted again (ensemble/PROOF.md, step 15).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from quorate.core.arrays import Floats, Integers
from quorate.core.estimator_calls import one_thread
from quorate.core.rows import usable_cores

Block = tuple[Any, Integers]  # rows of whole units, and where each unit begins among them
AddBlock = Callable[[Any, Integers], Integers]

_ROWS = 2**10  # of a block: few enough for the caches
_THREADS = 4  # that take blocks, at most
_WAITING = 64  # blocks that wait for a thread, at most


class Blocks(ABC):
    """Private rows in blocks of whole units. Sums of whole numbers leave them, and nothing else does."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of units: rows, or people."""

    @abstractmethod
    def map_add(self, function: AddBlock, entries: int) -> Integers:
        """Return the sum of what `function` returns for each block: so many whole numbers.

        What it adds for a unit must be a function of that unit's rows alone, to the last bit.
        """


class RowBlocks(Blocks):
    """Rows in memory: a block is the numbers of its rows. `units` says whose row each is."""

    def __init__(self, units: Integers, count: int) -> None:
        self._count = count
        self._order = np.argsort(units, kind="stable")
        self._starts = np.flatnonzero(np.diff(units[self._order], prepend=-1))

    @property
    def count(self) -> int:
        """The number of units."""
        return self._count

    def map_add(self, function: AddBlock, entries: int) -> Integers:
        """Return the sum over the blocks, which several threads take."""
        return add_blocks(function, self.parts(), entries)

    def parts(self) -> Iterator[Block]:
        """Yield the numbers of the rows of each block, and where each unit begins among them."""
        return cut_blocks(self._order, self._starts)


def add_blocks(function: AddBlock, blocks: Iterable[Block], entries: int) -> Integers:
    """Return the sum of what a function returns for each block. Few blocks are in memory at a time.

    Each block is taken by one thread, so that threads of linear algebra do not wait for each other.
    """
    total, waiting = np.zeros(entries, dtype=np.int64), deque[Future[Integers]]()
    with one_thread(), ThreadPoolExecutor(usable_cores(most=_THREADS)) as threads:
        for rows, firsts in blocks:
            waiting.append(threads.submit(function, rows, firsts))
            if len(waiting) == _WAITING:
                total += waiting.popleft().result()
        for added in waiting:
            total += added.result()
    return total


def cut_blocks(order: Integers, starts: Integers) -> Iterator[Block]:
    """Yield blocks of whole units of rows in this order, in which units begin at `starts`."""
    ends = np.append(starts[1:], len(order))
    first = 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + _ROWS, side="right")))
        begin = starts[first]
        yield order[begin : ends[last - 1]], starts[first:last] - begin
        first = last


def cut_people(X: Floats, notes: Integers) -> Iterator[Block]:
    """Yield blocks of whole people of rows whose notes have the word of the person, a code, and the row's place."""
    order = np.lexsort((notes[:, 2], notes[:, 0]))
    words = notes[order, 0]
    starts = np.flatnonzero(np.append(True, words[1:] != words[:-1])[: len(words)])
    for rows, firsts in cut_blocks(order, starts):
        yield X[rows], firsts


def cut_rows(X: Floats) -> Iterator[Block]:
    """Yield blocks of rows that are units of their own."""
    for start in range(0, len(X), _ROWS):
        rows = X[start : start + _ROWS]
        yield rows, np.arange(len(rows))
