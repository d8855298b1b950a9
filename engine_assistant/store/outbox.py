"""The relay's side of the outbox: claim threads for a while, read their milestones, be done.

A thread's queue is claimed through its oldest row. While that row is claimed nobody else takes
the thread, so its milestones stay in order; when the claim runs out, somebody else may, so none
is lost with a process that died. A milestone may therefore be handed out twice, never not at all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

import sqlalchemy as sa

from engine_assistant.model.rows import MilestoneRow
from engine_assistant.store.columns import Instant
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.tables import outbox

__all__ = ["Claimed", "claim_threads", "forget", "give_back", "queued"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """One thread's queue, held by this drainer until the claim runs out."""

    tenant_id: str
    thread_id: str
    head: int
    attempts: int


def claim_threads(db: Database, *, limit: int, hold_for: float) -> list[Claimed]:
    """Claim the threads whose oldest milestone has waited longest, and is not claimed.

    Args:
        db: in a transaction of its own, committed before anything is handed out.
        limit: how many threads at most.
        hold_for: seconds that the claim lasts.
    """
    dialect = dialect_of(db.connection)
    dialect.begin_write(db)
    now = dialect.now(db)
    found = db.rows(_due(now, limit))
    heads = [Claimed(*cast("tuple[str, str, int, int]", row)) for row in found]
    for head in heads:
        db.execute(
            sa.update(outbox)
            .where(*_row(head.tenant_id, head.thread_id, head.head))
            .values(claimed_until=now + timedelta(seconds=hold_for), attempts=outbox.c.attempts + 1)
        )
    return heads


def _due(now: datetime, limit: int) -> sa.Select[tuple[object, ...]]:
    """Find heads of queues. Rows that another drainer is claiming just now are passed over."""
    earlier = outbox.alias("earlier")
    is_head = ~sa.exists().where(
        earlier.c.tenant_id == outbox.c.tenant_id,
        earlier.c.thread_id == outbox.c.thread_id,
        earlier.c.n < outbox.c.n,
    )
    free = sa.or_(
        outbox.c.claimed_until.is_(None), outbox.c.claimed_until <= sa.literal(now, Instant())
    )
    return (
        sa.select(outbox.c.tenant_id, outbox.c.thread_id, outbox.c.n, outbox.c.attempts)
        .where(free, is_head)
        .order_by(outbox.c.created_at, outbox.c.tenant_id, outbox.c.thread_id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )


def _row(tenant_id: str, thread_id: str, n: int) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        outbox.c.tenant_id == tenant_id,
        outbox.c.thread_id == thread_id,
        outbox.c.n == n,
    )


def queued(db: Database, claimed: Claimed, limit: int) -> Sequence[MilestoneRow]:
    """Return the first milestones of a claimed thread, in order."""
    names = ("tenant_id", "thread_id", "n", "type", "payload", "created_at")
    statement = (
        sa.select(*(outbox.c[name] for name in names))
        .where(outbox.c.tenant_id == claimed.tenant_id, outbox.c.thread_id == claimed.thread_id)
        .where(outbox.c.n >= claimed.head)
        .order_by(outbox.c.n)
        .limit(limit)
    )
    make = cast("Callable[..., MilestoneRow]", MilestoneRow)
    return [make(**dict(zip(names, row, strict=True))) for row in db.rows(statement)]


def forget(db: Database, claimed: Claimed, through: int) -> None:
    """Delete a thread's milestones up to and with number `through`: they were handed out."""
    db.execute(
        sa.delete(outbox).where(
            outbox.c.tenant_id == claimed.tenant_id,
            outbox.c.thread_id == claimed.thread_id,
            outbox.c.n <= through,
        )
    )


def give_back(
    db: Database, claimed: Claimed, n: int, *, until: datetime | None, attempts: int
) -> None:
    """Let a thread, whose oldest milestone is now `n`, be taken again after `until`.

    Args:
        db: where.
        claimed: the thread.
        n: its oldest milestone by now.
        until: None means at once.
        attempts: how often that milestone was handed out in vain.
    """
    db.execute(
        sa.update(outbox)
        .where(*_row(claimed.tenant_id, claimed.thread_id, n))
        # The head counts this claim. If it counts more, somebody else has taken the thread.
        .where(outbox.c.attempts == (claimed.attempts + 1 if n == claimed.head else 0))
        .values(claimed_until=until, attempts=attempts)
    )
