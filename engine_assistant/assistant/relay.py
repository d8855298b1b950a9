"""Handing milestones to the rest of the platform, in order per thread and at least once."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa

from engine_assistant.assistant.settings import Settings
from engine_assistant.model.service import Drained, Failure, Milestone
from engine_assistant.store import outbox
from engine_assistant.store.database import Database
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.outbox import Claimed

__all__ = ["AsyncHandler", "Drain", "Handler", "Queue"]

Handler = Callable[[Milestone], object]
AsyncHandler = Callable[[Milestone], Awaitable[object]]

HOLD_FOR: Final = 60.0
"""Seconds that a claim lasts. A drainer that is slower than this may be overtaken."""
LONGEST_PAUSE: Final = 300.0
"""Seconds that a thread waits at most before its failing milestone is tried again."""


@dataclass
class Queue:
    """One claimed thread's milestones, and how far they were handed out."""

    claimed: Claimed
    milestones: Sequence[Milestone]
    good_until: float
    done: int = 0
    failure: Failure | None = None

    def may_go_on(self) -> bool:
        """Return whether the claim still holds: after it, somebody else may be at it."""
        return time.monotonic() < self.good_until

    def handed_out(self, milestone: Milestone) -> None:
        """Note that the handler took it."""
        self.done = milestone.n

    def failed(self, milestone: Milestone, error: Exception) -> None:
        """Note that the handler raised: this thread waits, the others go on."""
        self.failure = Failure(
            tenant=milestone.tenant_id,
            thread_id=milestone.thread_id,
            n=milestone.n,
            error=type(error).__name__,
            attempts=self.claimed.attempts + 1 if milestone.n == self.claimed.head else 1,
        )


@dataclass
class Drain:
    """One pass over the outbox: claim, hand out, settle. The handing out is the caller's."""

    settings: Settings
    limit: int
    hold_for: float = HOLD_FOR
    queues: list[Queue] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ValidationFailed: the limit is not between 1 and the largest page.
        """
        self.settings.check_limit(self.limit)

    def claim(self, connection: sa.Connection) -> None:
        """Claim whole threads, oldest first, up to `limit` milestones: one short transaction."""
        good_until = time.monotonic() + self.hold_for
        db = Database(connection, "", schema=self.settings.schema, clock=self.settings.clock)
        with connection.begin():
            left = self.limit
            for claimed in outbox.claim_threads(db, limit=self.limit, hold_for=self.hold_for):
                rows = outbox.queued(db, claimed, left) if left else ()
                if not rows:
                    outbox.give_back(
                        db, claimed, claimed.head, until=None, attempts=claimed.attempts
                    )
                    continue
                left -= len(rows)
                milestones = [Milestone.of(row) for row in rows]
                self.queues.append(Queue(claimed, milestones, good_until))

    def settle(self, connection: sa.Connection) -> Drained:
        """Delete what was handed out, and let failing threads wait: a second transaction."""
        db = Database(connection, "", schema=self.settings.schema, clock=self.settings.clock)
        dialect = dialect_of(connection)
        with connection.begin():
            dialect.begin_write(db)
            now = dialect.now(db)
            for queue in self.queues:
                _settle(db, queue, now)
        failures = tuple(queue.failure for queue in self.queues if queue.failure is not None)
        handed = sum(
            sum(milestone.n <= queue.done for milestone in queue.milestones)
            for queue in self.queues
        )
        return Drained(handed_out=handed, failures=failures)


def _settle(db: Database, queue: Queue, now: datetime) -> None:
    if queue.done:
        outbox.forget(db, queue.claimed, queue.done)
    rest = next((m.n for m in queue.milestones if m.n > queue.done), None)
    if rest is None:
        return
    if queue.failure is None:
        # The claim ran out on the way, so the thread is free already.
        return
    attempts = queue.failure.attempts
    pause = min(LONGEST_PAUSE, 2.0 ** min(attempts - 1, 16))
    until = now + timedelta(seconds=pause)
    outbox.give_back(db, queue.claimed, rest, until=until, attempts=attempts)
