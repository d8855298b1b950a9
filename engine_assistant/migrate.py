"""Bringing the tables of a database to what this code expects, from inside a program.

The migrations themselves are Alembic revisions in `migrations/`, with a version table of their
own, so that they never mix with a host's. Here they run on a connection that the caller owns.

Alembic's `op` belongs to the whole process: two threads, or two tasks, that migrate at the same
time would write to each other's connection, and a host's own revision that calls `upgrade` would
lose its `op`. So our revisions are given theirs, and the global one is left alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from engine_assistant.engines import BEGIN_OPTION, DEFERRED, PREPARED
from engine_assistant.model.errors import Internal, ValidationFailed
from engine_assistant.store.tables import METADATA

__all__ = [
    "VERSION_TABLE",
    "check",
    "current",
    "grants_sql",
    "head",
    "include_name",
    "migrations_path",
    "upgrade",
    "upgrade_sql",
]

VERSION_TABLE: Final = "assistant_alembic_version"
"""The table that says at which revision the record stands."""

_HOSTS_TABLE: Final = "alembic_version"
_PREFIX: Final = "engine_assistant_"
_OURS: Final = frozenset({VERSION_TABLE, *METADATA.tables})
# The same key as in migrations/env.py: one deploy at a time, however it is started. The number is
# the first eight bytes of the SHA-256 of "engine_assistant/migrate".
_ADVISORY_LOCK: Final = "SELECT pg_advisory_xact_lock(-6176704249053337301)"
_HOW: Final = (
    "Run `engine-assistant db upgrade`, `alembic upgrade head` or assistant.migrate()"
    " before this code."
)


def upgrade(connection: sa.Connection, schema: str | None = None) -> None:
    """Bring the tables to `head()`: all of it, or, after an error, nothing.

    Inside a transaction of the caller it joins that one and commits nothing. Otherwise it begins
    and commits its own. Deploys that come at the same time take turns; the second finds the work
    done. Through an async engine: `await connection.run_sync(upgrade)`.

    Args:
        connection: to Postgres 14 or later, or to SQLite 3.39 or later, prepared or not.
        schema: where the tables are to live; it must exist. By default what the connection's
            `schema_translate_map` says for None, otherwise the connection's own default.

    Raises:
        ValidationFailed: another kind of database, a schema that does not exist, a Postgres
            connection in autocommit, or a savepoint on a SQLite engine that was not prepared.
        Internal: the database was migrated by newer code, or a host's own Alembic environment
            keeps our revisions and has to be run instead.
        sqlalchemy.exc.DBAPIError: what the database itself refuses, as it is.
    """
    _refuse_unsafe(connection)
    with _transaction(connection), _in_schema(connection, schema) as place:
        _lock(connection)
        table, found = _found(connection, place)
        if found == head():
            return
        if found is not None and found not in _known():
            raise _ahead(found)
        if table == _HOSTS_TABLE:
            raise Internal(
                "The host's own Alembic environment keeps the record's revisions: run its upgrade.",
                current=found,
                head=head(),
            )
        context = MigrationContext.configure(
            connection,
            opts={
                "fn": lambda at, _: _scripts()._upgrade_revs(head(), at),  # noqa: SLF001
                "script": _scripts(),
                "version_table": VERSION_TABLE,
                "version_table_schema": place,
            },
        )
        context.run_migrations(op=Operations(context))


def current(connection: sa.Connection, schema: str | None = None) -> str | None:
    """Return the revision at which the database stands, or None if it was never migrated.

    It is read from our own version table or, where a host's environment includes our revisions,
    from that host's `alembic_version`.

    Raises:
        Internal: the version table names several revisions.
    """
    with _transaction(connection, DEFERRED), _in_schema(connection, schema) as place:
        return _found(connection, place)[1]


def head() -> str:
    """Return the revision that this code expects."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise Internal("The package came without its migrations; install it again.")
    return revision


def check(connection: sa.Connection, schema: str | None = None) -> None:
    """Return if the database stands at `head()`.

    Raises:
        Internal: the schema is missing, behind or ahead; the message says what to do, and
            `facts` hold `current` and `head`.
    """
    found = current(connection, schema)
    if found == head():
        return
    if found is None:
        raise Internal(f"The record's tables are not there. {_HOW}", current=None, head=head())
    if found in _known():
        raise Internal(f"The record's tables are behind. {_HOW}", current=found, head=head())
    raise _ahead(found)


def upgrade_sql() -> str:
    """Return the SQL of an upgrade from nothing on Postgres, to be read or run by hand."""
    written = StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql",
        opts={
            "fn": lambda at, _: _scripts()._upgrade_revs(head(), at),  # noqa: SLF001
            "script": _scripts(),
            "version_table": VERSION_TABLE,
            "as_sql": True,
            "output_buffer": written,
        },
    )
    with context.begin_transaction():
        context.run_migrations(op=Operations(context))
    return written.getvalue()


def grants_sql() -> str:
    """Return the grants of the two Postgres roles, application and keeper, for psql."""
    return (migrations_path() / "grants.sql").read_text(encoding="utf-8")


def migrations_path() -> Path:
    """Return the folder with `env.py` and `versions/`: inside the wheel, or in the repository.

    Raises:
        Internal: the package was installed without it.
    """
    package = Path(__file__).parent
    for path in (package / "_migrations", package.parent / "migrations"):
        if (path / "versions").is_dir():
            return path
    raise Internal("The package came without its migrations; install it again.")


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:  # noqa: ARG001
    """Answer False for our tables, so that a host's autogenerate does not offer to drop them.

    For the host's env.py: `context.configure(…, include_name=include_name)`, or called from the
    host's own function of that kind.
    """
    return type_ != "table" or name not in _OURS


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(migrations_path())


@cache
def _known() -> frozenset[str]:
    return frozenset(script.revision for script in _scripts().walk_revisions())


def _ahead(found: str) -> Internal:
    return Internal(
        "The database was migrated by newer code. Deploy that code; do not migrate backwards.",
        current=found,
        head=head(),
    )


def _found(connection: sa.Connection, schema: str | None) -> tuple[str, str | None]:
    """Return which version table speaks for us, and what it says."""
    places = dict.fromkeys([(VERSION_TABLE, schema), (_HOSTS_TABLE, schema), (_HOSTS_TABLE, None)])
    for table, place in places:
        opts = {"version_table": table, "version_table_schema": place}
        heads = MigrationContext.configure(connection, opts=opts).get_current_heads()
        ours = [revision for revision in heads if revision.startswith(_PREFIX)]
        if len(ours) > 1:
            raise Internal(f"{table} names several revisions of the record; one is right.")
        if ours:
            return table, ours[0]
    return VERSION_TABLE, None


def _refuse_unsafe(connection: sa.Connection) -> None:
    kind = connection.dialect.name
    if kind == "sqlite":
        # There a savepoint outside a transaction commits when it is released.
        if connection.in_nested_transaction() and not connection.info.get(PREPARED):
            raise ValidationFailed(
                "Migrate outside of the savepoint, or use prepare_sqlite(engine).",
                path="connection",
            )
    elif kind != "postgresql":
        raise ValidationFailed("The record lives in Postgres or in SQLite.", path="connection")
    elif getattr(connection.connection.driver_connection, "autocommit", False):
        raise ValidationFailed(
            "This connection is in autocommit, where half a migration could stay behind;"
            " use one that is not.",
            path="connection",
        )


def _lock(connection: sa.Connection) -> None:
    """Let one deploy go first; the others wait here and then find its work done."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_ADVISORY_LOCK)
    elif not getattr(connection.connection.driver_connection, "in_transaction", False):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def _transaction(connection: sa.Connection, begin: str | None = None) -> Iterator[None]:
    """Join the caller's transaction or hold one for the length of the block."""
    if connection.in_transaction():
        yield
        return
    before = connection.get_execution_options().get(BEGIN_OPTION)
    connection.execution_options(**{BEGIN_OPTION: begin})
    try:
        with connection.begin():
            yield
    finally:
        connection.execution_options(**{BEGIN_OPTION: before})


@contextmanager
def _in_schema(connection: sa.Connection, schema: str | None) -> Iterator[str | None]:
    """Let tables without a schema stand in `schema` for the length of the block."""
    before = connection.get_execution_options().get("schema_translate_map")
    place = schema or (before or {}).get(None)
    if place is None:
        yield None
        return
    if not connection.dialect.has_schema(connection, place):
        raise ValidationFailed("The schema does not exist; create it first.", path="schema")
    connection.execution_options(schema_translate_map={None: place})
    try:
        yield place
    finally:
        connection.execution_options(schema_translate_map=before)
