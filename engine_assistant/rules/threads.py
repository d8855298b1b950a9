"""A new thread, and the key that opens the same one again."""

from datetime import datetime

from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.machines import ThreadStatus, TurnState
from engine_assistant.model.rows import ThreadRow

__all__ = ["new_thread", "repeated_thread"]


def new_thread(
    *,
    tenant: str,
    thread_id: str,
    subject: str,
    key: str | None,
    title: str | None,
    now: datetime,
) -> ThreadRow:
    """Return the row of a thread that nobody has written to."""
    return ThreadRow(
        tenant_id=tenant,
        id=thread_id,
        subject_id=subject,
        key=key,
        title=title,
        status=ThreadStatus.OPEN,
        turn_state=TurnState.IDLE,
        turn=0,
        open_since=None,
        next_deadline=None,
        last_seq=0,
        run_id=None,
        fence=0,
        stale_after=None,
        lease_until=None,
        last_batch=0,
        batch_digest=None,
        batch_first_seq=None,
        batch_last_seq=None,
        interrupt_requested_at=None,
        milestones=0,
        created_at=now,
        last_active_at=now,
        closed_at=None,
        queued=0,
        context_bytes=0,
        origin_tenant=None,
        import_digest=None,
        imported_seq=0,
    )


def repeated_thread(first: ThreadRow, title: str | None) -> ThreadRow:
    """Answer a key that was used before with the thread it opened.

    Raises:
        Conflict: `key_reused`, when it came with another title.
    """
    if first.title != title:
        raise Conflict(
            ConflictReason.KEY_REUSED,
            "This key opened a thread with another title. Use a new key for a new thread.",
            thread_id=first.id,
        )
    return first
