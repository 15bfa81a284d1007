"""How units are dealt to teachers: by a secret permutation, or by a secret word for each unit of a table read in parts.

A table that is read in parts, by one or many processes, has its units ordered by their words: the first are held out,
and the teachers get equal runs of the others. A word is a function of a key and of the unit's position or name. So
every process deals the rows of a part in the same way, also when it reads the part again (PROOF.md, steps 13 and 14).
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners import Deal
from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count
from quorate.core.errors import Infeasible
from quorate.core.rows import canonical_matrix
from quorate.tables import Schema

# Rows, codes, and people: their names, and the number of the person of each row.
Encoded = tuple[Floats, Integers, tuple[Sequence[str], Integers] | None]
Part = tuple[Any, Integers, Deal]  # rows and their codes, and which of them belong to each of some teachers
Words = NDArray[np.uint64]

_BLOCK = 16  # bits of a place: so many rows have their words drawn together


def _secret_permutation(count: int) -> Integers:
    """Return a random order from the operating system's randomness. It does not depend on any record.

    Words that are equal would favour one order of the two, so that all are drawn again.
    """
    while True:
        words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        order = np.argsort(words, kind="stable")
        ordered = words[order]
        if (ordered[1:] != ordered[:-1]).all():
            return order


def secret_subset(count: int, size: int) -> Integers:
    """Return `size` of the numbers below `count`, in rising order: all subsets are equally likely."""
    return np.sort(_secret_permutation(count)[:size])


def _check_units(count: int, teachers: int, held_out: int) -> None:
    if teachers + held_out > count:
        aside = f" with {held_out} held out" if held_out else ""
        raise Infeasible(
            f"{count} units cannot be dealt to teachers={teachers}{aside}: each teacher needs at least one"
        )


def deal_units(units: Integers, count: int, *, teachers: int, held_out: int = 0) -> tuple[Deal, Integers]:
    """Deal units to teachers evenly by a secret permutation, and return the deal and the held-out rows.

    The first `held_out` units of the permutation go to no teacher; the first row of each of them is returned.
    """
    teachers, held_out = check_count("teachers", teachers), check_count("held_out", held_out, least=0)
    _check_units(count, teachers, held_out)
    seat = np.empty(count, dtype=np.int64)
    seat[_secret_permutation(count)] = np.arange(count)
    owner = np.where(seat < held_out, -1, (seat - held_out) % teachers)
    deal = Deal.by_assignment(owner[units], teachers=teachers)
    if held_out == 0:
        return deal, np.empty(0, dtype=np.int64)
    _, first = np.unique(units, return_index=True)
    return deal, first[seat < held_out]


class Randomness(NamedTuple):
    """The secret seeds of some teachers: one seed per teacher for its fit, and one for queries.

    A teacher answers queries under the sum of `query_seed` and its position.
    """

    seeds: Sequence[int]
    query_seed: int


def people_of(schema: Schema, table: Any) -> tuple[list[str], Integers] | None:
    """Return the names of the people in a table, and whose each row is; None where a row is a unit."""
    names = schema.people(table)
    if names is None:
        return None
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(numbers), np.array([numbers[name] for name in names], dtype=np.int64)


class Dealer:
    """The secret key of one fit, from which the words of units and the seeds of teachers are derived."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = os.urandom(32) if key is None else key

    def notes(self, first: int, encoded: Encoded) -> Integers:
        """Return the word, the code and the place of each of these rows, which stand from the place `first` on."""
        X, codes, people = encoded
        words = self._row_words(first, len(X)) if people is None else self._people_words(*people)
        return np.stack([words.view(np.int64), codes, first + np.arange(len(X))], axis=1)

    def randomness(self, first: int, stop: int) -> Randomness:
        """Return the seeds of the teachers from `first` to `stop`, which depend on their positions alone."""
        seeds = [int.from_bytes(self._draw(b"seed", teacher, 4), "big") // 2 for teacher in range(first, stop)]
        return Randomness(seeds, query_seed=int.from_bytes(self._draw(b"asked", 0, 4), "big") + first)

    def _row_words(self, first: int, rows: int) -> Words:
        """Return a word for each place: it looks at nothing of the row."""
        start, stop = first >> _BLOCK, (first + max(rows, 1) - 1 >> _BLOCK) + 1
        block_words = b"".join(self._draw(b"rows", block, 8 << _BLOCK) for block in range(start, stop))
        skipped = first - (start << _BLOCK)
        return np.frombuffer(block_words, dtype=np.uint64)[skipped : skipped + rows]  # proof: step 13

    def _people_words(self, names: Sequence[str], numbers: Integers) -> Words:
        """Return a word for each name, the same wherever a row of that person stands."""
        digests = [hashlib.blake2b(name.encode(), digest_size=8, key=self._key).digest() for name in names]
        return np.array([int.from_bytes(word, "big") for word in digests], dtype=np.uint64)[numbers]

    def _draw(self, purpose: bytes, number: int, size: int) -> bytes:
        return hashlib.shake_256(self._key + purpose + number.to_bytes(8, "big")).digest(size)

    def __repr__(self) -> str:
        return "<the key of a deal>"


@dataclass(frozen=True)
class Seats:
    """The public numbers of a deal: units, held-out units and teachers."""

    count: int
    teachers: int
    held_out: int
    by_person: bool

    def __post_init__(self) -> None:
        _check_units(self.count, self.teachers, self.held_out)

    def owners(self, words: Words, first: int) -> tuple[Integers, Integers, int]:
        """Return rows in the order of their units, the teacher of each (-1 for none), and the number of units.

        `first` units stand before these. Of a unit that is held out there is its first row alone.
        """
        order = np.argsort(words, kind="stable")
        begins = np.ones(len(order), dtype=np.bool_)
        if self.by_person:
            begins[1:] = words[order][1:] != words[order][:-1]
        ranks = first + np.cumsum(begins) - 1
        dealt = (ranks - self.held_out) * self.teachers // (self.count - self.held_out)
        owners = np.where(ranks < self.held_out, -1, dealt)
        used = (owners >= 0) | begins
        return order[used], owners[used], int(begins.sum())

    def first_rank(self, teacher: int) -> int:
        """Return the rank of the first unit of a teacher; of the teacher after the last, the number of units."""
        return self.held_out - (-teacher * (self.count - self.held_out) // self.teachers)


def by_ranges(X: Any, notes: Integers, ranges: int) -> Iterator[tuple[int, Floats, Integers]]:
    """Yield rows with their notes by ranges of words, of which there are a power of two; those without rows are not."""
    if ranges == 1:
        yield 0, canonical_matrix(X), notes
        return
    shift = np.uint64(64 - (ranges.bit_length() - 1))
    index = (notes[:, 0].view(np.uint64) >> shift).astype(np.int64)
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(ranges + 1))
    X, notes = canonical_matrix(X)[order], notes[order]
    for number in np.flatnonzero(np.diff(starts)).tolist():
        part = slice(starts[number], starts[number + 1])
        yield number, X[part], notes[part]


class Rows:
    """Rows with their codes, their positions in the table, and their people. The repr shows no values."""

    def __init__(self, X: Floats, codes: Integers, positions: Integers, owners: Integers) -> None:
        self.X, self.codes, self.positions, self.owners = X, codes, positions, owners

    @classmethod
    def none(cls, features: int) -> "Rows":
        """Return no rows."""
        nobody = np.empty(0, dtype=np.int64)
        return cls(np.empty((0, features)), nobody, nobody, nobody)

    @classmethod
    def concatenate(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return the rows of all parts."""
        some = [part for part in parts if len(part)] or list(parts[:1])
        if len(some) == 1:
            return some[0]
        columns = zip(
            *((part_rows.X, part_rows.codes, part_rows.positions, part_rows.owners) for part_rows in some), strict=True
        )
        return cls(*map(np.concatenate, columns))

    def where(self, mask: NDArray[np.bool_]) -> "Rows":
        """Return the rows where the mask is true."""
        if mask.all():
            return self
        return Rows(self.X[mask], self.codes[mask], self.positions[mask], self.owners[mask])

    def dealt(self, ready: NDArray[np.bool_]) -> Part:
        """Return the rows, and the deal of those that are ready to their owners, who are neighbours by number.

        Each owner's rows are in the order of the table, independent of the process that read them.
        """
        order = np.lexsort((self.positions, self.owners))
        order = order[ready[order]]
        owners = self.owners[order]
        return self.X, self.codes, Deal(order, np.bincount(owners - owners[0]))

    def __len__(self) -> int:
        return len(self.codes)

    def __sizeof__(self) -> int:  # by which a cluster knows how much memory it has in use
        return int(self.X.nbytes + self.codes.nbytes + self.positions.nbytes + self.owners.nbytes)
