"""One statement without a transaction around it, on a Postgres connection of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

__all__ = ["alone"]


@contextmanager
def alone(connection: sa.Connection) -> Iterator[None]:
    """Let the driver commit by itself inside; afterwards the connection is as it was.

    SQLAlchemy's isolation level AUTOCOMMIT says the same and costs as much as the statement: it
    sets the isolation level twice, and its listener makes every step of the connection dearer.
    """
    driver = connection.connection.dbapi_connection
    if driver is None or driver.autocommit:
        yield
        return
    driver.autocommit = True
    try:
        yield
    finally:
        if not connection.invalidated:
            try:
                driver.autocommit = False
            except Exception:  # noqa: BLE001 - whatever it says, the pool must not keep it
                connection.invalidate()
