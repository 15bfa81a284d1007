"""A private PostgreSQL server for a test session, and a fresh database for each test that asks for one."""

import pytest

from benchmarks.private_postgres import PrivateServer, find_binaries

__all__ = ["PrivateServer", "postgres_server", "postgres_url"]


@pytest.fixture(scope="session")
def postgres_server():
    """One server for each process that runs tests, started by the first test that needs it."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: the PostgreSQL ledger is not tested")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(
            "no PostgreSQL on this machine (initdb, postgres) and no pgserver package: its ledger is not tested"
        )
    server = PrivateServer(binaries)
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server):
    """The URL of a fresh database."""
    return postgres_server.database()
