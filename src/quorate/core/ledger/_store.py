"""Stores of ledgers: transactions and tables in an SQLite file, and the key of 32 random bytes that proves the entries.

A store implements transactions and tables, and none of the rules. The file has a write-ahead log, which is synced at
every commit. Every use takes separate lock files. They serve waiting processes in turn, whereas SQLite's own waiting
starves some of them. They also keep processes from writing while another moves the log into the file.
"""

import contextlib
import fcntl
import json
import math
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from quorate.core.checks import process_identity
from quorate.core.disk import write_new
from quorate.core.errors import InvalidInput, LedgerRefused

LEDGER_FILE, PLACE_FILE = "ledger.sqlite", "ledger.json"
_KEY = "ledger.key"
LEDGER_FILES = (LEDGER_FILE, PLACE_FILE, _KEY, "ledger.mark", "ledger.lock", "ledger.turn")  # not in the manifest
_LEAST_FREE_BYTES = 2**20  # of a disk, before a write
_SECONDS = "QUORATE_DATABASE_SECONDS"
_DEFAULT_SECONDS = 4.0  # that a statement, a connection or a lock may take
_PAUSE = 1.0  # seconds without a try after the ledger did not answer
_POLL_SECONDS = 0.01

# One text for both stores: `{bytes}` is the type of byte strings, `{by_key}` asks for rows stored in the order of their
# keys where a store can do that, and `?` stands for a value.
TABLES = """
CREATE TABLE IF NOT EXISTS quorate_snapshot (
    ledger TEXT PRIMARY KEY, seq BIGINT NOT NULL, head TEXT NOT NULL, state TEXT NOT NULL, mac TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS quorate_entry (
    ledger TEXT NOT NULL, seq BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
    mac TEXT NOT NULL, PRIMARY KEY (ledger, seq));
CREATE TABLE IF NOT EXISTS quorate_secret (
    ledger TEXT NOT NULL, name TEXT NOT NULL, value BIGINT NOT NULL, PRIMARY KEY (ledger, name));
CREATE TABLE IF NOT EXISTS quorate_request (
    ledger TEXT NOT NULL, caller TEXT NOT NULL, id TEXT NOT NULL, body {bytes} NOT NULL, owner TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL, outcome {bytes}, seq BIGINT, PRIMARY KEY (ledger, caller, id)){by_key};
CREATE TABLE IF NOT EXISTS quorate_answer (
    ledger TEXT NOT NULL, caller TEXT NOT NULL, query {bytes} NOT NULL, label BIGINT NOT NULL, seq BIGINT NOT NULL,
    PRIMARY KEY (ledger, caller, query)){by_key};
CREATE TABLE IF NOT EXISTS quorate_activity (
    ledger TEXT NOT NULL, minute BIGINT NOT NULL, answered BIGINT NOT NULL, no_quorums BIGINT NOT NULL,
    repeated BIGINT NOT NULL, refused BIGINT NOT NULL, PRIMARY KEY (ledger, minute));
CREATE TABLE IF NOT EXISTS quorate_refusal (
    ledger TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, caller TEXT NOT NULL, code TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS quorate_refusal_at ON quorate_refusal (ledger, at);
CREATE INDEX IF NOT EXISTS quorate_answer_seq ON quorate_answer (ledger, seq);
CREATE INDEX IF NOT EXISTS quorate_request_seq ON quorate_request (ledger, seq);
"""


class Statements(Protocol):
    """An open transaction."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run one statement and return the rows it finds."""

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run one statement for each of these rows of values, and return how many rows of the ledger it changed."""


class Store(Protocol):
    """A database that runs transactions one after the other and syncs each one at its end."""

    place: str

    def transaction(self, ledger: str, then: Callable[[], None] | None = None) -> AbstractContextManager[Statements]:
        """Lock this ledger; commit at the end and call `then`, or change nothing after an error."""

    def check_room(self) -> None:
        """Raise `LedgerRefused` if there is no space for the next write."""

    def close(self) -> None:
        """Close the connection."""


def is_url(place: str | Path) -> bool:
    """Return whether this is the address of a PostgreSQL database rather than a file."""
    if isinstance(place, str) and "://" in place:
        if not place.startswith(("postgresql://", "postgres://")):
            raise InvalidInput(f"a ledger must be a file or postgresql://..., got {place.split('://')[0]}://...")
        return True
    return False


def without_password(url: str) -> str:
    """Return the address of a database without its password."""
    scheme, _, rest = url.partition("://")
    at, slash = rest.find("@"), rest.find("/")
    who = ""
    if at >= 0 and (slash < 0 or at < slash):  # PostgreSQL's own rule: a password may hold any sign but these two
        who, rest = rest[:at].partition(":")[0] + "@", rest[at + 1 :]
    where, _, query = rest.partition("?")
    pairs = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in ("password", "sslpassword")]
    return f"{scheme}://{who}{where}{'?' if pairs else ''}{'&'.join(pairs)}"


def locate_ledger(folder: Path) -> str | Path:
    """Return the file or the database of a model's ledger.

    `$QUORATE_LEDGER` may give the database's address with a password, which `ledger.json` leaves out.
    """
    try:
        document = json.loads((folder / PLACE_FILE).read_text(encoding="utf-8"))
        location = str(document["place"])
    except FileNotFoundError:
        return folder / LEDGER_FILE
    except (OSError, ValueError, KeyError, TypeError):
        raise LedgerRefused(f"{folder / PLACE_FILE} cannot be read: it says where the ledger is") from None
    return with_password(location)


def with_password(location: str) -> str:
    """Return the address in `$QUORATE_LEDGER` if it is this one with a password."""
    configured = os.environ.get("QUORATE_LEDGER", "")
    return configured if configured and without_password(configured) == without_password(location) else location


def folder_of(place: str | Path, folder: Path | None) -> Path:
    """Return the folder of a ledger's model, by default the folder of its file."""
    if folder is None:
        if is_url(place):
            raise InvalidInput("a ledger in PostgreSQL needs folder=, the folder of its model with the key")
        return Path(place).absolute().parent
    return Path(folder).absolute()


def make_key(folder: Path) -> bytes:
    """Return the key beside the model; create it if there is none."""
    try:
        write_new(folder / _KEY, f"{secrets.token_hex(32)}\n".encode(), synced=True)
    except FileExistsError:
        pass
    except OSError as error:
        raise InvalidInput(f"{folder / _KEY} cannot be written: {error.strerror}") from None
    return read_key(folder)


def read_key(folder: Path) -> bytes:
    """Return the key beside the model."""
    try:
        key = bytes.fromhex((folder / _KEY).read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        raise LedgerRefused(f"{folder / _KEY} is missing or damaged: no other key can verify the ledger") from None
    if len(key) != 32:
        raise LedgerRefused(f"{folder / _KEY} must have 32 bytes, got {len(key)}; restore the file from a backup")
    return key


def patience() -> float:
    """Return how many seconds a database may take to answer, or a lock to be free."""
    text = os.environ.get(_SECONDS, "")
    try:
        seconds = float(text) if text else _DEFAULT_SECONDS
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 3600:
        raise InvalidInput(f"{_SECONDS} must be a number of seconds from 0.1 to 3600, got {text!r}")
    return seconds


def _lock_file(file: int, end: float, *, polls: bool) -> bool:
    """Lock a file, or return False at the end of a time limit.

    A thread waits, because a wait for such a lock has no time limit of its own, and tries alone would starve. After a
    wait that was given up, whose thread may still be there, it `polls`: threads do not pile up.
    """
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        seconds = end - time.monotonic()
        if seconds <= 0:
            return False
        if not polls:
            return _LockWait(os.dup(file)).wait(seconds)
        time.sleep(min(seconds, _POLL_SECONDS))


class _LockWait:
    """A thread that waits for the lock of an open file, under a descriptor of its own."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._changed = threading.Condition()
        self._is_locked = self._is_over = False
        threading.Thread(target=self._run, name="quorate-lock", daemon=True).start()

    def _run(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._changed:
            self._is_locked = True
            if self._is_over:  # Nobody waits any more.
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._changed.notify()

    def wait(self, seconds: float) -> bool:
        """Return whether the file was locked in time."""
        with self._changed:
            self._is_over = not self._changed.wait_for(lambda: self._is_locked, seconds)
            return self._is_locked


def _cause(error: sqlite3.OperationalError) -> str:
    """Return the cause code of an SQLite error."""
    text = str(error)
    for part, cause in (("full", "disk_full"), ("readonly", "read_only"), ("locked", "locked")):
        if part in text:
            return cause
    return "storage"


class _Statements:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        return max(0, self._connection.executemany(statement, rows).rowcount)


class SQLiteStore:
    """An SQLite file of ledgers, and the one connection of this process to it."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path).resolve()
        self.place = str(self.path)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._process = process_identity()
        self._lock = threading.Lock()
        self._seconds = patience()
        self._next_try = 0.0  # by the monotonic clock
        self._is_held = False  # whether the last wait for a lock was given up

    @classmethod
    def create(cls, path: Path) -> "SQLiteStore":
        """Create the file, readable by its owner alone."""
        try:
            write_new(path, b"")
        except FileExistsError:
            raise InvalidInput(f"{path} exists, and a ledger is never overwritten; choose another folder") from None
        store = cls(path)
        with store.transaction("") as statements:
            for statement in TABLES.format(bytes="BLOB", by_key=" WITHOUT ROWID").split(";"):
                statements.run(statement)
        return store

    @contextmanager
    def transaction(self, ledger: str, then: Callable[[], None] | None = None) -> Iterator[Statements]:
        """Lock the file for one change, which is synced at the end, or undone after an error.

        `then` is called when the change is on the disk, before another process gets the lock.
        """
        with self._turn():
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
                raise LedgerRefused(f"{self.path} cannot be used just now: {error}", cause=_cause(error)) from None
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter of a damaged schema
                self._drop()
                raise LedgerRefused(f"{self.path} is not a ledger: {error}") from None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for this process's turn, for no longer than `patience`. It ends when the process dies.

        Only the process that has the turn waits for the lock. A process that releases the lock queues for the turn
        again, so no waiting process is passed twice. With the lock alone one process can keep it for 200 ms.
        """
        if not self._lock.acquire(timeout=2 * self._seconds):
            raise self._unanswered(_PAUSE)
        try:
            end = time.monotonic() + self._seconds
            if (wait := self._next_try - time.monotonic()) > 0:
                raise self._unanswered(wait)
            with contextlib.ExitStack() as stack:
                with self._locked(".turn", end):
                    stack.enter_context(self._locked(".lock", end))
                self._is_held = False
                yield
        finally:
            self._lock.release()

    @contextmanager
    def _locked(self, suffix: str, end: float) -> Iterator[int]:
        try:
            file = os.open(self.path.with_suffix(suffix), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            cause = "missing" if isinstance(error, FileNotFoundError) else "storage"
            raise LedgerRefused(f"{self.path} cannot be locked: {error.strerror}", cause=cause) from None
        try:
            if not _lock_file(file, end, polls=self._is_held):
                self._is_held = True
                raise self._unanswered(_PAUSE)
            yield file
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # A child that was forked meanwhile has the file open too.
            os.close(file)

    def _unanswered(self, wait: float) -> LedgerRefused:
        self._next_try = time.monotonic() + wait
        return LedgerRefused(f"{self.path} is locked by another process", cause="locked", retry_after=wait)

    def _connected(self) -> sqlite3.Connection:
        """Return this process's connection to the file that is now at the path."""
        try:
            status = os.stat(self.path)
        except OSError:
            self._drop()
            raise LedgerRefused(
                f"{self.path} is missing: without its ledger a model has no budget and answers nothing", cause="missing"
            ) from None
        if self._process != process_identity():  # a fork: the parent's connection is left to the parent
            self._connection, self._process = None, process_identity()
        if self._connection is not None and (
            self._file != (status.st_dev, status.st_ino) or self._connection.in_transaction
        ):
            self._drop()
        if self._connection is None:
            address = f"{self.path.as_uri()}?mode=rw"  # never creates a file
            connection = sqlite3.connect(
                address, uri=True, timeout=self._seconds, isolation_level=None, check_same_thread=False
            )
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA checkpoint_fullfsync = ON")
            if mode != ("wal",) or connection.execute("PRAGMA synchronous").fetchone() != (2,):
                connection.close()
                raise LedgerRefused(f"{self.path} needs a file system that syncs logs; move the model to a local disk")
            self._connection, self._file = connection, (status.st_dev, status.st_ino)  # only after all checks
        return self._connection

    def check_room(self) -> None:
        """Raise `LedgerRefused` if the disk is full. SQLite would notice only when the free part of its log is used."""
        try:
            disk = os.statvfs(self.path.parent)
        except OSError as error:
            raise LedgerRefused(f"{self.path} cannot be reached: {error.strerror}", cause="missing") from None
        if disk.f_bavail * disk.f_frsize < _LEAST_FREE_BYTES:
            raise LedgerRefused(f"{self.path} cannot be written because the disk is full", cause="disk_full")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._process == process_identity():
            connection.close()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            with self._turn():
                self._drop()
