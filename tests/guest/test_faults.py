"""What a fault of the database becomes: one typed error that quotes nothing, and nothing kept."""

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant import (
    Assistant,
    AssistantError,
    Internal,
    Operations,
    Raced,
    Retry,
    Unavailable,
    make_engine,
)
from tests.rig.guest import (
    ALICE,
    HELLO,
    PROPOSED,
    REFUND,
    ROBOT,
    SECRET,
    assert_nothing_is_held,
    kept,
    opened,
    walk,
)
from tests.rig.races import Worker, backend_pid, wait_until_blocked


def assert_quotes_nothing(error: BaseException) -> None:
    """Neither the error nor anything chained to it comes from a driver, or says what was said."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        waiting += [one.__cause__, one.__context__]
        assert type(one).__module__.split(".")[0] not in {"sqlalchemy", "psycopg", "sqlite3"}
    assert isinstance(error, AssistantError)
    for text in (str(error), repr(error), str(error.to_dict()), *traceback.format_exception(error)):
        assert SECRET not in text
        assert "4111" not in text


# ---------------------------------------------------------------- the server goes away


@pytest.mark.guarantee("G-FAULT-01")
def test_a_connection_that_dies_in_the_middle_is_unavailable(postgres_url: str) -> None:
    engine, other = make_engine(postgres_url), make_engine(postgres_url)
    assistant = Assistant(engine)
    thread, _ = opened(assistant)
    before = kept(postgres_url)
    me = assistant.acting_as(ALICE)
    with other.connect() as holder:
        Assistant(other).bind(holder, ALICE).lock_threads([thread])
        waiter = Worker(lambda: me.interrupt_turn(thread_id=thread))
        (pid,) = wait_until_blocked(engine)
        with other.connect() as killer:
            killer.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        error = waiter.error()
        holder.rollback()
    assert isinstance(error, Unavailable)
    assert_quotes_nothing(error)
    assert error.retry is Retry.NOW
    assert error.facts["outcome"] == "unknown"
    assert kept(postgres_url) == before
    assert_nothing_is_held(postgres_url)
    # The same call again, on a new connection.
    assert me.interrupt_turn(thread_id=thread).requested_at
    engine.dispose()
    other.dispose()


@pytest.mark.guarantee("G-FAULT-01")
def test_a_hosts_connection_that_was_dead_already_is_unavailable(postgres_url: str) -> None:
    engine, other = make_engine(postgres_url), make_engine(postgres_url)
    assistant = Assistant(engine)
    with engine.connect() as connection:
        pid = backend_pid(connection)
        with other.connect() as killer:
            killer.execute(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        me = assistant.bind(connection, ALICE)
        with pytest.raises(Unavailable) as unavailable:
            me.create_thread(title=SECRET)
        assert_quotes_nothing(unavailable.value)
        with pytest.raises(Unavailable):
            me.list_threads()
        connection.rollback()
        assert assistant.bind(connection, ALICE).list_threads().items == ()
    engine.dispose()
    other.dispose()


@pytest.mark.guarantee("G-FAULT-01")
def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    nowhere = sa.URL.create(
        "postgresql", username="u", password=SECRET, query={"host": str(tmp_path)}
    )
    assistant = Assistant.from_url(nowhere.render_as_string(hide_password=False))
    calls: list[Callable[[], object]] = [
        lambda: assistant.acting_as(ALICE).create_thread(),
        lambda: assistant.acting_as(ALICE).list_threads(),
        lambda: assistant.transact(ALICE, lambda ops: ops.create_thread()),
        assistant.list_runnable,
        assistant.migrate,
    ]
    for call in calls:
        with pytest.raises(Unavailable) as unavailable:
            call()
        assert_quotes_nothing(unavailable.value)


@pytest.mark.guarantee("G-FAULT-01")
def test_a_pool_that_is_used_up_is_unavailable(database_url: str) -> None:
    engine = sa.create_engine(
        database_url, poolclass=sa.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.05
    )
    assistant = Assistant(engine)
    with engine.connect(), pytest.raises(Unavailable) as unavailable:
        assistant.acting_as(ALICE).list_threads()
    assert_quotes_nothing(unavailable.value)
    assert assistant.acting_as(ALICE).list_threads().items == ()
    engine.dispose()


# ---------------------------------------------------------------- the installation is broken


@pytest.mark.guarantee("G-FAULT-02")
def test_missing_tables_say_how_to_migrate(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    assistant = Assistant(engine)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    run = {"thread_id": "t", "run_id": "r", "fence": 1}
    calls: list[Callable[[], object]] = [
        lambda: me.create_thread(title=SECRET),
        lambda: me.get_thread(thread_id="t"),
        me.list_threads,
        me.list_approvals,
        lambda: me.read_events(thread_id="t"),
        lambda: me.send_message(thread_id="t", text=SECRET),
        lambda: bot.append_events(**run, events=[HELLO]),
        lambda: bot.append_events(**run, events=[PROPOSED]),
        assistant.list_runnable,
    ]
    for call in calls:
        with pytest.raises(Internal, match="engine-assistant db upgrade") as internal:
            call()
        assert_quotes_nothing(internal.value)
        assert internal.value.retry is Retry.NEVER
    assistant.migrate()
    assert me.list_threads().items == ()
    engine.dispose()


@pytest.mark.guarantee("G-FAULT-02")
def test_a_missing_column_says_how_to_migrate(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE assistant_threads RENAME COLUMN title TO label")
    with pytest.raises(Internal, match="engine-assistant db upgrade") as internal:
        Assistant(engine).acting_as(ALICE).create_thread(title=SECRET)
    assert_quotes_nothing(internal.value)


# ---------------------------------------------------------------- limits of the server


def _limited(url: str, **settings: str) -> sa.Engine:
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return sa.create_engine(url, connect_args={"options": options})


@pytest.mark.parametrize(
    ("setting", "error", "state"),
    [("statement_timeout", Unavailable, "57014"), ("lock_timeout", Raced, "55P03")],
)
@pytest.mark.guarantee("G-FAULT-03")
def test_waiting_too_long_is_typed(
    setting: str, error: type[AssistantError], state: str, postgres_url: str
) -> None:
    engine = _limited(postgres_url, **{setting: "50ms"})
    other = make_engine(postgres_url)
    assistant = Assistant(engine, retry_for=0)
    thread, _ = opened(assistant)
    before = kept(postgres_url)
    with other.connect() as holder:
        Assistant(other).bind(holder, ALICE).lock_threads([thread])
        with pytest.raises(error) as raised:
            assistant.acting_as(ALICE).close_thread(thread_id=thread)
        holder.rollback()
    assert raised.value.facts["sqlstate"] == state
    assert raised.value.retry is Retry.NOW
    assert_quotes_nothing(raised.value)
    assert kept(postgres_url) == before
    assert_nothing_is_held(postgres_url)
    engine.dispose()
    other.dispose()


def _writes(me: Operations, bot: Operations, thread: str, fence: int) -> list[Callable[[], object]]:
    run = {"thread_id": thread, "run_id": "r1", "fence": fence}
    return [
        lambda: me.create_thread(title=SECRET),
        lambda: me.close_thread(thread_id=thread),
        lambda: bot.append_events(**run, events=[HELLO]),
        lambda: bot.append_events(**run, events=[{**PROPOSED, "input": REFUND}]),
        lambda: bot.beat_run(**run),
    ]


@pytest.mark.guarantee("G-FAULT-04")
def test_a_database_that_may_only_be_read_can_be_read(database_url: str) -> None:
    setup = Assistant.from_url(database_url)
    thread, fence = opened(setup)
    setup.engine.dispose()
    before = kept(database_url)
    url = sa.make_url(database_url)
    if url.get_backend_name() == "sqlite":
        address = f"sqlite:///file:{url.database}?mode=ro&uri=true"
        engine = make_engine(address)
    else:
        engine = _limited(database_url, default_transaction_read_only="on")
    assistant = Assistant(engine)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    for write in _writes(me, bot, thread, fence):
        with pytest.raises(Internal) as internal:
            write()
        assert_quotes_nothing(internal.value)
    assert me.read_events(thread_id=thread).head_seq == 2
    assert [item.id for item in me.list_threads().items] == [thread]
    engine.dispose()
    assert kept(database_url) == before


@pytest.mark.guarantee("G-FAULT-04")
def test_a_full_disk_keeps_nothing_and_does_no_harm(sqlite_url: str) -> None:
    engine = make_engine(sqlite_url)
    assistant = Assistant(engine)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    thread, fence = opened(assistant)
    big = [{"type": "text-delta", "text": SECRET + "x" * 100_000}]
    run = {"thread_id": thread, "run_id": "r1", "fence": fence}

    def limit(pages: str) -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    limit("1")  # Never below what there is.
    before = kept(sqlite_url)
    for attempt in range(3):
        with pytest.raises(Unavailable) as unavailable:
            bot.append_events(**run, events=big, batch=1)
        assert unavailable.value.facts["sqlstate"] == "SQLITE_FULL", attempt
        assert "no room" in unavailable.value.message
        assert_quotes_nothing(unavailable.value)
        assert kept(sqlite_url) == before
        assert_nothing_is_held(sqlite_url)
    with engine.connect() as connection:
        joined = assistant.bind(connection, ROBOT)
        with pytest.raises(Unavailable):
            joined.append_events(**run, events=big, batch=1)
        with pytest.raises(Unavailable):
            joined.get_thread(thread_id=thread)
        connection.rollback()
    limit("1000000")
    assert not bot.append_events(**run, events=big, batch=1).duplicate
    assert me.get_thread(thread_id=thread).last_seq == 3
    engine.dispose()


@pytest.mark.guarantee("G-FAULT-04")
def test_a_file_that_is_no_database_is_internal(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database at all, whatever its name says" * 100)
    assistant = Assistant.from_url(f"sqlite:///{broken}")
    for call in (assistant.acting_as(ALICE).create_thread, assistant.migrate):
        with pytest.raises(Internal) as internal:
            call()
        assert_quotes_nothing(internal.value)
    assistant.engine.dispose()


@pytest.mark.guarantee("G-FAULT-05")
def test_a_value_that_the_driver_quotes_is_quoted_by_nobody(engine: sa.Engine) -> None:
    assistant = Assistant(engine)
    walk(assistant.acting_as(ALICE), assistant.acting_as(ROBOT))
    with engine.begin() as connection:
        # A guard of the host's own: Postgres' error repeats the whole failing row.
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(
                "ALTER TABLE assistant_threads ADD CHECK (title <> 'my-card-is-4111')"
            )
        else:
            connection.exec_driver_sql(
                "CREATE TRIGGER guard BEFORE INSERT ON assistant_threads BEGIN"
                " SELECT RAISE(ABORT, 'no my-card-is-4111'); END"
            )
    with pytest.raises(AssistantError) as failed:
        assistant.acting_as(ALICE).create_thread(title=SECRET)
    assert_quotes_nothing(failed.value)
    with pytest.raises(AssistantError) as failed, assistant.session(ALICE) as ops:
        ops.create_thread(title=SECRET)
    assert_quotes_nothing(failed.value)
    with engine.connect() as connection, pytest.raises(AssistantError) as failed:
        assistant.bind(connection, ALICE).create_thread(title=SECRET)
    assert_quotes_nothing(failed.value)
