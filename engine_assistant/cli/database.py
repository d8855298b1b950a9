"""The database that a command is pointed at: opened, closed again, and named without secrets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from engine_assistant import Assistant, Internal, Unavailable, ValidationFailed, migrate

__all__ = ["absent_file", "current", "opened", "prepare", "shown"]

_SHOWN: Final = ("host", "port")
_CANNOT_OPEN: Final = 14  # SQLITE_CANTOPEN
_NOT_A_DATABASE: Final = 26  # SQLITE_NOTADB


@contextmanager
def opened(url: str) -> Iterator[Assistant]:
    """Open the database for the length of the block.

    Raises:
        ValidationFailed: the URL cannot be used.
        Unavailable: the database did not answer.
        Internal: the driver is missing, the file cannot be opened, or the database refused a
            statement.
    """
    assistant = Assistant.from_url(url)
    try:
        yield assistant
    except Unavailable as error:
        if error.facts.get("sqlstate") == "SQLITE_CANTOPEN":
            raise _not_opened(url) from None
        raise
    except sa.exc.SQLAlchemyError as error:
        # The text of a driver's error may quote an address or values.
        cause = getattr(error, "orig", None) or error
        kind = type(cause).__name__
        number = getattr(cause, "sqlite_errorcode", None)
        if number == _CANNOT_OPEN:
            raise _not_opened(url) from None
        if number == _NOT_A_DATABASE:
            raise Internal("This file is not a SQLite database.", error=kind) from None
        if isinstance(error, sa.exc.OperationalError):
            raise Unavailable("The database did not answer.", error=kind) from None
        raise Internal("The database refused a statement.", error=kind) from None
    finally:
        assistant.engine.dispose()


def shown(url: str) -> str:
    """Return the address as it may be printed: no password, and nothing else that may be one."""
    try:
        address = sa.make_url(url)
        query = {key: address.query[key] for key in _SHOWN if key in address.query}
        address = address.set(query=query)
        path = _file(address)
        if path is not None:
            address = address.set(database=str(path.absolute()))
        return address.render_as_string(hide_password=True)
    except (sa.exc.ArgumentError, ValueError):
        return "an address that cannot be read"


def absent_file(url: str) -> bool:
    """Return whether this is a SQLite file that is not there. Looking must not create it.

    Raises:
        ValidationFailed: the URL cannot be read.
    """
    try:
        path = _file(sa.make_url(url))
    except (sa.exc.ArgumentError, ValueError):
        raise ValidationFailed("This is not a database URL.", path="database") from None
    return path is not None and not path.exists()


def current(assistant: Assistant) -> str | None:
    """Return the revision of the database, None when it was never migrated."""
    with assistant.engine.connect() as connection:
        return migrate.current(connection)


def prepare(assistant: Assistant) -> None:
    """Make the tables where there are none. Tables that are behind are left to the operator.

    Raises:
        Internal: the schema is behind or ahead; the message says what to do.
    """
    if current(assistant) is None:
        assistant.migrate()
        return
    with assistant.engine.connect() as connection:
        migrate.check(connection)


def _not_opened(url: str) -> Internal:
    return Internal(f"The file of {shown(url)}, or its folder, cannot be opened.", missing=True)


def _file(address: sa.URL) -> Path | None:
    if address.get_backend_name() != "sqlite" or not address.database:
        return None
    if address.database == ":memory:" or address.database.startswith("file:"):
        return None
    return Path(address.database)
