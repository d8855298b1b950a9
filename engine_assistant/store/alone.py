"""One statement without a transaction around it, on a Postgres connection of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection

from engine_assistant.model.errors import Unavailable

__all__ = ["alone"]


@contextmanager
def alone(connection: sa.Connection) -> Iterator[None]:
    """Let the driver commit by itself inside; afterwards the connection is as it was.

    SQLAlchemy's isolation level AUTOCOMMIT says the same and costs as much as the statement: it
    sets the isolation level twice, and its listener makes every step of the connection dearer.

    A driver that will not (a listener of the host's has begun something, or the server is gone)
    gets a transaction, as for any other operation.
    """
    driver = connection.connection.dbapi_connection
    if driver is None or driver.autocommit:
        yield
        return
    try:
        if _let_commit(connection, driver):
            yield
        else:
            with connection.begin():
                yield
    except BaseException:
        _take_back(connection, driver)
        raise
    if not _take_back(connection, driver):
        raise Unavailable(
            "Something of the host's has begun a transaction around this statement, so it is not"
            " known whether it was kept. Repeat it with the same key, batch or attempt."
        )


def _let_commit(connection: sa.Connection, driver: DBAPIConnection) -> bool:
    try:
        driver.autocommit = True
    except connection.dialect.loaded_dbapi.Error:
        return False
    return True


def _take_back(connection: sa.Connection, driver: DBAPIConnection) -> bool:
    """Return whether the driver went back, or is gone for good."""
    if connection.invalidated:
        return True
    try:
        driver.autocommit = False
    except BaseException as error:
        # Whatever it says, the pool must not keep a connection that commits by itself.
        connection.invalidate(error)
        if not isinstance(error, Exception):
            raise
        return False
    return True
