"""For whom a conversation is had."""

from dataclasses import dataclass

__all__ = ["ThreadRef"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRef:
    """The thread that a conversation carries on, and whose it is.

    What a tool or a hook may see and do must hang on this, and never on what the model says.

    Attributes:
        tenant: the tenant.
        id: the thread's.
        subject_id: the person who owns it.
        turn: which turn of it is run.
    """

    tenant: str
    id: str
    subject_id: str
    turn: int
