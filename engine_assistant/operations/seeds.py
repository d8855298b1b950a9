"""Opening a thread with what was said before it."""

from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands.history import SeedThread
from engine_assistant.model.errors import Raced
from engine_assistant.model.ids import new_id
from engine_assistant.model.permissions import RUN
from engine_assistant.model.rows import ThreadRow
from engine_assistant.model.views.history import SeededThread
from engine_assistant.operations.operation import Operation
from engine_assistant.operations.threads import thread_view
from engine_assistant.rules import seeds as rule
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.threads import new_thread
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.history import first_events
from engine_assistant.store.reads import find_thread_by_key
from engine_assistant.store.writes import insert_thread

__all__ = ["SEED_THREAD"]


def seed_thread(ctx: Context, command: SeedThread) -> SeededThread:
    """Open a thread for a person with what was said before. The same key answers the same one."""
    db, dialect = ctx.database, dialect_of(ctx.connection)
    dialect.begin_write(db)
    first = find_thread_by_key(db, command.subject, command.key)
    if first is not None:
        return _repeated(ctx, command, first)
    now = dialect.now(db)
    draft = Draft(
        new_thread(
            tenant=ctx.caller.tenant,
            thread_id=new_id(),
            subject=command.subject,
            key=command.key,
            title=command.title,
            now=now,
        ),
        now,
        limits=ctx.limits,
    )
    plan = rule.seed_thread(draft, command)
    if insert_thread(db, plan):
        return _view(plan.after)
    # Somebody else took the key between the look and the write.
    first = find_thread_by_key(db, command.subject, command.key)
    if first is None:
        raise Raced("Another transaction took this key. Roll back and try again.")
    return _repeated(ctx, command, first)


def _repeated(ctx: Context, command: SeedThread, first: ThreadRow) -> SeededThread:
    stored = first_events(ctx.database, first.id, len(command.messages) + 1)
    rule.refuse_other_seeds(first, command, stored)
    return _view(first, duplicate=True)


def _view(row: ThreadRow, *, duplicate: bool = False) -> SeededThread:
    thread = thread_view(row)
    values = {name: getattr(thread, name) for name in type(thread).model_fields}
    return SeededThread(**values, duplicate=duplicate)


SEED_THREAD: Final = Operation(
    "assistant/seed-thread", (RUN,), SeedThread, SeededThread, seed_thread
)
