"""A fault at any statement of any write: nothing is kept, nothing is held, and it can be repeated.

The k-th statement of an operation is made to fail, for every k there is: the statement is replaced
by one that the database refuses, its connection is cut once it has run, or the program itself
fails there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, AssistantError, Internal, Operations, Unavailable
from engine_assistant.engines import make_engine
from engine_assistant.testing.polling import poll_until
from tests.rig.guest import (
    ALICE,
    HELLO,
    PROPOSED,
    REFUND,
    ROBOT,
    SECRET,
    Dump,
    counted,
    dump,
    kept,
)


@dataclass(frozen=True)
class Stage:
    """A thread that waits for one of everything."""

    thread: str
    fence: int
    digest: str
    waits: str = ""

    @property
    def run(self) -> dict[str, object]:
        return {"thread_id": self.thread, "run_id": "r1", "fence": self.fence}


ASKED = {"call_id": "c1", "operation": "refund", "version": "v1"}
Write = Callable[[Operations, Operations, Stage], object]


def _proposed(me: Operations, bot: Operations) -> Stage:
    """An open turn under a lease, in which a call was proposed."""
    thread = me.create_thread().id
    me.send_message(thread_id=thread, text=SECRET)
    fence = bot.acquire_run(thread_id=thread, run_id="r1").fence
    stage = Stage(thread, fence, "")
    bot.append_events(**stage.run, events=[HELLO, PROPOSED])
    return stage


def _waiting(me: Operations, bot: Operations) -> Stage:
    """A turn that waits for an approval."""
    stage = _proposed(me, bot)
    asked = bot.request_approval(**stage.run, **ASKED, expires_in=600)
    bot.append_events(**stage.run, events=[{"type": "turn-finish", "reason": "awaiting-approval"}])
    return Stage(stage.thread, stage.fence, asked.requests[0].digest)


def _approved(me: Operations, bot: Operations) -> Stage:
    """An approved call, and a lease."""
    stage = _waiting(me, bot)
    me.resolve_approval(
        thread_id=stage.thread, call_id="c1", approved=True, digest=stage.digest, version="v1"
    )
    fence = bot.acquire_run(thread_id=stage.thread, run_id="r1").fence
    return Stage(stage.thread, fence, stage.digest)


def _claimed(me: Operations, bot: Operations) -> Stage:
    """A call that is executing."""
    stage = _approved(me, bot)
    bot.claim_execution(**stage.run, **ASKED, input=REFUND)
    return stage


def _lost(me: Operations, bot: Operations) -> Stage:
    """A call that nobody can tell of, and that may run again."""
    stage = _spoken(me, bot)
    held = {"thread_id": stage.thread, "run_id": "r1"}
    proposal = {**PROPOSED, "repeatable": True}
    fence = bot.acquire_run(**held).fence
    bot.append_events(**held, fence=fence, events=[proposal])
    asked = bot.request_approval(**held, fence=fence, **ASKED, expires_in=600)
    me.resolve_approval(
        thread_id=stage.thread,
        call_id="c1",
        approved=True,
        digest=asked.requests[0].digest,
        version="v1",
    )
    bot.claim_execution(**held, fence=fence, **ASKED, input=REFUND)
    return Stage(stage.thread, bot.acquire_run(**held).fence, "")


def _kept(me: Operations, bot: Operations) -> Stage:
    """A turn whose run keeps a private context."""
    stage = _proposed(me, bot)
    bot.put_context(**stage.run, state=f"{SECRET} before")
    return stage


def _lined_up(me: Operations, bot: Operations) -> Stage:
    """A turn that is run, which one message steers and behind which another waits."""
    stage = _proposed(me, bot)
    how = {"thread_id": stage.thread, "text": SECRET}
    me.send_message(**how, when_busy="steer")
    waits = me.send_message(**how, when_busy="queue").input_id
    return Stage(stage.thread, stage.fence, "", waits)


def _idle(me: Operations, bot: Operations) -> Stage:
    """A thread in which nothing was said."""
    return Stage(me.create_thread().id, 0, "")


def _spoken(me: Operations, bot: Operations) -> Stage:
    """An open turn that no run has taken."""
    stage = _idle(me, bot)
    me.send_message(thread_id=stage.thread, text=SECRET)
    return stage


DONE = [
    {"type": "tool-output", "call_id": "c1", "output": 1},
    {"type": "turn-finish", "reason": "done"},
]
USAGE = {"input": {"value": 1, "provenance": "reported"}}
FILE = {"filename": "a", "content_type": "text/plain", "size": 1, "sha256": "0" * 64}

WRITES: dict[str, tuple[Callable[[Operations, Operations], Stage], Write]] = {
    "create a thread": (_idle, lambda me, _, s: me.create_thread(title=SECRET, key="k")),
    "send": (_idle, lambda me, _, s: me.send_message(thread_id=s.thread, text=SECRET, key="k")),
    "supersede": (
        _waiting,
        lambda me, _, s: me.send_message(
            thread_id=s.thread, text=SECRET, key="k", supersede_approvals=True
        ),
    ),
    "wait in line": (
        _proposed,
        lambda me, _, s: me.send_message(
            thread_id=s.thread, text=SECRET, key="k", when_busy="queue"
        ),
    ),
    "edit": (
        _lined_up,
        lambda me, _, s: me.edit_input(thread_id=s.thread, input_id=s.waits, text="other"),
    ),
    "take back": (
        _lined_up,
        lambda me, _, s: me.cancel_input(thread_id=s.thread, input_id=s.waits),
    ),
    "take in": (_lined_up, lambda _, bot, s: bot.take_inputs(**s.run)),
    "open the next": (
        _lined_up,
        lambda _, bot, s: bot.append_events(**s.run, events=DONE[1:], batch=1),
    ),
    "abandon": (
        _lined_up,
        lambda _, bot, s: bot.abandon_turn(thread_id=s.thread, reason=SECRET, fence=s.fence),
    ),
    "interrupt": (_waiting, lambda me, _, s: me.interrupt_turn(thread_id=s.thread)),
    "close": (_claimed, lambda me, _, s: me.close_thread(thread_id=s.thread)),
    "acquire": (_spoken, lambda _, bot, s: bot.acquire_run(thread_id=s.thread, run_id="r1")),
    "beat": (
        _proposed,
        lambda _, bot, s: bot.beat_run(
            **s.run,
        ),
    ),
    "release": (_claimed, lambda _, bot, s: bot.release_run(**s.run)),
    "append text": (
        _proposed,
        lambda _, bot, s: bot.append_events(**s.run, events=[HELLO, HELLO], batch=1),
    ),
    "append an end": (
        _claimed,
        lambda _, bot, s: bot.append_events(**s.run, events=DONE, batch=1),
    ),
    "request": (
        _proposed,
        lambda _, bot, s: bot.request_approval(**s.run, **ASKED, expires_in=600),
    ),
    "approve": (
        _waiting,
        lambda me, _, s: me.resolve_approval(
            thread_id=s.thread, call_id="c1", approved=True, digest=s.digest, version="v1"
        ),
    ),
    "claim": (
        _approved,
        lambda _, bot, s: bot.claim_execution(**s.run, **ASKED, input=REFUND, attempt=1),
    ),
    "summarise": (
        _spoken,
        lambda _, bot, s: bot.compact(
            thread_id=s.thread, from_seq=1, to_seq=2, summary=SECRET, expected_head=2
        ),
    ),
    "seed a thread": (
        _idle,
        lambda _, bot, s: bot.seed_thread(
            subject="usr_alice", key="seeds", messages=[{"role": "user", "text": SECRET}]
        ),
    ),
    "append with usage": (
        _proposed,
        lambda _, bot, s: bot.append_events(**s.run, events=[HELLO], batch=1, usage=USAGE),
    ),
    "record an operation": (
        _proposed,
        lambda _, bot, s: bot.record_operation(
            **s.run, operation_id="o1", kind="model", phase="asked"
        ),
    ),
    "keep a context": (_proposed, lambda _, bot, s: bot.put_context(**s.run, state=SECRET)),
    "replace a context": (_kept, lambda _, bot, s: bot.put_context(**s.run, state=SECRET)),
    "end a private turn": (
        _kept,
        lambda _, bot, s: bot.append_events(**s.run, events=DONE[1:], batch=1),
    ),
    "retry": (
        _lost,
        lambda _, bot, s: bot.retry_call(**s.run, **ASKED, input=REFUND, attempt=1),
    ),
    "resolve": (
        _lost,
        lambda me, _, s: me.resolve_unknown(
            thread_id=s.thread, call_id="c1", happened=True, output=SECRET
        ),
    ),
    "register a file": (_idle, lambda _, bot, s: bot.register_file(thread_id=s.thread, **FILE)),
}

BY_A_PERSON = {
    *("approve", "close", "create a thread", "edit", "interrupt", "resolve", "send", "supersede"),
    *("take back", "wait in line"),
}


class ProgramFailed(Exception):
    """What a host's own listener may raise at any time."""


class Observer:
    """Looks from outside whether anything was kept, or is held."""

    def __init__(self, url: str) -> None:
        self._engine = make_engine(url)
        self.url = url

    def kept(self) -> Dump:
        with self._engine.connect() as connection:
            return dump(connection)

    def assert_free(self) -> None:
        """Wait until nobody else is in a transaction: somebody takes each lock at once."""
        lock = "UPDATE assistant_threads SET id = id"
        if self._engine.dialect.name == "postgresql":
            self._until_idle()
            lock = "SELECT 1 FROM assistant_threads FOR UPDATE NOWAIT"
        with self._engine.connect() as connection:
            connection.exec_driver_sql(lock)
            connection.rollback()

    def _until_idle(self) -> None:
        busy = sa.text(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND state <> 'idle' AND backend_type = 'client backend'"
        )

        def idle() -> bool:
            with self._engine.connect() as connection:
                return connection.scalar(busy) == 0

        poll_until(idle, lambda: "a session is still in a transaction", 10)

    def cut(self, connection: sa.Connection) -> None:
        """Cut a connection, and wait until its server process is gone."""
        driver = connection.connection.driver_connection
        assert driver is not None
        with self._engine.connect() as own:
            kill = sa.text("SELECT pg_terminate_backend(:pid, 5000)")
            assert own.scalar(kill, {"pid": driver.info.backend_pid})

    def close(self) -> None:
        self._engine.dispose()


@contextmanager
def failing(engine: sa.Engine, at: int, kind: str, observer: Observer) -> Iterator[None]:
    """Let the `at`-th statement of this engine fail."""
    left = [at]

    def before(
        connection: sa.Connection,
        cursor: object,
        statement: str,
        parameters: object,
        *rest: object,
    ) -> tuple[str, object]:
        left[0] -= 1
        if left[0] == 0 and kind == "program":
            raise ProgramFailed
        if left[0] == 0 and kind == "statement":
            return "SELECT nothing_of_this_name", [()] if isinstance(parameters, list) else ()
        return statement, parameters

    def after(connection: sa.Connection, *_: object) -> None:
        if left[0] == 0 and kind == "connection":
            left[0] -= 1
            observer.cut(connection)

    sa.event.listen(engine, "before_cursor_execute", before, retval=True)
    sa.event.listen(engine, "after_cursor_execute", after)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_cursor_execute", before)
        sa.event.remove(engine, "after_cursor_execute", after)


EXPECTED = {"program": ProgramFailed, "statement": Internal, "connection": Unavailable}


def _statements(assistant: Assistant, write: Write, stage: Stage) -> int:
    """Count the statements of a write, and take it back."""
    with counted(assistant.engine) as statements, assistant.engine.connect() as connection:
        write(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT), stage)
        connection.rollback()
    return len(statements)


@pytest.mark.parametrize("name", sorted(WRITES))
@pytest.mark.guarantee("G-FAULT-06")
def test_a_fault_at_any_statement_keeps_nothing(name: str, database_url: str) -> None:
    engine, observer = make_engine(database_url), Observer(database_url)
    assistant = Assistant(engine)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    prepare, write = WRITES[name]
    stage = prepare(me, bot)
    before = observer.kept()
    count = _statements(assistant, write, stage)
    assert count >= 1
    assert observer.kept() == before
    postgres = engine.dialect.name == "postgresql"
    # One statement without a transaction is kept once it has run, and so is its answer.
    alone = postgres and count == 1
    for kind in ("program", "statement", *(["connection"] if postgres and not alone else [])):
        for at in range(1, count + 1):
            with failing(engine, at, kind, observer), pytest.raises(EXPECTED[kind]) as failed:
                write(me, bot, stage)
            assert SECRET not in str(failed.value)
            assert observer.kept() == before, (kind, at)
            observer.assert_free()
    # Nothing that was left behind is in the way.
    write(me, bot, stage)
    assert observer.kept() != before
    observer.close()
    engine.dispose()


@pytest.mark.parametrize("name", sorted(WRITES))
@pytest.mark.guarantee("G-FAULT-06")
def test_a_fault_that_a_host_swallows_spoils_its_session(name: str, database_url: str) -> None:
    engine, observer = make_engine(database_url), Observer(database_url)
    assistant = Assistant(engine)
    prepare, write = WRITES[name]
    stage = prepare(assistant.acting_as(ALICE), assistant.acting_as(ROBOT))
    before = observer.kept()
    # In a session BEGIN comes first on SQLite, and it is not of the operation.
    first = 2 if engine.dialect.name == "sqlite" else 1
    for at in range(first, _statements(assistant, write, stage) + 1):
        with (
            pytest.raises(Internal),
            failing(engine, at, "statement", observer),
            assistant.session(ALICE if name in BY_A_PERSON else ROBOT) as ops,
            suppress(AssistantError),
        ):
            write(ops, ops, stage)
        assert observer.kept() == before, at
        observer.assert_free()
    observer.close()
    engine.dispose()


@pytest.mark.guarantee("G-FAULT-07")
def test_a_connection_that_is_cut_before_the_commit_keeps_nothing(postgres_url: str) -> None:
    engine, observer = make_engine(postgres_url), Observer(postgres_url)
    assistant = Assistant(engine)
    stage = _proposed(assistant.acting_as(ALICE), assistant.acting_as(ROBOT))
    before = kept(postgres_url)
    with pytest.raises(Unavailable) as lost, assistant.session(ROBOT) as ops:  # noqa: PT012
        ops.append_events(**stage.run, events=[HELLO], batch=1)
        observer.cut(ops.context.connection)
    assert lost.value.facts["outcome"] == "unknown"
    assert kept(postgres_url) == before
    repeated = assistant.acting_as(ROBOT).append_events(**stage.run, events=[HELLO], batch=1)
    assert not repeated.duplicate
    observer.close()
    engine.dispose()


@pytest.mark.guarantee("G-FAULT-07")
def test_an_answer_that_was_lost_after_the_commit_is_given_again(postgres_url: str) -> None:
    engine, observer = make_engine(postgres_url), Observer(postgres_url)
    assistant = Assistant(engine)
    bot = assistant.acting_as(ROBOT)
    stage = _claimed(assistant.acting_as(ALICE), bot)

    def lose(connection: sa.Connection) -> None:
        # Committed on the server, and the answer never heard.
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.commit()
        observer.cut(connection)
        connection.exec_driver_sql("SELECT 1")

    sa.event.listen(engine, "commit", lose)
    with pytest.raises(Unavailable):
        bot.append_events(**stage.run, events=DONE, batch=1)
    sa.event.remove(engine, "commit", lose)
    after = observer.kept()
    again = bot.append_events(**stage.run, events=DONE, batch=1)
    assert again.duplicate
    assert [event.type for event in again.events] == ["tool-output", "turn-finish"]
    assert observer.kept() == after
    observer.close()
    engine.dispose()
