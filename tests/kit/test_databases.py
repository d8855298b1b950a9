"""The fixtures that hosts use, tried in a suite of their own, and what they are made of."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine_assistant import RUN, USE, Assistant, AsyncAssistant, Caller, Conflict, make_engine
from engine_assistant.testing import databases
from engine_assistant.testing.clock import START, Clock
from engine_assistant.testing.postgres import GIVEN_URL, PostgresServer, libpq, start
from engine_assistant.testing.washed import Washed

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


@pytest.mark.guarantee("G-KIT-13")
@pytest.mark.parametrize(
    "harm",
    [
        None,
        "ALTER TABLE assistant_events ALTER COLUMN type DROP NOT NULL",
        "ALTER TABLE assistant_runs DROP CONSTRAINT ck_assistant_runs_state",
        "CREATE TABLE left_behind (n int)",
        "GRANT SELECT ON assistant_events TO PUBLIC",
        "ANALYZE assistant_outbox, assistant_threads",
    ],
)
def test_a_database_is_given_again_empty_and_only_if_nothing_else_is_different(
    assistant_postgres_server: PostgresServer, assistant_postgres_template: str, harm: str | None
) -> None:
    washed = Washed(assistant_postgres_server, assistant_postgres_template)
    with washed.lend() as first:
        assistant = Assistant.from_url(first)
        assistant.acting_as(ALICE).create_thread(key="left")
        if harm is not None:
            with assistant.engine.begin() as connection:
                connection.exec_driver_sql(harm)
    # It is left open, as tests do: whoever is still there is sent away.
    with washed.lend() as second:
        assert (first == second) is (harm is None)
        again = Assistant.from_url(second)
        assert again.survey() == []
        again.engine.dispose()
    assistant.engine.dispose()
    washed.close()
