"""Migrating as a guest: the host's transaction, schema, loop, threads and Alembic environment."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant import migrate
from engine_assistant.engines import make_async_engine
from engine_assistant.model.errors import Internal, ValidationFailed
from engine_assistant.store import tables
from tests.rig.migrating import alembic, done, record, seen, unprepared, upgrade, using
from tests.rig.races import Barrier, Worker, backend_pid, wait_until_blocked
from tests.rig.schemas import Schema

# ---------------------------------------------------------------- transactions


ENGINES = pytest.mark.parametrize("made", [using, unprepared], ids=["ours", "hosts"])


@ENGINES
@pytest.mark.guarantee("G-SCHEMA-07", "G-GUEST-01")
def test_in_the_callers_transaction_nothing_is_kept_until_it_commits(
    empty_database_url: str, made: Callable[[str], Iterator[sa.Engine]]
) -> None:
    with made(empty_database_url) as engine:
        with engine.connect() as connection:
            outer = connection.begin()
            connection.exec_driver_sql("CREATE TABLE hosts_own (n INTEGER)")
            migrate.upgrade(connection)
            migrate.check(connection)
            outer.rollback()
        left = seen(engine)
        if made is unprepared and engine.dialect.name == "sqlite":
            # The driver had not begun when the host's own statement ran; for ours it had.
            left.pop("hosts_own")
        assert left == {}
        with engine.begin() as connection:
            migrate.upgrade(connection)
        with engine.connect() as connection:
            migrate.check(connection)


@ENGINES
@pytest.mark.guarantee("G-SCHEMA-07")
def test_a_failure_half_way_leaves_nothing(
    empty_database_url: str, made: Callable[[str], Iterator[sa.Engine]]
) -> None:
    with made(empty_database_url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE assistant_outbox (in_the_way INTEGER)")
        before = seen(engine)
        with pytest.raises(sa.exc.DBAPIError, match="exists"):
            upgrade(engine)
        assert seen(engine) == before


@ENGINES
def test_upgrading_twice_changes_nothing(
    empty_database_url: str, made: Callable[[str], Iterator[sa.Engine]]
) -> None:
    with made(empty_database_url) as engine:
        upgrade(engine)
        before = seen(engine)
        upgrade(engine)
        assert seen(engine) == before


def test_a_savepoint_on_an_unprepared_sqlite_engine_is_refused(empty_sqlite_url: str) -> None:
    with unprepared(empty_sqlite_url) as engine:
        with (
            engine.connect() as connection,
            connection.begin(),
            connection.begin_nested(),
            pytest.raises(ValidationFailed, match="savepoint"),
        ):
            migrate.upgrade(connection)
        assert seen(engine) == {}


def test_a_savepoint_is_the_callers_own_where_it_holds(empty_database_url: str) -> None:
    with using(empty_database_url) as engine:
        with engine.connect() as connection, connection.begin():
            inner = connection.begin_nested()
            migrate.upgrade(connection)
            inner.rollback()
        assert seen(engine) == {}


@pytest.mark.guarantee("G-GUEST-02")
def test_a_postgres_connection_in_autocommit_is_refused(empty_postgres_url: str) -> None:
    async def over_async() -> None:
        engine = make_async_engine(empty_postgres_url)
        try:
            async with engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.run_sync(migrate.upgrade)
        finally:
            await engine.dispose()

    with using(empty_postgres_url) as engine:
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(ValidationFailed, match="autocommit"):
                migrate.upgrade(connection)
        with pytest.raises(ValidationFailed, match="autocommit"):
            asyncio.run(over_async())
        assert seen(engine) == {}


# ---------------------------------------------------------------- two at once


@pytest.mark.guarantee("G-SCHEMA-08")
def test_two_deploys_take_turns_on_postgres(empty_postgres_url: str) -> None:
    pids: list[int] = []
    with using(empty_postgres_url) as engine:

        def second() -> None:
            with engine.begin() as connection:
                pids.append(backend_pid(connection))
                migrate.upgrade(connection)

        with engine.begin() as connection:
            migrate.upgrade(connection)
            worker = Worker(second)
            waiting = wait_until_blocked(empty_postgres_url)
        worker.join()
        assert waiting == set(pids)
        with engine.connect() as connection:
            migrate.check(connection)


@pytest.mark.guarantee("G-SCHEMA-08")
def test_the_command_waits_for_the_function_and_the_other_way(empty_postgres_url: str) -> None:
    with using(empty_postgres_url) as engine:
        with engine.begin() as connection:
            migrate.upgrade(connection)
            worker = Worker(lambda: alembic("upgrade", "head", url=empty_postgres_url))
            wait_until_blocked(empty_postgres_url)
        assert done(worker.join()) == ""


@pytest.mark.guarantee("G-SCHEMA-08")
def test_two_deploys_take_turns_on_sqlite(empty_sqlite_url: str) -> None:
    with using(empty_sqlite_url) as first, using(f"{empty_sqlite_url}?timeout=0") as second:
        with first.begin() as connection:
            migrate.upgrade(connection)
            with pytest.raises(sa.exc.OperationalError, match="locked"):
                upgrade(second)
        upgrade(second)
        with second.connect() as connection:
            migrate.check(connection)


@ENGINES
@pytest.mark.guarantee("G-SCHEMA-08")
def test_many_deploys_at_once_all_end_well(
    empty_database_url: str, made: Callable[[str], Iterator[sa.Engine]]
) -> None:
    parties = 6
    barrier = Barrier(parties)

    def deploy() -> None:
        with made(empty_database_url) as engine:
            barrier.wait()
            upgrade(engine)
            with engine.connect() as connection:
                migrate.check(connection)

    for worker in [Worker(deploy) for _ in range(parties)]:
        worker.join()


@pytest.mark.guarantee("G-GUEST-03")
def test_two_databases_migrate_at_once_in_one_process(
    empty_postgres_url: str, empty_sqlite_url: str
) -> None:
    """Alembic's `op` is one for the process; each database must get its own tables all the same."""
    barrier = Barrier(2)

    def deploy(url: str) -> Schema:
        with using(url) as engine:
            barrier.wait()
            upgrade(engine)
            return seen(engine)

    urls = (empty_postgres_url, empty_sqlite_url)
    for worker in [Worker(lambda url=url: deploy(url)) for url in urls]:
        assert set(tables.METADATA.tables) < set(worker.join())


@pytest.mark.guarantee("G-GUEST-03")
def test_async_engines_migrate_too_also_at_once(
    empty_postgres_url: str, empty_sqlite_url: str
) -> None:
    async def deploy(url: str) -> None:
        engine = make_async_engine(url)
        try:
            async with engine.begin() as connection:
                await connection.run_sync(migrate.upgrade)
            async with engine.connect() as connection:
                await connection.run_sync(migrate.upgrade)
                await connection.run_sync(migrate.check)
        finally:
            await engine.dispose()

    async def both() -> None:
        await asyncio.gather(deploy(empty_postgres_url), deploy(empty_sqlite_url))

    asyncio.run(both())
    for url in (empty_postgres_url, empty_sqlite_url):
        with using(url) as engine, engine.connect() as connection:
            migrate.check(connection)


# ---------------------------------------------------------------- a schema of the host


@pytest.fixture
def with_schema(empty_database_url: str, tmp_path: Path) -> Iterator[sa.Engine]:
    """An engine whose connections know a schema `hosts`: on SQLite an attached file."""
    with using(empty_database_url) as engine:
        if engine.dialect.name == "sqlite":
            path = tmp_path / "hosts.db"

            @sa.event.listens_for(engine, "connect")
            def attach(dbapi, record) -> None:
                dbapi.execute(f"ATTACH '{path}' AS hosts")

        else:
            with engine.begin() as connection:
                connection.exec_driver_sql("CREATE SCHEMA hosts")
        yield engine


@pytest.mark.guarantee("G-GUEST-04")
def test_the_tables_live_in_the_schema_of_the_host(with_schema: sa.Engine) -> None:
    with with_schema.connect() as connection:
        with pytest.raises(Internal, match="not there"):
            migrate.check(connection, "hosts")
        migrate.upgrade(connection, "hosts")
        migrate.upgrade(connection, "hosts")
        migrate.check(connection, "hosts")
        # The connection is the host's: what it was told it is told no more.
        assert connection.get_execution_options().get("schema_translate_map") is None
        assert migrate.current(connection) is None
    assert seen(with_schema) == {}
    there = seen(with_schema, "hosts")
    upgrade(with_schema)
    assert seen(with_schema) == there


@pytest.mark.guarantee("G-GUEST-04")
def test_a_translating_engine_needs_no_schema_named(with_schema: sa.Engine) -> None:
    mapped = with_schema.execution_options(schema_translate_map={None: "hosts", "x": "y"})
    with mapped.connect() as connection:
        migrate.upgrade(connection)
        migrate.check(connection)
        kept = connection.get_execution_options()["schema_translate_map"]
        assert (kept[None], kept["x"]) == ("hosts", "y")
        assert list(connection.scalars(sa.select(tables.threads.c.id))) == []
    upgrade(mapped)
    assert seen(with_schema) == {}
    assert set(tables.METADATA.tables) < set(seen(with_schema, "hosts"))


def test_the_command_works_in_a_schema_too(empty_postgres_url: str) -> None:
    with using(empty_postgres_url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA hosts")
        done(alembic("-x", "schema=hosts", "upgrade", "head", url=empty_postgres_url))
        with engine.connect() as connection:
            migrate.check(connection, "hosts")
        done(alembic("-x", "schema=hosts", "downgrade", "base", url=empty_postgres_url))
        assert record(engine, "hosts") == record(engine) == {}


def test_a_schema_that_does_not_exist_is_named_as_the_fault(empty_database_url: str) -> None:
    with using(empty_database_url) as engine, engine.connect() as connection:
        for asked in (migrate.upgrade, migrate.check, migrate.current):
            with pytest.raises(ValidationFailed, match="create it first") as error:
                asked(connection, "nowhere")
            assert error.value.facts == {"path": "schema"}
