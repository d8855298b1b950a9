"""Fixtures for pytest: `pytest_plugins = ["engine_assistant.testing.plugin"]` in a conftest.

Each test has a database of its own. `assistant_url` runs a test once for each kind of database;
`assistant_sqlite_url` and `assistant_postgres_url` are of one kind. The server is started when the
first test asks for it, once for each process of pytest-xdist.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine_assistant import Assistant
from engine_assistant.testing import databases
from engine_assistant.testing.clock import Clock

if TYPE_CHECKING:
    from engine_assistant.testing.postgres import PostgresServer
    from engine_assistant.testing.washed import Washed

__all__: list[str] = []


@pytest.fixture(scope="session")
def assistant_postgres_server() -> "Iterator[PostgresServer]":
    """The Postgres server of this process."""
    # Only here: whoever tests on SQLite alone may have no libpq.
    from engine_assistant.testing.postgres import start

    with start() as server:
        yield server


@pytest.fixture(scope="session")
def assistant_postgres_template(assistant_postgres_server: "PostgresServer") -> Iterator[str]:
    """The name of a migrated database that nobody stays connected to."""
    with databases.postgres_template(assistant_postgres_server) as name:
        yield name


@pytest.fixture(scope="session")
def assistant_postgres_washed(
    assistant_postgres_server: "PostgresServer", assistant_postgres_template: str
) -> "Iterator[Washed]":
    """Migrated databases that are emptied after each test and given again."""
    from engine_assistant.testing.washed import Washed

    washed = Washed(assistant_postgres_server, assistant_postgres_template)
    yield washed
    washed.close()


@pytest.fixture
def assistant_postgres_url(assistant_postgres_washed: "Washed") -> Iterator[str]:
    """A migrated Postgres database with nothing in it."""
    with assistant_postgres_washed.lend() as url:
        yield url


@pytest.fixture(scope="session")
def assistant_sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file at rest."""
    return databases.sqlite_template(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture
def assistant_sqlite_url(assistant_sqlite_template: Path, tmp_path: Path) -> str:
    """A fresh migrated SQLite file."""
    return databases.sqlite_file(tmp_path / "assistant.db", assistant_sqlite_template)


@pytest.fixture(params=databases.KINDS)
def assistant_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database, once of each kind."""
    return str(request.getfixturevalue(f"assistant_{request.param}_url"))


@pytest.fixture
def assistant_clock() -> Clock:
    """The clock of `assistant`, which stands still until the test moves it."""
    return Clock()


@pytest.fixture
def assistant(assistant_url: str, assistant_clock: Clock) -> Iterator[Assistant]:
    """The engine on a database of this test, under `assistant_clock`, once of each kind."""
    made = Assistant.from_url(assistant_url, clock=assistant_clock)
    yield made
    made.engine.dispose()
