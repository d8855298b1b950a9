"""The rows as rules see them: frozen, typed, free of SQL. Field order is column order."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from engine_assistant.model.machines import (
    ApprovalState,
    CallState,
    InputState,
    Priority,
    RunState,
    ThreadStatus,
    TurnState,
    WhenBusy,
)

__all__ = [
    "ApprovalRow",
    "CallRow",
    "Change",
    "CompactionRow",
    "ContextRow",
    "EventRow",
    "FileRow",
    "InputRow",
    "MilestoneRow",
    "Plan",
    "Row",
    "RunRow",
    "ThreadRow",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """A conversation and its head: numbering, turn, lease and fence, under one lock."""

    tenant_id: str
    id: str
    subject_id: str
    key: str | None
    title: str | None
    status: ThreadStatus
    turn_state: TurnState
    turn: int
    open_since: datetime | None
    next_deadline: datetime | None
    last_seq: int
    run_id: str | None
    fence: int
    stale_after: float | None
    lease_until: datetime | None
    last_batch: int
    batch_digest: str | None
    batch_first_seq: int | None
    batch_last_seq: int | None
    interrupt_requested_at: datetime | None
    milestones: int
    created_at: datetime
    last_active_at: datetime
    closed_at: datetime | None
    queued: int
    context_bytes: int
    origin_tenant: str | None
    import_digest: str | None
    imported_seq: int

    @property
    def origin(self) -> str:
        """Return the tenant in which the thread began. Its digests name it for ever."""
        return self.origin_tenant or self.tenant_id

    def has_live_run(self, now: datetime) -> bool:
        """Return whether somebody holds the lease and may not be replaced yet."""
        return self.run_id is not None and self.lease_until is not None and self.lease_until > now


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One numbered fact. Never updated, never removed."""

    seq: int
    type: str
    turn: int
    body: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """One message that somebody sent. Turn and numbers are 0 until a turn holds it.

    Attributes:
        when_busy: what it was to do if it could not open a turn; None: it opened one at once.
        position: its place in the order of admission among those that waited with it; 0: it
            never waited.
        joins: the position of the message in whose turn it opens: its own, unless coalesced.
        body: text and files, while it waits.
    """

    KEY: ClassVar[tuple[str, ...]] = ("tenant_id", "thread_id", "id")

    tenant_id: str
    thread_id: str
    id: str
    author_id: str
    key: str | None
    key_digest: str
    state: InputState
    turn: int
    first_seq: int
    last_seq: int
    when_busy: WhenBusy | None = None
    priority: Priority = Priority.NORMAL
    position: int = 0
    joins: int = 0
    body: str | None = None
    queued_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One holding of the lease, kept after it ended.

    Attributes:
        turn: the turn that it was acquired in.
        reason: by what it ended.
        usage: what it has used up so far, as JSON.
        operation: the last thing that it was seen doing, as JSON.
    """

    KEY: ClassVar[tuple[str, ...]] = ("tenant_id", "thread_id", "fence")

    tenant_id: str
    thread_id: str
    fence: int
    run_id: str
    state: RunState
    started_at: datetime
    ended_at: datetime | None
    turn: int
    reason: str | None = None
    usage: str | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One proposed tool call. `request_digest` is null while it is ungated."""

    KEY: ClassVar[tuple[str, ...]] = ("tenant_id", "thread_id", "call_id")

    tenant_id: str
    thread_id: str
    call_id: str
    turn: int
    step: str
    tool: str
    state: CallState
    provider_call_id: str | None
    input_seq: int
    input_digest: str
    operation: str | None
    version: str | None
    expires_at: str | None
    required: int | None
    request_seq: int | None
    request_digest: str | None
    claimed_fence: int | None
    claimed_attempt: int | None
    claimed_at: datetime | None
    result: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRow:
    """One person's say over one request."""

    KEY: ClassVar[tuple[str, ...]] = (
        "tenant_id",
        "thread_id",
        "call_id",
        "request_seq",
        "approver_id",
    )

    tenant_id: str
    thread_id: str
    call_id: str
    request_seq: int
    approver_id: str
    nonce: str
    digest: str
    state: ApprovalState
    decided_at: datetime | None
    decided_seq: int | None
    channel: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """What is known of a file given to a thread. Its bytes live with the host."""

    KEY: ClassVar[tuple[str, ...]] = ("tenant_id", "thread_id", "id")

    tenant_id: str
    thread_id: str
    id: str
    filename: str
    content_type: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRow:
    """A summary that stands for a range of events. The events stay as they are.

    Attributes:
        n: from 1, in the order in which they were made.
        covered_by: the later one that stands for this one too.
    """

    KEY: ClassVar[tuple[str, ...]] = ("tenant_id", "thread_id", "n")

    tenant_id: str
    thread_id: str
    n: int
    from_seq: int
    to_seq: int
    summary: str
    covered_by: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRow:
    """Opaque state of the model's provider, kept for the turn that is not over. Never shown."""

    KEY: ClassVar[tuple[str, ...]] = ("tenant_id", "thread_id")

    tenant_id: str
    thread_id: str
    turn: int
    fence: int
    state: str
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MilestoneRow:
    """One fact for the rest of the platform: ids, names and verdicts, never content."""

    tenant_id: str
    thread_id: str
    n: int
    type: str
    payload: str
    created_at: datetime


Row = InputRow | RunRow | CallRow | ApprovalRow | FileRow | CompactionRow | ContextRow
"""A row beside the head that a plan may change."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row before (None: it is new) and after. The store derives INSERT or UPDATE and guard."""

    before: Row | None
    after: Row


A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[A]):
    """Everything one decision writes, and what the caller is told.

    Attributes:
        answer: the operation's result, true once the plan is written.
        before: the locked thread row that the rule looked at.
        after: the thread row as it will stand.
        events: numbered from `before.last_seq + 1`, without a gap.
        changes: one net change for each other row.
        milestones: numbered from `before.milestones + 1`.
    """

    answer: A
    before: ThreadRow
    after: ThreadRow
    events: tuple[EventRow, ...] = ()
    changes: tuple[Change, ...] = ()
    milestones: tuple[MilestoneRow, ...] = ()
