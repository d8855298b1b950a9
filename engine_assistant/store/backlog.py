"""What waits for somebody, across tenants: for people, and for the relay.

Nothing is read that is over: open calls have a partial index, and the outbox holds what waits.
"""

from datetime import datetime
from typing import cast

import sqlalchemy as sa

from engine_assistant.model.machines import OPEN_CALLS, CallState
from engine_assistant.model.service import Backlog, Waiting
from engine_assistant.model.times import to_text
from engine_assistant.store.columns import is_any_of
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.tables import events, outbox, tool_calls

__all__ = ["backlog"]


def backlog(db: Database) -> Backlog:
    """Return it, in one statement. The database's own tenant is not used."""
    now = dialect_of(db.connection).now(db)
    asked, queued = _asked(now), _queued()
    ((approvals, asked_at, milestones, told_at),) = db.rows(
        sa.select(*asked.c, *queued.c).select_from(asked.join(queued, sa.true()))
    )
    return Backlog(
        approvals=Waiting.of(cast("int", approvals), cast("datetime | None", asked_at), now),
        milestones=Waiting.of(cast("int", milestones), cast("datetime | None", told_at), now),
    )


def _asked(now: datetime) -> sa.Subquery:
    """Count the requests that somebody may still answer. The event of each says since when."""
    request = sa.and_(
        events.c.tenant_id == tool_calls.c.tenant_id,
        events.c.thread_id == tool_calls.c.thread_id,
        events.c.seq == tool_calls.c.request_seq,
    )
    return (
        sa.select(sa.func.count().label("count"), sa.func.min(events.c.created_at).label("since"))
        .select_from(tool_calls.join(events, request))
        # The condition of the index, and then the one that is meant.
        .where(is_any_of(tool_calls.c.state, OPEN_CALLS))
        .where(is_any_of(tool_calls.c.state, [CallState.AWAITING]))
        .where(tool_calls.c.expires_at > to_text(now))
        .subquery("asked")
    )


def _queued() -> sa.Subquery:
    oldest = sa.func.min(outbox.c.created_at)
    counted = sa.select(sa.func.count().label("count"), oldest.label("since"))
    return counted.select_from(outbox).subquery("queued")
