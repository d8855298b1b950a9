"""What each operation is asked: one frozen model each, validated before storage is touched.

Unknown fields are refused. The limits in force are the validation context.
"""

import hashlib
from functools import cached_property
from typing import Annotated, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from engine_assistant.model import codec
from engine_assistant.model.events import PLAIN, Event, Known, Unknown, body_of
from engine_assistant.model.fields import (
    Count,
    Flag,
    Id,
    Json,
    Label,
    Natural,
    Reason,
    Sha256,
    Title,
    bounds_of,
    stored_bytes,
)
from engine_assistant.model.limits import LONGEST_WAIT
from engine_assistant.model.machines import ApprovalState, CallState, ThreadStatus
from engine_assistant.model.usage import Usage

__all__ = [
    "AcquireRun",
    "AppendEvents",
    "BeatRun",
    "ClaimExecution",
    "Command",
    "CreateThread",
    "Cursor",
    "Fenced",
    "GetCall",
    "ListApprovals",
    "ListCalls",
    "ListThreads",
    "OnThread",
    "ReadEvents",
    "RegisterFile",
    "ReleaseRun",
    "RequestApproval",
    "ResolveApproval",
    "Rows",
    "SettleExecution",
    "ToolFailure",
]


class Command(BaseModel):
    """The root of every command."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _rows(value: int, info: ValidationInfo) -> int:
    if value > bounds_of(info).page:
        raise ValueError(f"must not be more than {bounds_of(info).page}")
    return value


def _few(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    # Before a digest is made for each of them.
    if not 1 <= len(value) <= bounds_of(info).approvers:
        raise ValueError(f"must be 1 to {bounds_of(info).approvers} people")
    return value


Rows = Annotated[Count, AfterValidator(_rows)]
"""How many rows a page may hold."""

Approvers = Annotated[tuple[Id, ...], AfterValidator(_few)]
"""Who may decide."""

Cursor = Annotated[str, Field(strict=True, min_length=1, max_length=4096)]
StaleAfter = Annotated[float, Field(strict=True, ge=0.01, le=3600, allow_inf_nan=False)]
ExpiresIn = Annotated[float, Field(strict=True, ge=0.001, le=LONGEST_WAIT, allow_inf_nan=False)]


class OnThread(Command):
    """An operation on one thread, named by its id."""

    thread_id: Id


class CreateThread(Command):
    """Open a thread for the caller."""

    title: Title | None = None
    key: Id | None = None


class ListThreads(Command):
    """Page through the threads of one person, newest activity first."""

    subject: Id | None = None
    status: ThreadStatus | None = None
    limit: Rows = 50
    cursor: Cursor | None = None


class ReadEvents(OnThread):
    """Read a page after a number, or the last few events."""

    after: Natural = 0
    limit: Rows = 200
    last: Rows | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.last is not None and {"after", "limit"} & self.model_fields_set:
            raise ValueError("give either last, or after and limit")
        return self


class ListCalls(OnThread):
    """Page through the calls of a thread in the order in which they were (last) proposed."""

    state: CallState | None = None
    limit: Rows = 50
    cursor: Cursor | None = None


class GetCall(OnThread):
    """Look at one call."""

    call_id: Id


class ResolveApproval(OnThread):
    """Approve or deny what the digest stands for."""

    call_id: Id
    approved: Flag
    digest: Sha256
    version: Id | None = None
    reason: Reason | None = None

    @model_validator(mode="after")
    def _approving_names_a_version(self) -> Self:
        if self.approved and self.version is None:
            raise ValueError("an approval must name the version that is served; a denial need not")
        return self


class ListApprovals(Command):
    """Page through approvals: one's own, or everyone's on one thread."""

    state: ApprovalState | None = ApprovalState.PENDING
    thread_id: Id | None = None
    limit: Rows = 50
    cursor: Cursor | None = None


class RegisterFile(OnThread):
    """Note a file that the host has stored for a thread."""

    filename: Title
    content_type: Label
    size: Natural
    sha256: Sha256


class AcquireRun(OnThread):
    """Take the lease, or renew it by presenting the fence that is held."""

    run_id: Id
    fence: Count | None = None
    stale_after: StaleAfter = 15.0


class Fenced(OnThread):
    """A write under the lease."""

    run_id: Id
    fence: Count


class BeatRun(Fenced):
    """Renew the lease."""


class ReleaseRun(Fenced):
    """Give the lease up."""


class AppendEvents(Fenced):
    """Write the assistant's side: all of the batch, or nothing."""

    events: tuple[Event, ...]
    batch: Count | None = None
    usage: Usage | None = None

    @model_validator(mode="after")
    def _within_bounds(self, info: ValidationInfo) -> Self:
        limits = bounds_of(info)
        if not 1 <= len(self.events) <= limits.batch_events:
            raise ValueError(f"a batch must hold 1 to {limits.batch_events} events")
        for event in self.events:
            if type(event) is Unknown:
                raise ValueError("an unknown event type cannot be appended")
            if event.seq or event.turn or event.at is not None:
                raise ValueError("seq, turn and at are given by the engine, not to it")
        total = stored_bytes("".join(self.bodies))
        # What is short as a whole has no long part.
        if total > limits.event_bytes:
            if any(stored_bytes(body) > limits.event_bytes for body in self.bodies):
                raise ValueError(f"an event must not be longer than {limits.event_bytes} bytes")
            if total > limits.batch_bytes:
                raise ValueError(f"a batch must not be longer than {limits.batch_bytes} bytes")
        return self

    @cached_property
    def bodies(self) -> tuple[str, ...]:
        """Each event as it will be stored, serialised once."""
        return tuple([body_of(cast("Known", event)) for event in self.events])

    @cached_property
    def digest(self) -> str:
        """What a batch number stands for: the same number must bring the same events."""
        return hashlib.sha256("\n".join(self.bodies).encode()).hexdigest()

    @cached_property
    def plain(self) -> bool:
        """Whether nothing but events is written, and none of them moves a machine."""
        types = [event.type for event in self.events]
        return self.usage is None and PLAIN.issuperset(types)


class RequestApproval(Fenced):
    """Ask people whether a call may run. The engine mints nonces, expiry and digests."""

    call_id: Id
    operation: Label
    version: Id
    expires_in: ExpiresIn
    approvers: Approvers | None = None
    required: Count = 1
    reissue: Flag = False
    why: Reason | None = None


class ClaimExecution(Fenced):
    """Take the one right to execute an approved call."""

    call_id: Id
    operation: Label
    version: Id
    input: Json
    attempt: Count | None = None


class ToolFailure(Command):
    """How a tool failed."""

    code: Label
    message: Reason


class SettleExecution(OnThread):
    """Bring the late result of a call that its run could not report."""

    call_id: Id
    claimed_fence: Count
    output: Json = None
    error: ToolFailure | None = None

    @model_validator(mode="after")
    def _one_result(self, info: ValidationInfo) -> Self:
        if (self.error is not None) == ("output" in self.model_fields_set):
            raise ValueError("give either output or error")
        most = bounds_of(info).event_bytes
        if len(codec.dumps(self.output).encode()) > most:
            raise ValueError(f"an output must not be longer than {most} bytes")
        return self
