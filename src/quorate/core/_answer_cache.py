"""Answers of this process by the rows that they were given to: a whole batch is looked up, and kept, at once.

Each batch is a part of its own, whose hashes are sorted. A hash only says where to look: rows are compared in full, so
that nobody is given the answer to another query, whatever hashes somebody makes meet.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Integers
from quorate.core.rows import in_blocks

WIDEST = 32  # columns: wider rows take more room than a digest and its place in a dictionary

_BLOCK = 2**14  # rows hashed or compared together: few enough for the cache of a core, and so many that threads seldom
# wait for Python's lock
_ABSENT = -1
_PARTS = 16  # searched one after the other, at most

Words = NDArray[np.uint64]

# Odd and secret, so that nobody can make rows crowd together, which would take time: for each column, and the caller.
_MULTIPLIERS: Words = np.frombuffer(os.urandom(8 * (WIDEST + 1)), dtype=np.uint64) | np.uint64(1)


class AnsweredRows:
    """Rows of up to `WIDEST` columns of 64-bit floats, who asked them, and the answers; `unknown` stands for none.

    Rows that are entered must not be changed afterwards: they are kept as they are, without a copy.

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
        self.columns = columns
        self._unknown = unknown
        self._callers: dict[str, int] = {}
        self._parts: list[_Part] = []  # the oldest first

    @property
    def size(self) -> int:
        """How many rows have an answer."""
        return sum(map(len, self._parts))

    @contextmanager
    def entered(self, caller: str, X: NDArray[np.float64]) -> Iterator["EnteredRows"]:
        """Look these rows up. Those that are new, and have an answer when this ends, are kept."""
        with self._entered(np.ascontiguousarray(X).view(np.uint64), self._asked_by(caller, len(X))) as rows:
            yield rows

    def find(self, caller: str, rows: Sequence[bytes]) -> Integers:
        """Return the label of each of these rows, which are as many bytes as a row has."""
        words = np.frombuffer(b"".join(rows), dtype=np.uint64).reshape(-1, self.columns)
        return self._look_up(_Part.of(words, self._asked_by(caller, len(words))))

    def enter_answers(self, answers: Iterable[tuple[str, bytes, int]]) -> None:
        """Enter answers to rows that are given as bytes."""
        rows = list(answers)
        if not rows:
            return
        words = np.frombuffer(b"".join(row for _, row, _ in rows), dtype=np.uint64).reshape(-1, self.columns)
        with self._entered(words, np.array([self._number(caller) for caller, _, _ in rows])) as entered:
            entered.answer(np.array([label for _, _, label in rows])[entered.new])

    def drop_oldest(self, limit: int) -> None:
        """Drop the oldest answers, down to so many, once there are a quarter more."""
        extra = self.size - limit
        if extra <= limit // 4:
            return
        parts = self._parts
        while extra >= len(parts[0]):
            extra, parts = extra - len(parts[0]), parts[1:]
        if extra:
            parts = [parts[0].select(np.arange(len(parts[0])) >= extra), *parts[1:]]
        self._parts = parts

    def answers(self) -> Iterator[tuple[str, bytes, int]]:
        """Yield who asked, the bytes of the row, and the label, oldest first."""
        names = list(self._callers)
        for part in self._parts:
            for number, row, label in zip(part.asked_by.tolist(), part.rows, part.labels.tolist(), strict=True):
                yield names[number], row.tobytes(), label

    def _number(self, caller: str) -> int:
        """Return the number by which a caller is known here."""
        return self._callers.setdefault(caller, len(self._callers))

    def _asked_by(self, caller: str, rows: int) -> Integers:
        return np.broadcast_to(np.int64(self._number(caller)), rows)

    @contextmanager
    def _entered(self, words: Words, asked_by: Integers) -> Iterator["EnteredRows"]:
        self._join_newest()
        batch = _Part.of(words, asked_by)
        repeated, firsts = batch.repetitions()
        labels = self._look_up(batch)
        unknown = labels == self._unknown
        unknown[repeated] = False
        try:
            yield EnteredRows(labels, np.flatnonzero(unknown), repeated, firsts)
        finally:  # also where this was interrupted
            answered = unknown & (labels != self._unknown)
            if answered.any():
                self._parts = [*self._parts, batch if answered.all() else batch.select(answered)]

    def _look_up(self, batch: "_Part") -> Integers:
        """Set the labels of these rows to what is known, and return them."""
        batch.labels.fill(self._unknown)
        for part in self._parts:
            if part.may_hold(batch):
                positions = part.places_of(batch)
                np.copyto(batch.labels, part.labels[positions], where=positions != _ABSENT)
        return batch.labels

    def _join_newest(self) -> None:
        """Join the newest part with the one before, as long as they are about of one size, or there are many parts.

        So few are searched, and a row is copied a few times at most. A large batch is not copied for a small one.
        """
        parts = self._parts
        while len(parts) > _PARTS or (len(parts) > 1 and len(parts[-1]) // 8 <= len(parts[-2]) <= 2 * len(parts[-1])):
            parts = [*parts[:-2], _Part.join(parts[-2:])]
        self._parts = parts


class EnteredRows:
    """A batch that was looked up. `new` are the rows that are to be answered: those without repetitions."""

    def __init__(self, labels: Integers, new: Integers, repeated: Integers, firsts: Integers) -> None:
        self.new = new
        self._labels, self._repeated, self._firsts, self._next = labels, repeated, firsts, 0

    def answer(self, labels: Integers) -> None:
        """Enter the labels of the next of the new rows."""
        self._labels[self.new[self._next : self._next + labels.size]] = labels
        self._next += labels.size

    def labels(self) -> Integers:
        """Return the label of every row of the batch."""
        labels = self._labels.copy()
        labels[self._repeated] = labels[self._firsts]
        return labels


@dataclass(frozen=True, eq=False, repr=False)
class _Part:
    """Rows, who asked each, and its label. A key is the upper part of a row's hash, and below it the row's place."""

    rows: Words
    asked_by: Integers
    labels: Integers
    keys: Words  # sorted
    shift: np.uint64  # how many bits of a key are the place

    @classmethod
    def of(cls, rows: Words, asked_by: Integers) -> "_Part":
        """Return these rows, with labels that are still to be set."""
        keys, shift = np.empty(len(rows), dtype=np.uint64), _shift(len(rows))

        def put_hashes(part: slice) -> None:
            keys[part] = _hashes(rows[part], asked_by[part])

        in_blocks(put_hashes, len(rows), block=_BLOCK)
        keys >>= shift
        keys <<= shift
        keys |= np.arange(len(rows), dtype=np.uint64)
        keys.sort()
        return cls(rows, asked_by, np.empty(len(rows), dtype=np.int64), keys, shift)

    @classmethod
    def join(cls, parts: Sequence["_Part"]) -> "_Part":
        """Return the rows of several parts, in their order."""
        joined = cls.of(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "asked_by")))
        np.concatenate([part.labels for part in parts], out=joined.labels)
        return joined

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: NDArray[np.bool_]) -> "_Part":
        """Return some of the rows."""
        selected = _Part.of(self.rows[chosen], self.asked_by[chosen])
        selected.labels[:] = self.labels[chosen]
        return selected

    def repetitions(self) -> tuple[Integers, Integers]:
        """Return which rows are like one before them, and the first such one of each."""
        shift = self.shift
        again = np.flatnonzero((self.keys[1:] ^ self.keys[:-1]) < np.uint64(1) << shift)
        crowd = self.keys[np.union1d(again, again + 1)]  # all whose hash another one has
        tops, positions, firsts = crowd >> shift, _places(crowd, shift), np.arange(len(self) if crowd.size else 0)
        while positions.size:  # of each hash the first row, and those that are like it; others have this hash by chance
            leaders = positions[np.searchsorted(tops, tops)]
            alike = self.like(positions, self, leaders)
            firsts[positions[alike]] = leaders[alike]
            tops, positions = tops[~alike], positions[~alike]
        repeated = np.flatnonzero(firsts != np.arange(len(firsts)))
        return repeated, firsts[repeated]

    def may_hold(self, batch: "_Part") -> bool:
        """Return whether a row of the other part has the hash of one here: the fewer are searched for in the others."""
        few, many = (self, batch) if len(self) < len(batch) else (batch, self)
        shift = max(self.shift, batch.shift)

        def meet(part: slice) -> bool:
            wanted = few.keys[part] >> shift
            near = many.keys.take(np.searchsorted(many.keys, wanted << shift), mode="clip") >> shift
            return bool((near == wanted).any())

        return any(in_blocks(meet, len(few), block=_BLOCK))

    def places_of(self, batch: "_Part", *, skip: int = 0) -> Integers:
        """Return the place here of each row of another part, or `_ABSENT`; of equal hashes, the first few are skipped.

        Hashes are searched for in their order, and rows are then compared in theirs: each is fast in its own.
        """
        positions = np.full(len(batch), _ABSENT)
        shift = max(self.shift, batch.shift)

        def search(part: slice) -> None:
            keys = batch.keys[part]
            near = np.searchsorted(self.keys, keys >> shift << shift) + skip
            met = self.keys.take(near, mode="clip")
            alike = (near < len(self)) & (met >> shift == keys >> shift)
            positions[_places(keys[alike], batch.shift)] = _places(met[alike], self.shift)

        def compare(part: slice) -> Integers:
            rows = part.start + np.flatnonzero(positions[part] != _ABSENT)
            unlike: Integers = rows[~batch.like(rows, self, positions[rows])]
            return unlike

        in_blocks(search, len(batch), block=_BLOCK)
        chance = np.concatenate([np.empty(0, dtype=np.int64), *in_blocks(compare, len(batch), block=_BLOCK)])
        if chance.size:  # another row has the hash of these: look at the next one that has it
            positions[chance] = self.places_of(_Part.of(batch.rows[chance], batch.asked_by[chance]), skip=skip + 1)
        return positions

    def like(self, positions: Integers, other: "_Part", other_positions: Integers) -> NDArray[np.bool_]:
        """Return whether the rows at these places are those of another part at others, and of one caller."""

        def rows_alike(part: slice) -> NDArray[np.bool_]:
            mine, its = positions[part], other_positions[part]
            same: NDArray[np.bool_] = self.asked_by[mine] == other.asked_by[its]
            same &= (self.rows[mine] == other.rows[its]).all(axis=1)
            return same

        return np.concatenate([np.empty(0, np.bool_), *in_blocks(rows_alike, len(positions), block=_BLOCK)])


def _shift(rows: int) -> np.uint64:
    """Return how many bits the place of one of so many rows takes."""
    return np.uint64(max(rows - 1, 1).bit_length())


def _places(keys: Words, shift: np.uint64) -> Integers:
    """Return the places that keys end with."""
    return (keys & ((np.uint64(1) << shift) - np.uint64(1))).astype(np.int64)


def _hashes(rows: Words, asked_by: Integers) -> Words:
    """Return a hash of each row and its caller. Numbers with few digits differ in their upper half: it is folded in."""
    mixed = rows >> np.uint64(32)
    mixed ^= rows
    hashes: Words = mixed @ _MULTIPLIERS[: rows.shape[1]]
    hashes += _MULTIPLIERS[-1] * np.asarray(asked_by, dtype=np.uint64)
    return hashes
