"""Engines that a host made without us: savepoints, autocommit, plain SQLite engines."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, Bound, Conflict, Raced, ValidationFailed, prepare_sqlite
from tests.rig.guest import (
    ALICE,
    HELLO,
    PROPOSED,
    ROBOT,
    WALKED,
    assert_nothing_is_held,
    counted,
    dump,
    kept,
    opened,
    types,
    walk,
)
from tests.rig.races import Barrier, Worker


@pytest.fixture
def plain(database_url: str) -> Iterator[sa.Engine]:
    """An engine as a host makes it who knows nothing of us."""
    made = sa.create_engine(database_url)
    yield made
    made.dispose()


@pytest.fixture
def plain_sqlite(sqlite_url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(sqlite_url)
    yield made
    made.dispose()


# ---------------------------------------------------------------- savepoints


@pytest.mark.guarantee("G-GUEST-45")
def test_a_savepoint_takes_back_only_what_was_done_in_it(
    engine: sa.Engine, database_url: str
) -> None:
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    with engine.connect() as connection:
        me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
        lease = {"thread_id": thread, "run_id": "r1", "fence": fence}
        bot.append_events(**lease, events=[HELLO], batch=1)
        before = dump(connection)
        with connection.begin_nested() as savepoint:
            bot.append_events(**lease, events=[PROPOSED], batch=2)
            me.interrupt_turn(thread_id=thread)
            assert dump(connection) != before
            savepoint.rollback()
        assert dump(connection) == before
        with connection.begin_nested():
            bot.append_events(**lease, events=[HELLO, HELLO], batch=2)
        connection.commit()
    assert types(assistant.acting_as(ALICE), thread)[2:] == ["text-delta"] * 3


@pytest.mark.guarantee("G-GUEST-45")
def test_the_outer_rollback_takes_a_released_savepoint_with_it(
    engine: sa.Engine, database_url: str
) -> None:
    assistant = Assistant(engine)
    before = kept(database_url)
    with engine.connect() as connection:
        with connection.begin_nested():
            walk(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT))
        connection.rollback()
    assert kept(database_url) == before


@pytest.mark.guarantee("G-GUEST-46")
def test_a_savepoint_on_an_unprepared_sqlite_engine_is_refused(
    plain_sqlite: sa.Engine, sqlite_url: str
) -> None:
    assistant = Assistant(plain_sqlite)
    thread, fence = opened(assistant)
    before = kept(sqlite_url)
    with plain_sqlite.connect() as connection:
        me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
        with connection.begin_nested():
            with pytest.raises(ValidationFailed, match="prepare_sqlite"):
                me.create_thread()
            with pytest.raises(ValidationFailed, match="prepare_sqlite"):
                bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
            with pytest.raises(ValidationFailed, match="prepare_sqlite"):
                me.interrupt_turn(thread_id=thread)
        connection.rollback()
    assert kept(sqlite_url) == before


@pytest.mark.guarantee("G-GUEST-46")
def test_prepared_afterwards_the_same_engine_keeps_savepoints(
    plain_sqlite: sa.Engine, sqlite_url: str
) -> None:
    with plain_sqlite.connect():
        pass  # The pool now holds a connection from before.
    prepare_sqlite(plain_sqlite)
    before = kept(sqlite_url)
    assistant = Assistant(plain_sqlite)
    with plain_sqlite.connect() as connection:
        with connection.begin_nested():
            assistant.bind(connection, ALICE).create_thread()
        connection.rollback()
    assert kept(sqlite_url) == before


# ---------------------------------------------------------------- autocommit


def _writes_that_lock(me: Bound, bot: Bound, thread: str, fence: int) -> list[object]:
    lease = {"thread_id": thread, "run_id": "r1", "fence": fence}
    return [
        me.create_thread,
        lambda: me.send_message(thread_id=thread, text="x"),
        lambda: me.interrupt_turn(thread_id=thread),
        lambda: me.close_thread(thread_id=thread),
        lambda: me.authorize_file_upload(thread_id=thread),
        lambda: me.lock_threads([thread]),
        lambda: me.resolve_approval(
            thread_id=thread, call_id="c1", approved=False, digest="0" * 64
        ),
        lambda: bot.acquire_run(thread_id=thread, run_id="r2"),
        lambda: bot.beat_run(**lease),
        lambda: bot.release_run(**lease),
        lambda: bot.append_events(**lease, events=[PROPOSED]),
        lambda: bot.request_approval(
            **lease, call_id="c1", operation="o", version="v", expires_in=9
        ),
        lambda: bot.claim_execution(**lease, call_id="c1", operation="o", version="v", input={}),
        lambda: bot.settle_execution(thread_id=thread, call_id="c1", claimed_fence=1, output=1),
        lambda: bot.register_file(
            thread_id=thread, filename="f", content_type="text/plain", size=1, sha256="0" * 64
        ),
    ]


def _tries(writes: list[object], url: str) -> None:
    before = kept(url)
    for write in writes:
        assert callable(write)
        with pytest.raises(ValidationFailed, match="autocommit") as refused:
            write()
        assert refused.value.facts["path"] == "connection"
    assert kept(url) == before


@pytest.mark.guarantee("G-GUEST-47")
def test_autocommit_is_refused_for_every_write_that_locks(database_url: str) -> None:
    setup = Assistant.from_url(database_url)
    thread, fence = opened(setup)
    setup.engine.dispose()
    engine = sa.create_engine(database_url, isolation_level="AUTOCOMMIT")
    assistant = Assistant(engine)
    with engine.connect() as connection:
        me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
        _tries(_writes_that_lock(me, bot, thread, fence), database_url)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    with pytest.raises(ValidationFailed, match="autocommit"):
        me.create_thread()
    with pytest.raises(ValidationFailed, match="autocommit"), assistant.session(ALICE) as ops:
        ops.create_thread()
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-47")
def test_a_plain_append_needs_no_transaction_on_postgres(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    loose = engine.execution_options(isolation_level="AUTOCOMMIT")
    lease = {"thread_id": thread, "run_id": "r1", "fence": fence}
    with loose.connect() as connection, counted(engine) as statements:
        bot = assistant.bind(connection, ROBOT)
        bot.append_events(**lease, events=[HELLO, HELLO], batch=1)
        assert len(statements) == 1
        with pytest.raises(Conflict):
            bot.append_events(**lease, events=[HELLO], batch=7)
        assert bot.append_events(**lease, events=[HELLO, HELLO], batch=1).duplicate
    assert types(assistant.acting_as(ALICE), thread)[2:] == ["text-delta"] * 2
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-47")
def test_with_an_injected_clock_the_plain_append_locks_too(postgres_url: str) -> None:
    from datetime import UTC, datetime

    engine = sa.create_engine(postgres_url)
    assistant = Assistant(engine, clock=lambda: datetime.now(UTC))
    thread, fence = opened(assistant)
    loose = engine.execution_options(isolation_level="AUTOCOMMIT")
    with loose.connect() as connection:
        bot = assistant.bind(connection, ROBOT)
        with pytest.raises(ValidationFailed, match="autocommit"):
            bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
    bot = assistant.acting_as(ROBOT)
    bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
    assert types(assistant.acting_as(ALICE), thread)[2:] == ["text-delta"]
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-47")
def test_a_plain_append_in_autocommit_is_refused_on_sqlite(sqlite_url: str) -> None:
    setup = Assistant.from_url(sqlite_url)
    thread, fence = opened(setup)
    before = kept(sqlite_url)
    loose = setup.engine.execution_options(isolation_level="AUTOCOMMIT")
    with loose.connect() as connection:
        bot = setup.bind(connection, ROBOT)
        with pytest.raises(ValidationFailed, match="autocommit"):
            bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
    assert kept(sqlite_url) == before
    setup.engine.dispose()


# ---------------------------------------------------------------- plain engines


@pytest.mark.guarantee("G-GUEST-48")
@pytest.mark.parametrize(
    ("database", "style"),
    [
        ("sqlite_url", "qmark"),
        ("sqlite_url", "named"),
        ("sqlite_url", "numeric"),
        ("postgres_url", "pyformat"),
        ("postgres_url", "format"),
    ],
)
def test_parameters_go_to_the_driver_in_the_hosts_style(
    request: pytest.FixtureRequest, database: str, style: str
) -> None:
    engine = sa.create_engine(request.getfixturevalue(database), paramstyle=style)
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    bot = assistant.acting_as(ROBOT)
    bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO, HELLO], batch=1)
    bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[PROPOSED, HELLO])
    expected = ["text-delta", "text-delta", "tool-input", "text-delta"]
    assert types(assistant.acting_as(ALICE), thread)[2:] == expected
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-48")
def test_a_hosts_plain_engine_serves_every_door(plain: sa.Engine, database_url: str) -> None:
    assistant = Assistant(plain)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    assert types(me, walk(me, bot)) == WALKED
    with assistant.session(ALICE) as ops:
        again = ops.create_thread(title="again").id
    assert me.get_thread(thread_id=again).title == "again"
    with plain.begin() as connection:
        thread = walk(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT))
    assert types(me, thread) == WALKED
    before = kept(database_url)
    with plain.connect() as connection:
        walk(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT))
        connection.rollback()
    assert kept(database_url) == before
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-48")
def test_threads_that_read_and_then_write_lose_no_update(
    plain: sa.Engine, database_url: str
) -> None:
    assistant = Assistant(plain, retry_for=60)
    thread, fence = opened(assistant)
    sides, rounds = 4, 15
    start = Barrier(sides)

    def side() -> None:
        start.wait()
        for _ in range(rounds):
            assistant.transact(ROBOT, lambda ops: _say_what_was_read(ops, thread, fence))

    workers = [Worker(side) for _ in range(sides)]
    for worker in workers:
        worker.join(120)
    page = assistant.acting_as(ALICE).read_events(thread_id=thread, limit=1000)
    said = [getattr(event, "text", "") for event in page.events[2:]]
    assert said == [str(event.seq - 1) for event in page.events[2:]]
    assert len(said) == sides * rounds
    assert_nothing_is_held(database_url)


def _say_what_was_read(ops: Bound, thread: str, fence: int) -> None:
    """Write the number that was read under the lock: a lost update would repeat one."""
    ops.lock_threads([thread])
    seen = ops.get_thread(thread_id=thread).last_seq
    said = {"type": "text-delta", "text": str(seen)}
    ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[said])


@pytest.mark.guarantee("G-GUEST-48")
def test_the_guard_begins_before_a_host_that_only_read(
    plain_sqlite: sa.Engine, sqlite_url: str
) -> None:
    assistant = Assistant(plain_sqlite)
    with plain_sqlite.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM assistant_threads").scalar()
        assistant.bind(connection, ALICE).create_thread(title="a")
        assistant.bind(connection, ALICE).create_thread(title="b")
        # Both in one transaction of the driver, which the host takes back as a whole.
        connection.rollback()
    assert kept(sqlite_url)["assistant_threads"] == []


@pytest.mark.guarantee("G-GUEST-49")
def test_a_snapshot_that_went_stale_is_a_race(sqlite_url: str) -> None:
    assistant = Assistant.from_url(sqlite_url)
    thread, fence = opened(assistant)
    reader = assistant.engine.execution_options(assistant_begin="DEFERRED")
    with reader.connect() as connection:
        me = assistant.bind(connection, ALICE)
        assert me.get_thread(thread_id=thread).last_seq == 2
        assistant.acting_as(ROBOT).append_events(
            thread_id=thread, run_id="r1", fence=fence, events=[HELLO]
        )
        with pytest.raises(Raced) as raced:
            me.interrupt_turn(thread_id=thread)
        assert raced.value.facts["sqlstate"] == "SQLITE_BUSY_SNAPSHOT"
        with pytest.raises(Raced):
            me.get_thread(thread_id=thread)
        connection.rollback()
        assert assistant.bind(connection, ALICE).get_thread(thread_id=thread).last_seq == 3
    assistant.engine.dispose()
