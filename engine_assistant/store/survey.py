"""Threads of every tenant, for whoever operates the database. Not for any person's request."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from engine_assistant.model.machines import TurnState
from engine_assistant.model.rows import ThreadRow
from engine_assistant.store.columns import is_any_of
from engine_assistant.store.database import Database
from engine_assistant.store.reads import row_of
from engine_assistant.store.tables import threads

__all__ = ["Survey", "survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Which threads are asked for: of one tenant, of one id, only unrested ones, after a key."""

    tenant: str | None = None
    thread_id: str | None = None
    unrested: bool = False
    limit: int = 100
    after: tuple[str, str] | None = None


def survey(db: Database, asked: Survey) -> Sequence[ThreadRow]:
    """Return threads in the order of (tenant, id). The database's own tenant is not used."""
    statement = sa.select(threads).order_by(threads.c.tenant_id, threads.c.id).limit(asked.limit)
    if asked.tenant is not None:
        statement = statement.where(threads.c.tenant_id == asked.tenant)
    if asked.thread_id is not None:
        statement = statement.where(threads.c.id == asked.thread_id)
    if asked.unrested:
        statement = statement.where(
            is_any_of(threads.c.turn_state, [TurnState.OPEN, TurnState.AWAITING])
        )
    if asked.after is not None:
        statement = statement.where(
            sa.tuple_(threads.c.tenant_id, threads.c.id) > sa.tuple_(*asked.after)
        )
    return [row_of(ThreadRow, row) for row in db.rows(statement)]
