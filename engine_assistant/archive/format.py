"""What an archive is made of: JSON lines, each in the one form in which it can be written.

    {"archive":"engine-assistant/thread","origin_tenant":"acme","thread":{…},"version":1}
    {"event":{"body":{…},"created_at":"…","seq":1,"turn":1,"type":"user-message"}}
    {"count":1,"end":"events","sha256":"…"}
    … inputs, calls, approvals, runs, files, compactions …
    {"end":"thread","sha256":"…"}

A row stands as its columns by name, without those that say in which thread it is. What a column
holds as JSON text stands in the line as that very text. What is not here is not in an archive: the
reader's tenant, the lease, the bookkeeping of batches, private context, milestones that wait.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from engine_assistant.model import codec
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.fields import Id, Label, Moment, Natural, Reason, Sha256, Summary, Title
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
    "DEEPEST_LINE",
    "LONGEST_LINE",
    "MOST_COUNTED",
    "SUBJECT",
    "THREAD",
    "VERSION",
    "ApprovalFields",
    "CallFields",
    "CompactionFields",
    "EventFields",
    "Fields",
    "FileFields",
    "Header",
    "InputFields",
    "Line",
    "RunFields",
    "SectionEnd",
    "SubjectEnd",
    "SubjectHeader",
    "ThreadEnd",
    "ThreadFields",
]

VERSION: Final = 1
"""The version that is written, and the newest that can be read."""

THREAD: Final = "engine-assistant/thread"
SUBJECT: Final = "engine-assistant/subject"

LONGEST_LINE: Final = 2 * 1024 * 1024
"""Bytes. The longest text of a row, 256 KiB, takes six times as much when all of it is escaped."""

DEEPEST_LINE: Final = codec.MAX_DEPTH + 3
"""A line and its row stand around a body, which stands around a value of the full depth."""

MOST_COUNTED: Final = 2**53 - 1
"""The largest number that the engine can have counted to; no thread comes near it."""


class Line(BaseModel):
    """The root of everything that is read from a line."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _object(value: object) -> object:
    if type(value) is not dict:
        raise ValueError("must be an object")
    return value


# The codec has checked what is inside.
_Stored = Annotated[dict[str, JsonValue], PlainValidator(_object)]
_Text = Annotated[str, Field(strict=True)]
# What the engine counts itself goes on where it is imported, so it ends far before a column does.
_Counted = Annotated[int, Field(strict=True, ge=0, le=MOST_COUNTED)]
_Numbered = Annotated[int, Field(strict=True, ge=1, le=MOST_COUNTED)]
# Not a literal, which would take True for 1.
_Version = Annotated[int, Field(strict=True, ge=1, le=VERSION)]


class ThreadFields(Line):
    """What a thread's own row says, beside its lease."""

    id: Id
    subject_id: Id
    key: Id | None
    title: Title | None
    status: ThreadStatus
    turn_state: TurnState
    turn: _Counted
    open_since: Moment | None
    next_deadline: Moment | None
    last_seq: _Counted
    fence: _Counted
    interrupt_requested_at: Moment | None
    milestones: _Counted
    created_at: Moment
    last_active_at: Moment
    closed_at: Moment | None
    queued: _Counted


class Header(Line):
    """The first line of a thread's archive."""

    archive: Literal["engine-assistant/thread"]
    version: _Version
    origin_tenant: Id
    thread: ThreadFields


class SubjectHeader(Line):
    """The first line before the archives of one person's threads."""

    archive: Literal["engine-assistant/subject"]
    version: _Version
    subject_id: Id


class SectionEnd(Line):
    """How many rows a section holds, and the digest of its lines."""

    end: _Text
    count: _Counted
    sha256: Sha256


class ThreadEnd(Line):
    """The last line: the digest of all lines before it."""

    end: Literal["thread"]
    sha256: Sha256


class SubjectEnd(Line):
    """The last line after the archives of one person's threads."""

    end: Literal["subject"]
    threads: _Counted
    sha256: Sha256


class Fields(Line):
    """The root of the fields of a row."""


class EventFields(Fields):
    """An event."""

    seq: _Numbered
    type: Label
    turn: _Counted
    body: _Stored
    created_at: Moment


class InputFields(Fields):
    """A message that somebody sent."""

    id: Id
    author_id: Id
    key: Id | None
    key_digest: Sha256
    state: InputState
    turn: _Counted
    first_seq: _Counted
    last_seq: _Counted
    when_busy: WhenBusy | None
    priority: Priority
    position: _Counted
    joins: _Counted
    body: _Stored | None
    queued_at: Moment | None


class CallFields(Fields):
    """A tool call."""

    call_id: Id
    turn: _Counted
    step: Id
    tool: Label
    state: CallState
    provider_call_id: Id | None
    input_seq: _Counted
    input_digest: Sha256
    operation: Label | None
    version: Id | None
    expires_at: Moment | None
    required: _Counted | None
    request_seq: _Counted | None
    request_digest: Sha256 | None
    claimed_fence: _Counted | None
    claimed_attempt: Natural | None
    claimed_at: Moment | None
    result: _Stored | None
    created_at: Moment
    updated_at: Moment


class ApprovalFields(Fields):
    """One person's say over one request."""

    call_id: Id
    request_seq: _Counted
    approver_id: Id
    nonce: Id
    digest: Sha256
    state: ApprovalState
    decided_at: Moment | None
    decided_seq: _Counted | None
    channel: Id | None
    reason: Reason | None


class RunFields(Fields):
    """One holding of the lease."""

    fence: _Counted
    run_id: Id
    state: RunState
    started_at: Moment
    ended_at: Moment | None
    turn: _Counted
    reason: Label | None
    usage: _Stored | None
    operation: _Stored | None


class FileFields(Fields):
    """What is known of a file."""

    id: Id
    filename: Title
    content_type: Label
    size: Natural
    sha256: Sha256


class CompactionFields(Fields):
    """A summary that stands for a range of events."""

    n: _Numbered
    from_seq: _Counted
    to_seq: _Counted
    summary: Summary
    covered_by: _Counted | None
    created_at: Moment
