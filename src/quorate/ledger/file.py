"""A budget in a file. What is charged is on the disk before anything is drawn.

Every change is one transaction that locks the file, reads the account, changes it and syncs it, so that several
processes on one machine share one budget. The file also keeps the secret noise of an open run and the answers
given: it is private, and only its owner may read it. Whoever restores an old copy of it gives budget back: no copy
knows of that.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

from quorate.errors import InvalidInput
from quorate.privacy import Budget

__all__ = ["Ledger", "StoredBudget"]

_TABLES = """
CREATE TABLE account (
    name TEXT PRIMARY KEY, epsilon REAL, delta REAL, order_ REAL, slack REAL,
    spent TEXT NOT NULL, spent_slack TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE TABLE run (name TEXT PRIMARY KEY, threshold_noise INTEGER NOT NULL);
CREATE TABLE answer (caller TEXT, query BLOB, label INTEGER NOT NULL, PRIMARY KEY (caller, query)) WITHOUT ROWID;
"""
_PATIENCE = 60.0  # seconds to wait for another process that holds the file
_NAMES = 500  # query digests looked up in one statement


class Ledger:
    """The file that a model's budget lives in.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "ledger.sqlite"
    >>> ledger = Ledger.create(path, Budget(epsilon=1.0, delta=0.0), fingerprint="model 1")
    >>> from quorate.privacy import Cost
    >>> ledger.budget().spend(Cost(renyi=0.25))
    >>> Ledger.open(path, fingerprint="model 1").budget().remaining().renyi
    0.75
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self._fingerprint = path.resolve(), fingerprint

    @classmethod
    def create(cls, path: Path, budget: Budget, *, fingerprint: str, name: str = "main") -> "Ledger":
        """Make the file for a budget, and take the account over: the budget given can spend nothing more.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=0.0), fingerprint="m").budget()
        Budget(epsilon=1, delta=0, order=inf, left=100.0%)
        """
        path = Path(path)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # for its owner's eyes
        except FileExistsError:
            raise InvalidInput(f"{path} exists: a ledger is never overwritten; choose another folder") from None
        made = cls(path, fingerprint)
        state = (budget.epsilon, budget.delta, budget.order, budget.slack)
        spent = [str(quanta) for quanta in budget.close()]  # a move, not a copy: from here on only the file can spend
        with made._transaction(new=True) as connection:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO account VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (name, *state, *spent, fingerprint)
            )
        return made

    @classmethod
    def open(cls, path: Path, *, fingerprint: str) -> "Ledger":
        """Open a file that exists and belongs to the model of this fingerprint.

        >>> Ledger.open(Path("no such file"), fingerprint="m")
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: ...no such file is missing: without its ledger a model has no budget ...
        """
        made = cls(Path(path), fingerprint)
        with made._transaction():
            return made

    def budget(self, name: str = "main") -> "StoredBudget":
        """Return the budget kept here. It reads and writes the file at every use.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
        ...     round(ledger.budget().spent_epsilon(), 6)
        0.0
        """
        return StoredBudget(self, name)

    def keep_run(self, threshold_noise: int, *, name: str = "main") -> None:
        """Keep the secret noise of an open run.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
        ...     ledger.keep_run(-3)
        ...     ledger.run()
        -3
        """
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (name, int(threshold_noise)))

    def run(self, *, name: str = "main") -> int | None:
        """Return the secret noise of the open run, or None where none is open.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
        ...     ledger.run() is None
        True
        """
        with self._transaction() as connection:
            found = connection.execute("SELECT threshold_noise FROM run WHERE name = ?", (name,)).fetchone()
        return None if found is None else int(found[0])

    def recall(self, caller: str, queries: Iterable[bytes]) -> dict[bytes, int]:
        """Return the answers that this caller was given to these queries, where there are any.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
        ...     ledger.remember("", {b"query": 1})
        ...     ledger.recall("", [b"query", b"other"]), ledger.recall("somebody else", [b"query"])
        ({b'query': 1}, {})
        """
        asked, known = list(queries), dict[bytes, int]()
        with self._transaction() as connection:
            for start in range(0, len(asked), _NAMES):
                part = asked[start : start + _NAMES]
                marks = ",".join("?" * len(part))
                statement = f"SELECT query, label FROM answer WHERE caller = ? AND query IN ({marks})"  # noqa: S608
                known.update(connection.execute(statement, [caller, *part]).fetchall())
        return known

    def remember(self, caller: str, answers: Mapping[bytes, int]) -> None:
        """Keep answers, before they leave.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
        ...     ledger.remember("", {})
        """
        rows = [(caller, query, int(label)) for query, label in answers.items()]
        with self._transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?, ?)", rows)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from asking: what one has set aside for a batch, another would take for spent.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
        ...     with ledger.alone():
        ...         ledger.run() is None
        True
        """
        flags = os.O_CREAT | os.O_RDWR
        with open(os.open(self.path.with_suffix(".lock"), flags, 0o600), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, or its process ends
            yield

    @contextmanager
    def _transaction(self, *, new: bool = False) -> Iterator[sqlite3.Connection]:
        """Hold the file for one change; it is synced when this ends, and unchanged if it fails.

        A file that is gone, or was exchanged for that of another model, is refused every time.
        """
        if not self.path.is_file():
            raise InvalidInput(f"{self.path} is missing: without its ledger a model has no budget and answers nothing")
        try:
            with self._connected() as connection:
                if not new:
                    self._check_owner(connection)
                yield connection
        except sqlite3.OperationalError as error:
            raise InvalidInput(f"{self.path} cannot be used just now: {error}") from None
        except sqlite3.DatabaseError as error:
            raise InvalidInput(f"{self.path} is not a ledger: {error}") from None

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("SELECT fingerprint FROM account").fetchall()
        if not found or any(row[0] != self._fingerprint for row in found):
            raise InvalidInput(
                f"{self.path} belongs to another model; each model answers from the budget it was made with"
            )

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        address = f"{self.path.as_uri()}?mode=rw"  # never makes a file
        with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")  # also the folder, in which the journal is unlinked
            connection.execute("PRAGMA fullfsync = ON")
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


class StoredBudget(Budget):
    """A budget whose account is a row of a ledger. Made by `Ledger.budget`.

    >>> issubclass(StoredBudget, Budget)
    True
    """

    __slots__ = ("_ledger", "_name")

    def __init__(self, ledger: Ledger, name: str) -> None:
        with ledger._transaction() as connection:
            found = connection.execute(
                "SELECT epsilon, delta, order_, slack FROM account WHERE name = ?", (name,)
            ).fetchone()
        if found is None:
            raise InvalidInput(f"{ledger.path} has no account called {name!r}")
        epsilon, delta, order, slack = found
        super().__init__(epsilon=epsilon, delta=delta, order=order, slack=slack)
        self._ledger, self._name = ledger, name

    def close(self) -> NoReturn:
        """Refuse: the account stays in its file.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "a.sqlite", Budget(epsilon=1.0, delta=1e-6), fingerprint="m")
        ...     ledger.budget().close()
        Traceback (most recent call last):
        ...
        quorate.errors.InvalidInput: this account lives in ... and stays there
        """
        raise InvalidInput(f"this account lives in {self._ledger.path} and stays there")

    @contextmanager
    def _held(self) -> Iterator[None]:
        with super()._held(), self._ledger._transaction() as connection:
            row = connection.execute("SELECT spent, spent_slack FROM account WHERE name = ?", (self._name,)).fetchone()
            before = self._spent, self._spent_slack = int(row[0]), int(row[1])
            if not (0 <= self._spent <= self._capacity and 0 <= self._spent_slack <= self._slack):
                raise InvalidInput(f"{self._ledger.path} holds an account that nobody could have spent like that")
            yield
            if (self._spent, self._spent_slack) != before:
                connection.execute(
                    "UPDATE account SET spent = ?, spent_slack = ? WHERE name = ?",
                    (str(self._spent), str(self._spent_slack), self._name),
                )
