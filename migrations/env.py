"""What `alembic` runs: it finds the database and brings its tables up or down, in one transaction.

The database comes from `-x url=…`, or from ENGINE_ASSISTANT_DATABASE_URL, and is
sqlite:///assistant.db otherwise. `-x schema=…` names a schema to work in. A program may pass its
own connection as `config.attributes["connection"]`; then nothing is committed here.

It imports nothing of engine_assistant: an old checkout of this folder must go on working. Inside
a program, `engine_assistant.migrate.upgrade(connection)` does the same without this file.
"""

import os
from collections.abc import Mapping

import sqlalchemy as sa
from alembic import context
from alembic.runtime.migration import MigrationInfo
from alembic.util import CommandError

VERSION_TABLE = "assistant_alembic_version"
# The same key as in engine_assistant.migrate: one deploy at a time, however it is started.
ADVISORY_LOCK = "SELECT pg_advisory_xact_lock(-6176704249053337301)"
DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}


def database(arguments: Mapping[str, str]) -> sa.URL:
    """Return the URL to work on, with a driver that speaks without an event loop."""
    given = arguments.get("url") or os.environ.get("ENGINE_ASSISTANT_DATABASE_URL")
    try:
        url = sa.make_url(given or "sqlite:///assistant.db")
        driver = DRIVERS[url.drivername.partition("+")[0]]
    except (sa.exc.ArgumentError, ValueError, KeyError):
        # The URL may hold a password, so it is not repeated.
        raise CommandError("The database must be postgresql://… or sqlite:///….") from None
    return url.set(drivername=driver).difference_update_query(["pooler"])


def migrate(connection: sa.Connection, schema: str | None) -> None:
    """Run the asked revisions in the transaction that the connection is in."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(ADVISORY_LOCK)
    elif not connection.connection.driver_connection.in_transaction:
        # The driver would begin at the first INSERT, after the tables.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    if schema is not None:
        connection.execution_options(schema_translate_map={None: schema})
    context.configure(
        connection=connection,
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        on_version_apply=say,
    )
    context.run_migrations()


def say(*, step: MigrationInfo, **_: object) -> None:
    """Tell a person at a terminal what was done."""
    if context.config.cmd_opts is not None:
        way = "stamped" if step.is_stamp else "up to" if step.is_upgrade else "down from"
        context.config.print_stdout("%s %s", way, step.up_revision_id)


def run_online() -> None:
    """Migrate over the connection that was passed, or over one of our own."""
    arguments = context.get_x_argument(as_dictionary=True)
    schema = arguments.get("schema") or context.config.attributes.get("schema")
    given = context.config.attributes.get("connection")
    if given is not None:
        migrate(given, schema)
        return
    engine = sa.create_engine(database(arguments), hide_parameters=True, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        migrate(connection, schema)


def run_offline() -> None:
    """Write the SQL instead of running it (`--sql`), for whoever must read it first."""
    arguments = context.get_x_argument(as_dictionary=True)
    if arguments.get("schema"):
        raise CommandError("With --sql, set search_path in front of the script; drop -x schema.")
    context.configure(
        url=database(arguments),
        version_table=VERSION_TABLE,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        if context.get_context().dialect.name == "postgresql":
            context.execute(ADVISORY_LOCK)
        context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
