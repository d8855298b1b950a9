"""Opening, finding, closing threads."""

from datetime import datetime
from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands import CreateThread, ListThreads, OnThread
from engine_assistant.model.cursors import read_cursor, write_cursor
from engine_assistant.model.errors import PermissionDenied, Raced
from engine_assistant.model.ids import new_id
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.permissions import AUDIT, RUN, USE
from engine_assistant.model.rows import ThreadRow
from engine_assistant.model.times import to_text
from engine_assistant.model.views import Page, Thread
from engine_assistant.operations.opening import lock, open_draft, readable_thread
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import threads as rule
from engine_assistant.rules import turns
from engine_assistant.rules.draft import Draft
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.pages import thread_page
from engine_assistant.store.reads import find_thread_by_key
from engine_assistant.store.writes import insert_thread, write

__all__ = [
    "CLOSE_THREAD",
    "CREATE_THREAD",
    "GET_THREAD",
    "LIST_THREADS",
]


def thread_view(row: ThreadRow) -> Thread:
    return Thread(**{name: getattr(row, name) for name in Thread.model_fields})


def create_thread(ctx: Context, command: CreateThread) -> Thread:
    """Open a thread that the caller owns. The same key answers the same thread."""
    db, subject = ctx.database, ctx.caller.principal
    dialect = dialect_of(ctx.connection)
    dialect.begin_write(db)
    if command.key is not None:
        first = find_thread_by_key(db, subject, command.key)
        if first is not None:
            return thread_view(rule.repeated_thread(first, command.title))
    now = dialect.now(db)
    draft = Draft(
        rule.new_thread(
            tenant=ctx.caller.tenant,
            thread_id=new_id(),
            subject=subject,
            key=command.key,
            title=command.title,
            now=now,
        ),
        now,
        limits=ctx.limits,
    )
    draft.announce(MilestoneType.THREAD_CREATED)
    plan = draft.plan(draft.thread)
    if not insert_thread(db, plan):
        return thread_view(_other_creator(ctx, command))
    return thread_view(plan.after)


def _other_creator(ctx: Context, command: CreateThread) -> ThreadRow:
    """Return the thread that somebody else created under the key a moment ago."""
    key = command.key or ""
    first = find_thread_by_key(ctx.database, ctx.caller.principal, key)
    if first is None:
        raise Raced("Another transaction took this key. Roll back and try again.")
    return rule.repeated_thread(first, command.title)


def get_thread(ctx: Context, command: OnThread) -> Thread:
    """Return one thread."""
    return thread_view(readable_thread(ctx, command.thread_id))


def list_threads(ctx: Context, command: ListThreads) -> Page[Thread]:
    """Return one person's threads, newest activity first."""
    subject = command.subject or ctx.caller.principal
    if subject != ctx.caller.principal and not (ctx.holds(AUDIT) or ctx.holds(RUN)):
        raise PermissionDenied(f"Another person's threads need {AUDIT}.", needs=AUDIT)
    scope = ("threads", ctx.caller.tenant, subject, command.status)
    before = None
    if command.cursor is not None:
        at, thread_id = read_cursor(scope, command.cursor, (datetime, str))
        before = (str(at), str(thread_id))
    rows = thread_page(
        ctx.database, subject, status=command.status, limit=command.limit + 1, before=before
    )
    page = rows[: command.limit]
    more = len(rows) > command.limit
    return Page[Thread](
        items=tuple(thread_view(row) for row in page),
        cursor=write_cursor(scope, (to_text(page[-1].last_active_at), page[-1].id))
        if more
        else None,
    )


def close_thread(ctx: Context, command: OnThread) -> Thread:
    """Close a thread for ever. Closing it again answers it unchanged."""
    locked = lock(ctx, command.thread_id, owner=ctx.caller.principal)
    draft = open_draft(ctx, locked, unended=True, run=True, queue=True)
    return thread_view(write(ctx.database, turns.close_thread(draft)))


CREATE_THREAD: Final = Operation(
    "assistant/create-thread", (USE,), CreateThread, Thread, create_thread
)
GET_THREAD: Final = Operation(
    "assistant/get-thread",
    (USE, RUN),
    OnThread,
    Thread,
    get_thread,
    one_statement=lambda _: True,
    reads=True,
)
LIST_THREADS: Final = Operation(
    "assistant/list-threads",
    (USE, RUN),
    ListThreads,
    Page[Thread],
    list_threads,
    one_statement=lambda _: True,
    reads=True,
)
CLOSE_THREAD: Final = Operation("assistant/close-thread", (USE,), OnThread, Thread, close_thread)
