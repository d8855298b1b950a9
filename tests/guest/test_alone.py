"""One statement without a transaction: whatever becomes of it, the connection is as it was."""

import asyncio
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from engine_assistant import (
    Assistant,
    AsyncAssistant,
    Conflict,
    Unavailable,
    make_async_engine,
    make_engine,
)
from tests.rig.guest import ALICE, HELLO, ROBOT, assert_nothing_is_held, opened, types
from tests.rig.races import wait_until_blocked

pytestmark = pytest.mark.guarantee("G-GUEST-59")


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    """An engine of one connection: what comes next is given the same one."""
    made = sa.create_engine(postgres_url, pool_size=1, max_overflow=0)
    yield made
    made.dispose()
    assert_nothing_is_held(postgres_url)


def driver_of(engine: sa.Engine) -> object:
    """Answer the one connection, which must be without a transaction and begin one when used."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        assert not driver.autocommit
        assert driver.info.transaction_status.name == "IDLE"
        connection.exec_driver_sql("CREATE TABLE of_the_host (id TEXT)")
        connection.rollback()
        assert not sa.inspect(connection).has_table("of_the_host")
    return driver


def append(assistant: Assistant, thread: str, fence: int) -> None:
    bot = assistant.acting_as(ROBOT)
    bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])


def test_written_read_or_refused(engine: sa.Engine) -> None:
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    before = driver_of(engine)
    append(assistant, thread, fence)
    assert driver_of(engine) is before
    with pytest.raises(Conflict):
        append(assistant, thread, fence + 1)
    assert driver_of(engine) is before
    assert types(assistant.acting_as(ALICE), thread)[2:] == ["text-delta"]
    assert driver_of(engine) is before


def test_when_the_statement_fails(engine: sa.Engine, postgres_url: str) -> None:
    assistant, holder = Assistant(engine), make_engine(postgres_url)
    thread, fence = opened(assistant)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET statement_timeout = '100ms'")
        connection.commit()
    before = driver_of(engine)
    with holder.connect() as connection:
        connection.exec_driver_sql("SELECT 1 FROM assistant_threads FOR UPDATE")
        with pytest.raises(Unavailable):
            append(assistant, thread, fence)
    assert driver_of(engine) is before
    holder.dispose()


def test_when_the_server_ends_the_connection(engine: sa.Engine, postgres_url: str) -> None:
    assistant, killer = Assistant(engine), make_engine(postgres_url)
    thread, fence = opened(assistant)
    before = driver_of(engine)
    with killer.begin() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(Unavailable):
        append(assistant, thread, fence)
    append(assistant, thread, fence)
    assert driver_of(engine) is not before
    killer.dispose()


def test_when_the_connection_is_closed_already(engine: sa.Engine) -> None:
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
    assert driver is not None
    driver.close()
    with pytest.raises(Unavailable):
        append(assistant, thread, fence)
    append(assistant, thread, fence)
    assert driver_of(engine) is not driver


@pytest.mark.parametrize("hook", ["connect", "checkout"])
def test_when_a_listener_of_the_hosts_has_begun_a_transaction(engine: sa.Engine, hook: str) -> None:
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    engine.dispose()

    def begin(driver: object, *_: object) -> None:
        driver.execute("SET application_name = 'host'")  # type: ignore[attr-defined]

    sa.event.listen(engine, hook, begin)
    append(assistant, thread, fence)
    types(assistant.acting_as(ALICE), thread)
    sa.event.remove(engine, hook, begin)
    driver_of(engine)
    assert types(assistant.acting_as(ALICE), thread)[2:] == ["text-delta"]


def test_a_driver_that_cannot_go_back_is_thrown_away(engine: sa.Engine) -> None:
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    before = driver_of(engine)

    def begin(_: object, cursor: object, *__: object) -> None:
        cursor.execute("BEGIN")  # type: ignore[attr-defined]

    sa.event.listen(engine, "before_cursor_execute", begin)
    with pytest.raises(Unavailable):
        append(assistant, thread, fence)
    sa.event.remove(engine, "before_cursor_execute", begin)
    assert driver_of(engine) is not before
    append(assistant, thread, fence)
    assert types(assistant.acting_as(ALICE), thread)[2:] == ["text-delta"]


def test_when_its_task_is_cancelled(postgres_url: str) -> None:
    async def main() -> None:
        engine = make_async_engine(postgres_url)
        holder = make_engine(postgres_url)
        thread, fence = await asyncio.to_thread(opened, Assistant(holder))
        bot = AsyncAssistant(engine).acting_as(ROBOT)
        lease = {"thread_id": thread, "run_id": "r1", "fence": fence}
        await bot.append_events(**lease, events=[HELLO])
        with holder.connect() as connection:
            connection.exec_driver_sql("SELECT 1 FROM assistant_threads FOR UPDATE")
            task = asyncio.create_task(bot.append_events(**lease, events=[HELLO]))
            await asyncio.to_thread(wait_until_blocked, postgres_url)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            assert not driver.autocommit
        await bot.append_events(**lease, events=[HELLO])
        await engine.dispose()
        holder.dispose()

    asyncio.run(main())
    assert_nothing_is_held(postgres_url)
