"""What a model is told of a thread: messages that have the shape of no provider.

Each message carries the range of events that it was made of, so that a host which shortens a
history can say where.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from engine_assistant.model.fields import Json, Time
from engine_assistant.model.parts import FilePart
from engine_assistant.model.views import Thread, View

__all__ = [
    "Compaction",
    "History",
    "HistoryAssistant",
    "HistoryCall",
    "HistoryMessage",
    "HistoryNote",
    "HistoryResult",
    "HistorySummary",
    "HistoryTool",
    "HistoryUser",
    "ResultStatus",
    "SeededThread",
]


class ResultStatus(StrEnum):
    """What a model is told of a call that it proposed."""

    OUTPUT = "output"
    ERROR = "error"
    DENIED = "denied"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    PENDING = "pending"


class HistoryCall(View):
    """A call as the model proposed it. `provider_call_id` is a label; models reuse theirs."""

    call_id: str
    provider_call_id: str | None
    tool: str
    input: Json


class HistoryResult(View):
    """What came of a call, or that nothing has yet.

    Attributes:
        call_id: which call.
        tool: its tool.
        status: what kind of result it is.
        output: what the tool returned, when the status is `output`.
        code: a word for programs: the tool's own for `error`, else the status. None for `output`.
        message: one sentence for the model: the tool's own for `error`. None for `output`.
        reason: what a person gave as a reason, or by what the engine closed the call.
    """

    call_id: str
    tool: str
    status: ResultStatus
    output: Json = None
    code: str | None = None
    message: str | None = None
    reason: str | None = None


class _Ranged(View):
    """Something made of the events `from_seq` to `to_seq`."""

    from_seq: int
    to_seq: int


class HistoryUser(_Ranged):
    """What the person said."""

    role: Literal["user"] = "user"
    turn: int
    text: str
    files: tuple[FilePart, ...] = ()


class HistoryAssistant(_Ranged):
    """One answer of the model: what it said, and what it asked for. Never both empty."""

    role: Literal["assistant"] = "assistant"
    turn: int
    text: str
    calls: tuple[HistoryCall, ...] = ()


class HistoryTool(_Ranged):
    """The results of the answer before it: one for each of its calls, in their order."""

    role: Literal["tool"] = "tool"
    turn: int
    results: tuple[HistoryResult, ...]


class HistorySummary(_Ranged):
    """What stands for all that was said in its range."""

    role: Literal["summary"] = "summary"
    text: str


class HistoryNote(_Ranged):
    """A result that came when the model had been told another one. It replaces nothing."""

    role: Literal["note"] = "note"
    turn: int
    result: HistoryResult


HistoryMessage = Annotated[
    HistoryUser | HistoryAssistant | HistoryTool | HistorySummary | HistoryNote,
    Field(discriminator="role"),
]
"""Any message of a history."""


class History(View):
    """Messages in the order in which a model reads them.

    Attributes:
        messages: the messages.
        head_seq: the number of the newest event that they were made from.
        omitted: how many of the oldest turns were left out to keep to the budget.
    """

    messages: tuple[HistoryMessage, ...]
    head_seq: int
    omitted: int

    def within(self, from_seq: int, to_seq: int) -> tuple[HistoryMessage, ...]:
        """Return the messages that a compaction of this range would stand for.

        A message that was taken while tools ran stands behind their results and lies in the range
        of both. So summarise what this returns, not what stands at some place in the list.
        """
        return tuple(
            message
            for message in self.messages
            if from_seq <= message.from_seq and message.to_seq <= to_seq
        )


class Compaction(View):
    """A summary that stands for a range of events.

    Attributes:
        n: from 1, in the order in which they were made.
        from_seq: the first event of the range.
        to_seq: the last one.
        summary: the text.
        covered_by: the later one that stands for this one too; None: a history shows this one.
        created_at: when it was made.
        duplicate: the very same had been made before; this is its answer.
    """

    n: int
    from_seq: int
    to_seq: int
    summary: str
    covered_by: int | None
    created_at: Time
    duplicate: bool = False


class SeededThread(Thread):
    """A thread that began with messages. `duplicate`: this key had made it before."""

    duplicate: bool = False
