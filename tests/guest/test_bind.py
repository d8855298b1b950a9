"""`bind` joins the host's transaction: it commits nothing, and a refusal leaves nothing."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from engine_assistant import (
    Assistant,
    AssistantError,
    Bound,
    Conflict,
    NotFound,
    PermissionDenied,
    Raced,
    ValidationFailed,
)
from tests.rig.guest import (
    ALICE,
    BOB,
    HELLO,
    PROPOSED,
    REFUND,
    ROBOT,
    WALKED,
    dump,
    kept,
    opened,
    types,
    walk,
)
from tests.rig.races import Worker, wait_until_blocked

ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


@pytest.fixture
def assistant(engine: sa.Engine) -> Assistant:
    ORDERS.create(engine)
    return Assistant(engine)


@pytest.mark.guarantee("G-GUEST-40")
def test_all_of_it_goes_with_the_hosts_rollback(
    assistant: Assistant, engine: sa.Engine, database_url: str
) -> None:
    before = kept(database_url)
    with engine.connect() as connection:
        connection.execute(ORDERS.insert(), {"id": 1})
        me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
        thread = walk(me, bot)
        assert types(me, thread) == WALKED
        assert connection.in_transaction()
        if engine.dialect.name == "postgresql":
            assert kept(database_url) == before
        connection.rollback()
        assert connection.scalar(sa.select(sa.func.count()).select_from(ORDERS)) == 0
    assert kept(database_url) == before


@pytest.mark.guarantee("G-GUEST-40")
def test_all_of_it_stays_with_the_hosts_commit(
    assistant: Assistant, engine: sa.Engine, database_url: str
) -> None:
    with engine.begin() as connection:
        connection.execute(ORDERS.insert(), {"id": 1})
        thread = walk(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT))
        seen = dump(connection)
    assert kept(database_url) == seen
    assert types(assistant.acting_as(ALICE), thread) == WALKED
    with engine.connect() as connection:
        assert connection.scalar(sa.select(ORDERS.c.id)) == 1


@pytest.mark.guarantee("G-GUEST-41")
def test_the_hosts_uncommitted_thread_is_seen_inside_and_not_outside(
    assistant: Assistant, engine: sa.Engine, database_url: str
) -> None:
    with engine.connect() as connection:
        me = assistant.bind(connection, ALICE)
        thread = me.create_thread(title="inside").id
        assert assistant.bind(connection, ALICE).get_thread(thread_id=thread).title == "inside"
        assert [item.id for item in me.list_threads().items] == [thread]
        if engine.dialect.name == "postgresql":
            with pytest.raises(NotFound):
                assistant.acting_as(ALICE).get_thread(thread_id=thread)
        connection.commit()
    assert assistant.acting_as(ALICE).get_thread(thread_id=thread).id == thread


def _refusals(thread: str, fence: int) -> dict[str, Callable[[Bound, Bound], object]]:
    lease = {"thread_id": thread, "run_id": "r1", "fence": fence}
    old = lease | {"fence": fence + 7}
    ask = {"call_id": "c1", "operation": "refund", "version": "v1"}
    end = {"type": "turn-finish", "reason": "done"}
    output = {"type": "tool-output", "call_id": "nope", "output": 1}
    return {
        "turn in progress": lambda me, _: me.send_message(thread_id=thread, text="again"),
        "fenced": lambda _, bot: bot.append_events(**old, events=[HELLO]),
        "fenced beat": lambda _, bot: bot.beat_run(**old),
        "batch gap": lambda _, bot: bot.append_events(**lease, events=[HELLO], batch=9),
        "last of a batch": lambda _, bot: bot.append_events(
            **lease, events=[HELLO, PROPOSED, end, HELLO]
        ),
        "no such call": lambda _, bot: bot.append_events(**lease, events=[HELLO, output]),
        "not a run event": lambda _, bot: bot.append_events(
            **lease, events=[HELLO, {"type": "user-message", "text": "x"}]
        ),
        "run in progress": lambda _, bot: bot.acquire_run(thread_id=thread, run_id="r2"),
        "nothing to claim": lambda _, bot: bot.claim_execution(**lease, **ask, input=REFUND),
        "nothing to approve": lambda _, bot: bot.request_approval(**lease, **ask, expires_in=9),
        "nothing to settle": lambda _, bot: bot.settle_execution(
            thread_id=thread, call_id="c1", claimed_fence=1, output=1
        ),
        "nothing to resolve": lambda me, _: me.resolve_approval(
            thread_id=thread, call_id="c1", approved=False, digest="0" * 64
        ),
        "no such thread": lambda me, _: me.close_thread(thread_id="nope"),
        "no such file": lambda me, _: me.send_message(
            thread_id=thread, text="x", attachment_ids=["nope"], supersede_approvals=True
        ),
        "no permission": lambda me, _: me.acquire_run(thread_id=thread, run_id="r2"),
        "bad input": lambda me, _: me.send_message(thread_id=thread, text=""),
    }


@pytest.mark.parametrize("name", sorted(_refusals("", 0)))
@pytest.mark.guarantee("G-GUEST-42")
def test_a_caught_refusal_leaves_nothing_and_the_transaction_goes_on(
    name: str, assistant: Assistant, engine: sa.Engine, database_url: str
) -> None:
    thread, fence = opened(assistant)
    with engine.connect() as connection:
        connection.execute(ORDERS.insert(), {"id": 1})
        me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
        before = dump(connection)
        with pytest.raises((Conflict, NotFound, PermissionDenied, ValidationFailed)):
            _refusals(thread, fence)[name](me, bot)
        assert dump(connection) == before
        bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO], batch=1)
        me.raise_failure()
        bot.raise_failure()
        connection.commit()
    after = kept(database_url)
    assert len(after["assistant_events"]) == len(before["assistant_events"]) + 1
    with engine.connect() as connection:
        assert connection.scalar(sa.select(ORDERS.c.id)) == 1


@pytest.mark.guarantee("G-GUEST-43")
def test_after_a_database_error_every_further_call_is_refused_with_it(
    assistant: Assistant, engine: sa.Engine, database_url: str
) -> None:
    thread, fence = opened(assistant)
    before = kept(database_url)
    with engine.connect() as connection:
        # Somebody breaks the installation inside this very transaction.
        me, bot = assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT)
        bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
        connection.exec_driver_sql("ALTER TABLE assistant_outbox RENAME TO elsewhere")
        with pytest.raises(AssistantError) as first:
            me.close_thread(thread_id=thread)
        for call in (
            lambda: me.get_thread(thread_id=thread),
            me.create_thread,
            lambda: me.lock_threads([thread]),
            me.raise_failure,
        ):
            with pytest.raises(AssistantError) as again:
                call()
            assert again.value is first.value
        connection.rollback()
        assert assistant.bind(connection, ALICE).get_thread(thread_id=thread).id == thread
    assert kept(database_url) == before


@pytest.mark.guarantee("G-GUEST-43")
def test_after_a_race_every_further_call_is_refused(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    assistant = Assistant(engine)
    thread, _ = opened(assistant)
    with engine.connect() as holder, engine.connect() as waiter:
        assistant.bind(holder, ALICE).lock_threads([thread])
        waiter.exec_driver_sql("SET LOCAL lock_timeout = '1ms'")
        me = assistant.bind(waiter, ALICE)
        with pytest.raises(Raced) as raced:
            me.interrupt_turn(thread_id=thread)
        assert raced.value.facts["sqlstate"] == "55P03"
        with pytest.raises(Raced):
            me.get_thread(thread_id=thread)
        waiter.rollback()
        holder.rollback()
        assert assistant.bind(waiter, ALICE).interrupt_turn(thread_id=thread).requested_at
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-44")
def test_a_refusal_keeps_the_lock_and_a_stranger_takes_none(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    assistant = Assistant(engine)
    thread, _ = opened(assistant)
    with engine.connect() as connection:
        with pytest.raises(NotFound):
            assistant.bind(connection, BOB).interrupt_turn(thread_id=thread)
        assistant.acting_as(ALICE).authorize_file_upload(thread_id=thread)
        with pytest.raises(Conflict):
            assistant.bind(connection, ALICE).send_message(thread_id=thread, text="again")
        other = Worker(lambda: assistant.acting_as(ALICE).interrupt_turn(thread_id=thread))
        wait_until_blocked(engine)
        connection.rollback()
        assert other.join().requested_at
    engine.dispose()
