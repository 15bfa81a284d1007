"""Units on the disk: one SQLite file that its owner alone may read and one process at a time holds.

Every change is one synced transaction with a number of its own. A keyed sum over all that the file holds goes with it,
and the ledger keeps that sum under the same number, once. A file that is older than the ledger is refused: it would
give budget back (PROOF.md, step 8). A file that is one change ahead belongs to answers that never left.

The sum is made of tags of its parts, so that a change hashes and writes no more than it changes: the lines of the units
that are inserted or forgotten, or all amounts spent, whoever was near the queries.
"""

import ctypes
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import LOST, Ledger
from quorate.core.requests import OWN_CALLER
from quorate.models.knn._kernel import Points
from quorate.models.knn._units import SEALED, Units

_TABLES = (
    "CREATE TABLE unit (number INTEGER PRIMARY KEY, name TEXT NOT NULL, forgotten REAL, points BLOB, codes BLOB)",
    "CREATE TABLE state (number INTEGER PRIMARY KEY, sum INTEGER NOT NULL, reports INTEGER NOT NULL)",
    "CREATE TABLE spends (amounts BLOB NOT NULL)",  # one line: of the first units; those after them have spent nothing
)
_NO_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"  # what is forgotten stays in no copy there
_LINES = "SELECT number, name, forgotten, points, codes FROM unit"
_SUMS = 2**63  # keyed sums are taken modulo this: a ledger keeps 64-bit numbers

_files: "WeakSet[UnitFile]" = WeakSet()


def _leave_to_parent() -> None:
    for file in _files:
        file.leave()


os.register_at_fork(after_in_child=_leave_to_parent)


class UnitFile:
    """The file of a model's units; `create` writes one, and `read` gives back what it holds."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._ledger = path, ledger
        self._number = self._reports = 0
        self._changing = False  # whether a change has begun, and is not yet in the ledger
        self._lines = self._amounts = 0  # tags of the units' lines, added up, and that of what they have spent
        self._connection: sqlite3.Connection | None = _connected(path)
        _files.add(self)

    @classmethod
    def create(cls, path: Path, ledger: Ledger, units: Units, *, reports: int) -> "UnitFile":
        """Write units and what they have spent into a new file."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        file = cls(path, ledger)
        file._reports = reports
        units.seal_names(file.seal)
        with file._change() as connection:
            for table in _TABLES:
                connection.execute(table)
            file._spend(connection, units.spends())
            file._add(
                (number, name, at, *((None, None) if at is not None else _row_bytes(*row)))
                for number, name, at, row in units.rows()
            )
        return file

    def read(self, units: Units, *, features: int) -> int:
        """Put what the file holds into `units`, and return how many reports were drawn. What was changed is refused."""
        with self._closed_on_failure("read"):
            return self._read(units, features)

    def _read(self, units: Units, features: int) -> int:
        run = self._connected_file().execute
        rows = run(f"{_LINES} ORDER BY number").fetchall()
        self._number, stated, self._reports = run("SELECT * FROM state").fetchone() or (0, -1, 0)
        (packed,) = run("SELECT amounts FROM spends").fetchone() or (b"",)
        self._lines = sum(self._tag(*row) for row in rows) % _SUMS
        self._amounts = self._tag("spends", packed)
        total = self._sum()
        if stated != total or [row[0] for row in rows] != list(range(1, len(rows) + 1)):
            raise LedgerRefused(f"{self._path} was changed by something else; nothing is answered")
        self._check_latest(total)
        spends = np.zeros(len(rows), dtype=np.int64)
        spends[: len(packed) // 8] = np.frombuffer(packed, dtype="<i8")
        units.seal_names(self.seal)
        units.restore([row[1] for row in rows], spends, {row[0]: row[2] for row in rows if row[2] is not None})
        _insert_records(units, [row for row in rows if row[2] is None], features)
        return int(self._reports)

    def insert(
        self, numbers: Sequence[int], names: Sequence[str], sizes: Sequence[int], points: Points, codes: Integers
    ) -> None:
        """Add these units; where one was forgotten, its line is written anew, and what it has spent stays."""
        stops = list(accumulate(sizes))
        parts = [slice(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
        rows = [
            (number, name, None, *_row_bytes(points[part], codes[part]))
            for number, name, part in zip(numbers, names, parts, strict=True)
        ]
        with self._change():
            self._remove(numbers)
            self._add(rows)

    def forget(self, numbers: Sequence[int], *, at: float) -> None:
        """Remove the records of these units, with every trace of them in the file, and note when."""
        with self._change():
            removed = self._remove(numbers)
            self._add((number, self.seal(name), at, None, None) for number, name, *_ in removed)
        self._connected_file().execute(_NO_LOG)

    def keep_spends(self, spends: Integers) -> None:
        """Keep what each unit has spent, before anything is drawn for it: all of it, so that no write says who paid."""
        with self._change() as connection:
            connection.execute("DELETE FROM spends")  # SQLite writes only the pages that an update changes; step 9
            self._spend(connection, spends)

    def keep_reports(self, reports: int) -> None:
        """Keep how many reports of wear were drawn, before the next one is."""
        with self._change():
            self._reports = reports

    def close(self) -> None:
        """Let go of the file: another process may open it then."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def leave(self) -> None:
        """Leave the file to the parent, in a process that was forked: called before that runs anything else.

        The connection is kept for ever. To close it, at the end of this process too, would make SQLite remove the log
        that the parent goes on writing: what it writes there would be lost when it dies.
        """
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # proof: step 8
            self._connection = None

    # --- Changes -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Change the file in one transaction, then say so in the ledger. Where that is cut short, nothing follows."""
        if self._changing:  # a change was interrupted, and so was closing the file after it
            self.close()
        connection = self._connected_file()
        self._changing = True
        with self._closed_on_failure("written"):
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                self._number += 1
                connection.execute("DELETE FROM state")
                connection.execute("INSERT INTO state VALUES (?, ?, ?)", (self._number, self._sum(), self._reports))
            self._keep_sum(self._sum())
            self._changing = False

    @contextmanager
    def _closed_on_failure(self, action: str) -> Iterator[None]:
        """Close the file where the block fails: memory and disk may differ, and the model has to be loaded again."""
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            raise LedgerRefused(f"{self._path} cannot be {action}: {error}; nothing is answered") from None
        except BaseException:
            self.close()
            raise

    def _spend(self, connection: sqlite3.Connection, spends: Integers) -> None:
        """Write what units have spent, with its tag for the sum."""
        packed = spends.astype("<i8").tobytes()
        connection.execute("INSERT INTO spends VALUES (?)", (packed,))
        self._amounts = self._tag("spends", packed)

    def _add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add lines, and their tags to the sum."""
        lines = list(rows)
        self._connected_file().executemany("INSERT INTO unit VALUES (?, ?, ?, ?, ?)", lines)
        self._lines = (self._lines + sum(self._tag(*line) for line in lines)) % _SUMS

    def _remove(self, numbers: Sequence[int]) -> list[Any]:
        """Remove the lines of these units, where they have some, and their tags from the sum; return the lines."""
        connection = self._connected_file()
        lines = [
            line
            for number in numbers
            for line in connection.execute(f"{_LINES} WHERE number = ?", (number,)).fetchall()
        ]
        connection.executemany("DELETE FROM unit WHERE number = ?", [(number,) for number in numbers])
        self._lines = (self._lines - sum(self._tag(*line) for line in lines)) % _SUMS
        return lines

    def _connected_file(self) -> sqlite3.Connection:
        if self._connection is None:
            raise LedgerRefused("this model was closed here; load it again")
        return self._connection

    def seal(self, name: str) -> str:
        """Return what is kept of the name of a forgotten unit: a keyed hash, which recognises it if it comes again."""
        key = self._ledger.sealer()
        key.update(b"name" + name.encode())
        return SEALED + str(key.digest()[:16].hex())

    # --- Sums --------------------------------------------------------------------------------------------------------

    def _tag(self, *parts: Any) -> int:
        seal = self._ledger.sealer()
        for part in parts:
            content = part if isinstance(part, bytes) else repr(part).encode()
            seal.update(len(content).to_bytes(8) + content)
        return int.from_bytes(seal.digest()[:8]) % _SUMS

    def _sum(self) -> int:
        return self._tag("state", self._number, self._reports, self._lines, self._amounts)

    def _keep_sum(self, total: int) -> None:
        self._ledger.keep_own({change_key(self._number): total})

    def _recall_sum(self, number: int) -> int | None:
        return self._ledger.recall(OWN_CALLER, [change_key(number)]).get((OWN_CALLER, change_key(number)))

    def _check_latest(self, total: int) -> None:
        """Refuse a file of this sum that may not be the last, and tell the ledger of a change that it does not know."""
        if self._ledger.choice() == LOST:  # proof: step 8
            raise LedgerRefused(
                "this ledger was restored from an old copy and does not know what units have spent since: it answers "
                "nothing more. Fit a new model: its epsilon and the old one's add up"
            )
        previous, current, following = map(self._recall_sum, range(self._number - 1, self._number + 2))
        ahead = current is None and (previous is not None or self._number == 1)
        if following is not None or not (ahead or current == total):
            raise LedgerRefused(
                f"{self._path} is older than the ledger, or another one: it would give back what units have spent since"
            )
        if ahead:
            self._keep_sum(total)


def _connected(path: Path) -> sqlite3.Connection:
    """Return the open file, which no other process has open."""
    if not path.exists():
        raise LedgerRefused(f"{path} is missing from the model")
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        for setting in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        connection.execute(_NO_LOG)  # of a process that died while it forgot somebody
    except sqlite3.Error:
        connection.close()
        raise InvalidInput(
            f"{path} is open elsewhere, or is damaged: a model of neighbours is asked by one process at a time; ask "
            "its server, or stop it first"
        ) from None
    return connection


def _insert_records(units: Units, rows: Sequence[tuple[Any, ...]], features: int) -> None:
    """Put the records of lines that have some into `units`."""
    codes = [np.frombuffer(row[4], dtype="<i8") for row in rows]
    points = np.frombuffer(b"".join(row[3] for row in rows), dtype="<i2").reshape(-1, features).astype(np.float32)
    labels = np.concatenate([np.empty(0, dtype="<i8"), *codes]).astype(np.int64)
    units.insert([row[1] for row in rows], [len(part) for part in codes], points, labels)


def _row_bytes(points: Points, codes: Integers) -> tuple[bytes, bytes]:
    return points.astype("<i2").tobytes(), codes.astype("<i8").tobytes()


def change_key(number: int) -> bytes:
    """Return the name of a change in a ledger: no query has it."""
    return hashlib.blake2b(f"units {number}".encode(), digest_size=16).digest()
