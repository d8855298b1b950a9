"""Engines as the record needs them: what `make_engine` gives, and `prepare_sqlite` for a host's.

On SQLite a transaction begins with `BEGIN IMMEDIATE`. The driver's own habit is to begin late and
weakly: two transactions that read and then write refuse each other, and a savepoint outside a
transaction keeps its writes when the outer one is rolled back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import (
    AsyncAdaptedQueuePool,
    ConnectionPoolEntry,
    PoolProxiedConnection,
    QueuePool,
)

from engine_assistant.model.errors import Internal, ValidationFailed

__all__ = [
    "BEGIN_OPTION",
    "DEFERRED",
    "PREPARED",
    "make_async_engine",
    "make_engine",
    "prepare_sqlite",
]

PREPARED: Final = "engine_assistant_prepared"
"""The key in `Connection.info` that says: this SQLite connection was prepared here."""

BEGIN_OPTION: Final = "assistant_begin"
"""The execution option that says how a transaction begins on a prepared SQLite engine."""

DEFERRED: Final = "DEFERRED"
"""The value of that option for reads: they see one snapshot and do not take the write lock."""

_POSTGRES: Final = "postgresql+psycopg"
_BACKENDS: Final = {
    "postgres": (_POSTGRES, _POSTGRES),
    "postgresql": (_POSTGRES, _POSTGRES),
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
}
_DRIVERS: Final = frozenset({"", "psycopg", "psycopg_async", "pysqlite", "aiosqlite"})
_EXTRAS: Final = {"postgresql": "pg", "sqlite": "sqlite-async"}

# How long one connection may be waited for, in seconds: as long as SQLite waits for a lock.
_PATIENCE: Final = 5.0


def make_engine(url: str | sa.URL) -> sa.Engine:
    """Return an engine for the record: Postgres through psycopg, or SQLite, prepared.

    The driver need not be named: `postgres://`, `postgresql://` and `sqlite://` are enough. A
    Postgres URL may say `?pooler=transaction` when a pooler in transaction mode stands between;
    then no statement is prepared, for the pooler would hand it to another session.

    SQLite in memory (`sqlite://`) lives in one connection, which one transaction has at a time;
    others wait for it up to 5 seconds. It is for one process and is gone with the engine.

    Errors from this engine never show the values that a statement carried.

    Raises:
        ValidationFailed: the URL cannot be read, or names a database or driver that is not
            supported. The message never repeats the URL: it may hold a password.
        Internal: the driver is not installed.
    """
    address, arguments = _address(url, asynchronous=False)
    if _in_memory(address):
        # The pool hands the connection from thread to thread, one at a time.
        arguments |= {"connect_args": {"check_same_thread": False}}
        arguments |= {"poolclass": QueuePool, **_ONE_CONNECTION}
    with _made(address):
        engine = sa.create_engine(address, hide_parameters=True, **arguments)
    if engine.dialect.name == "sqlite":
        prepare_sqlite(engine)
    return engine


def make_async_engine(url: str | sa.URL) -> AsyncEngine:
    """Return the async twin of `make_engine`, with the same URLs, rules and errors."""
    address, arguments = _address(url, asynchronous=True)
    if _in_memory(address):
        arguments |= {"poolclass": AsyncAdaptedQueuePool, **_ONE_CONNECTION}
    with _made(address):
        engine = create_async_engine(address, hide_parameters=True, **arguments)
    if engine.dialect.name == "sqlite":
        prepare_sqlite(engine)
    return engine


def prepare_sqlite(engine: sa.Engine | AsyncEngine) -> None:
    """Make a host's SQLite engine keep what the record promises. Twice is as good as once.

    Every connection gets write-ahead logging, foreign keys and full synchronisation, and every
    transaction begins with `BEGIN IMMEDIATE`, so that it never has to give up half-way. A
    connection with the execution option `assistant_begin="DEFERRED"` begins with `BEGIN` instead:
    for transactions that only read. A connection in AUTOCOMMIT is left to itself.

    How long a connection waits for a lock stays the driver's `timeout`: 5 seconds, unless the URL
    or the host says otherwise.

    Raises:
        ValidationFailed: the engine is not on SQLite; or, at its first connection, the whole
            engine is in AUTOCOMMIT, where no transaction could hold anything together.
    """
    plain = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    if plain.dialect.name != "sqlite":
        raise ValidationFailed("Only a SQLite engine is to be prepared.", path="engine")
    if event.contains(plain, "begin", _begin):
        return
    event.listen(plain, "connect", _prepare)
    event.listen(plain, "checkout", _on_checkout)
    event.listen(plain, "begin", _begin)
    event.listen(plain, "invalidate", _roll_back)


# pool_size and max_overflow: exactly one, so that transactions take turns instead of mixing.
_ONE_CONNECTION: Final = {"pool_size": 1, "max_overflow": 0, "pool_timeout": _PATIENCE}


def _prepare(dbapi: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    if record.info.get(PREPARED):
        return
    if dbapi.isolation_level is None:
        raise ValidationFailed(
            "This SQLite engine is in AUTOCOMMIT; make it without an isolation level.",
            path="engine",
        )
    # The driver must not begin transactions of its own: ours begin in _begin.
    dbapi.isolation_level = None
    cursor = dbapi.cursor()
    try:
        # Readers and the writer do not wait for each other.
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        # With NORMAL a power cut may take back the last commits, and with them the proof that a
        # tool call was claimed: it would run twice.
        cursor.execute("PRAGMA synchronous = FULL")
    finally:
        cursor.close()
    record.info[PREPARED] = True


def _on_checkout(
    dbapi: DBAPIConnection,
    record: ConnectionPoolEntry,
    proxy: PoolProxiedConnection,  # noqa: ARG001 - the signature is the event's
) -> None:
    """Prepare what the pool had opened before the engine was prepared."""
    _prepare(dbapi, record)


def _roll_back(
    dbapi: DBAPIConnection,
    record: ConnectionPoolEntry,  # noqa: ARG001 - the signature is the event's
    error: BaseException | None,
) -> None:
    """Give the write lock back before the connection is closed.

    Closing alone does not while a cursor lives that has not been read to its end, and those of a
    statement that was cut short live in the frames of the error: as long as somebody keeps it.
    """
    try:
        dbapi.rollback()
    except Exception:  # noqa: BLE001, S110 - it is broken, which is why it is thrown away
        pass
    except BaseException:
        # Cancelled once more. The first cancellation is being raised already, and the rollback
        # stands in the driver's queue.
        if error is None or isinstance(error, Exception):
            raise


def _begin(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if options.get("isolation_level") == "AUTOCOMMIT":
        return
    mode = "BEGIN" if options.get(BEGIN_OPTION) == DEFERRED else "BEGIN IMMEDIATE"
    connection.exec_driver_sql(mode)


def _address(url: str | sa.URL, *, asynchronous: bool) -> tuple[sa.URL, dict[str, object]]:
    """Return the URL with its driver, and what the engine is to be made with."""
    try:
        read = sa.make_url(url)
    except (ArgumentError, ValueError):
        # The error's own text may hold the URL, so it is not chained.
        raise ValidationFailed("This is not a database URL.", path="database") from None
    backend, _, driver = read.drivername.partition("+")
    if backend not in _BACKENDS or driver not in _DRIVERS:
        raise ValidationFailed(
            "The record lives in Postgres, through psycopg, or in SQLite:"
            " postgresql://… or sqlite:///….",
            path="database",
        )
    if "\0" in (read.database or ""):
        raise ValidationFailed("This is not a database URL.", path="database")
    read = read.set(drivername=_BACKENDS[backend][asynchronous])
    return _without_pooler(read)


def _without_pooler(url: sa.URL) -> tuple[sa.URL, dict[str, object]]:
    pooler = url.query.get("pooler")
    if pooler is None:
        return url, {}
    if url.drivername != _POSTGRES or pooler not in ("transaction", "session"):
        raise ValidationFailed(
            "A Postgres URL says ?pooler=transaction or ?pooler=session, or nothing about it.",
            path="database",
        )
    bare = url.difference_update_query(["pooler"])
    if pooler == "session":
        return bare, {}
    return bare, {"connect_args": {"prepare_threshold": None}}


def _in_memory(url: sa.URL) -> bool:
    if not url.drivername.startswith("sqlite"):
        return False
    name = url.database or ":memory:"
    return ":memory:" in name or url.query.get("mode") == "memory"


@contextmanager
def _made(url: sa.URL) -> Iterator[None]:
    """Say what keeps an engine from being made: a driver that is missing, an option it refuses."""
    try:
        yield
    except ImportError as missing:
        extra = _EXTRAS[url.get_backend_name()]
        raise Internal(
            f"The driver of this database is missing: pip install 'engine-assistant[{extra}]'.",
            extra=extra,
        ) from missing
    except (ArgumentError, TypeError, ValueError):
        # The error's own text may hold a part of the URL, so it is not chained.
        raise ValidationFailed(
            "An option in this database URL is wrong.", path="database"
        ) from None
