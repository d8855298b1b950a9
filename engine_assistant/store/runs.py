"""Reading runs with their thread, in one statement: how a run stands is of one moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import sqlalchemy as sa

from engine_assistant.model.machines import RunState
from engine_assistant.model.rows import RunRow
from engine_assistant.store.database import Database
from engine_assistant.store.reads import row_of
from engine_assistant.store.tables import runs, threads

__all__ = ["RunsRead", "read_runs"]

_HEAD = (
    threads.c.subject_id,
    threads.c.last_seq,
    threads.c.lease_until,
    threads.c.interrupt_requested_at,
)


@dataclass(frozen=True, slots=True)
class RunsRead:
    """Runs of a thread, newest first, with its head and the lease that they were read under."""

    subject_id: str
    head_seq: int
    lease_until: datetime | None
    interrupt_requested_at: datetime | None
    rows: Sequence[RunRow]


def read_runs(
    db: Database,
    thread_id: str,
    *,
    fence: int | None = None,
    state: RunState | None = None,
    limit: int = 1,
    before: int | None = None,
) -> RunsRead | None:
    """Return runs of a thread, newest first; None if there is no such thread.

    Args:
        db: where.
        thread_id: whose runs.
        fence: only the one that had this fence.
        state: only those in this state.
        limit: how many at most.
        before: only those with a lower fence.
    """
    wanted = [runs.c.tenant_id == threads.c.tenant_id, runs.c.thread_id == threads.c.id]
    if fence is not None:
        wanted.append(runs.c.fence == fence)
    if state is not None:
        wanted.append(runs.c.state == state)
    if before is not None:
        wanted.append(runs.c.fence < before)
    statement = (
        sa.select(*_HEAD, *runs.c)
        .select_from(threads.outerjoin(runs, sa.and_(*wanted)))
        .where(threads.c.tenant_id == db.tenant, threads.c.id == thread_id)
        .order_by(runs.c.fence.desc())
        .limit(limit)
    )
    found = db.rows(statement)
    if not found:
        return None
    split = len(_HEAD)
    subject, head, until, asked = found[0][:split]
    return RunsRead(
        cast("str", subject),
        cast("int", head),
        cast("datetime | None", until),
        cast("datetime | None", asked),
        [row_of(RunRow, row[split:]) for row in found if row[split] is not None],
    )
