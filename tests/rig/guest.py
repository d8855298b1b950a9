"""What the tests of a good guest share: callers, a host's table, one gated call, and dumps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from pydantic import JsonValue

from engine_assistant import (
    AUDIT,
    RUN,
    USE,
    Assistant,
    AsyncOperations,
    Caller,
    Operations,
    make_engine,
)
from engine_assistant.store.tables import METADATA
from engine_assistant.testing.polling import poll_until

ROOT: Final = Path(__file__).parent.parent.parent

ALICE: Final = Caller(tenant="acme", principal="usr_alice", permissions={USE})
BOB: Final = Caller(tenant="acme", principal="usr_bob", permissions={USE})
AUDITOR: Final = Caller(tenant="acme", principal="usr_audit", permissions={USE, AUDIT})
ROBOT: Final = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)

Event = dict[str, object]

SECRET: Final = "my-card-is-4111"
REFUND: Final[dict[str, JsonValue]] = {"order": 1234567890123456789, "note": SECRET}
HELLO: Final[Event] = {"type": "text-delta", "text": "Hello"}
PROPOSED: Final[Event] = {
    "type": "tool-input",
    "call_id": "c1",
    "tool": "refund",
    "input": REFUND,
    "step": "s1",
}
WALKED: Final = [
    "user-message",
    "turn-start",
    "text-delta",
    "tool-input",
    "approval-request",
    "turn-finish",
    "approval-resolved",
    "execution-claimed",
    "tool-output",
    "turn-finish",
]
"""The types of the events that `walk` leaves, in order."""


def walk(me: Operations, bot: Operations) -> str:
    """Take one gated call from the question to its output; answer the thread."""
    thread = me.create_thread(title="Refund").id
    me.send_message(thread_id=thread, text=SECRET, key="m1")
    lease = bot.acquire_run(thread_id=thread, run_id="r1")
    bot.append_events(
        thread_id=thread, run_id="r1", fence=lease.fence, events=[HELLO, PROPOSED], batch=1
    )
    asked = bot.request_approval(
        thread_id=thread,
        run_id="r1",
        fence=lease.fence,
        call_id="c1",
        operation="refund",
        version="v1",
        expires_in=600,
    )
    rest = {"type": "turn-finish", "reason": "awaiting-approval"}
    bot.append_events(thread_id=thread, run_id="r1", fence=lease.fence, events=[rest], batch=2)
    digest = asked.requests[0].digest
    assert digest in {item.digest for item in me.list_approvals().items}
    me.resolve_approval(thread_id=thread, call_id="c1", approved=True, digest=digest, version="v1")
    lease = bot.acquire_run(thread_id=thread, run_id="r2")
    bot.claim_execution(
        thread_id=thread,
        run_id="r2",
        fence=lease.fence,
        call_id="c1",
        operation="refund",
        version="v1",
        input=REFUND,
        attempt=1,
    )
    end: list[Event] = [
        {"type": "tool-output", "call_id": "c1", "output": {"ok": True}},
        {"type": "turn-finish", "reason": "done"},
    ]
    bot.append_events(thread_id=thread, run_id="r2", fence=lease.fence, events=end)
    return thread


async def async_walk(me: AsyncOperations, bot: AsyncOperations) -> str:
    """`walk`, awaited."""
    thread = (await me.create_thread(title="Refund")).id
    await me.send_message(thread_id=thread, text=SECRET, key="m1")
    lease = await bot.acquire_run(thread_id=thread, run_id="r1")
    await bot.append_events(
        thread_id=thread, run_id="r1", fence=lease.fence, events=[HELLO, PROPOSED], batch=1
    )
    asked = await bot.request_approval(
        thread_id=thread,
        run_id="r1",
        fence=lease.fence,
        call_id="c1",
        operation="refund",
        version="v1",
        expires_in=600,
    )
    rest = {"type": "turn-finish", "reason": "awaiting-approval"}
    await bot.append_events(
        thread_id=thread, run_id="r1", fence=lease.fence, events=[rest], batch=2
    )
    digest = asked.requests[0].digest
    assert digest in {item.digest for item in (await me.list_approvals()).items}
    await me.resolve_approval(
        thread_id=thread, call_id="c1", approved=True, digest=digest, version="v1"
    )
    lease = await bot.acquire_run(thread_id=thread, run_id="r2")
    await bot.claim_execution(
        thread_id=thread,
        run_id="r2",
        fence=lease.fence,
        call_id="c1",
        operation="refund",
        version="v1",
        input=REFUND,
        attempt=1,
    )
    end: list[Event] = [
        {"type": "tool-output", "call_id": "c1", "output": {"ok": True}},
        {"type": "turn-finish", "reason": "done"},
    ]
    await bot.append_events(thread_id=thread, run_id="r2", fence=lease.fence, events=end)
    return thread


def types(me: Operations, thread: str) -> list[str]:
    """Answer the types of a thread's events, whose numbers must be 1..N."""
    events = me.read_events(thread_id=thread, limit=1000).events
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.type for event in events]


def opened(assistant: Assistant) -> tuple[str, int]:
    """Answer a thread with an open turn, and the fence of run `r1`, which holds its lease."""
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    thread = me.create_thread().id
    me.send_message(thread_id=thread, text=SECRET)
    return thread, bot.acquire_run(thread_id=thread, run_id="r1").fence


Dump = dict[str, list[tuple[object, ...]]]


def dump(source: sa.Connection, schema: str | None = None) -> Dump:
    """Answer every row of the record that this connection sees."""
    found: Dump = {}
    prefix = "" if schema is None else f'"{schema}".'
    for name in METADATA.tables:
        rows = source.exec_driver_sql(f'SELECT * FROM {prefix}"{name}"')
        found[name] = sorted((tuple(row) for row in rows), key=repr)
    return found


def kept(url: str, schema: str | None = None) -> Dump:
    """Answer every committed row, read through an engine of its own."""
    engine = make_engine(url)
    try:
        with engine.connect() as connection:
            return dump(connection, schema)
    finally:
        engine.dispose()


@contextmanager
def counted(engine: sa.Engine) -> Iterator[list[str]]:
    """Collect the statements that the engine is given meanwhile."""
    statements: list[str] = []

    def note(connection: sa.Connection, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def assert_nothing_is_held(url: str) -> None:
    """Wait until no other session of this database is in a transaction or holds a row lock.

    On SQLite: until somebody can take the file's write lock at once.
    """
    engine = make_engine(url)
    try:
        if engine.dialect.name == "sqlite":
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA busy_timeout = 0")
                connection.commit()
                with connection.begin():
                    connection.exec_driver_sql("UPDATE assistant_threads SET id = id WHERE 0")
            return
        busy = sa.text(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND (state IS DISTINCT FROM 'idle' OR EXISTS"
            " (SELECT 1 FROM pg_locks l WHERE l.pid = pg_stat_activity.pid))"
            " AND backend_type = 'client backend'"
        )
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            poll_until(
                lambda: connection.scalar(busy) == 0,
                lambda: "a session is still in a transaction",
                10,
            )
    finally:
        engine.dispose()


def python(code: str, *flags: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process and an environment of its own."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=ROOT,
        env=mine | {"PYTHONPATH": str(ROOT)} | env,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
