"""Teachers on the workers of a cluster: partitions are read, dealt and fitted there, and vote there.

    files -> parts -> [ rows by ranges of words ] -> ranges -> [ cut ] -> chunks of some teachers -> fitted -> votes

Data in brackets move from worker to worker. The querying process receives names and types of columns, numbers of rows
by part, numbers of units by range, the number of failed teachers, and summed ballots. Every step is a pure function of
its inputs, so it can be repeated after a worker dies (PROOF.md, step 14).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from quorate.compute.blocks import AddBlock, Block, Blocks, cut_people, cut_rows
from quorate.compute.ensemble._engines import Engine, Reference, open_engine
from quorate.compute.ensemble.dealing import Dealer, Encoded, Rows, Seats, by_ranges
from quorate.compute.ensemble.electorate import Electorate
from quorate.compute.ensemble.estimators import Ensemble, EstimatorTeachers, check_fit_failures, fit_parts, probe
from quorate.compute.learners import Teachers, batched_equivalent, joined_teachers, teachers_from_arrays
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import ClusterLost, InvalidInput
from quorate.core.estimator_calls import one_thread
from quorate.core.progress import progress
from quorate.tables.files import TablePart, table_files, table_header, table_parts
from quorate.tables.results import Table

_READS = 128  # tasks that read, at most, unless there are more workers
_RANGES = (8, 128)  # of words: at least, at most
_FITS = 50  # of a task, at least
_TOGETHER = 8  # counts that are added by one task
_SENT_BYTES = 2**22  # of queries, or of teachers, that are sent together


class ClusterTable:
    """A table whose files the workers of a cluster read. Only names and types of its columns come here.

    `source` is what `table_files` takes: paths that mean the same on every worker, or addresses. The `dealer` has the
    secret key; another fit has another.
    """

    def __init__(self, source: Any, cluster: Any, *, dealer: Dealer | None = None) -> None:
        sources = [source] if isinstance(source, str | Path) else source
        if hasattr(sources, "to_batches") or not all(isinstance(address, str | Path) for address in sources):
            raise InvalidInput("on a cluster a table is named by its files, folders, patterns or addresses")
        paths = [address if ":/" in str(address) else Path(address).absolute() for address in sources]
        self._dealer = dealer
        self.engine = open_engine(cluster)
        try:
            self.header, self.parts = self.engine.get(self.engine.call(_list_parts, paths))
        except BaseException:
            self.engine.close()
            raise

    def dealt(
        self, encoding: Callable[[Table], Encoded], *, features: int, by_person: bool, together: bool = True
    ) -> "ClusterRows":
        """Let the workers read the table, and deal its rows so that those of a range of words are `together`."""
        columns, dealer = tuple(self.header.column_names), self._dealer or Dealer()
        reading = _Reading(encoding, columns, dealer, features, by_person, together or by_person)
        try:
            return ClusterRows(self.engine, self.parts, reading)
        except BaseException:
            self.close()
            raise

    def map_add(self, function: AddBlock, entries: int) -> Integers:
        """Return the sum of what a function returns for each batch of rows, each read by a worker and not kept.

        Every row is a unit. The sum is refused, before anything is drawn or charged, where a worker's part is lacking.
        """
        try:
            return self._add(_Mapped(function, entries))
        except ClusterLost:
            self.engine.renew()
            return self._add(_Mapped(function, entries))

    def _add(self, mapped: "_Mapped") -> Integers:
        engine, parts = self.engine, _spread_parts(self.parts, self.engine.workers)
        columns, entries = tuple(self.header.column_names), mapped.entries
        total = add_up(engine, [engine.call(_add_parts, mapped, part, columns) for part in parts])
        if total.shape != (entries + 1,) or total[-1] != len(self.parts):
            raise ClusterLost("the sums of the cluster are not over each part once; nothing is drawn")
        return total[:-1]

    def close(self) -> None:
        """Let go of the cluster where it was started, or joined, for this."""
        self.engine.close()


def _spread_parts(parts: Sequence[TablePart], workers: int) -> list[list[TablePart]]:
    """Return the parts of a table in runs that are read together."""
    reads = max(1, min(len(parts), max(_READS, 2 * workers)))
    cuts = np.linspace(0, len(parts), reads + 1).astype(np.int64)
    return [list(parts[start:stop]) for start, stop in pairwise(cuts.tolist())]


def _add_parts(mapped: "_Mapped", parts: Sequence[TablePart], columns: Sequence[str]) -> Integers:
    """Return the sum of what a function returns for the batches of these parts, and how many parts they were."""
    total = np.zeros(mapped.entries + 1, dtype=np.int64)
    with one_thread():
        for part in parts:
            for _, table in part.batches(columns):
                total[:-1] += mapped.function(table, np.arange(table.num_rows))
            total[-1] += 1
    return total


def deal_table(
    source: Any,
    encoding: Callable[[Table], Encoded],
    cluster: Any,
    *,
    features: int,
    by_person: bool,
    together: bool = True,
) -> "ClusterRows":
    """Return the rows of a table that the workers of a cluster read and deal among themselves."""
    table = source if isinstance(source, ClusterTable) else ClusterTable(source, cluster)
    return table.dealt(encoding, features=features, by_person=by_person, together=together)


def _list_parts(paths: Sequence[Any]) -> tuple[Table, list[TablePart]]:
    files = table_files(paths)
    return table_header(files[0]).replace_schema_metadata(None), table_parts(files)


class _Range:
    """Rows whose words are in one range, with their notes, in the order of the table. Printing it shows nothing."""

    def __init__(self, X: Floats, notes: Integers) -> None:
        self.X, self.notes = X, notes

    def __sizeof__(self) -> int:
        return int(self.X.nbytes + self.notes.nbytes)


@dataclass(frozen=True, repr=False)
class _Reading:
    """The parameters for reading and dealing parts of the table on a worker. They contain the secret key."""

    encoding: Callable[[Table], Encoded]
    columns: tuple[str, ...]
    dealer: Dealer
    features: int
    by_person: bool
    together: bool
    ranges: int = 1

    def read(self, parts: Sequence[TablePart]) -> list[_Range]:
        """Return the rows of these parts, by ranges of words."""
        by_range: list[list[tuple[Floats, Integers]]] = [[] for _ in range(self.ranges)]
        for part in parts:
            for first, table in part.batches(self.columns):
                encoded = self.encoding(table)
                for index, X, notes in by_ranges(encoded[0], self.dealer.notes(first, encoded), self.ranges):
                    by_range[index].append((X, notes))
        return [_join_range(pieces, self.features) for pieces in by_range]

    def join(self, *pieces: _Range) -> _Range:
        """Return one range of words, of all that was read."""
        return _join_range([(piece.X, piece.notes) for piece in pieces], self.features)

    def units(self, rows: _Range) -> int:
        """Return how many units have their words in this range."""
        return np.unique(rows.notes[:, 0]).size if self.by_person else len(rows.notes)

    def add(self, mapped: "_Mapped", rows: _Range) -> Integers:
        """Return the sum of what a function returns for blocks of these rows, and how many units were counted."""
        blocks: Iterator[Block] = cut_people(rows.X, rows.notes) if self.by_person else cut_rows(rows.X)
        total = np.zeros(mapped.entries + 1, dtype=np.int64)
        with one_thread():
            for X, firsts in blocks:
                total[:-1] += mapped.function(X, firsts)
                total[-1] += len(firsts)
        return total


class _Mapped:
    """A function that is mapped over blocks on the workers. Printing it shows nothing."""

    def __init__(self, function: AddBlock, entries: int) -> None:
        self.function, self.entries = function, entries


def _join_range(pieces: Sequence[tuple[Floats, Integers]], features: int) -> _Range:
    if not pieces:
        return _Range(np.empty((0, features)), np.empty((0, 3), dtype=np.int64))
    X, notes = zip(*pieces, strict=True)
    return _Range(np.concatenate(X), np.concatenate(notes))


@dataclass(frozen=True, repr=False)
class _Fitting:
    """The parameters for fitting some teachers on a worker. They contain the secret key."""

    seats: Seats
    dealer: Dealer
    estimator: Any
    classes: int
    device: Any
    one_scale: bool

    def cut(self, rows: _Range, rank: int, first: int, stop: int) -> Rows:
        """Return those rows of a range that belong to the teachers from `first` to `stop`; `rank` it are so many."""
        words, codes, positions = rows.notes.T
        order, owners, _ = self.seats.owners(words.view(np.uint64), rank)
        mine = (owners >= first) & (owners < stop)
        chosen = order[mine]
        return Rows(rows.X[chosen], codes[chosen], positions[chosen], owners[mine])

    def fit(self, first: int, stop: int, *pieces: Rows) -> "_Fitted":
        """Return the teachers from `first` to `stop`."""
        rows = Rows.concatenate(pieces)
        part = rows.dealt(np.ones(len(rows), dtype=np.bool_))
        learner = batched_equivalent(self.estimator)
        if learner is not None:
            with one_thread():
                fitted_teachers = learner.fit(*part, classes=self.classes, device=self.device, one_scale=self.one_scale)
            return _Fitted(fitted_teachers, 0)
        randomness = self.dealer.randomness(first, stop)
        return _Fitted(*fit_parts([part], self.estimator, stop - first, classes=self.classes, randomness=randomness))


class _Fitted:
    """Some teachers on a worker, and how many of them could not be fitted. Printing them shows nothing."""

    def __init__(self, teachers: Teachers | EstimatorTeachers, failed: int) -> None:
        self.teachers, self.failed = teachers, failed

    def __sizeof__(self) -> int:
        if isinstance(self.teachers, EstimatorTeachers):
            return 10_000 * self.teachers.teachers  # A rough value: the size of a fitted estimator is unknown.
        return sum(array.nbytes for array in self.teachers.arrays().values())


class ClusterRows(Blocks):
    """Rows on the workers of a cluster, by ranges of the secret words of their units, or by parts of the table."""

    def __init__(self, engine: Engine, parts: Sequence[TablePart], reading: _Reading) -> None:
        self._engine, self._parts = engine, parts
        self._workers = engine.workers
        fewest, largest = _RANGES if reading.together else (1, 1)
        ranges = min(largest, max(fewest, 1 << (4 * self._workers - 1).bit_length()))
        self._reading = replace(reading, ranges=ranges)
        self.features, self._kept = reading.features, False
        with progress("reading records on the cluster"):
            self._ranges, self._units = self._read()

    @property
    def count(self) -> int:
        """The number of units: rows, or people."""
        return sum(self._units)

    def _read(self) -> tuple[list[Reference], list[int]]:
        """Return the rows by ranges of words, or as they were read, and the number of units of each."""
        engine, reading, parts = self._engine, self._reading, self._parts
        spread = [
            engine.spread(reading.read, together, reading.ranges) for together in _spread_parts(parts, self._workers)
        ]
        if reading.together:
            ranges = [engine.call(reading.join, *pieces) for pieces in zip(*spread, strict=True)]
        else:
            ranges = [pieces[0] for pieces in spread]
        counted = [engine.call(reading.units, part) for part in ranges]
        units = engine.get(engine.call(_listed_together, *counted))
        engine.drop([part for pieces in spread for part in pieces if reading.together] + counted)
        return ranges, units

    def _read_again(self) -> None:
        """Read all of it once more, where the cluster has lost how it was made: the same deal, by the key."""
        ranges, units = self._read()
        if units != self._units:
            raise InvalidInput("the table has changed since it was read first; fit again")
        self._ranges = ranges

    def map_add(self, function: AddBlock, entries: int) -> Integers:
        """Return the sum over blocks of whole units, each on the worker that has its rows.

        It is refused, before anything is drawn or charged, unless each unit was counted once.
        """
        mapped = _Mapped(function, entries)
        try:
            return self._add(mapped)
        except ClusterLost:
            self._engine.renew()
            self._read_again()
            return self._add(mapped)

    def _add(self, mapped: _Mapped) -> Integers:
        engine = self._engine
        sent = engine.call(_same, mapped)
        total = add_up(engine, [engine.call(self._reading.add, sent, rows) for rows in self._ranges], also=[sent])
        if total.shape != (mapped.entries + 1,) or total[-1] != self.count:
            raise ClusterLost("the sums of the cluster are not over each unit once; nothing is drawn")
        return total[:-1]

    def ensemble(self, *, teachers: int, held_out: int, **fitting: Any) -> tuple[Ensemble, Any, Integers]:
        """Deal the units by the order of their words and fit the teachers next to their rows, where they stay.

        On a cluster device="auto" is the CPU: it is not the worker at hand that decides the last bit of a teacher.
        """
        seats = Seats(self.count, teachers, held_out, self._reading.by_person)
        estimator, classes = fitting["estimator"], fitting["classes"]
        if batched_equivalent(estimator) is None:
            rows = -(-(self.count - held_out) // teachers)
            probe(estimator, np.empty((0, self.features)), rows=rows, classes=classes, public=fitting.get("public"))
        device = fitting.get("device", "auto")
        task = _Fitting(
            seats,
            self._reading.dealer,
            estimator,
            classes,
            "cpu" if device == "auto" else device,
            fitting.get("one_scale", False),
        )
        with progress(f"fitting {teachers:,} teachers on the cluster"):
            groups = self._fit(task, self._ranges)
            failed = self._engine.get(self._engine.call(_failures, *groups))
        check_fit_failures(failed, teachers)
        again = partial(self._fit_again, task)
        electorate = ClusterTeachers(self._engine, groups, teachers=teachers, classes=classes, again=again)
        self._kept = True
        return Ensemble(electorate), np.empty((0, self.features)), np.empty(0, dtype=np.int64)

    def _fit(self, fitting: _Fitting, ranges: Sequence[Reference]) -> list[Reference]:
        """Return the teachers in groups. The grouping depends on public numbers alone."""
        engine, seats = self._engine, fitting.seats
        groups = max(1, min(4 * self._workers, seats.teachers // _FITS))
        ranks = np.concatenate([[0], np.cumsum(self._units)]).tolist()
        fits = []
        for group in range(groups):
            first, stop = (seats.teachers * bound // groups for bound in (group, group + 1))
            low, high = seats.first_rank(first), seats.first_rank(stop)
            pieces = [
                engine.call(fitting.cut, rows, start, first, stop)
                for rows, (start, end) in zip(ranges, pairwise(ranks), strict=True)
                if start < high and end > low
            ]
            fits.append(engine.call(fitting.fit, first, stop, *pieces))
            engine.drop(pieces)
        return fits

    def _fit_again(self, fitting: _Fitting) -> list[Reference]:
        """Read and fit all of it once more."""
        self._read_again()
        fits = self._fit(fitting, self._ranges)
        self._engine.drop(self._ranges)
        return fits

    def close(self) -> None:
        """Let go of the rows, and of the cluster where no teachers were fitted there."""
        self._engine.drop(self._ranges)
        if not self._kept:
            self._engine.close()


def _listed_together(*items: Any) -> list[Any]:
    return list(items)


def _failures(*groups: _Fitted) -> int:
    return sum(group.failed for group in groups)


class ClusterTeachers:
    """Teachers on the workers of a cluster: an `Electorate`. Queries go there, and their summed ballots come back.

    If the cluster loses teachers for good, `again` fits the same teachers anew, at most once a batch.
    """

    def __init__(
        self,
        engine: Engine,
        groups: Sequence[Reference],
        *,
        teachers: int,
        classes: int,
        again: Callable[[], Sequence[Reference]],
    ) -> None:
        self.teachers, self.classes = teachers, classes
        self._engine, self._groups, self._again = engine, list(groups), again

    @classmethod
    def placed(cls, teachers: Electorate, cluster: Any) -> "ClusterTeachers":
        """Move the teachers of this process to a cluster, which then counts their ballots."""
        engine = open_engine(cluster)
        pieces = _pieces(teachers, engine.workers)

        def placed() -> list[Reference]:
            return [engine.call(_same, piece) for piece in pieces]

        return cls(engine, placed(), teachers=teachers.teachers, classes=teachers.classes, again=placed)

    def votes(self, X: Any) -> Integers:
        """Return how many teachers vote for each class: one row a query, one column a class."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        rows = max(1, _SENT_BYTES // max(1, X[:1].nbytes))
        counted = [self._tried(X[start : start + rows]) for start in range(0, max(1, len(X)), rows)]
        return np.concatenate(counted)

    def _tried(self, X: Floats) -> Integers:
        try:
            return self._count(X)
        except ClusterLost:
            self._engine.renew()
            self._groups = list(self._again())
            return self._count(X)

    def _count(self, X: Floats) -> Integers:
        """Broadcast the queries, and add the ballots up by a tree."""
        engine = self._engine
        queries = engine.call(_same, _Queries(X))
        total = add_up(engine, [engine.call(_votes, group, queries) for group in self._groups], also=[queries])
        if total.shape != (len(X), self.classes) or (total.sum(axis=1) != self.teachers).any():
            raise ClusterLost("the counts of the cluster are not one ballot of each teacher; nothing is drawn")
        return total

    def gathered(self) -> Teachers | EstimatorTeachers:
        """Bring the teachers here, for the owner's model files. They are private."""
        fits = [self._engine.get(group).teachers for group in self._groups]
        if isinstance(fits[0], EstimatorTeachers):
            fitted = [teacher for group in fits for teacher in group.fitted]
            return EstimatorTeachers(fitted, classes=self.classes, query_seed=fits[0].query_seed)
        return joined_teachers(fits)

    def close(self) -> None:
        """Let go of the teachers, and of the cluster where it was started, or joined, for them."""
        self._engine.drop(self._groups)
        self._engine.close()

    def __repr__(self) -> str:
        return f"ClusterTeachers(teachers={self.teachers}, classes={self.classes})"


def add_up(engine: Engine, counts: list[Reference], *, also: Sequence[Reference] = ()) -> Integers:
    """Return the sum of whole numbers that lie on the workers, added by a tree; drop them, and what they came from."""
    used = [*also, *counts]
    while len(counts) > 1:
        counts = [engine.call(_sum, *counts[at : at + _TOGETHER]) for at in range(0, len(counts), _TOGETHER)]
        used += counts
    try:
        total: Integers = engine.get(counts[0])
        return total
    finally:
        engine.drop(used)


class _Queries:
    """Queries on their way to the teachers. Printing them shows nothing."""

    def __init__(self, X: Floats) -> None:
        self.X = X

    def __sizeof__(self) -> int:
        return int(self.X.nbytes)


def _votes(group: _Fitted, queries: _Queries) -> Integers:
    return group.teachers.votes(queries.X)


def _sum(*counts: Integers) -> Integers:
    total: Integers = np.sum(counts, axis=0)
    return total


def _same(sent: Any) -> Any:
    return sent


def _pieces(teachers: Any, workers: int) -> list[_Fitted]:
    arrays = teachers.arrays() if isinstance(teachers, Teachers) else {}
    size = sum(value.nbytes for value in arrays.values())
    number = max(1, min(teachers.teachers // _FITS, max(workers, size // _SENT_BYTES)))
    spans = pairwise(teachers.teachers * piece // number for piece in range(number + 1))
    if isinstance(teachers, Teachers):
        cut = [{name: value[a:b] if value.ndim else value for name, value in arrays.items()} for a, b in spans]
        return [_Fitted(teachers_from_arrays(tables), 0) for tables in cut]
    if type(teachers) is not EstimatorTeachers:
        raise InvalidInput(f"teachers of the kind {type(teachers).__name__} stand elsewhere already, or are functions")
    fitted, classes, seed = teachers.fitted, teachers.classes, teachers.query_seed
    return [_Fitted(EstimatorTeachers(fitted[a:b], classes=classes, query_seed=seed + a), 0) for a, b in spans]
