"""A cancelled task leaves no open transaction, no lock and no connection behind."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from engine_assistant import AsyncAssistant, AsyncBound, Unavailable, make_async_engine, make_engine
from tests.rig.guest import ALICE, HELLO, ROBOT, Dump, assert_nothing_is_held, kept
from tests.rig.races import wait_until_blocked

Act = Callable[[AsyncAssistant, str, int], Awaitable[object]]


async def _append(assistant: AsyncAssistant, thread: str, fence: int) -> object:
    bot = assistant.acting_as(ROBOT)
    return await bot.append_events(
        thread_id=thread, run_id="r1", fence=fence, events=[HELLO, HELLO], batch=1
    )


async def _finish(assistant: AsyncAssistant, thread: str, fence: int) -> object:
    bot = assistant.acting_as(ROBOT)
    end = {"type": "turn-finish", "reason": "done"}
    return await bot.append_events(
        thread_id=thread, run_id="r1", fence=fence, events=[HELLO, end], batch=1
    )


async def _session(assistant: AsyncAssistant, thread: str, fence: int) -> object:
    async with assistant.session(ROBOT) as ops:
        await ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
        return await ops.release_run(thread_id=thread, run_id="r1", fence=fence)


async def _transact(assistant: AsyncAssistant, thread: str, fence: int) -> object:
    async def work(ops: AsyncBound) -> object:
        await ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
        return await ops.release_run(thread_id=thread, run_id="r1", fence=fence)

    return await assistant.transact(ROBOT, work)


async def _list(assistant: AsyncAssistant, thread: str, fence: int) -> object:
    return await assistant.list_runnable()


ACTS: dict[str, Act] = {
    "append": _append,
    "finish": _finish,
    "list": _list,
    "session": _session,
    "transact": _transact,
}

WRITTEN = {"append": 2, "finish": 2, "list": 0, "session": 1, "transact": 1}
"""How many events each writes when it is let."""


async def _opened(assistant: AsyncAssistant) -> tuple[str, int]:
    me = assistant.acting_as(ALICE)
    thread = (await me.create_thread()).id
    await me.send_message(thread_id=thread, text="hi")
    lease = await assistant.acting_as(ROBOT).acquire_run(thread_id=thread, run_id="r1")
    return thread, lease.fence


class Canceller:
    """Cancels the task that reaches the k-th statement, once or again at every step after it."""

    def __init__(self, engine: AsyncEngine, at: int, *, stubborn: bool) -> None:
        self.reached = False
        self._left = at
        self._stubborn = stubborn
        self._engine = engine.sync_engine
        sa.event.listen(self._engine, "before_cursor_execute", self._count)

    def _count(self, *_: object) -> None:
        self._left -= 1
        if self._left != 0:
            return
        self.reached = True
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if self._stubborn:
            self._again(task)

    def _again(self, task: asyncio.Task[object]) -> None:
        """Do what a cancel scope does that gives a task no peace until it ends."""
        if not task.done():
            task.cancel()
            asyncio.get_running_loop().call_soon(self._again, task)

    def stop(self) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._count)


async def _cancelled_at(url: str, name: str, at: int, *, stubborn: bool) -> bool:
    """Answer whether the act had an `at`-th statement, at which it was cancelled."""
    engine = make_async_engine(url)
    assistant = AsyncAssistant(engine)
    thread, fence = await _opened(assistant)
    before = kept(url)
    canceller = Canceller(engine, at, stubborn=stubborn)
    task = asyncio.create_task(_run(ACTS[name], assistant, thread, fence))
    done, _ = await asyncio.wait([task], timeout=30)
    assert done, "the cancelled task never ended"
    canceller.stop()
    if canceller.reached:
        assert task.cancelled()
    else:
        task.result()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    # In a thread: the loop may still have to close what the task gave back.
    await asyncio.to_thread(assert_nothing_is_held, url)
    _all_or_nothing(name, before, kept(url))
    # The engine is as good as before.
    await assistant.acting_as(ALICE).interrupt_turn(thread_id=thread)
    await engine.dispose()
    return canceller.reached


async def _run(act: Act, assistant: AsyncAssistant, thread: str, fence: int) -> None:
    await act(assistant, thread, fence)


def _all_or_nothing(name: str, before: Dump, after: Dump) -> None:
    """A lost answer may have been kept; half of it never is."""
    if after == before:
        return
    grown = len(after["assistant_events"]) - len(before["assistant_events"])
    assert grown == WRITTEN[name]
    if name != "append":
        # Whatever rests a turn or gives a lease up ends its run in the same transaction.
        assert after["assistant_runs"] != before["assistant_runs"]


@pytest.mark.parametrize("stubborn", [False, True], ids=["once", "again and again"])
@pytest.mark.parametrize("name", sorted(ACTS))
@pytest.mark.guarantee("G-GUEST-63")
def test_cancelled_at_any_statement_nothing_is_held(
    name: str, stubborn: bool, database_url: str
) -> None:
    async def main() -> int:
        dialect = make_async_engine(database_url).dialect
        if stubborn and dialect.name == "sqlite" and not dialect.has_terminate:
            pytest.skip("this aiosqlite or SQLAlchemy cannot close a connection without awaiting")
        at = 1
        while await _cancelled_at(database_url, name, at, stubborn=stubborn):
            at += 1
        return at

    assert asyncio.run(main()) > 1


@pytest.mark.guarantee("G-GUEST-63")
def test_cancelled_while_it_waits_for_a_lock_it_waits_no_more(postgres_url: str) -> None:
    async def main() -> None:
        engine, holder = make_async_engine(postgres_url), make_engine(postgres_url)
        assistant = AsyncAssistant(engine)
        thread, _ = await _opened(assistant)
        me = assistant.acting_as(ALICE)
        with holder.connect() as connection:
            connection.exec_driver_sql("SELECT 1 FROM assistant_threads FOR UPDATE")
            task = asyncio.create_task(me.interrupt_turn(thread_id=thread))
            await asyncio.to_thread(wait_until_blocked, postgres_url)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
            waits = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            with holder.connect() as other:
                assert other.scalar(waits) == 0
            connection.rollback()
        assert (await me.interrupt_turn(thread_id=thread)).requested_at
        await engine.dispose()
        holder.dispose()

    asyncio.run(main())
    assert_nothing_is_held(postgres_url)


@pytest.mark.guarantee("G-GUEST-63")
def test_a_timeout_that_the_host_swallows_spoils_its_transaction(postgres_url: str) -> None:
    async def main() -> None:
        engine, holder = make_async_engine(postgres_url), make_engine(postgres_url)
        assistant = AsyncAssistant(engine)
        first, fence = await _opened(assistant)
        second = (await assistant.acting_as(ALICE).create_thread()).id
        before = kept(postgres_url)
        with holder.connect() as connection:
            connection.execute(
                sa.text("SELECT 1 FROM assistant_threads WHERE id = :id FOR UPDATE"),
                {"id": second},
            )
            with pytest.raises(Unavailable):  # noqa: PT012
                async with assistant.session(ROBOT) as ops:
                    await ops.append_events(
                        thread_id=first, run_id="r1", fence=fence, events=[HELLO]
                    )
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await ops.lock_threads([second])
            connection.rollback()
        assert kept(postgres_url) == before
        await engine.dispose()
        holder.dispose()

    asyncio.run(main())
    assert_nothing_is_held(postgres_url)
