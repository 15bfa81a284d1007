"""Private units: their records as points, and what each has spent. Counting charges them, behind a seal.

Work is done on all records alike, in blocks, whatever a unit has spent. All arithmetic is on whole numbers that 32-bit
floats hold exactly, so that no result depends on how the records are laid out (PROOF.md, steps 2 and 3).
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Integers
from quorate.calls import one_thread
from quorate.ensemble.ensemble import Ballots
from quorate.errors import InvalidInput
from quorate.neighbours.kernel import Kernel, squares_of
from quorate.neighbours.points import Points

__all__ = ["Units"]

_QUERIES, _RECORDS = 64, 2048  # of a block: what is computed for one fits a processor's cache
_BLOCK_SQUARES = 2**22  # the squares of all weights of a unit in a block stay below: 64 * 255**2 < 2**22
_LARGEST_TOP = 255


class Units:
    """Units by their names, in rows of points; `persons` says whether a unit may have several. It has no text, no copy.

    A unit that is forgotten keeps what it has spent, and goes on from there if it is inserted again.
    """

    def __init__(self, kernel: Kernel, *, capacity: int, features: int, classes: int, persons: bool) -> None:
        if kernel.top > _LARGEST_TOP:
            raise InvalidInput(f"weights are at most {_LARGEST_TOP}, not {kernel.top}")
        self._kernel, self._capacity, self._classes, self._persons = kernel, capacity, classes, persons
        self._numbers: dict[str, int] = {}
        self._rows: dict[int, slice] = {}  # where the rows of a unit are; a unit that is forgotten has none
        self._points: Points = np.zeros((0, features), dtype=np.float32)
        self._squares = np.zeros(0, dtype=np.float32)  # squared lengths of the points; infinite where no record is
        self._codes = np.zeros(0, dtype=np.int64)
        self._owners = np.zeros(0, dtype=np.int64)  # which unit each row is of; 0 where no record is
        self._taken = 0
        self._spent = np.zeros(1, dtype=np.int64)  # by number, of which 0 is nobody's

    # --- Who is there ------------------------------------------------------------------------------------------------

    def insert(self, names: Sequence[str], sizes: Iterable[int], points: Points, codes: Integers) -> list[int]:
        """Add units, each with so many of these rows, and return their numbers. One that was forgotten has its own."""
        if len(set(names)) != len(names) or any(self._numbers.get(name) in self._rows for name in names):
            raise InvalidInput(
                "a unit of this name is there already: forget it first, or give the new one its own name"
            )
        numbers = [self._numbers.setdefault(name, len(self._numbers) + 1) for name in names]
        if len(self._spent) <= len(self._numbers):
            self._spent = _grown(self._spent, len(self._numbers) * 3 // 2 + 1, 0)
        start = self._taken
        self._make_room(start + len(points))
        self._points[start : self._taken], self._codes[start : self._taken] = points, codes
        self._squares[start : self._taken] = squares_of(points)
        for number, size in zip(numbers, sizes, strict=True):
            self._rows[number] = slice(start, start + size)
            self._owners[start : start + size] = number
            start += size
        return numbers

    def forget(self, names: Sequence[str]) -> list[int]:
        """Remove the records of these units, and return their numbers. What they have spent stays spent."""
        numbers = [self._numbers.get(name, 0) for name in names]
        if len(set(names)) != len(names) or not all(number in self._rows for number in numbers):
            raise InvalidInput("some of these units are not there: name each that is there once")
        for number in numbers:
            rows = self._rows.pop(number)  # proof: step 6: nothing else of the unit is touched
            self._points[rows], self._squares[rows], self._owners[rows] = 0, np.inf, 0
        return numbers

    def __contains__(self, name: object) -> bool:
        return self._numbers.get(name) in self._rows  # type: ignore[call-overload]

    # --- Counting ----------------------------------------------------------------------------------------------------

    def count(self, queries: Points) -> Ballots:
        """Charge every unit for its votes on these queries, in order, and return the counts of votes, sealed."""
        counts = np.zeros((len(queries), self._classes), dtype=np.int64)
        with one_thread(), ThreadPoolExecutor(os.cpu_count()) as threads:
            for part in threads.map(lambda rows: self._count_block(queries, rows), self._blocks()):
                counts += part
        return Ballots(counts)

    def worn(self, reported: int) -> Ballots:
        """Return how many units can vote and how many are worn out, each times a weight, sealed."""
        worn = self._spent[list(self._rows)] > self._capacity
        return Ballots(reported * np.array([[np.count_nonzero(~worn), np.count_nonzero(worn)]], dtype=np.int64))

    def spends(self) -> Integers:
        """Return what each unit has spent, by number: for the owner's file and for nothing else."""
        return self._spent[1 : len(self._numbers) + 1]

    def rows(self) -> Iterator[tuple[int, str, tuple[Points, Integers]]]:
        """Yield number, name, points and classes of each unit that is there: for the owner's file and nothing else."""
        for name, number in self._numbers.items():
            if number in self._rows:
                yield number, name, (self._points[self._rows[number]], self._codes[self._rows[number]])

    def restore(self, names: Sequence[str], spends: Integers) -> None:
        """Go on with units that a file knows, in the order of their numbers, and with what each has spent."""
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._spent = np.concatenate([self._spent[:1], spends])

    def _blocks(self) -> list[slice]:
        """Return the rows in blocks that no unit straddles."""
        if not self._persons:
            return [slice(start, min(start + _RECORDS, self._taken)) for start in range(0, self._taken, _RECORDS)]
        starts = np.flatnonzero(np.diff(self._owners[: self._taken], prepend=-1))
        cuts = [0, *starts[np.flatnonzero(np.diff(starts // _RECORDS)) + 1].tolist(), self._taken]
        return [slice(start, stop) for start, stop in pairwise(cuts) if start < stop]

    def _count_block(self, queries: Points, rows: slice) -> Integers:
        """Return the counts of these rows' votes on all queries, and charge their units."""
        counts = np.zeros((len(queries), self._classes), dtype=np.int64)
        for start in range(0, len(queries), _QUERIES):
            block = slice(start, start + _QUERIES)
            weights = self._weights(queries[block], rows)
            if self._persons:
                firsts = np.flatnonzero(np.diff(self._owners[rows], prepend=-1))
                weights, codes = self._strongest(weights, self._codes[rows], firsts)
                self._charge(weights, self._owners[rows][firsts])
                counts[block] = _by_class(weights, codes, self._classes)
            else:
                self._charge(weights, self._owners[rows])
                ballots = np.eye(self._classes, dtype=np.float32)[self._codes[rows]]
                counts[block] = weights @ ballots  # whole numbers below 2**24
        return counts

    def _weights(self, queries: Points, rows: slice) -> NDArray[np.float32]:
        """Return the weight of each row's vote on each query, one line a query."""
        squares: NDArray[np.float32] = (
            np.multiply(queries, -2, dtype=np.float32) @ self._points[rows].T
        )  # proof: step 2
        squares += squares_of(queries)[:, np.newaxis]
        squares += self._squares[rows]
        return self._kernel.weigh(squares)

    def _strongest(
        self, weights: NDArray[np.float32], codes: Integers, firsts: Integers
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return for each unit the weight and the class of its nearest record; of equals, the last class."""
        weights *= np.float32(self._classes)
        weights += codes.astype(np.float32)
        strongest = np.maximum.reduceat(weights, firsts, axis=1)
        tops = np.floor(strongest / np.float32(self._classes))
        return tops, strongest - tops * np.float32(self._classes)

    def _charge(self, weights: NDArray[np.float32], owners: Integers) -> None:
        """Charge units for their weights, query by query; from the first that does not fit on, they have none."""
        left = self._capacity - self._spent[owners]
        squares = np.cumsum(weights * weights, axis=0)
        weights *= squares <= np.minimum(left, _BLOCK_SQUARES).astype(np.float32)  # proof: step 3
        after = self._spent[owners] + squares[-1].astype(np.int64)
        self._spent[owners] = np.minimum(after, self._capacity + 1)  # beyond: worn out, for ever

    def _make_room(self, rows: int) -> None:
        """Make room for so many rows; what is there stays where it is."""
        if rows > len(self._codes):
            room = max(rows, len(self._codes) * 3 // 2, _RECORDS)
            self._points, self._squares = _grown(self._points, room, 0), _grown(self._squares, room, np.inf)
            self._codes, self._owners = _grown(self._codes, room, 0), _grown(self._owners, room, 0)
        self._taken = rows

    def __repr__(self) -> str:
        return "<sealed units>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("units hold private records and what they have spent: they are not copied or pickled")


def _by_class(weights: NDArray[np.float32], codes: NDArray[np.float32], classes: int) -> Integers:
    counted = [(weights * (codes == code)).sum(axis=1, dtype=np.float64) for code in range(classes)]
    return np.stack(counted, axis=1).astype(np.int64)


def _grown(array: NDArray[Any], length: int, filled: float) -> NDArray[Any]:
    grown = np.full((length, *array.shape[1:]), filled, dtype=array.dtype)
    grown[: len(array)] = array
    return grown
