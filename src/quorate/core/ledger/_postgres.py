"""A ledger in a PostgreSQL database, for several processes on several hosts.

Transactions on one ledger wait for each other on its row; a database that does not sync its commits is refused. No
statement waits for longer than `$QUORATE_DATABASE_SECONDS`: a database that is stopped or hung answers nothing and says
nothing, so the wait is ended from this side. After that, the next try is some time off, and calls until then fail at
once.
"""

import contextlib
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from quorate.core.checks import process_identity
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger._store import TABLES, Statements, patience, without_password

if TYPE_CHECKING:
    import psycopg

_NEEDED = {
    "server_encoding": ("UTF8",),
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply", "local"),
}
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_TOGETHER = 4096  # rows that are sent together
_PAUSE = 1.0  # seconds without a try after the database did not answer


class _Watch:
    """Ends the wait for a database that does not answer, by ending the connection under it.

    One thread waits beside the one that uses the connection: neither signals nor time limits of the server reach a wait
    for a server that is itself stopped.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.fired = seconds, False
        self._changed = threading.Condition(threading.Lock())
        self._watched: tuple[int, float] | None = None  # a socket, and until when it may be waited for
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, connection: "psycopg.Connection[Any]") -> Iterator[None]:
        """Give what is done in here so many seconds."""
        with self._changed:
            self._watched = connection.fileno(), time.monotonic() + self.seconds
            if self._thread is None or not self._thread.is_alive():  # the first time, and in a forked process
                self._thread = threading.Thread(target=self._run, name="quorate-database", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._watched = None

    def _run(self) -> None:
        with self._changed:
            idle = time.monotonic()
            while self._watched is not None or time.monotonic() - idle < 60:
                if self._watched is None:
                    self._changed.wait(self.seconds)
                    continue
                (file, end), idle = self._watched, time.monotonic()
                if end > idle:
                    self._changed.wait(end - idle)
                    continue
                self._watched, self.fired = None, True
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(file)) as duplicate:
                    duplicate.shutdown(socket.SHUT_RDWR)
            self._thread = None


class _Statements:
    def __init__(self, cursor: "psycopg.Cursor[Any]", watch: _Watch) -> None:
        self._cursor, self._watch = cursor, watch

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._watch.limit(self._cursor.connection):
            self._cursor.execute(statement.replace("?", "%s"), values)
            return self._cursor.fetchall() if self._cursor.description else []

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        values, changed = list(rows), 0
        for start in range(0, len(values), _TOGETHER):
            with self._watch.limit(self._cursor.connection):
                self._cursor.executemany(statement.replace("?", "%s"), values[start : start + _TOGETHER])
                changed += max(0, self._cursor.rowcount)
        return changed


class _Held:
    """A connection that only the process that opened it may use or close: a fork leaves it to its parent."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._process = process_identity()

    def get(self) -> "psycopg.Connection[Any] | None":
        return self._connection if self._process == process_identity() else None

    def hold(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection, self._process = connection, process_identity()

    def drop_unless_idle(self) -> None:
        from psycopg.pq import TransactionStatus  # noqa: PLC0415

        connection = self.get()
        if connection is not None and connection.info.transaction_status != TransactionStatus.IDLE:
            self.drop()

    def drop(self) -> None:
        connection = self.get()
        if connection is not None:
            self._connection = None
            connection.close()


class PostgresStore:
    """The one connection of this process to a database. Opened at the first use, and again after it broke."""

    def __init__(self, url: str) -> None:
        self._url, self.place = url, without_password(url)
        self._held = _Held()
        self._lock = threading.Lock()
        self._watch = _Watch(patience())
        self._next_try = 0.0  # by the monotonic clock
        weakref.finalize(self, self._held.drop)

    @contextmanager
    def transaction(self, ledger: str, then: Callable[[], None] | None = None) -> Iterator[Statements]:
        """Hold this ledger's rows for one change; it is synced when this ends, and unchanged if it fails.

        `then` is called when the change is on the disk.
        """
        import psycopg  # noqa: PLC0415  an extra

        with self._turn():
            try:
                connection = self._connected()
                with self._committed(connection), connection.cursor() as cursor:
                    statements = _Statements(cursor, self._watch)
                    statements.run("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (ledger,))
                    yield statements
                if then is not None:
                    then()
            except psycopg.Error as error:
                raise self._failure(error) from None
            except BaseException:
                self._held.drop_unless_idle()  # an interrupt may have come between BEGIN and COMMIT
                raise

    @contextmanager
    def _committed(self, connection: "psycopg.Connection[Any]") -> Iterator[None]:
        """Commit at the end, or roll back, and wait for neither for long."""
        transaction = connection.transaction()
        with self._watch.limit(connection):
            transaction.__enter__()
        try:
            yield
        except BaseException as error:
            with self._watch.limit(connection):
                transaction.__exit__(type(error), error, error.__traceback__)
            raise
        with self._watch.limit(connection):
            transaction.__exit__(None, None, None)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for other threads of this process, for no longer than one of them may wait for the database."""
        if not self._lock.acquire(timeout=2 * self._watch.seconds):
            raise self._unanswered(self._watch.seconds)
        try:
            if (wait := self._next_try - time.monotonic()) > 0:
                raise self._unanswered(wait)
            yield
        finally:
            self._lock.release()

    def _unanswered(self, wait: float) -> LedgerRefused:
        text = f"the database at {self.place} does not answer"
        return LedgerRefused(text, cause="database_unanswering", retry_after=wait)

    def _failure(self, error: "psycopg.Error") -> LedgerRefused:
        """Return what a failure of the database means here. Its own text may hold values."""
        import psycopg  # noqa: PLC0415

        hung, self._watch.fired = self._watch.fired, False
        unconnected = self._held.get() is None and isinstance(error, psycopg.OperationalError)
        self._held.drop()
        if hung or isinstance(error, psycopg.errors.ConnectionTimeout):
            self._next_try = time.monotonic() + _PAUSE
            return self._unanswered(_PAUSE)
        text = f"the ledger at {self.place} cannot be used just now: {type(error).__name__}"
        cause = "database_unreachable" if unconnected else "database"
        return LedgerRefused(text, cause=cause, retry_after=_PAUSE)

    def check_room(self) -> None:
        """Leave it to the database, which says so when a write finds none."""

    def _connected(self) -> "psycopg.Connection[Any]":
        import psycopg  # noqa: PLC0415

        self._held.drop_unless_idle()  # in an open transaction a "commit" would only end a savepoint
        connection = self._held.get()
        if connection is None or connection.closed:
            connection = psycopg.connect(self._url, autocommit=True, **self._options())
            try:
                with self._watch.limit(connection):
                    self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._held.hold(connection)  # once all of it is checked
        return connection

    def _prepare(self, connection: "psycopg.Connection[Any]") -> None:
        """Set a new connection up, and refuse a database that could lose a commit."""
        import psycopg  # noqa: PLC0415

        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # the lock comes before the snapshot
        connection.execute("SET client_encoding = 'UTF8'")
        connection.execute("SET idle_in_transaction_session_timeout = '30s'")  # a host that is gone has the lock
        connection.execute("SET synchronous_commit = on")
        for setting, right in _NEEDED.items():
            row = connection.execute(f"SHOW {setting}").fetchone()
            if row is None or row[0] not in right:
                raise LedgerRefused(
                    f"the database at {self.place} has {setting} = {row and row[0]}, where a ledger needs "
                    f"{right[0]}: a charge could be lost"
                )
        _make_tables(connection)

    def _options(self) -> dict[str, Any]:
        """Return how long to wait for a host that does not answer, where the address does not say."""
        options = {"connect_timeout": max(2, math.ceil(self._watch.seconds / 2)), **_KEEPALIVES}
        return {name: value for name, value in options.items() if f"{name}=" not in self._url}

    def close(self) -> None:
        """Let go of the connection; the next use opens another."""
        with self._lock:
            self._held.drop()


def _make_tables(connection: "psycopg.Connection[Any]") -> None:
    """Make the tables where they are missing: a role that may not make any can use those that are there."""
    row = connection.execute("SELECT to_regclass('quorate_request_seq')").fetchone()  # the last of them
    if row is None or row[0] is None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(7309453761)")  # two processes may come at once
            for statement in TABLES.format(bytes="BYTEA", by_key="").split(";"):
                if statement.strip():
                    connection.execute(statement)


def check_driver() -> None:
    """Raise where the extra is missing that PostgreSQL takes."""
    try:
        import psycopg  # noqa: F401, PLC0415
    except ImportError:
        raise InvalidInput("a ledger in PostgreSQL needs psycopg: install quorate[postgres]") from None
