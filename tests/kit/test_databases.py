"""The fixtures that hosts use, tried in a suite of their own, and what they are made of."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine_assistant import RUN, USE, Assistant, AsyncAssistant, Caller, Conflict, make_engine
from engine_assistant.testing import databases
from engine_assistant.testing.clock import START, Clock
from engine_assistant.testing.postgres import GIVEN_URL, PostgresServer, libpq, start

ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE})
ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)


@pytest.mark.guarantee("G-KIT-13")
def test_a_server_that_was_given_is_not_stopped(
    assistant_postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GIVEN_URL, libpq(assistant_postgres_server.url))
    with start() as given:
        assert (given.pid, given.version) == (None, assistant_postgres_server.version)
        with (
            databases.postgres_template(given) as template,
            databases.postgres_database(given, template) as url,
        ):
            engine = make_engine(url)
            assert Assistant(engine).acting_as(ALICE).list_threads().items == ()
            engine.dispose()
    with databases.postgres_database(assistant_postgres_server):
        pass


async def _list(url: str) -> int:
    assistant = AsyncAssistant.from_url(databases.awaited(url))
    found = await assistant.acting_as(ALICE).list_threads()
    await assistant.engine.dispose()
    return len(found.items)


@pytest.mark.guarantee("G-KIT-13")
def test_without_pytest_a_file_is_as_near(tmp_path: Path) -> None:
    template = databases.sqlite_template(tmp_path)
    urls = [databases.sqlite_file(tmp_path / name, template) for name in ("a.db", "b.db")]
    one = Assistant.from_url(urls[0])
    one.acting_as(ALICE).create_thread()
    one.engine.dispose()
    assert [asyncio.run(_list(url)) for url in urls] == [1, 0]
    assert not Path(tmp_path / "c.db").exists()
    assert databases.sqlite_file(tmp_path / "c.db").endswith("/c.db")


# ---------------------------------------------------------------- the clock


@pytest.mark.guarantee("G-KIT-09")
def test_the_engine_lives_by_the_clock(assistant: Assistant, assistant_clock: Clock) -> None:
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    thread = me.create_thread()
    assert thread.created_at == START
    me.send_message(thread_id=thread.id, text="Hello")
    bot.acquire_run(thread_id=thread.id, run_id="r1", stale_after=60)
    assistant_clock.forward(59.999)
    with pytest.raises(Conflict):
        bot.acquire_run(thread_id=thread.id, run_id="r2")
    assistant_clock.forward(0.001)
    assert bot.acquire_run(thread_id=thread.id, run_id="r2").took_over


@pytest.mark.guarantee("G-KIT-09")
def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = Clock()
    assert (clock(), clock(), clock.now) == (START, START, START)
    clock.forward(1.5)
    assert clock() == START + timedelta(seconds=1.5)
    earlier = datetime(2001, 1, 1, tzinfo=UTC)
    clock.set(earlier)
    assert clock() == earlier
    for wrong in (Clock, clock.set):
        with pytest.raises(ValueError, match="zone"):
            wrong(datetime(2001, 1, 1))  # noqa: DTZ001 - that is the point
