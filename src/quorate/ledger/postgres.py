"""A ledger in a PostgreSQL database, for several processes on several hosts.

Transactions on one ledger wait for each other on its row; a database that does not sync its commits is refused.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from quorate.checks import process_identity
from quorate.errors import InvalidInput, LedgerRefused
from quorate.ledger.store import TABLES, Statements, without_password

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresStore", "check_driver"]

_NEEDED = {
    "server_encoding": ("UTF8",),
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply", "local"),
}
_PATIENCE = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class _Statements:
    def __init__(self, cursor: "psycopg.Cursor[Any]") -> None:
        self._cursor = cursor

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        self._cursor.execute(statement.replace("?", "%s"), values)
        return self._cursor.fetchall() if self._cursor.description else []

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        self._cursor.executemany(statement.replace("?", "%s"), rows)
        return max(0, self._cursor.rowcount)


class _Held:
    """A connection that only the process that opened it may use or close: a fork leaves it to its parent."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._process = process_identity()

    def get(self) -> "psycopg.Connection[Any] | None":
        return self._connection if self._process == process_identity() else None

    def put(self, connection: "psycopg.Connection[Any]") -> None:
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
        weakref.finalize(self, self._held.drop)

    @contextmanager
    def transaction(self, ledger: str, then: Callable[[], None] | None = None) -> Iterator[Statements]:
        """Hold this ledger's rows for one change; it is synced when this ends, and unchanged if it fails.

        `then` is called when the change is on the disk.
        """
        import psycopg  # noqa: PLC0415  an extra

        with self._lock:
            try:
                connection = self._connected()
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (ledger,))
                    yield _Statements(cursor)
                if then is not None:
                    then()
            except psycopg.Error as error:
                self._held.drop()
                kind = type(error).__name__  # its text may hold values
                raise LedgerRefused(f"the ledger at {self.place} cannot be used just now: {kind}") from None
            except BaseException:
                self._held.drop_unless_idle()  # an interrupt may have come between BEGIN and COMMIT
                raise

    def _connected(self) -> "psycopg.Connection[Any]":
        import psycopg  # noqa: PLC0415

        self._held.drop_unless_idle()  # in an open transaction a "commit" would only end a savepoint
        connection = self._held.get()
        if connection is None or connection.closed:
            connection = psycopg.connect(self._url, autocommit=True, **_patience(self._url))
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # the lock comes before the snapshot
            connection.execute("SET client_encoding = 'UTF8'")
            connection.execute("SET idle_in_transaction_session_timeout = '30s'")  # a host that is gone has the lock
            connection.execute("SET synchronous_commit = on")
            for setting, right in _NEEDED.items():
                row = connection.execute(f"SHOW {setting}").fetchone()
                if row is None or row[0] not in right:
                    connection.close()
                    raise LedgerRefused(
                        f"the database at {self.place} has {setting} = {row and row[0]}, where a ledger needs "
                        f"{right[0]}: a charge could be lost"
                    )
            _make_tables(connection)
            self._held.put(connection)  # once all of it is checked
        return connection

    def close(self) -> None:
        """Let go of the connection; the next use opens another."""
        with self._lock:
            self._held.drop()


def _patience(url: str) -> dict[str, Any]:
    """Return how long to wait for a host that does not answer, where the address does not say."""
    return {name: value for name, value in _PATIENCE.items() if f"{name}=" not in url}


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
