"""The rows of a query to DuckDB or PostgreSQL, in batches.

    duckdb:clinic.db?query=SELECT * FROM visits
    duckdb:?query=SELECT * FROM 'visits/*.parquet'
    postgresql://reader@host/clinic?query=SELECT * FROM visits

The result of the query is the table, so each of its rows must be made from one record: a query that aggregates, ranks
or joins records makes rows that depend on several. Connections only read. Errors do not repeat what the database says,
because it may name a value.
"""

import importlib
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from quorate.core.errors import InvalidInput
from quorate.tables.values import object_texts

__all__ = ["is_query", "query_header", "stream_query"]

_ADDRESS = re.compile(r"(duckdb|postgres|postgresql):(.*?)[?&]query=(.+)", re.DOTALL)
_ROWS = 2**14  # read together
_AS_TEXTS = ("date", "timestamp", "timestamptz", "time", "timetz", "interval")  # whose far values Python refuses


def is_query(source: str | Path) -> bool:
    """Return whether this is the address of a database with a query."""
    return _ADDRESS.fullmatch(str(source)) is not None


def query_header(address: str) -> pa.Table:
    """Return a table without rows that has the columns of a query."""
    with _result(address) as (header, _):
        return header


def stream_query(address: str) -> Iterator[pa.Table]:
    """Yield the rows of a query, some thousands at a time."""
    with _result(address) as (_, batches):
        yield from batches


@contextmanager
def _result(address: str) -> Iterator[tuple[pa.Table, Iterator[pa.Table]]]:
    """Give the header of a query, and its rows."""
    found = _ADDRESS.fullmatch(address)
    assert found is not None
    system, place, query = found[1], unquote(found[2]), unquote(found[3])
    library = _imported("duckdb" if system == "duckdb" else "psycopg", address=f"{system}:...")
    try:
        with _duckdb(library, place, query) if system == "duckdb" else _postgres(library, found[2], query) as result:
            yield result
    except library.Error as error:
        # The class says enough, and the text may hold a value of a private row.
        raise InvalidInput(
            f"{system}: the query failed ({type(error).__name__}); try it in the database's own shell"
        ) from None


@contextmanager
def _duckdb(duckdb: Any, place: str, query: str) -> Iterator[tuple[pa.Table, Iterator[pa.Table]]]:
    if place and not Path(place).is_file():
        raise InvalidInput(f"{place}: there is no such database")
    with closing(duckdb.connect(place or ":memory:", read_only=bool(place))) as connection:
        rows = connection.sql(query)
        if rows is None:
            raise InvalidInput("duckdb: the query returns no table; write one that begins with SELECT")
        # Older versions of DuckDB have another name for it.
        read = rows.to_arrow_reader if hasattr(rows, "to_arrow_reader") else rows.fetch_arrow_reader
        reader = read(_ROWS)
        yield reader.schema.empty_table(), (pa.Table.from_batches([batch]) for batch in reader)


@contextmanager
def _postgres(psycopg: Any, place: str, query: str) -> Iterator[tuple[pa.Table, Iterator[pa.Table]]]:
    texts = importlib.import_module("psycopg.types.string").TextLoader
    with psycopg.connect("postgresql://" + place.lstrip("/")) as connection:
        connection.read_only = True
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("SET DateStyle TO ISO")
        with connection.cursor(name="quorate") as cursor:
            for kind in _AS_TEXTS:
                cursor.adapters.register_loader(kind, texts)
            cursor.execute(query)
            names = [column.name for column in cursor.description]
            yield pa.schema([(name, pa.large_string()) for name in names]).empty_table(), _fetched(cursor, names)


def _fetched(cursor: Any, names: list[str]) -> Iterator[pa.Table]:
    while rows := cursor.fetchmany(_ROWS):
        yield pa.table([object_texts(column) for column in zip(*rows, strict=True)], names=names)


def _imported(library: str, *, address: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError:
        raise InvalidInput(f"{address}: a query needs {library}; install it: pip install 'quorate[sql]'") from None
