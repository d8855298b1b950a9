"""What each operation answers: frozen models, plain data all the way down."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from engine_assistant.model.events import Event
from engine_assistant.model.fields import Json, Time
from engine_assistant.model.machines import (
    ApprovalState,
    CallState,
    InputState,
    ThreadStatus,
    TurnState,
)
from engine_assistant.model.parts import ApprovalSlot

__all__ = [
    "Answer",
    "Appended",
    "ApprovalView",
    "Beat",
    "CallView",
    "Claim",
    "Decision",
    "EventPage",
    "File",
    "Interrupt",
    "Lease",
    "MessageReceipt",
    "Page",
    "Released",
    "Request",
    "Say",
    "Settled",
    "Thread",
    "View",
]

T = TypeVar("T")


class View(BaseModel):
    """The root of every view."""

    model_config = ConfigDict(frozen=True)


class Page(View, Generic[T]):
    """Some rows, and the cursor that continues after them (None: there are no more)."""

    items: tuple[T, ...]
    cursor: str | None = None


class Thread(View):
    """A conversation. `last_seq` is the number of its newest event, 0 when it has none.

    `queued` is how many messages wait. `origin_tenant` is the tenant in which it began, if it was
    imported from another one: the digests of its approvals name that.
    """

    id: str
    subject_id: str
    key: str | None
    title: str | None
    status: ThreadStatus
    turn_state: TurnState
    turn: int
    last_seq: int
    queued: int
    created_at: Time
    last_active_at: Time
    closed_at: Time | None
    origin_tenant: str | None = None


class EventPage(View):
    """Events in order. A reader is done when `last_seq` equals `head_seq`."""

    events: tuple[Event, ...]
    last_seq: int
    head_seq: int


class Answer(View):
    """How a turn that is over answered: its text, whole, and why it ended.

    `reason` is that of its turn-finish; `error`, with the `code` of its turn-error; or
    `superseded`, when the person said something else while it waited.
    """

    turn: int
    reason: str
    text: str
    code: str | None = None


class MessageReceipt(View):
    """What became of a message: the turn that holds it, and where. All 0 while it waits.

    `duplicate`: this key was sent before; this is how its message stands now. Then `answer` is
    there once the turn that holds the message is over.
    """

    state: InputState
    first_seq: int
    last_seq: int
    turn: int
    input_id: str
    duplicate: bool = False
    answer: Answer | None = None


class Interrupt(View):
    """Whether the turn ended now; if not, since when its run is asked to stop."""

    ended: bool
    requested_at: Time | None = None


class Decision(View):
    """A recorded decision: its number, the call's state after it, approvals still missing."""

    seq: int
    state: CallState
    missing: int


class Say(View):
    """How one approver's say over the current request stands."""

    approver: str
    state: ApprovalState
    nonce: str
    digest: str
    decided_at: Time | None
    decided_seq: int | None
    channel: str | None
    reason: str | None


class CallView(View):
    """One call, with what would run and who may say so.

    `repeatable`: its tool may run twice, so it may be tried again once it is `unknown`.

    `approvals` are those of the current request. `claimed_fence` is the fence under which the
    call runs or ran; a late result is settled with it. `result` is the tool's output or error.
    """

    call_id: str
    turn: int
    step: str
    tool: str
    state: CallState
    provider_call_id: str | None
    repeatable: bool
    input: Json
    operation: str | None
    version: str | None
    expires_at: str | None
    required: int | None
    request_seq: int | None
    approvals: tuple[Say, ...]
    claimed_fence: int | None
    claimed_attempt: int | None
    claimed_at: Time | None
    result: Mapping[str, Json] | None
    created_at: Time
    updated_at: Time


class ApprovalView(View):
    """One approval with what would run: everything a card shows, and the digest that answers it."""

    thread_id: str
    call_id: str
    tool: str
    step: str
    operation: str
    version: str
    input: Json
    expires_at: str
    required: int
    request_seq: int
    approver: str
    nonce: str
    digest: str
    state: ApprovalState
    call_state: CallState
    decided_at: Time | None
    decided_seq: int | None
    channel: str | None
    reason: str | None


class File(View):
    """What is known of a file."""

    id: str
    thread_id: str
    filename: str
    content_type: str
    size: int
    sha256: str


class Lease(View):
    """The right to write the assistant's side until `lease_until`, under `fence`.

    `took_over`: another run held it and was replaced.
    """

    thread_id: str
    run_id: str
    fence: int
    took_over: bool
    lease_until: Time


class Beat(View):
    """The lease was renewed. `interrupt_requested`: the person asked this run to stop."""

    interrupt_requested: bool
    lease_until: Time


class Released(View):
    """Whether this run held the lease."""

    released: bool


class Appended(View):
    """The stored events. `duplicate`: this batch number was written before; this is its answer."""

    events: tuple[Event, ...]
    interrupt_requested: bool
    duplicate: bool = False


class Request(View):
    """A recorded approval request."""

    seq: int
    requests: tuple[ApprovalSlot, ...]
    expires_at: str


class Claim(View):
    """The right to execute, given once. `duplicate`: this attempt already holds it."""

    call_id: str
    claimed_fence: int
    duplicate: bool = False


class Settled(View):
    """A late result is kept.

    `seq` is the number of its event: None on a closed thread, where only the row takes it, and for
    a `duplicate`, which appends nothing.
    """

    call_id: str
    state: CallState
    seq: int | None
    duplicate: bool = False
