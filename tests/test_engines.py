"""Engines: which URLs are read, and what a SQLite connection of ours keeps."""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from engine_assistant import Assistant
from engine_assistant.engines import (
    BEGIN_OPTION,
    DEFERRED,
    PREPARED,
    make_async_engine,
    make_engine,
    prepare_sqlite,
)
from engine_assistant.model.errors import Internal, ValidationFailed
from tests.rig.migrating import unprepared, using
from tests.rig.races import Worker

Make = Callable[[str], sa.Engine | AsyncEngine]
BOTH = pytest.mark.parametrize("make", [make_engine, make_async_engine], ids=["sync", "async"])
PRAGMAS = {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 5000, "synchronous": 2}


def pragmas(connection: sa.Connection) -> dict[str, object]:
    return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}


def locked() -> "pytest.RaisesExc[sa.exc.OperationalError]":
    return pytest.raises(sa.exc.OperationalError, match="locked")


@contextmanager
def with_table(url: str) -> Iterator[sa.Engine]:
    with using(url) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
        yield engine


def impatient(url: str) -> str:
    return f"{url}?timeout=0"


# ---------------------------------------------------------------- URLs


@pytest.mark.guarantee("G-GUEST-08")
@pytest.mark.parametrize(
    ("url", "sync", "asynchronous"),
    [
        ("postgres://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql+psycopg://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql+psycopg_async://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("sqlite:///a.db", "sqlite", "sqlite+aiosqlite"),
        ("sqlite+pysqlite:///a.db", "sqlite", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///a.db", "sqlite", "sqlite+aiosqlite"),
    ],
)
def test_a_url_need_not_name_its_driver(url: str, sync: str, asynchronous: str) -> None:
    for made, drivername in (
        (make_engine(url), sync),
        (make_async_engine(url).sync_engine, asynchronous),
        (make_engine(sa.make_url(url)), sync),
    ):
        assert made.url == sa.make_url(url).set(drivername=drivername)
        assert made.hide_parameters


@BOTH
@pytest.mark.guarantee("G-GUEST-08")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "hunter2",
        "u:hunter2@h/d",
        "postgresql://u:hunter2@h:port/d",
        # A password with an @ or a : that nobody escaped ends up where the port should be.
        "postgresql://u@h:hunter2/d",
        "mysql://u:hunter2@h/d",
        "postgresql+psycopg2://u:hunter2@h/d",
        "postgresql+asyncpg://u:hunter2@h/d",
        "sqlite+pysqlcipher://u:hunter2@/d",
        "postgresql+hunter2://u@h/d",
        "sqlite:///a.db?timeout=hunter2",
        "sqlite:///a.db?timeout=1&timeout=hunter2",
        "sqlite:///a.db?check_same_thread=hunter2",
        "sqlite:///a\0hunter2.db",
        "postgresql://u:hunter2@h/d?pooler=sometimes",
        "postgresql://u:hunter2@h/d?pooler=transaction&pooler=session",
        "sqlite:///hunter2?pooler=transaction",
    ],
)
def test_a_wrong_url_is_refused_and_never_repeated(make: Make, url: str) -> None:
    with pytest.raises(ValidationFailed) as error:
        make(url)
    assert error.value.facts == {"path": "database"}
    assert "hunter2" not in "".join(traceback.format_exception(error.value, chain=True)).replace(
        repr(url), ""
    )


@pytest.mark.guarantee("G-GUEST-08")
@pytest.mark.parametrize("query", ["frob=hunter2", "connect_timeout=hunter2"])
def test_an_option_that_only_the_driver_knows_is_refused_when_it_connects(query: str) -> None:
    engine = make_engine(f"postgresql://u@127.0.0.1:1/d?{query}")
    with pytest.raises(Internal) as error:
        Assistant(engine).list_runnable()
    assert "address" in error.value.message
    assert "hunter2" not in "".join(traceback.format_exception(error.value, chain=True))


@BOTH
@pytest.mark.parametrize("url", [None, 7, b"sqlite://"])
def test_what_is_no_url_at_all_is_refused(make: Make, url: object) -> None:
    with pytest.raises(ValidationFailed):
        make(url)


@pytest.mark.guarantee("G-GUEST-09")
@pytest.mark.parametrize(
    ("query", "prepares"), [("", True), ("pooler=session", True), ("pooler=transaction", False)]
)
def test_statements_are_prepared_unless_the_url_names_a_transaction_pooler(
    empty_postgres_url: str, query: str, prepares: bool
) -> None:
    url = f"{empty_postgres_url}&{query}" if query else empty_postgres_url

    def count(connection: sa.Connection) -> int:
        for _ in range(20):
            connection.execute(sa.text("SELECT CAST(:n AS int)"), {"n": 1})
        return int(connection.scalar(sa.text("SELECT count(*) FROM pg_prepared_statements")) or 0)

    async def over_async() -> int:
        engine = make_async_engine(url)
        try:
            async with engine.connect() as connection:
                return await connection.run_sync(count)
        finally:
            await engine.dispose()

    with using(url) as engine, engine.connect() as connection:
        counts = [count(connection), asyncio.run(over_async())]
    assert [n > 0 for n in counts] == [prepares, prepares]


@pytest.mark.guarantee("G-GUEST-09")
def test_the_rest_of_the_query_stays(empty_postgres_url: str) -> None:
    with (
        using(f"{empty_postgres_url}&pooler=transaction&application_name=here") as engine,
        engine.connect() as connection,
    ):
        assert connection.scalar(sa.text("SHOW application_name")) == "here"


@pytest.mark.guarantee("G-GUEST-10")
def test_errors_do_not_show_what_a_statement_carried(database_url: str) -> None:
    with using(database_url) as engine, engine.connect() as connection:
        with pytest.raises(sa.exc.DBAPIError) as error:
            connection.execute(sa.text("SELECT missing FROM t WHERE n = :n"), {"n": "hunter2"})
        assert "hunter2" not in str(error.value)


def test_a_missing_driver_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how Python spells "cannot be imported".
    monkeypatch.setitem(__import__("sys").modules, "aiosqlite", None)
    with pytest.raises(Internal, match=r"engine-assistant\[sqlite-async\]"):
        make_async_engine("sqlite:///a.db")


# ---------------------------------------------------------------- SQLite


@pytest.mark.guarantee("G-GUEST-11")
def test_every_connection_is_prepared(empty_sqlite_url: str) -> None:
    with using(empty_sqlite_url) as engine, engine.connect() as one, engine.connect() as two:
        one.rollback()
        for connection in (one, two):
            assert connection.info[PREPARED] is True
            connection.execution_options(**{BEGIN_OPTION: DEFERRED})
            assert pragmas(connection) == PRAGMAS


@pytest.mark.guarantee("G-GUEST-11")
def test_every_async_connection_is_prepared(empty_sqlite_url: str) -> None:
    async def over_async() -> None:
        engine = make_async_engine(empty_sqlite_url)
        try:
            async with engine.connect() as connection:
                info = await connection.run_sync(lambda plain: plain.info)
                assert info[PREPARED] is True
                assert await connection.run_sync(pragmas) == PRAGMAS
                with using(impatient(empty_sqlite_url)) as other, locked(), other.begin():
                    pass
        finally:
            await engine.dispose()

    asyncio.run(over_async())


def test_how_long_to_wait_for_a_lock_stays_the_hosts_word(empty_sqlite_url: str) -> None:
    with using(f"{empty_sqlite_url}?timeout=0.25") as engine, engine.connect() as connection:
        assert pragmas(connection) == PRAGMAS | {"busy_timeout": 250}


@pytest.mark.guarantee("G-GUEST-12")
def test_a_transaction_takes_the_write_lock_when_it_begins(empty_sqlite_url: str) -> None:
    with with_table(empty_sqlite_url) as engine, using(impatient(empty_sqlite_url)) as other:
        with engine.begin(), locked(), other.begin():
            pass
        with other.begin():
            pass


@pytest.mark.guarantee("G-GUEST-12")
def test_a_deferred_one_reads_beside_the_writer_and_sees_one_snapshot(
    empty_sqlite_url: str,
) -> None:
    count = sa.text("SELECT count(*) FROM t")
    with with_table(empty_sqlite_url) as engine, using(impatient(empty_sqlite_url)) as other:
        reader = other.connect().execution_options(**{BEGIN_OPTION: DEFERRED})
        with reader, engine.connect() as writer:
            with writer.begin(), reader.begin():
                writer.exec_driver_sql("INSERT INTO t VALUES (1)")
                assert reader.scalar(count) == 0
                writer.commit()
                assert reader.scalar(count) == 0
            with reader.begin():
                assert reader.scalar(count) == 1


@pytest.mark.guarantee("G-GUEST-12")
def test_read_then_write_waits_where_a_plain_engine_gives_up(empty_sqlite_url: str) -> None:
    def add(engine: sa.Engine) -> None:
        for _ in range(20):
            with engine.begin() as connection:
                found = connection.scalar(sa.text("SELECT max(n) FROM t")) or 0
                connection.execute(sa.text("INSERT INTO t VALUES (:n)"), {"n": found + 1})

    with with_table(empty_sqlite_url) as engine:
        for worker in [Worker(lambda: add(engine)) for _ in range(4)]:
            worker.join()
        with engine.connect() as connection:
            found = list(connection.scalars(sa.text("SELECT n FROM t ORDER BY n")))
    assert found == list(range(1, 81))


@pytest.mark.guarantee("G-GUEST-13")
@pytest.mark.parametrize("prepared", [True, False])
def test_a_released_savepoint_goes_with_the_outer_rollback(
    empty_sqlite_url: str, prepared: bool
) -> None:
    with with_table(empty_sqlite_url):
        pass
    with unprepared(empty_sqlite_url) as engine:
        if prepared:
            prepare_sqlite(engine)
        with engine.connect() as connection:
            outer = connection.begin()
            with connection.begin_nested():
                connection.exec_driver_sql("INSERT INTO t VALUES (1)")
            outer.rollback()
            kept = connection.scalar(sa.text("SELECT count(*) FROM t"))
    # On a plain engine the write is kept: the reason for preparing one.
    assert kept == (0 if prepared else 1)


@pytest.mark.guarantee("G-GUEST-14")
def test_preparing_twice_is_as_good_as_once(empty_sqlite_url: str) -> None:
    with with_table(empty_sqlite_url) as engine:
        prepare_sqlite(engine)
        prepare_sqlite(engine)
        begun: list[str] = []

        @sa.event.listens_for(engine, "before_cursor_execute")
        def listen(connection, cursor, statement, *rest) -> None:
            begun.append(statement)

        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    assert begun == ["BEGIN IMMEDIATE", "INSERT INTO t VALUES (1)"]


@pytest.mark.guarantee("G-GUEST-14")
def test_what_the_pool_had_opened_before_is_prepared_too(empty_sqlite_url: str) -> None:
    with unprepared(empty_sqlite_url) as engine:
        with engine.connect() as connection:
            before = connection.connection.dbapi_connection
        prepare_sqlite(engine)
        with engine.connect() as connection:
            assert connection.connection.dbapi_connection is before
            assert connection.info[PREPARED] is True
            assert pragmas(connection) == PRAGMAS


@pytest.mark.guarantee("G-GUEST-14")
def test_a_hosts_async_engine_is_prepared_too(empty_sqlite_url: str) -> None:
    async def over_async() -> None:
        engine = create_async_engine(
            empty_sqlite_url.replace("sqlite:", "sqlite+aiosqlite:", 1), poolclass=None
        )
        prepare_sqlite(engine)
        prepare_sqlite(engine)
        try:
            async with engine.begin() as connection:
                assert await connection.run_sync(pragmas) == PRAGMAS
                with using(impatient(empty_sqlite_url)) as other, locked(), other.begin():
                    pass
        finally:
            await engine.dispose()

    asyncio.run(over_async())


def test_a_connection_in_autocommit_is_left_to_itself(empty_sqlite_url: str) -> None:
    with with_table(empty_sqlite_url) as engine:
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
            connection.exec_driver_sql("VACUUM")
        # And what the pool takes back works as before.
        with engine.begin() as connection:
            assert connection.scalar(sa.text("SELECT count(*) FROM t")) == 1
            with using(impatient(empty_sqlite_url)) as other, locked(), other.begin():
                pass


def test_an_engine_that_is_all_autocommit_is_refused(empty_sqlite_url: str) -> None:
    engine = sa.create_engine(empty_sqlite_url, isolation_level="AUTOCOMMIT")
    prepare_sqlite(engine)
    with pytest.raises(ValidationFailed, match="AUTOCOMMIT"):
        engine.connect()
    engine.dispose()


def test_only_sqlite_is_prepared(empty_postgres_url: str) -> None:
    with unprepared(empty_postgres_url) as engine, pytest.raises(ValidationFailed):
        prepare_sqlite(engine)


def test_committed_writes_survive_the_engine(empty_sqlite_url: str) -> None:
    with with_table(empty_sqlite_url) as engine, engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    with unprepared(empty_sqlite_url) as engine, engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM t")) == 1


# ---------------------------------------------------------------- SQLite in memory


@pytest.mark.guarantee("G-GUEST-15")
@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"]
)
def test_in_memory_all_threads_share_one_database_and_take_turns(url: str) -> None:
    def add(engine: sa.Engine) -> None:
        for _ in range(20):
            with engine.begin() as connection:
                found = connection.scalar(sa.text("SELECT max(n) FROM t")) or 0
                connection.execute(sa.text("INSERT INTO t VALUES (:n)"), {"n": found + 1})

    with with_table(url) as engine:
        for worker in [Worker(lambda: add(engine)) for _ in range(4)]:
            worker.join()
        with engine.connect() as connection:
            found = list(connection.scalars(sa.text("SELECT n FROM t ORDER BY n")))
    assert found == list(range(1, 81))
    assert not Path("file:x").exists()


@pytest.mark.guarantee("G-GUEST-15")
def test_in_memory_tasks_take_turns_too() -> None:
    async def add(engine: AsyncEngine) -> None:
        for _ in range(10):
            async with engine.begin() as connection:
                found = await connection.scalar(sa.text("SELECT max(n) FROM t")) or 0
                await connection.execute(sa.text("INSERT INTO t VALUES (:n)"), {"n": found + 1})

    async def over_async() -> list[int]:
        engine = make_async_engine("sqlite://")
        try:
            async with engine.begin() as connection:
                await connection.exec_driver_sql("CREATE TABLE t (n INTEGER)")
            await asyncio.gather(*(add(engine) for _ in range(4)))
            async with engine.connect() as connection:
                return list(await connection.scalars(sa.text("SELECT n FROM t ORDER BY n")))
        finally:
            await engine.dispose()

    assert asyncio.run(over_async()) == list(range(1, 41))
