"""What the platform's own processes see, across tenants. No person is ever shown these."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Self

from engine_assistant.model.fields import Json, Time
from engine_assistant.model.rows import MilestoneRow
from engine_assistant.model.views import Thread, View

__all__ = ["Backlog", "Drained", "Failure", "Milestone", "Runnable", "Surveyed", "Waiting"]


class Runnable(View):
    """A thread that a run should pick up, why, and since when."""

    tenant: str
    thread_id: str
    turn: int
    why: str
    since: Time


class Surveyed(Thread):
    """A thread as whoever operates the database sees it: of any tenant, with its lease."""

    tenant_id: str
    run_id: str | None
    fence: int
    lease_until: Time | None
    next_deadline: Time | None


class Waiting(View):
    """How many of something wait, since when the oldest does, and for how many seconds."""

    count: int
    since: Time | None
    age: float

    @classmethod
    def of(cls, count: int, since: datetime | None, now: datetime) -> Self:
        """Count the seconds; none where nothing waits."""
        age = 0.0 if since is None else max(0.0, (now - since).total_seconds())
        return cls(count=count, since=since, age=age)


class Backlog(View):
    """What waits for somebody, of every tenant.

    `approvals` are calls that were asked about and not decided, and may still be; `milestones` are
    those in our outbox that no relay has handed out.
    """

    approvals: Waiting
    milestones: Waiting


class Milestone(View):
    """One fact for the rest of the platform, numbered per thread."""

    tenant_id: str
    thread_id: str
    n: int
    type: str
    payload: Mapping[str, Json]
    created_at: Time

    @classmethod
    def of(cls, row: MilestoneRow) -> Self:
        """Read a stored milestone."""
        return cls(
            tenant_id=row.tenant_id,
            thread_id=row.thread_id,
            n=row.n,
            type=row.type,
            payload=json.loads(row.payload),
            created_at=row.created_at,
        )


class Failure(View):
    """A milestone that the handler did not take; its thread waits and is tried again."""

    tenant: str
    thread_id: str
    n: int
    error: str
    attempts: int


class Drained(View):
    """What one pass over the outbox did."""

    handed_out: int
    failures: tuple[Failure, ...]
