"""One database for each test, on both kinds: a copy of a template that was migrated once.

For pytest there are fixtures (`engine_assistant.testing.plugin`); these are for everybody else.
A database is given as a URL. Postgres comes from `engine_assistant.testing.postgres.start`.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final, Protocol

from sqlalchemy import URL, make_url

from engine_assistant import Assistant

__all__ = [
    "KINDS",
    "Server",
    "awaited",
    "postgres_database",
    "postgres_template",
    "sqlite_file",
    "sqlite_template",
]

KINDS: Final = ("sqlite", "postgres")
"""The kinds of database that the engine lives in."""


class Server(Protocol):
    """What is asked of a Postgres server; `PostgresServer` is one."""

    def address(self, database: str) -> URL:
        """Return the URL of one of its databases."""

    def create(self, template: str | None = None) -> str:
        """Make a database with a name of its own, empty or as a copy of `template`."""

    def drop(self, name: str) -> None:
        """Remove a database."""


@contextmanager
def postgres_template(server: Server) -> Iterator[str]:
    """Make a migrated database that nobody is connected to; give its name."""
    name = server.create()
    try:
        _migrate(server.address(name))
        yield name
    finally:
        server.drop(name)


@contextmanager
def postgres_database(server: Server, template: str | None = None) -> Iterator[str]:
    """Make a database, empty or as a copy of `template`; give its URL, and remove it after."""
    name = server.create(template)
    try:
        yield _text(server.address(name))
    finally:
        server.drop(name)


def sqlite_template(folder: Path) -> Path:
    """Make a migrated SQLite file in `folder`, at rest and closed.

    Raises:
        RuntimeError: migrating left other files there, so that a copy would not be whole.
    """
    path = folder / f"template-{token_hex(8)}.db"
    _migrate(URL.create("sqlite", database=str(path)))
    left = [other.name for other in folder.glob(f"{path.name}?*")]
    if left:
        raise RuntimeError(f"migrating left {left}")
    return path


def sqlite_file(path: Path, template: Path | None = None) -> str:
    """Return the URL of the SQLite file `path`: a copy of `template`, or to be made on first use.

    It has no end of its own: it goes with its folder.
    """
    if template is not None:
        shutil.copyfile(template, path)
    return _text(URL.create("sqlite", database=str(path)))


def awaited(url: str) -> str:
    """Return the URL of the same database for `AsyncAssistant`."""
    read = make_url(url)
    if read.get_backend_name() == "sqlite":
        read = read.set(drivername="sqlite+aiosqlite")
    return _text(read)


def _migrate(url: URL) -> None:
    assistant = Assistant.from_url(_text(url))
    try:
        assistant.migrate()
    finally:
        assistant.engine.dispose()


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
