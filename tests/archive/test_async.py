"""Through the asynchronous door: the same bytes out and in, and no transaction is left open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa

from engine_assistant import (
    AsyncAssistant,
    Conflict,
    Imported,
    NotFound,
    PermissionDenied,
    Refused,
    ValidationFailed,
)
from tests.rig.archives import archive_of, is_settled, keeper
from tests.rig.record import OWNER, Record


def _run(url: str, work: Callable[[AsyncAssistant], Awaitable[None]]) -> None:
    async def main() -> None:
        assistant = AsyncAssistant.from_url(url)
        try:
            await work(assistant)
            # Nothing is checked out, so nothing is open.
            assert assistant.engine.pool.checkedout() == 0
        finally:
            await assistant.engine.dispose()

    asyncio.run(main())


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 1_000):
        await asyncio.sleep(0)
        yield data[at : at + 1_000]


@pytest.mark.guarantee("G-ARCH-17")
def test_the_same_bytes_go_out_and_in(sqlite_record: Record, async_database_url: str) -> None:
    archives = {
        name: archive_of(sqlite_record.assistant, thread_id)
        for name, thread_id in sqlite_record.threads.items()
    }

    async def work(assistant: AsyncAssistant) -> None:
        for name, archive in archives.items():
            given = _pieces(archive)
            thread_id = sqlite_record.threads[name]
            if not is_settled(archive):
                with pytest.raises(Conflict):
                    await assistant.import_thread(keeper(), given)
                continue
            imported = await assistant.import_thread(keeper(), given)
            assert imported.created
            assert not (await assistant.import_thread(keeper(), [archive])).created
            lines = assistant.export_thread(keeper(), thread_id=thread_id)
            assert b"".join([line async for line in lines]) == archive

    _run(async_database_url, work)


@pytest.mark.guarantee("G-ARCH-17")
def test_a_person_s_threads_go_out_and_in(sqlite_record: Record, async_database_url: str) -> None:
    file = b"".join(sqlite_record.assistant.export_subject(keeper(), subject=OWNER))

    async def work(assistant: AsyncAssistant) -> None:
        taken = assistant.import_threads(keeper(), _pieces(file))
        outcomes = [one async for one in taken]
        assert {type(one) for one in outcomes} == {Imported, Refused}
        refused = {one.thread_id for one in outcomes if isinstance(one, Refused)}
        assert len(refused) > 3
        taken = assistant.import_threads(keeper(), _pieces(file), cancel_open=True)
        again = [one async for one in taken]
        assert [one.thread_id for one in again] == [one.thread_id for one in outcomes]
        assert {one.thread_id for one in again if one.created} == refused
        lines = [line async for line in assistant.export_subject(keeper(), subject=OWNER)]
        assert len(lines) > 100

    _run(async_database_url, work)


@pytest.mark.guarantee("G-ARCH-17", "G-ARCH-14")
def test_who_may_not_is_told_the_same(sqlite_record: Record, async_database_url: str) -> None:
    from tests.rig.stage import ALICE

    async def work(assistant: AsyncAssistant) -> None:
        with pytest.raises(NotFound):
            await anext(assistant.export_thread(ALICE, thread_id="nope"))
        with pytest.raises(PermissionDenied):
            await anext(assistant.export_subject(ALICE, subject="usr_bob"))
        with pytest.raises(PermissionDenied):
            await assistant.import_thread(ALICE, [])
        with pytest.raises(PermissionDenied):
            await anext(assistant.import_threads(ALICE, []))
        with pytest.raises(ValidationFailed):
            await assistant.import_thread(keeper(), [])

    _run(async_database_url, work)


@pytest.mark.guarantee("G-ARCH-17")
def test_whoever_gives_up_early_leaves_nothing_open(
    sqlite_record: Record, async_database_url: str
) -> None:
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])

    async def work(assistant: AsyncAssistant) -> None:
        thread_id = (await assistant.import_thread(keeper(), [archive])).thread_id
        for count in (1, 3):
            lines = assistant.export_thread(keeper(), thread_id=thread_id)
            for _ in range(count):
                await anext(lines)
                # Not even while it is read.
                assert assistant.engine.pool.checkedout() == 0
            await lines.aclose()

    _run(async_database_url, work)


@pytest.mark.guarantee("G-ARCH-17")
@pytest.mark.parametrize("at", range(1, 11, 3))
def test_a_cancelled_task_leaves_nothing_open(
    sqlite_record: Record, async_database_url: str, at: int
) -> None:
    """Cancelled at one of its statements, an export and an import give their connection back."""
    archive = archive_of(sqlite_record.assistant, sqlite_record.threads["everyday"])

    async def work(assistant: AsyncAssistant) -> None:
        left = 0

        def cancel(*_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

        async def cancelled(job: Awaitable[object]) -> None:
            nonlocal left
            left = at
            with pytest.raises(asyncio.CancelledError):
                await asyncio.ensure_future(job)
            assert assistant.engine.pool.checkedout() == 0

        async def export(thread_id: str) -> None:
            async for _ in assistant.export_thread(keeper(), thread_id=thread_id):
                pass

        sa.event.listen(assistant.engine.sync_engine, "before_cursor_execute", cancel)
        await cancelled(assistant.import_thread(keeper(), [archive]))
        left = 0
        imported = await assistant.import_thread(keeper(), [archive])
        assert imported.created, "nothing of the cancelled one was kept"
        await cancelled(export(imported.thread_id))

    _run(async_database_url, work)


def test_what_is_no_archive_and_who_is_no_caller_are_refused(async_database_url: str) -> None:
    nothing: Any = None

    async def work(assistant: AsyncAssistant) -> None:
        with pytest.raises(ValidationFailed, match="comes as bytes"):
            await assistant.import_thread(keeper(), nothing)
        with pytest.raises(ValidationFailed, match="comes as bytes"):
            await anext(assistant.import_threads(keeper(), nothing))
        with pytest.raises(ValidationFailed, match="a Caller"):
            await assistant.import_thread(nothing, [])
        with pytest.raises(ValidationFailed, match="a Caller"):
            await anext(assistant.export_thread(nothing, thread_id="t"))
        with pytest.raises(ValidationFailed, match="a Caller"):
            assistant.acting_as(nothing)
        async with assistant.engine.connect() as connection:
            with pytest.raises(ValidationFailed, match="a Caller"):
                assistant.bind(connection, nothing)

    _run(async_database_url, work)
