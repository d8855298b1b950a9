"""`session`, `transact` and `lock_threads`: several calls in one transaction of ours."""

import contextlib
from time import monotonic

import pytest
import sqlalchemy as sa

from engine_assistant import (
    Assistant,
    AssistantError,
    Bound,
    Conflict,
    ConflictReason,
    NotFound,
    Raced,
    Unavailable,
    make_engine,
)
from engine_assistant.testing.polling import poll_until
from tests.rig.guest import (
    ALICE,
    BOB,
    HELLO,
    ROBOT,
    assert_nothing_is_held,
    counted,
    kept,
    opened,
)
from tests.rig.races import Barrier, Worker, wait_until_blocked


@pytest.fixture
def assistant(engine: sa.Engine) -> Assistant:
    return Assistant(engine)


# ---------------------------------------------------------------- session


@pytest.mark.guarantee("G-GUEST-50")
def test_a_session_is_one_transaction_committed_at_its_end(
    assistant: Assistant, database_url: str
) -> None:
    with assistant.session(ALICE) as ops:
        thread = ops.create_thread().id
        ops.send_message(thread_id=thread, text="hi")
        if assistant.engine.dialect.name == "postgresql":
            assert kept(database_url)["assistant_threads"] == []
    assert assistant.acting_as(ALICE).get_thread(thread_id=thread).last_seq == 2
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-50")
def test_an_error_of_the_host_takes_the_session_back(
    assistant: Assistant, database_url: str
) -> None:
    before = kept(database_url)
    with pytest.raises(ZeroDivisionError), assistant.session(ALICE) as ops:  # noqa: PT012
        ops.create_thread()
        raise ZeroDivisionError
    assert kept(database_url) == before
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-50")
def test_a_caught_refusal_does_not_spoil_a_session(assistant: Assistant) -> None:
    thread, fence = opened(assistant)
    with assistant.session(ROBOT) as ops:
        with pytest.raises(Conflict):
            ops.acquire_run(thread_id=thread, run_id="r2")
        ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
    assert assistant.acting_as(ALICE).get_thread(thread_id=thread).last_seq == 3


@pytest.mark.guarantee("G-GUEST-51")
def test_a_swallowed_error_is_raised_at_the_end_and_nothing_is_kept(
    assistant: Assistant, database_url: str
) -> None:
    thread, fence = opened(assistant)
    before = kept(database_url)
    swallowed: list[AssistantError] = []
    with pytest.raises(AssistantError) as raised, assistant.session(ROBOT) as ops:  # noqa: PT012
        ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
        ops.context.connection.exec_driver_sql("ALTER TABLE assistant_runs RENAME TO elsewhere")
        try:
            ops.release_run(thread_id=thread, run_id="r1", fence=fence)
        except AssistantError as error:
            swallowed.append(error)
    assert raised.value is swallowed[0]
    assert kept(database_url) == before
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-51")
def test_an_error_of_the_hosts_outbox_spoils_the_session_too(database_url: str) -> None:
    class Full(Exception):
        pass

    def emit(connection: sa.Connection, milestones: object, /) -> None:
        raise Full

    engine = make_engine(database_url)
    assistant = Assistant(engine, emit=emit)
    before = kept(database_url)
    with pytest.raises(Full), assistant.session(ALICE) as ops, contextlib.suppress(Full):
        ops.create_thread()
    assert kept(database_url) == before
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-51")
def test_a_swallowed_interrupt_in_the_middle_of_a_write_spoils_the_session(
    database_url: str,
) -> None:
    def emit(connection: sa.Connection, milestones: object, /) -> None:
        # What Ctrl-C, or the cancellation of a task, does between two statements.
        raise KeyboardInterrupt

    engine = make_engine(database_url)
    assistant = Assistant(engine, emit=emit)
    before = kept(database_url)
    refused: list[AssistantError] = []
    with pytest.raises(Unavailable) as raised, assistant.session(ALICE) as ops:  # noqa: PT012
        with contextlib.suppress(KeyboardInterrupt):
            ops.create_thread()
        try:
            ops.list_threads()
        except Unavailable as error:
            refused.append(error)
    assert refused == [raised.value]
    assert kept(database_url) == before
    engine.dispose()


# ---------------------------------------------------------------- transact


@pytest.mark.guarantee("G-GUEST-52")
def test_transact_runs_all_of_it_again_after_a_race(
    assistant: Assistant, database_url: str
) -> None:
    thread, fence = opened(assistant)
    tries: list[int] = []

    def work(ops: Bound) -> str:
        tries.append(ops.get_thread(thread_id=thread).last_seq)
        said = {"type": "text-delta", "text": str(len(tries))}
        ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[said])
        if len(tries) < 3:
            raise Raced("as if another transaction had been in the way")
        return "done"

    assert assistant.transact(ROBOT, work) == "done"
    assert tries == [2, 2, 2]
    page = assistant.acting_as(ALICE).read_events(thread_id=thread, last=1)
    assert getattr(page.events[0], "text", None) == "3"
    assert page.head_seq == 3
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-52")
def test_transact_gives_up_when_its_time_is_over(database_url: str) -> None:
    engine = make_engine(database_url)
    assistant = Assistant(engine, retry_for=0.3)
    before = kept(database_url)
    tries: list[float] = []

    def work(ops: Bound) -> None:
        ops.create_thread()
        tries.append(monotonic())
        raise Raced("always")

    started = monotonic()
    with pytest.raises(Raced, match="always"):
        assistant.transact(ALICE, work)
    # The last pause may be as long as a quarter of a second, and the machine slow.
    assert 0.3 <= monotonic() - started < 5
    assert len(tries) > 2
    assert kept(database_url) == before
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-52")
def test_transact_does_not_repeat_a_refusal_or_an_error_of_the_host(
    assistant: Assistant,
) -> None:
    tries: list[str] = []

    def refused(ops: Bound) -> None:
        tries.append("refused")
        ops.get_thread(thread_id="nope")

    def broken(ops: Bound) -> None:
        tries.append("broken")
        raise ZeroDivisionError

    with pytest.raises(NotFound):
        assistant.transact(ALICE, refused)
    with pytest.raises(ZeroDivisionError):
        assistant.transact(ALICE, broken)
    assert tries == ["refused", "broken"]


@pytest.mark.guarantee("G-GUEST-52")
def test_a_session_raises_what_acting_as_and_transact_would_repeat(postgres_url: str) -> None:
    engine, other = make_engine(postgres_url), make_engine(postgres_url)
    assistant, holder = Assistant(engine), Assistant(other)
    thread, _ = opened(assistant)
    sa.event.listen(
        engine,
        "begin",
        lambda connection: connection.exec_driver_sql("SET LOCAL lock_timeout = '20ms'"),
    )
    with other.connect() as connection:
        holder.bind(connection, ALICE).lock_threads([thread])
        with pytest.raises(Raced), assistant.session(ALICE) as ops:
            ops.interrupt_turn(thread_id=thread)
        with counted(engine) as statements:
            asker = Worker(lambda: assistant.acting_as(ALICE).interrupt_turn(thread_id=thread))
            poll_until(
                lambda: sum("NO KEY UPDATE" in line for line in statements) > 2,
                lambda: "it never tried again",
                30,
            )
        connection.rollback()
        assert asker.join().requested_at
    engine.dispose()
    other.dispose()


# ---------------------------------------------------------------- lock_threads


@pytest.mark.guarantee("G-GUEST-53")
def test_two_sessions_that_lock_in_opposite_order_both_end(
    assistant: Assistant, database_url: str
) -> None:
    one, two = opened(assistant), opened(assistant)
    start = Barrier(2)
    rounds = 15

    def side(first: tuple[str, int], second: tuple[str, int]) -> None:
        start.wait()
        for _ in range(rounds):
            with assistant.session(ROBOT) as ops:
                locked = ops.lock_threads([first[0], second[0], first[0]])
                assert [thread.id for thread in locked] == sorted({first[0], second[0]})
                for thread, fence in (first, second):
                    ops.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])

    workers = [Worker(lambda: side(one, two)), Worker(lambda: side(two, one))]
    for worker in workers:
        worker.join(60)
    for thread, _ in (one, two):
        assert assistant.acting_as(ALICE).get_thread(thread_id=thread).last_seq == 2 + 2 * rounds
    assert_nothing_is_held(database_url)


@pytest.mark.guarantee("G-GUEST-53")
def test_locked_threads_wait_for_nobody_out_of_order(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    assistant = Assistant(engine)
    low, high = sorted(opened(assistant)[0] for _ in range(2))
    with engine.connect() as holder:
        assistant.bind(holder, ROBOT).lock_threads([low])
        waiter = Worker(
            lambda: assistant.transact(ROBOT, lambda ops: ops.lock_threads([high, low]))
        )
        wait_until_blocked(engine)
        # Were the given order kept, the waiter would stand on `high` now, and this would deadlock.
        assistant.bind(holder, ROBOT).lock_threads([high])
        holder.commit()
        assert [thread.id for thread in waiter.join()] == [low, high]
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-54")
def test_one_can_lock_only_what_is_ones_own(assistant: Assistant) -> None:
    mine = assistant.acting_as(ALICE).create_thread().id
    other = assistant.acting_as(BOB).create_thread().id
    with assistant.session(ALICE) as ops:
        assert [thread.id for thread in ops.lock_threads([mine])] == [mine]
        assert ops.lock_threads([]) == ()
        with pytest.raises(NotFound):
            ops.lock_threads([mine, other])
        with pytest.raises(NotFound):
            ops.lock_threads(["nope"])
    with assistant.session(ROBOT) as ops:
        assert len(ops.lock_threads([mine, other])) == 2
    with pytest.raises(Conflict) as refused:
        assistant.acting_as(ROBOT).acquire_run(thread_id=mine, run_id="r1")
    assert refused.value.reason is ConflictReason.NO_TURN_OPEN
