"""The stream, version 1: what a thread is made of.

An event is stored as compact JSON with sorted keys. The read form adds `seq`, `turn` and `at`.
A field that holds its default is left out of the body, so a default can never change.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from engine_assistant.model.bodies import stored_form
from engine_assistant.model.fields import (
    Count,
    Flag,
    Id,
    Json,
    Label,
    Message,
    Moment,
    Natural,
    Reason,
    Sha256,
)
from engine_assistant.model.machines import CallState
from engine_assistant.model.parts import ApprovalSlot, FilePart
from engine_assistant.model.record import Recorded, Writer

STREAM_VERSION: Final = 1
"""The number that every `turn-start` carries."""


class UserMessage(Recorded):
    """What the person said."""

    writer = Writer.PERSON
    type: Literal["user-message"] = "user-message"
    text: Message
    author: Id
    input_id: Id
    files: tuple[FilePart, ...] | None = None


class TurnStart(Recorded):
    """The assistant's turn begins. `v` is the version of this stream."""

    writer = Writer.PERSON
    type: Literal["turn-start"] = "turn-start"
    v: Count


class ApprovalResolved(Recorded):
    """One person decided. `state` is the call's state after it, `missing` what it still lacks."""

    writer = Writer.PERSON
    type: Literal["approval-resolved"] = "approval-resolved"
    call_id: Id
    approved: Flag
    approver: Id
    digest: Sha256
    state: CallState
    missing: Natural
    channel: Id | None = None
    reason: Reason | None = None


class UnknownResolved(Recorded):
    """A person said what became of an `unknown` call: it happened, so, or it did not."""

    writer = Writer.PERSON
    type: Literal["unknown-resolved"] = "unknown-resolved"
    call_id: Id
    happened: Flag
    author: Id
    output: Json = None
    channel: Id | None = None
    reason: Reason | None = None


class StepStart(Recorded):
    """One request to the model begins."""

    type: Literal["step-start"] = "step-start"
    step: Id | None = None


class TextDelta(Recorded):
    """A piece of the answer. The final text is exactly the pieces, joined."""

    type: Literal["text-delta"] = "text-delta"
    text: Annotated[str, Field(strict=True)]


class ReasoningDelta(Recorded):
    """A piece of reasoning, only if the host chooses to show it."""

    type: Literal["reasoning-delta"] = "reasoning-delta"
    text: Annotated[str, Field(strict=True)]


class ToolInput(Recorded):
    """The model proposes a call. The host mints `call_id`; the model's own id is a label.

    `repeatable`: running the tool twice does no harm, so an `unknown` call may be tried again.
    """

    type: Literal["tool-input"] = "tool-input"
    call_id: Id
    tool: Label
    input: Json
    step: Id
    provider_call_id: Id | None = None
    repeatable: Flag = False


class ApprovalRequest(Recorded):
    """The call waits for people. What they are shown is drawn from `input`, nothing else."""

    type: Literal["approval-request"] = "approval-request"
    call_id: Id
    tool: Label
    input: Json
    step: Id
    operation: Label
    version: Id
    expires_at: Moment
    required: Count
    requests: tuple[ApprovalSlot, ...]
    reissue: Flag = False
    why: Reason | None = None


class ToolProgress(Recorded):
    """Something a running tool reports."""

    type: Literal["tool-progress"] = "tool-progress"
    call_id: Id
    payload: Json = None


class ToolOutput(Recorded):
    """What the tool returned. `late`: settled after its run had gone."""

    type: Literal["tool-output"] = "tool-output"
    call_id: Id
    output: Json
    late: Flag = False


class ToolError(Recorded):
    """How the tool failed. `late`: settled after its run had gone."""

    type: Literal["tool-error"] = "tool-error"
    call_id: Id
    code: Label
    message: Reason
    late: Flag = False


class StepFinish(Recorded):
    """One request to the model ended."""

    type: Literal["step-finish"] = "step-finish"
    usage: dict[Annotated[str, Field(strict=True)], Json] | None = None
    stop_reason: Label | None = None


class Data(Recorded):
    """Something of the host's own. A reader may skip it when `ignorable`."""

    type: Literal["data"] = "data"
    kind: Label
    payload: Json
    ignorable: Flag = False


class TurnFinish(Recorded):
    """The turn rests."""

    type: Literal["turn-finish"] = "turn-finish"
    reason: Literal["done", "awaiting-approval", "interrupted", "max-tokens", "limit", "refused"]


class TurnError(Recorded):
    """The turn rests because something broke."""

    type: Literal["turn-error"] = "turn-error"
    code: Label
    message: Reason
    retryable: Flag = False


class ExecutionClaimed(Recorded):
    """The proof that this run, and no other, may execute the call."""

    writer = Writer.ENGINE
    type: Literal["execution-claimed"] = "execution-claimed"
    call_id: Id
    run_id: Id
    fence: Count
    attempt: Count | None = None
    version: Id
    request_digest: Sha256


class CallRetried(Recorded):
    """An `unknown` call that nobody had to approve runs again, under another fence."""

    writer = Writer.ENGINE
    type: Literal["call-retried"] = "call-retried"
    call_id: Id
    run_id: Id
    fence: Count
    attempt: Count | None = None


class SeededMessage(Recorded):
    """Something said before this thread began, given to it when it was made. No turn holds it."""

    writer = Writer.ENGINE
    type: Literal["seeded-message"] = "seeded-message"
    role: Literal["user", "assistant"]
    text: Message


class CallClosed(Recorded):
    """The call ended without a result of its own. `state` says how, `why` says by what."""

    writer = Writer.ENGINE
    type: Literal["call-closed"] = "call-closed"
    call_id: Id
    state: CallState
    why: Label


class Unknown(Recorded):
    """An event of a newer writer. `name` is its type; `body` is what was stored."""

    writer = Writer.ENGINE
    type: Literal["unknown"] = "unknown"
    name: str
    body: dict[str, Json]


Known = (
    UserMessage
    | TurnStart
    | ApprovalResolved
    | UnknownResolved
    | StepStart
    | TextDelta
    | ReasoningDelta
    | ToolInput
    | ApprovalRequest
    | ToolProgress
    | ToolOutput
    | ToolError
    | StepFinish
    | Data
    | TurnFinish
    | TurnError
    | ExecutionClaimed
    | CallRetried
    | SeededMessage
    | CallClosed
)
Event = Annotated[Known | Unknown, Field(discriminator="type")]
"""Any event, as it is read."""

WRITERS: Final[Mapping[str, Writer]] = {
    cls.model_fields["type"].default: cls.writer for cls in Known.__args__
}
"""Who may write what. Everything that is not a run's is refused with `not_a_run_event`."""

PLAIN: Final = frozenset(
    {"step-start", "text-delta", "reasoning-delta", "tool-progress", "step-finish", "data"}
)
"""Events that move no machine. A batch of these alone is one statement on Postgres."""

EVENTS: Final[TypeAdapter[list[Known | Unknown]]] = TypeAdapter(list[Event])


def body_of(event: Known) -> str:
    """Return the stored form: compact JSON, sorted keys, defaults (so `seq` too) left out."""
    return stored_form(event, plain=event.type in PLAIN)
