"""A ledger in one SQLite file: write-ahead log, synced at every commit.

Every use holds lock files of its own. Processes that wait are served in turn, where SQLite's own waiting starves them,
and no process ever writes while another moves the log into the file.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quorate.checks import process_identity
from quorate.errors import InvalidInput, LedgerRefused
from quorate.ledger.store import TABLES, Statements

__all__ = ["SQLiteStore"]


class _Statements:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        return max(0, self._connection.executemany(statement, rows).rowcount)


class SQLiteStore:
    """A ledger's file, and the one connection of this process to it."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path).resolve()
        self.place = str(self.path)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._process = process_identity()
        self._lock = threading.Lock()

    @classmethod
    def create(cls, path: Path) -> "SQLiteStore":
        """Make the file, for its owner's eyes alone."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise InvalidInput(f"{path} exists: a ledger is never overwritten; choose another folder") from None
        made = cls(path)
        with made.transaction("") as statements:
            for statement in TABLES.format(bytes="BLOB", by_key=" WITHOUT ROWID").split(";"):
                statements.run(statement)
        return made

    @contextmanager
    def transaction(self, ledger: str, then: Callable[[], None] | None = None) -> Iterator[Statements]:
        """Hold the file for one change; it is synced when this ends, and unchanged if it fails.

        `then` is called when the change is on the disk, before another process comes in.
        """
        with self._lock, self._turn():
            try:
                connection = self._connected()
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    yield _Statements(connection)
                    connection.execute("COMMIT")
                    if then is not None:
                        then()
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.OperationalError as error:
                self._drop()
                raise LedgerRefused(f"{self.path} cannot be used just now: {error}") from None
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter of a damaged schema
                self._drop()
                raise LedgerRefused(f"{self.path} is not a ledger: {error}") from None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for this process's turn. It ends when the lock file is closed, or the process dies.

        One process at a time waits for the lock, and holds the turn meanwhile: who has just had the lock queues for
        the turn again, so that nobody is passed twice. With the lock alone one process can hog it for 200 ms.
        """
        with self._locked(".turn") as turn:
            lock = self._locked(".lock")
            lock.__enter__()
            try:
                fcntl.flock(turn, fcntl.LOCK_UN)
                yield
            finally:
                lock.__exit__(None, None, None)

    @contextmanager
    def _locked(self, suffix: str) -> Iterator[int]:
        try:
            file = os.open(self.path.with_suffix(suffix), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerRefused(f"{self.path} cannot be locked: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file too
            os.close(file)

    def _connected(self) -> sqlite3.Connection:
        """Return this process's connection to the file that lies at the path now."""
        try:
            found = os.stat(self.path)
        except OSError:
            self._drop()
            raise LedgerRefused(
                f"{self.path} is missing: without its ledger a model has no budget and answers nothing"
            ) from None
        if self._process != process_identity():  # a fork: the parent's connection is left to the parent
            self._connection, self._process = None, process_identity()
        if self._connection is not None and (
            self._file != (found.st_dev, found.st_ino) or self._connection.in_transaction
        ):
            self._drop()
        if self._connection is None:
            address = f"{self.path.as_uri()}?mode=rw"  # never makes a file
            connection = sqlite3.connect(address, uri=True, timeout=5, isolation_level=None, check_same_thread=False)
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA checkpoint_fullfsync = ON")
            if mode != ("wal",) or connection.execute("PRAGMA synchronous").fetchone() != (2,):
                connection.close()
                raise LedgerRefused(f"{self.path} lies where SQLite cannot sync a log; move the model to a local disk")
            self._connection, self._file = connection, (found.st_dev, found.st_ino)  # once all of it is checked
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._process == process_identity():
            connection.close()

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                with self._turn():
                    self._drop()
