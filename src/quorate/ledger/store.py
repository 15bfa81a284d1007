"""Where a ledger is kept. A store knows transactions and tables, and none of the rules."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from quorate.errors import InvalidInput

__all__ = ["TABLES", "Statements", "Store", "is_url", "without_password"]

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
    """A place that runs transactions one after the other, and has synced each when it ends."""

    place: str

    def transaction(self, ledger: str, then: Callable[[], None] | None = None) -> AbstractContextManager[Statements]:
        """Keep every other process from this ledger; commit at the end and call `then`, or change nothing."""

    def close(self) -> None:
        """Let go of the connection."""


def is_url(place: str | Path) -> bool:
    """Return whether this names a PostgreSQL database rather than a file."""
    if isinstance(place, str) and "://" in place:
        if not place.startswith(("postgresql://", "postgres://")):
            raise InvalidInput(f"a ledger lives in a file or at postgresql://..., not at {place.split('://')[0]}://")
        return True
    return False


def without_password(url: str) -> str:
    """Return a database's address as it may be shown."""
    scheme, _, rest = url.partition("://")
    at, slash = rest.find("@"), rest.find("/")
    who = ""
    if at >= 0 and (slash < 0 or at < slash):  # PostgreSQL's own rule: a password may hold any sign but these two
        who, rest = rest[:at].partition(":")[0] + "@", rest[at + 1 :]
    where, _, query = rest.partition("?")
    kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in ("password", "sslpassword")]
    return f"{scheme}://{who}{where}{'?' if kept else ''}{'&'.join(kept)}"
