"""Fixtures: one fresh database per test, on both kinds.

A test that asks for `database_url`, `engine` or `async_database_url` runs twice, as `[sqlite]` and
as `[postgres]`. Nothing here imports the engine before a fixture needs it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, make_url

from tests.rig import moves, pgbouncer, postgres

DATABASES = ("sqlite", "postgres")


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def _migrate(url: URL) -> None:
    from engine_assistant.engines import make_engine
    from engine_assistant.migrate import upgrade

    engine = make_engine(_text(url))
    try:
        with engine.begin() as connection:
            upgrade(connection)
    finally:
        engine.dispose()


# ---------------------------------------------------------------- Postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    """The server of this xdist worker."""
    server = postgres.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def migrated_template(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """The name of a migrated database that nobody stays connected to."""
    name = postgres_server.create()
    try:
        _migrate(postgres_server.address(name))
        yield name
    finally:
        postgres_server.drop(name)


@pytest.fixture
def postgres_url(postgres_server: postgres.PostgresServer, migrated_template: str) -> Iterator[str]:
    """A fresh migrated Postgres database."""
    name = postgres_server.create(migrated_template)
    with moves.on("postgres"):
        yield _text(postgres_server.address(name))
    postgres_server.drop(name)


@pytest.fixture
def empty_postgres_url(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """A fresh Postgres database with nothing in it."""
    name = postgres_server.create()
    with moves.on("postgres"):
        yield _text(postgres_server.address(name))
    postgres_server.drop(name)


# ---------------------------------------------------------------- PgBouncer


@pytest.fixture(scope="session")
def pgbouncer_server(
    postgres_server: postgres.PostgresServer,
) -> Iterator[pgbouncer.PgBouncer]:
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
    return _text(pgbouncer_server.address(str(make_url(postgres_url).database)))


# ---------------------------------------------------------------- SQLite


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file at rest."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    _migrate(URL.create("sqlite", database=str(path)))
    left = [other.name for other in path.parent.iterdir() if other != path]
    assert left == [], f"migrating left {left}: a copy of the file alone would not be whole"
    return path


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> Iterator[str]:
    """A fresh migrated SQLite file."""
    path = tmp_path / "assistant.db"
    shutil.copyfile(migrated_file, path)
    with moves.on("sqlite"):
        yield _text(URL.create("sqlite", database=str(path)))


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> Iterator[str]:
    """Where a SQLite file may be made."""
    with moves.on("sqlite"):
        yield _text(URL.create("sqlite", database=str(tmp_path / "empty.db")))


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
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite":
        url = url.set(drivername="sqlite+aiosqlite")
    return _text(url)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine as the package makes it, on `database_url`; disposed after the test."""
    from engine_assistant.engines import make_engine

    made = make_engine(database_url)
    yield made
    made.dispose()
