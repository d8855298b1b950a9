"""Threads that a run should pick up, across tenants. Idle threads are never touched.

Fair: the oldest of every tenant comes first, then the second of every tenant, and on. A tenant
with ten thousand of them is served in its turn, and keeps nobody waiting.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

import sqlalchemy as sa

from engine_assistant.model.machines import TurnState
from engine_assistant.store.columns import is_any_of
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.tables import threads

__all__ = ["runnable"]


def runnable(
    connection: sa.Connection,
    *,
    schema: str | None,
    clock: Callable[[], datetime] | None,
    limit: int,
    exclude: Sequence[tuple[str, str]],
) -> Sequence[sa.RowMapping]:
    """Return (tenant, thread_id, turn, why, since), by rank within the tenant, then by age.

    Open turns with no live lease stand in one partial index, waiting turns whose approvals have
    all lapsed in another.
    """
    db = Database(connection, "", schema=schema, clock=clock)
    now = sa.literal(dialect_of(connection).now(db), threads.c.open_since.type)
    free = sa.or_(threads.c.run_id.is_(None), threads.c.lease_until <= now)
    why = sa.case(
        (threads.c.run_id.is_(None), sa.literal("no-run")), else_=sa.literal("lease-ran-out")
    )
    opened = _arm(why, threads.c.open_since, exclude).where(
        is_any_of(threads.c.turn_state, [TurnState.OPEN]), free
    )
    lapsed = _arm(sa.literal("approvals-lapsed"), threads.c.next_deadline, exclude).where(
        is_any_of(threads.c.turn_state, [TurnState.AWAITING]), threads.c.next_deadline <= now, free
    )
    found = sa.union_all(opened, lapsed).subquery("found")
    age = (found.c.since, found.c.thread_id)
    rank = sa.func.row_number().over(partition_by=found.c.tenant, order_by=age).label("rank")
    ranked = sa.select(found, rank).subquery("ranked")
    statement = (
        sa.select(*(ranked.c[column.name] for column in found.c))
        .order_by(ranked.c.rank, ranked.c.since, ranked.c.tenant, ranked.c.thread_id)
        .limit(limit)
    )
    return db.execute(statement).mappings().all()


def _arm(
    why: sa.ColumnElement[str],
    since: sa.Column[datetime],
    exclude: Sequence[tuple[str, str]],
) -> sa.Select[tuple[object, ...]]:
    statement = sa.select(
        threads.c.tenant_id.label("tenant"),
        threads.c.id.label("thread_id"),
        threads.c.turn,
        why.label("why"),
        since.label("since"),
    )
    if exclude:
        statement = statement.where(
            sa.tuple_(threads.c.tenant_id, threads.c.id).not_in(list(exclude))
        )
    return statement
