"""Fixtures: the testing kit's databases, under the coverage of the machines.

A test that asks for `database_url`, `engine` or `async_database_url` runs twice, as `[sqlite]` and
as `[postgres]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url

from engine_assistant.testing import databases
from engine_assistant.testing.postgres import PostgresServer
from tests.rig import engines, moves, pgbouncer

DATABASES = databases.KINDS

# ---------------------------------------------------------------- Postgres


@pytest.fixture(scope="session")
def postgres_server(assistant_postgres_server: PostgresServer) -> PostgresServer:
    """The server of this xdist worker."""
    return assistant_postgres_server


@pytest.fixture(scope="session")
def migrated_template(assistant_postgres_template: str) -> str:
    """The name of a migrated database that nobody stays connected to."""
    return assistant_postgres_template


@pytest.fixture
def postgres_url(assistant_postgres_url: str) -> Iterator[str]:
    """A fresh migrated Postgres database."""
    with moves.on("postgres"):
        yield assistant_postgres_url


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A fresh Postgres database with nothing in it."""
    with databases.postgres_database(postgres_server) as url, moves.on("postgres"):
        yield url


# ---------------------------------------------------------------- PgBouncer


@pytest.fixture(scope="session")
def pgbouncer_server(postgres_server: PostgresServer) -> Iterator[pgbouncer.PgBouncer]:
    """The pooler of this xdist worker, in transaction mode."""
    binary = pgbouncer.find()
    if binary is None:
        pytest.skip("pgbouncer is not installed (Debian: apt-get install pgbouncer)")
    pooler = pgbouncer.start(binary, postgres_server.url)
    yield pooler
    pooler.stop()


@pytest.fixture
def pgbouncer_url(pgbouncer_server: pgbouncer.PgBouncer, postgres_url: str) -> str:
    """The database of `postgres_url`, through the pooler; says nothing of `?pooler=transaction`."""
    address = pgbouncer_server.address(str(make_url(postgres_url).database))
    return address.render_as_string(hide_password=False)


# ---------------------------------------------------------------- SQLite


@pytest.fixture(scope="session")
def migrated_file(assistant_sqlite_template: Path) -> Path:
    """A migrated SQLite file at rest."""
    return assistant_sqlite_template


@pytest.fixture(scope="session")
def sqlite_name(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one name under which the tests of this xdist worker know their SQLite files."""
    return tmp_path_factory.mktemp("sqlite-name") / "test.db"


@pytest.fixture
def sqlite_url(migrated_file: Path, sqlite_name: Path, tmp_path: Path) -> Iterator[str]:
    """A fresh migrated SQLite file, under the name that the one before had.

    The name is a link, which SQLite follows: a connection that an earlier test left open is closed
    some time, and takes away the write-ahead log of its own file then, and of no other.
    """
    databases.sqlite_file(tmp_path / "assistant.db", migrated_file)
    sqlite_name.symlink_to(tmp_path / "assistant.db")
    with moves.on("sqlite"):
        yield databases.sqlite_file(sqlite_name)
    sqlite_name.unlink()


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> Iterator[str]:
    """Where a SQLite file may be made."""
    with moves.on("sqlite"):
        yield databases.sqlite_file(tmp_path / "empty.db")


# ---------------------------------------------------------------- both


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database, once of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest) -> str:
    """A fresh database with nothing in it, once of each kind."""
    return str(request.getfixturevalue(f"empty_{request.param}_url"))


@pytest.fixture
def async_database_url(database_url: str) -> str:
    """The URL of `database_url` with the driver that speaks async."""
    return databases.awaited(database_url)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine as the package makes it, on `database_url`; disposed after the test."""
    engine = engines.kept_engine(database_url)
    yield engine
    engine.dispose()
