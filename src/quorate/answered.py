"""Answers of this process by the rows that they were given to: a whole batch is looked up, and entered, at once.

A hash table in arrays, with open addresses. A hash only says where to look: rows are compared in full, so that nobody
is given the answer to another query, whatever hashes somebody makes meet.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Integers

__all__ = ["WIDEST", "AnsweredRows", "EnteredRows"]

WIDEST = 32  # columns: wider rows take more room than a digest and its place in a dictionary

_BLOCK = 4096  # rows looked up together: what is made of them on the way stays in the cache of a core
_FREE = -1

Words = NDArray[np.uint64]

# Odd and secret, so that nobody can make rows crowd together, which would take time: for each column, and the caller.
_MULTIPLIERS: Words = np.frombuffer(os.urandom(8 * (WIDEST + 1)), dtype=np.uint64) | np.uint64(1)


class AnsweredRows:
    """Rows of up to `WIDEST` columns of 64-bit floats, who asked them, and the answers; `unknown` stands for none.

    >>> table = AnsweredRows(columns=1, unknown=-2)
    >>> with table.entered("me", np.array([[5.0], [7.0], [5.0]])) as rows:
    ...     print(rows.new)
    ...     rows.answer(np.array([1]))
    ...     print(rows.labels())
    [0 1]
    [ 1 -2  1]
    >>> with table.entered("me", np.array([[7.0], [5.0]])) as rows:
    ...     print(rows.new, rows.labels())
    [0] [-2  1]
    """

    def __init__(self, *, columns: int, unknown: int) -> None:
        self.columns, self.size = columns, 0
        self._settled = 0  # rows that were there before the batch
        self._unknown = unknown
        self._callers: dict[str, int] = {}
        self._rows: Words = np.empty((0, columns), dtype=np.uint64)
        self._hashes: Words = np.empty(0, dtype=np.uint64)
        self._asked_by: Integers = np.empty(0, dtype=np.int64)
        self._labels: Integers = np.empty(0, dtype=np.int64)
        self._slots = np.full(64, _FREE, dtype=np.int32)

    @contextmanager
    def entered(self, caller: str, X: NDArray[np.float64]) -> Iterator["EnteredRows"]:
        """Enter the rows that are not there yet. Those that have no answer when this ends are removed again."""
        rows, start, whole = np.ascontiguousarray(X).view(np.uint64), self.size, False
        self._settled = start
        try:
            yield EnteredRows(self, start, *self._enter(rows, self.number(caller)))
            whole = True
        finally:
            answered = np.flatnonzero(self._labels[start : self.size] != self._unknown)
            if answered.size < self.size - start or not whole:
                self._keep_of_newest(start, answered)
            if not whole:  # interrupted anywhere
                self._place_all()

    def find(self, caller: str, rows: Sequence[bytes]) -> Integers:
        """Return the label of each of these rows, which are as many bytes as a row has."""
        words, number = np.frombuffer(b"".join(rows), dtype=np.uint64).reshape(-1, self.columns), self.number(caller)
        places = self._found(words, _hashes(words, number), number)
        labels = np.full(len(rows), self._unknown, dtype=np.int64)
        labels[places >= 0] = self._labels[places[places >= 0]]
        return labels

    def take_over(self, answers: Iterable[tuple[str, bytes, int]]) -> None:
        """Enter answers to rows that are given as bytes."""
        by_caller: dict[str, tuple[list[bytes], list[int]]] = {}
        for caller, row, label in answers:
            rows, labels = by_caller.setdefault(caller, ([], []))
            rows.append(row)
            labels.append(label)
        for caller, (rows, labels) in by_caller.items():
            with self.entered(caller, np.frombuffer(b"".join(rows)).reshape(-1, self.columns)) as entered:
                entered.answer(np.array(labels)[entered.new])

    def number(self, caller: str) -> int:
        """Return the number by which a caller is known here."""
        return self._callers.setdefault(caller, len(self._callers))

    def labels(self, places: Integers) -> Integers:
        """Return the labels at these places."""
        return self._labels[places]

    def answer(self, start: int, labels: Integers) -> None:
        """Set labels, from this place on."""
        self._labels[start : start + labels.size] = labels

    def drop_oldest(self, most: int) -> None:
        """Drop the oldest answers, down to so many, once there are a quarter more."""
        if self.size > most + most // 4:
            kept = [array[self.size - most : self.size].copy() for array in self._arrays()]
            self._set_arrays(kept, most)
            self._place_all()

    def answers(self) -> Iterator[tuple[str, bytes, int]]:
        """Yield who asked, the bytes of the row, and the label, oldest first."""
        names = list(self._callers)
        rows, _, asked_by, labels = (array[: self.size] for array in self._arrays())
        for number, row, label in zip(asked_by.tolist(), rows, labels.tolist(), strict=True):
            yield names[number], row.tobytes(), label

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self._rows, self._hashes, self._asked_by, self._labels

    def _set_arrays(self, arrays: Sequence[NDArray[Any]], size: int) -> None:
        (self._rows, self._hashes, self._asked_by, self._labels), self.size = arrays, size

    def _enter(self, rows: Words, number: int) -> tuple[Integers, Integers]:
        """Return the place of each row, and which of them are new, each where it stands first."""
        places = np.empty(len(rows), dtype=np.int64)
        new = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            places[block], firsts = self._enter_block(rows[block], number, ahead=len(rows) // _BLOCK - start // _BLOCK)
            new.append(start + firsts)
        return places, np.concatenate(new)

    def _enter_block(self, rows: Words, number: int, *, ahead: int) -> tuple[Integers, Integers]:
        """Enter a block, with room for as many blocks like it as are `ahead`."""
        hashes = _hashes(rows, number)
        places = self._found(rows, hashes, number)
        new = np.flatnonzero(places < 0)
        if new.size == 0:
            return places, new
        if new.size < len(rows):
            rows, hashes = rows[new], hashes[new]
        start, stop = self.size, self.size + new.size
        self._make_room(stop, stop + ahead * new.size)
        self._rows[start:stop], self._hashes[start:stop] = rows, hashes
        self._asked_by[start:stop], self._labels[start:stop] = number, self._unknown
        self.size = stop
        claimed = self._claim(start) - start
        firsts, which = _repetitions(claimed)
        if firsts.size < new.size:
            self._keep_of_newest(start, claimed[firsts])
        places[new] = start + which
        return places, new[firsts]

    def _keep_of_newest(self, start: int, kept: Integers) -> None:
        """Keep, of the rows from this place on, those that are `kept`. Older rows were claimed before all of them."""
        self._slots[self._slots >= start] = _FREE
        self.size, kept = start, start + kept
        for array in self._arrays():
            array[start : start + kept.size] = array[kept]
        self.size = start + kept.size
        self._claim(start)

    def _found(self, rows: Words, hashes: Words, number: int) -> Integers:
        """Return the place of each row, or -1."""
        places = np.full(len(rows), _FREE, dtype=np.int64)
        waiting, slots = np.arange(len(rows) if self.size else 0), self._first_slots(hashes)
        while waiting.size:
            there = self._slots[slots]
            taken = there != _FREE
            waiting, slots, there = waiting[taken], slots[taken], there[taken]
            alike = self._hashes[there] == hashes[waiting]
            if alike.any():
                hits, others = there[alike], waiting[alike]
                alike[alike] = (self._asked_by[hits] == number) & (self._rows[hits] == rows[others]).all(axis=1)
                places[waiting[alike]] = there[alike]
            waiting, slots = waiting[~alike], (slots[~alike] + 1) & (self._slots.size - 1)
        return places

    def _claim(self, start: int, stop: int | None = None) -> Integers:
        """Give slots to the rows from this place on; return the place of each, or that of one among them that is alike.

        Rows that are alike look at the same slots in the same order, and so meet where the first of them finds room.
        Rows that are claimed together may push each other along, so that none can be removed without claiming the rest
        anew: those that may be removed are claimed after those that stay.
        """
        places = np.arange(start, self.size if stop is None else stop)
        waiting, slots = places, self._first_slots(self._hashes[places])
        while waiting.size:
            free = self._slots[slots] == _FREE
            self._slots[slots[free]] = waiting[free]
            there = self._slots[slots]  # one of those that found it free
            lost = there != waiting
            waiting, slots, there = waiting[lost], slots[lost], there[lost]
            alike = self._hashes[there] == self._hashes[waiting]
            if alike.any():
                hits, others = there[alike], waiting[alike]
                same = self._asked_by[hits] == self._asked_by[others]
                alike[alike] = same & (self._rows[hits] == self._rows[others]).all(axis=1)
                places[waiting[alike] - start] = there[alike]
            waiting, slots = waiting[~alike], (slots[~alike] + 1) & (self._slots.size - 1)
        return places

    def _first_slots(self, hashes: Words) -> Integers:
        bits = self._slots.size.bit_length() - 1
        return (hashes >> np.uint64(64 - bits)).astype(np.int64)

    def _make_room(self, size: int, likely: int) -> None:
        """Let the arrays hold so many rows, and leave half of the slots free; what grows, grows to what is likely."""
        if size > len(self._labels):
            self._set_arrays([_grown(array, max(likely, 2 * len(array))) for array in self._arrays()], self.size)
        if 2 * size > self._slots.size:
            self._slots = np.full(2 ** (2 * likely - 1).bit_length(), _FREE, dtype=np.int32)
            self._claim(0, self._settled)
            self._claim(self._settled)

    def _place_all(self) -> None:
        """Give every row a slot anew."""
        self._slots.fill(_FREE)
        self._claim(0)


class EnteredRows:
    """A batch whose rows stand in a table. `new` are the rows that are to be answered: those without repetitions."""

    def __init__(self, table: AnsweredRows, start: int, places: Integers, new: Integers) -> None:
        self.new = new
        self._table, self._next, self._places = table, start, places

    def answer(self, labels: Integers) -> None:
        """Enter the labels of the next of the new rows."""
        self._table.answer(self._next, labels)
        self._next += labels.size

    def labels(self) -> Integers:
        """Return the label of every row of the batch."""
        return self._table.labels(self._places)


def _repetitions(claimed: Integers) -> tuple[Integers, Integers]:
    """Return which rows are the first of those that are alike, and for each row the number of its own among these."""
    count, own = claimed.size, np.arange(claimed.size)
    if np.array_equal(claimed, own):
        return own, own
    first = np.full(count, count)
    np.minimum.at(first, claimed, own)
    firsts = np.sort(first[first < count])
    numbers = np.empty(count, dtype=np.int64)
    numbers[claimed[firsts]] = np.arange(firsts.size)
    return firsts, numbers[claimed]


def _hashes(rows: Words, number: int) -> Words:
    """Return a hash of each row and its caller. Numbers with few digits differ in their upper half: it is folded in."""
    mixed = rows >> np.uint64(32)
    mixed ^= rows
    hashes: Words = mixed @ _MULTIPLIERS[: rows.shape[1]]
    hashes += _MULTIPLIERS[-1] * np.uint64(number)
    return hashes


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown
