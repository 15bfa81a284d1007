"""Private units: their records as points, and what each has spent. Counting charges them, behind a seal.

Work is done on all records alike, in blocks, whatever a unit has spent. All arithmetic is on whole numbers that 32-bit
floats hold exactly, so that no result depends on how the records are laid out (PROOF.md, steps 2 and 3).
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_FAR = 2.0**23  # stands for the square of a point where no record is: beyond every radius
_BLOCK_SQUARES = 2**22  # the squares of all weights of a unit in a block stay below: 64 * 255**2 < 2**22
_LARGEST_TOP = 255
_LARGEST_VOTE = 2**13 - 1  # what one vote adds to one number: those of 2048 rows stay below 2**24


class Units:
    """Units by their names, in rows of points; `persons` says whether a unit may have several. It has no text, no copy.

    A unit that is forgotten keeps what it has spent, and goes on from there if it is inserted again.
    """

    def __init__(self, kernel: Kernel, *, capacity: int, features: int, table: Integers, persons: bool) -> None:
        if kernel.top > _LARGEST_TOP or kernel.top * np.abs(table).max() > _LARGEST_VOTE or len(table) > 2**16:
            raise InvalidInput(f"weights are at most {_LARGEST_TOP}, and votes at most {_LARGEST_VOTE} of 65,536 kinds")
        self.persons = persons
        self._kernel, self._capacity = kernel, capacity
        self._table, self._prices = table, (table**2).sum(axis=1)  # of votes of weight 1, by code
        self._numbers: dict[str, int] = {}
        self._rows: dict[int, slice] = {}  # where the rows of a unit are; a unit that is forgotten has none
        self._forgotten: dict[int, float] = {}  # and when that was
        self._factors: Points = np.zeros((0, features + 2), dtype=np.float32)  # of the points: see `_record_factors`
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
        self._factors[start : self._taken], self._codes[start : self._taken] = _record_factors(points), codes
        for number, size in zip(numbers, sizes, strict=True):
            self._rows[number] = slice(start, start + size)
            self._owners[start : start + size] = number
            self._forgotten.pop(number, None)
            start += size
        return numbers

    def forget(self, names: Sequence[str], *, at: float = 0.0) -> list[int]:
        """Remove the records of these units, note when, and return their numbers. What they have spent stays spent."""
        numbers = [self._numbers.get(name, 0) for name in names]
        if len(set(names)) != len(names) or not all(number in self._rows for number in numbers):
            raise InvalidInput("some of these units are not there: name each that is there once")
        for number in numbers:
            rows = self._rows.pop(number)  # proof: step 6: nothing else of the unit is touched
            self._factors[rows], self._owners[rows], self._codes[rows] = self._nobody(), 0, 0
            self._forgotten[number] = at
        return numbers

    @property
    def codes(self) -> int:
        """How many kinds of votes there are."""
        return len(self._table)

    def __contains__(self, name: object) -> bool:
        return self._numbers.get(name) in self._rows  # type: ignore[call-overload]

    # --- Counting ----------------------------------------------------------------------------------------------------

    def count(self, queries: Points) -> Ballots:
        """Charge every unit for its votes on these queries, in order, and return the counts of votes, sealed."""
        counts = np.zeros((len(queries), self._table.shape[1]), dtype=np.int64)
        radii = self._kernel.squared_radii(queries)
        factors = _query_factors(queries, radii)
        with one_thread(), ThreadPoolExecutor(os.cpu_count()) as threads:
            for part in threads.map(lambda rows: self._count_block(factors, radii, rows), self._blocks()):
                counts += part
        return Ballots(counts)

    def worn(self, reported: int) -> Ballots:
        """Return how many units can vote and how many are worn out, each times a weight, sealed."""
        worn = self._spent[list(self._rows)] > self._capacity
        return Ballots(reported * np.array([[np.count_nonzero(~worn), np.count_nonzero(worn)]], dtype=np.int64))

    def spends(self) -> Integers:
        """Return what each unit has spent, by number: for the owner's file and for nothing else."""
        return self._spent[1 : len(self._numbers) + 1]

    def rows(self) -> Iterator[tuple[int, str, float | None, tuple[Points, Integers]]]:
        """Yield number, name, when it was forgotten, points and classes of each unit, of all that ever were there.

        This is for the owner's file and nothing else.
        """
        for name, number in self._numbers.items():
            rows = self._rows.get(number, slice(0))
            yield (
                number,
                name,
                self._forgotten.get(number),
                (self._factors[rows, :-2] / np.float32(2), self._codes[rows]),
            )

    def restore(self, names: Sequence[str], spends: Integers, forgotten: Mapping[int, float]) -> None:
        """Go on with units that a file knows, in the order of their numbers, and with what each has spent."""
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._spent, self._forgotten = np.concatenate([self._spent[:1], spends]), dict(forgotten)

    def forgotten(self) -> list[tuple[str, float]]:
        """Return the names of the units that were forgotten, and when, oldest first: for the owner alone."""
        names = [(name, self._forgotten[number]) for name, number in self._numbers.items() if number in self._forgotten]
        return sorted(names, key=lambda one: one[1])

    def _blocks(self) -> list[slice]:
        """Return the rows in blocks that no unit straddles."""
        if not self.persons:
            return [slice(start, min(start + _RECORDS, self._taken)) for start in range(0, self._taken, _RECORDS)]
        starts = np.flatnonzero(np.diff(self._owners[: self._taken], prepend=-1))
        cuts = [0, *starts[np.flatnonzero(np.diff(starts // _RECORDS)) + 1].tolist(), self._taken]
        return [slice(start, stop) for start, stop in pairwise(cuts) if start < stop]

    def _count_block(self, factors: Points, radii: NDArray[np.float32], rows: slice) -> Integers:
        """Return the counts of these rows' votes on all queries, and charge their units."""
        counts = np.zeros((len(factors), self._table.shape[1]), dtype=np.int64)
        ballots, prices = self._table.astype(np.float32)[self._codes[rows]], self._prices[self._codes[rows]]
        for start in range(0, len(factors), _QUERIES):
            block = slice(start, start + _QUERIES)
            weights = self._kernel.weigh(factors[block] @ self._factors[rows].T, radii[block])  # proof: step 2
            if self.persons:
                firsts = np.flatnonzero(np.diff(self._owners[rows], prepend=-1))
                weights, codes = self._strongest(weights, self._codes[rows], firsts)
                self._charge(weights, self._prices[codes], self._owners[rows][firsts])
                counts[block] = np.stack([(weights * added[codes]).sum(axis=1) for added in self._table.T], axis=1)
            else:
                self._charge(weights, prices, self._owners[rows])
                counts[block] = weights @ ballots  # whole numbers below 2**24
        return counts

    def _strongest(
        self, weights: NDArray[np.float32], codes: Integers, firsts: Integers
    ) -> tuple[NDArray[np.float32], Integers]:
        """Return for each unit the weight and the code of its nearest record; of equals, the last code."""
        weights *= np.float32(len(self._table))
        weights += codes.astype(np.float32)
        strongest = np.maximum.reduceat(weights, firsts, axis=1)
        tops = np.floor(strongest / np.float32(len(self._table)))
        return tops, (strongest - tops * np.float32(len(self._table))).astype(np.int64)

    def _charge(self, weights: NDArray[np.float32], prices: Integers, owners: Integers) -> None:
        """Charge units for their votes, query by query; from the first that does not fit on, they have none.

        `prices` has the price of each unit's vote of weight 1, on all queries or on each.
        """
        left, most = self._capacity - self._spent[owners], _BLOCK_SQUARES * int(self._prices.max())
        squares = weights * weights if most == _BLOCK_SQUARES else (weights * weights).astype(np.float64) * prices
        for place in range(1, len(squares)):  # running sums; NumPy's own is twenty times slower along this axis
            np.add(squares[place - 1], squares[place], out=squares[place])
        after = self._spent[owners] + squares[-1].astype(np.int64)
        np.subtract(np.minimum(left + 1, most).astype(squares.dtype), squares, out=squares)
        weights *= np.clip(squares, 0, 1, out=squares)  # 1 while it fits, then 0; proof: step 3
        self._spent[owners] = np.minimum(after, self._capacity + 1)  # beyond: worn out, for ever

    def _make_room(self, rows: int) -> None:
        """Make room for so many rows; what is there stays where it is."""
        if rows > len(self._codes):
            room = max(rows, len(self._codes) * 3 // 2, _RECORDS)
            self._factors = _grown(self._factors, room, self._nobody())
            self._codes, self._owners = _grown(self._codes, room, 0), _grown(self._owners, room, 0)
        self._taken = rows

    def _nobody(self) -> Points:
        """Return the factors of a row where no record is: it has no weight."""
        nobody = np.zeros(self._factors.shape[1], dtype=np.float32)
        nobody[-1] = -_FAR
        return nobody

    def __repr__(self) -> str:
        return "<sealed units>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("units hold private records and what they have spent: they are not copied or pickled")


def _record_factors(points: Points) -> Points:
    """Return rows whose products with `_query_factors` are what squared distances fall short of a squared radius by."""
    return np.column_stack([2 * points, np.ones(len(points)), -squares_of(points)]).astype(np.float32)


def _query_factors(points: Points, squared_radii: NDArray[np.float32]) -> Points:
    return np.column_stack([points, squared_radii - squares_of(points), np.ones(len(points))]).astype(np.float32)


def _grown(array: NDArray[Any], length: int, filled: Any) -> NDArray[Any]:
    grown = np.empty((length, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)], grown[len(array) :] = array, filled
    return grown
