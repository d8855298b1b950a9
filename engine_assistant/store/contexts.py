"""The private context of a thread. Nothing but this file reads it."""

import sqlalchemy as sa

from engine_assistant.model.rows import ContextRow, ThreadRow
from engine_assistant.store.database import Database
from engine_assistant.store.reads import row_of
from engine_assistant.store.tables import contexts, threads

__all__ = ["read_context"]

_COLUMNS = len(threads.c)


def read_context(db: Database, thread_id: str) -> tuple[ThreadRow, ContextRow | None] | None:
    """Return a thread with the context that is kept for its turn, in one statement.

    So a run is judged by the lease under which the context was read.
    """
    same = sa.and_(
        contexts.c.tenant_id == threads.c.tenant_id, contexts.c.thread_id == threads.c.id
    )
    statement = (
        sa.select(*threads.c, *contexts.c)
        .select_from(threads.outerjoin(contexts, same))
        .where(threads.c.tenant_id == db.tenant, threads.c.id == thread_id)
    )
    found = db.rows(statement)
    if not found:
        return None
    thread, kept = found[0][:_COLUMNS], found[0][_COLUMNS:]
    return row_of(ThreadRow, thread), None if kept[0] is None else row_of(ContextRow, kept)
