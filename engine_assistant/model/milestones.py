"""The facts that the engine tells the rest of the platform. Each is written with its change."""

from enum import StrEnum

__all__ = ["MilestoneType"]


class MilestoneType(StrEnum):
    """What happened on a thread. Payloads hold ids, names and verdicts, never content."""

    THREAD_CREATED = "thread-created"
    TURN_STARTED = "turn-started"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESOLVED = "approval-resolved"
    CALL_CLOSED = "call-closed"
    TURN_FINISHED = "turn-finished"
    TURN_FAILED = "turn-failed"
    THREAD_CLOSED = "thread-closed"
