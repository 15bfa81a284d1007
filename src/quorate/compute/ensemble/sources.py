"""Units of a table of any size, which is read once, dealt, and spilled to disk.

Every unit of a table on disk gets a secret word when it is read (`dealing`). Rows are written to files by ranges of
words. Then the ranges are read in order: teachers are fitted as their chunks fill (PROOF.md, step 13), or whole numbers
are added up over blocks of whole units (step 15).
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.blocks import AddBlock, Block, Blocks, add_blocks, cut_people, cut_rows
from quorate.compute.ensemble.dealing import Dealer, Encoded, Part, Rows, Seats, by_ranges
from quorate.compute.ensemble.estimators import Ensemble
from quorate.core.arrays import Integers
from quorate.core.checks import check_bytes
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.progress import progress
from quorate.tables.files import TableStream
from quorate.tables.results import Table

BUCKETS = 128  # ranges of words, each with two files
_LEAST_MEMORY = 10**8  # bytes: a batch of rows of a wide table takes some ten million
_BLOCK = 2**22  # bytes that are read together
_SHARE = 6  # of the memory, that rows read back may take: they are joined, and fitted, beside a copy
_HEAVY = 4  # times its rows, that a teacher takes to be fitted


class SpilledRows(Blocks):
    """Rows of a table of any size, in files without a name that nobody else can read and that end with the process.

    `add` takes rows, and then `ensemble` deals and fits them, or `map_add` adds up what a function says of them. A row
    is a unit, or, where people are named, a person. Apart from the fitted teachers, about `memory` bytes are used. The
    `dealer` has the secret key.
    """

    def __init__(
        self,
        features: int,
        *,
        memory: int,
        folder: str | Path | None = None,
        dealer: Dealer | None = None,
        ranges: int = BUCKETS,
    ) -> None:
        self.features, self.rows = features, 0
        self._memory, self._folder, self._by_person = memory, folder, False
        self._dealer = dealer or Dealer()
        self._open = ExitStack()
        with _spilling(folder):
            self._files = [_Bucket(features, self._open, folder) for _ in range(ranges)]

    def add(self, encoded: Encoded, *, first: int | None = None) -> None:
        """Write more rows, which stand in the table from the place `first` on; after those before, unless it is said.

        The places of all rows differ.
        """
        self._by_person = encoded[2] is not None
        notes = self._dealer.notes(self.rows if first is None else first, encoded)
        with _spilling(self._folder):
            for index, X, noted in by_ranges(encoded[0], notes, len(self._files)):
                self._files[index].add(X, noted)
        self.rows += len(notes)

    @cached_property
    def count(self) -> int:
        """The number of units, once all rows are there: rows, or people."""
        if not self._by_person:
            return self.rows
        return sum(np.unique(bucket.notes()[:, 0]).size for bucket in self._files)

    def map_add(self, function: AddBlock, entries: int) -> Integers:
        """Return the sum over blocks of whole units, which several threads take."""
        return add_blocks(function, self._blocks(), entries)

    def _blocks(self) -> Iterator[Block]:
        for bucket in self._files:
            if self._by_person:
                notes = bucket.notes()
                yield from cut_people(bucket.read(np.arange(len(notes))), notes)
            else:
                for X in bucket.pieces():
                    yield from cut_rows(X)

    def ensemble(self, *, teachers: int, held_out: int, **fitting: Any) -> tuple[Ensemble, Any, Integers]:
        """Deal the units by the order of their words and fit the teachers, a range of words at a time.

        Return also one row, with its code, of each held-out unit. `fitting` is what `Ensemble.fit_parts` takes beside
        the parts.
        """
        seats, rows = Seats(self.count, teachers, held_out, self._by_person), self.rows / teachers
        if _HEAVY * rows * 8 * self.features > self._memory:
            raise Infeasible(
                f"a teacher has about {rows:,.0f} rows of {self.features} columns, and fitting it would take more than "
                "the memory that is allowed: more memory, or more teachers"
            )
        held_out_rows: list[tuple[Any, Integers]] = [(np.empty((0, self.features)), np.empty(0, dtype=np.int64))]
        fitted = Ensemble.fit_parts(
            self.parts(seats, held_out_rows=held_out_rows),
            teachers,
            units=self.count - held_out,
            dealer=self._dealer,
            **fitting,
        )
        return (
            fitted,
            np.concatenate([X for X, _ in held_out_rows]),
            np.concatenate([codes for _, codes in held_out_rows]),
        )

    def parts(self, seats: Seats, *, held_out_rows: list[tuple[Any, Integers]]) -> Iterator[Part]:
        """Yield the rows of some teachers at a time, each teacher's in the order of the table.

        Rows of units that are held out are appended to `held_out_rows`, one of each.
        """
        waiting = Rows.none(self.features)
        for piece in self._pieces(seats):
            held_out_rows.append((piece.X[piece.owners < 0], piece.codes[piece.owners < 0]))
            waiting = Rows.concatenate([waiting, piece.where(piece.owners >= 0)])
            last = waiting.owners.max(initial=-1)  # This unit may have more rows in the next range.
            if (waiting.owners < last).any():
                yield waiting.dealt(waiting.owners < last)
                waiting = waiting.where(waiting.owners == last)
        yield waiting.dealt(waiting.owners >= 0)

    def _pieces(self, seats: Seats) -> Iterator[Rows]:
        """Yield rows by the ranks of their units: no more than have room, unless one teacher has."""
        first, room = 0, max(1, self._memory // (_SHARE * 8 * self.features))
        for bucket in self._files:
            notes = bucket.notes()
            words = notes[:, 0].view(np.uint64)
            order, owners, units = seats.owners(words, first)
            first, start = first + units, 0
            while start < len(order):
                stop = _cut(owners, start, room)
                positions = np.argsort(order[start:stop])
                rows = order[start:stop][positions]
                yield Rows(bucket.read(rows), notes[rows, 1], notes[rows, 2], owners[start:stop][positions])
                start = stop

    def close(self) -> None:
        """Give the room on the disk back."""
        self._open.close()


def _cut(owners: Integers, start: int, room: int) -> int:
    """Return where a piece ends that starts here: before the teacher that would not fit, or after it if it is alone."""
    if start + room >= len(owners):
        return len(owners)
    stop = int(np.searchsorted(owners, owners[start + room], side="left"))
    return stop if stop > start else int(np.searchsorted(owners, owners[start], side="right"))


class _Bucket:
    """Two files without a name: rows, and of each row its word, its code and its place in the table."""

    def __init__(self, features: int, stack: ExitStack, folder: str | Path | None) -> None:
        self._features = features
        files = (tempfile.TemporaryFile(dir=folder) for _ in range(2))  # noqa: SIM115  of mode 0600
        self._rows, self._notes = map(stack.enter_context, files)

    def add(self, X: NDArray[np.float64], notes: Integers) -> None:
        self._rows.write(X.tobytes())
        self._notes.write(notes.tobytes())

    def notes(self) -> Integers:
        self._notes.seek(0)
        return np.frombuffer(self._notes.read(), dtype=np.int64).reshape(-1, 3)

    def pieces(self) -> Iterator[NDArray[np.float64]]:
        """Yield all rows, some megabytes at a time."""
        together = max(1, _BLOCK // (8 * self._features))
        self._rows.seek(0)
        while content := self._rows.read(8 * self._features * together):
            yield np.frombuffer(content).reshape(-1, self._features)

    def read(self, wanted: Integers) -> NDArray[np.float64]:
        """Return some rows, by their rising numbers in this file."""
        X, start = np.empty((len(wanted), self._features)), 0
        for piece in self.pieces():
            low, high = np.searchsorted(wanted, (start, start + len(piece)))
            X[low:high] = piece[wanted[low:high] - start]
            start += len(piece)
            if high == len(wanted):
                break
        return X


def spill_table(
    source: Any,
    encoding: Callable[[Table], Encoded],
    features: int,
    *,
    memory: int | str | None = None,
    spill: str | Path | None = None,
    ranges: int = BUCKETS,
) -> SpilledRows:
    """Return the rows of a table, read some at a time and written to the disk.

    One range of words is enough for rows that are units of their own and are not dealt to teachers.
    """
    size = check_bytes("memory", "1GB" if memory is None else memory, least=_LEAST_MEMORY)
    stream = source if isinstance(source, TableStream) else TableStream(source)
    return spill_rows(stream, encoding, SpilledRows(features, memory=size, folder=spill, ranges=ranges))


def spill_rows(stream: TableStream, encoding: Callable[[Table], Encoded], rows: SpilledRows) -> SpilledRows:
    """Read a table and write its rows to the disk."""
    try:
        with progress("reading records"):
            for first, batch in stream.placed():
                rows.add(encoding(batch), first=first)
    except BaseException:
        rows.close()
        raise
    return rows


@contextmanager
def _spilling(folder: str | Path | None) -> Iterator[None]:
    """Say that a disk is full, or a folder not there; these errors know no row."""
    try:
        yield
    except OSError as error:
        where = tempfile.gettempdir() if folder is None else folder
        raise InvalidInput(
            f"rows cannot be spilled to {where}: {error.strerror}. Name another folder (spill=, --spill)"
        ) from None
