"""The first beat: lock the thread row and read the clock after it."""

from datetime import datetime

import sqlalchemy as sa

from engine_assistant.model.rows import ThreadRow
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.reads import row_of
from engine_assistant.store.tables import approvals, threads

__all__ = ["lock_thread"]


def lock_thread(
    db: Database,
    thread_id: str,
    *,
    owner: str | None = None,
    decider: tuple[str, str] | None = None,
) -> tuple[ThreadRow, datetime] | None:
    """Lock a thread and return its row, with the clock read after the lock, or None.

    The condition on who asks stands in the lock's own WHERE, so that a stranger locks nothing.

    Args:
        db: where.
        thread_id: which thread.
        owner: only if this person owns it.
        decider: only if this (call id, person) was ever asked for approval on it.
    """
    where: list[sa.ColumnElement[bool]] = [
        threads.c.tenant_id == db.tenant,
        threads.c.id == thread_id,
    ]
    if owner is not None:
        where.append(threads.c.subject_id == owner)
    if decider is not None:
        where.append(_was_asked(db, thread_id, *decider))
    dialect = dialect_of(db.connection)
    dialect.begin_write(db)
    found = dialect.lock(db, where)
    if found is None:
        return None
    columns, now = found
    return row_of(ThreadRow, columns), now


def _was_asked(
    db: Database, thread_id: str, call_id: str, principal: str
) -> sa.ColumnElement[bool]:
    """Return whether a person was ever asked. Approvals are never removed, so it stays true."""
    return (
        sa.select(sa.literal(1))
        .where(
            approvals.c.tenant_id == db.tenant,
            approvals.c.thread_id == thread_id,
            approvals.c.call_id == call_id,
            approvals.c.approver_id == principal,
        )
        .exists()
    )
