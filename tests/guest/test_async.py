"""The asynchronous front door, on psycopg and on aiosqlite."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from engine_assistant import (
    Assistant,
    AsyncAssistant,
    AsyncBound,
    AsyncOperations,
    Conflict,
    NotFound,
    Raced,
    ValidationFailed,
    make_async_engine,
    make_engine,
)
from tests.rig.guest import (
    ALICE,
    BOB,
    HELLO,
    ROBOT,
    WALKED,
    assert_nothing_is_held,
    async_walk,
    kept,
    types,
)


@asynccontextmanager
async def opening(url: str, **settings: float) -> AsyncIterator[AsyncAssistant]:
    engine = make_async_engine(url)
    try:
        yield AsyncAssistant(engine, **settings)
    finally:
        await engine.dispose()


async def async_types(me: AsyncOperations, thread: str) -> list[str]:
    events = (await me.read_events(thread_id=thread, limit=1000)).events
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.type for event in events]


async def async_opened(assistant: AsyncAssistant) -> tuple[str, int]:
    me = assistant.acting_as(ALICE)
    thread = (await me.create_thread()).id
    await me.send_message(thread_id=thread, text="hi")
    lease = await assistant.acting_as(ROBOT).acquire_run(thread_id=thread, run_id="r1")
    return thread, lease.fence


@pytest.mark.guarantee("G-GUEST-60")
def test_every_door_works_awaited(database_url: str) -> None:
    async def main() -> str:
        async with opening(database_url) as assistant:
            me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
            thread = await async_walk(me, bot)
            assert await async_types(me, thread) == WALKED
            await async_opened(assistant)
            assert await assistant.list_runnable() == []
            async with assistant.session(ALICE) as ops:
                own = (await ops.create_thread()).id
                locked = await ops.lock_threads([thread, own])
                assert [item.id for item in locked] == sorted([thread, own])
            async with assistant.engine.connect() as connection:
                joined = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
                gone = await async_walk(*joined)
                await connection.rollback()
                with pytest.raises(NotFound):
                    await me.get_thread(thread_id=gone)
            return thread

    thread = asyncio.run(main())
    # What the one face wrote the other reads.
    sync = Assistant.from_url(database_url)
    assert types(sync.acting_as(ALICE), thread) == WALKED
    sync.engine.dispose()
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-60")
def test_migrating_awaited_makes_the_same_tables(empty_database_url: str) -> None:
    async def main() -> None:
        async with opening(empty_database_url) as assistant:
            await assistant.migrate()
            await assistant.migrate()
            me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
            assert await async_types(me, await async_walk(me, bot)) == WALKED

    asyncio.run(main())


@pytest.mark.guarantee("G-GUEST-60")
def test_transact_awaited_runs_all_of_it_again(database_url: str) -> None:
    async def main() -> None:
        async with opening(database_url, retry_for=0.5) as assistant:
            thread, fence = await async_opened(assistant)
            tries: list[int] = []

            async def work(ops: AsyncBound) -> str:
                tries.append((await ops.get_thread(thread_id=thread)).last_seq)
                await ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
                if len(tries) < 3:
                    raise Raced("as if another transaction had been in the way")
                return "done"

            async def hopeless(ops: AsyncBound) -> None:
                await ops.get_thread(thread_id=thread)
                raise Raced("always")

            assert await assistant.transact(ROBOT, work) == "done"
            assert tries == [2, 2, 2]
            async with asyncio.timeout(10):
                with pytest.raises(Raced, match="always"):
                    await assistant.transact(ROBOT, hopeless)
            assert (await assistant.acting_as(ALICE).get_thread(thread_id=thread)).last_seq == 3

    asyncio.run(main())


@pytest.mark.guarantee("G-GUEST-60")
def test_a_swallowed_error_takes_an_awaited_session_back(database_url: str) -> None:
    async def main() -> None:
        async with opening(database_url) as assistant:
            thread, fence = await async_opened(assistant)
            before = kept(database_url)
            with pytest.raises(ValueError, match="boom"):  # noqa: PT012
                async with assistant.session(ROBOT) as ops:
                    await ops.append_events(
                        thread_id=thread, run_id="r1", fence=fence, events=[HELLO]
                    )
                    with pytest.raises(Conflict):
                        await ops.acquire_run(thread_id=thread, run_id="r2")
                    raise ValueError("boom")
            assert kept(database_url) == before

    asyncio.run(main())
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-61")
def test_many_tasks_of_one_run_keep_its_numbers(database_url: str) -> None:
    tasks, rounds = 30, 5

    async def main() -> str:
        async with opening(database_url, retry_for=60) as assistant:
            thread, fence = await async_opened(assistant)
            bot = assistant.acting_as(ROBOT)

            async def writer(number: int) -> None:
                for _ in range(rounds):
                    said = [{"type": "text-delta", "text": f"{number}"}] * 2
                    done = await bot.append_events(
                        thread_id=thread, run_id="r1", fence=fence, events=said
                    )
                    first, second = (event.seq for event in done.events)
                    assert second == first + 1

            async with asyncio.TaskGroup() as group:
                for number in range(tasks):
                    group.create_task(writer(number))
            return thread

    thread = asyncio.run(main())
    sync = Assistant.from_url(database_url)
    assert len(types(sync.acting_as(ALICE), thread)) == 2 + tasks * rounds * 2
    sync.engine.dispose()


@pytest.mark.guarantee("G-GUEST-61")
def test_two_loops_one_after_the_other_have_engines_of_their_own(database_url: str) -> None:
    async def main() -> str:
        async with opening(database_url) as assistant:
            return await async_walk(assistant.acting_as(ALICE), assistant.acting_as(ROBOT))

    first, second = asyncio.run(main()), asyncio.run(main())
    assert first != second
    assert len(kept(database_url)["assistant_threads"]) == 2


@pytest.mark.guarantee("G-GUEST-61")
def test_a_hosts_plain_async_engine_serves_too(database_url: str, async_database_url: str) -> None:
    async def main() -> None:
        engine = create_async_engine(async_database_url)
        assistant = AsyncAssistant(engine, retry_for=60)
        me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
        assert await async_types(me, await async_walk(me, bot)) == WALKED
        before = kept(database_url)
        async with engine.connect() as connection:
            await async_walk(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT))
            await connection.rollback()
        assert kept(database_url) == before
        if engine.dialect.name == "sqlite":
            async with engine.connect() as connection, connection.begin_nested():
                with pytest.raises(ValidationFailed, match="prepare_sqlite"):
                    await assistant.bind(connection, ALICE).create_thread()
        await engine.dispose()
        loose = create_async_engine(async_database_url, isolation_level="AUTOCOMMIT")
        with pytest.raises(ValidationFailed, match="autocommit"):
            await AsyncAssistant(loose).acting_as(ALICE).create_thread()
        await loose.dispose()

    asyncio.run(main())


# ---------------------------------------------------------------- the other face


@pytest.mark.guarantee("G-GUEST-62")
def test_an_engine_of_the_other_face_is_refused_at_once(database_url: str) -> None:
    sync, other = make_engine(database_url), make_async_engine(database_url)
    with pytest.raises(ValidationFailed, match="AsyncEngine") as refused:
        AsyncAssistant(sync)  # type: ignore[arg-type]
    assert refused.value.facts["path"] == "engine"
    for wrong in (other, database_url, None):
        with pytest.raises(ValidationFailed, match="Engine") as refused:
            Assistant(wrong)  # type: ignore[arg-type]
        assert refused.value.facts["path"] == "engine"
        assert database_url not in str(refused.value)


@pytest.mark.guarantee("G-GUEST-62")
def test_a_connection_of_the_other_face_is_refused_at_once(database_url: str) -> None:
    async def main(engine: AsyncEngine, plain: sa.Engine) -> None:
        with plain.connect() as connection, pytest.raises(ValidationFailed) as refused:
            AsyncAssistant(engine).bind(connection, BOB)  # type: ignore[arg-type]
        assert refused.value.facts["path"] == "connection"
        async with engine.connect() as connection:
            with pytest.raises(ValidationFailed) as refused:
                Assistant(plain).bind(connection, BOB)  # type: ignore[arg-type]
        assert refused.value.facts["path"] == "connection"
        await engine.dispose()

    sync = make_engine(database_url)
    asyncio.run(main(make_async_engine(database_url), sync))
    sync.dispose()
