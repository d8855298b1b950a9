"""What was said before this run, as the loop takes it: from the record, and nowhere else.

The record tells its history without the shape of a provider. Of the turn that is open, the private
context holds the model's own messages, so that its provider gets them back as it wrote them. Their
calls and results are still those of the record.

Two things of an open turn are not told to the model as history:

* an answer without a call, because an answer that came to its end without one ends its turn: this
  one broke off, and the model is asked again;
* the calls of the newest answer that wait, or may have run: the gate looks at each of them first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine_assistant import arguments_digest
from engine_assistant.host.messages import (
    AssistantMessage,
    Block,
    JsonValue,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from engine_assistant.model.codec import dumps
from engine_assistant.model.parts import FilePart
from engine_assistant.model.views import CallView, Thread
from engine_assistant.model.views.history import (
    History,
    HistoryAssistant,
    HistoryCall,
    HistoryMessage,
    HistoryNote,
    HistoryResult,
    HistorySummary,
    HistoryTool,
    HistoryUser,
    ResultStatus,
)

__all__ = ["Asked", "Left", "Past", "asked", "has_answered", "said", "tell", "undecided"]

Asked = tuple[str, str]
"""An operation, and the digest of its input: the very same thing is asked for again."""

_Ids = tuple[str, ...]

_UNDECIDED: Final = frozenset({ResultStatus.PENDING, ResultStatus.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Left:
    """A call of the newest answer without a final result: as it stands, and what is told of it."""

    view: CallView
    told: HistoryResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a run begins with.

    Attributes:
        messages: what the model is told. The last answer's calls that have no result here are
            those of `calls`.
        behind: what was said after them; it is told once they have one.
        calls: what an earlier run left behind, by call id.
        denied: what people have denied in this turn.
        answers: how many the model has given in this turn.
        kept: the model's own messages of this turn, private parts included.
        head_seq: the number of the newest event that this was made from.
    """

    messages: tuple[Message, ...] = field(repr=False)
    behind: tuple[UserMessage, ...] = field(repr=False)
    calls: Mapping[str, Left]
    denied: frozenset[Asked]
    answers: int
    kept: tuple[AssistantMessage, ...] = field(repr=False)
    head_seq: int


def asked(tool: str, input: JsonValue) -> Asked:
    """Return what a call asks for."""
    return tool, arguments_digest(input)


def undecided(history: History, thread: Thread) -> list[HistoryResult]:
    """Return what is told of calls of the open turn's newest answer that have no final result."""
    for message in reversed(history.messages):
        if isinstance(message, HistoryAssistant):
            return []
        if isinstance(message, HistoryTool):
            results = message.results if message.turn == thread.turn else ()
            return [result for result in results if result.status in _UNDECIDED]
    return []


def has_answered(history: History, thread: Thread) -> bool:
    """Return whether the model has asked for something in the open turn."""
    return any(
        isinstance(one, HistoryAssistant) and one.turn == thread.turn and one.calls
        for one in history.messages
    )


def tell(
    history: History,
    thread: Thread,
    calls: Mapping[str, Left],
    kept: Sequence[AssistantMessage],
) -> Past:
    """Return the past of a turn.

    Args:
        history: all of it, from the record.
        thread: as it stands.
        calls: those of `undecided`.
        kept: what the private context holds.
    """
    turn = [one for one in history.messages if _in_turn(one, thread)]
    answers = [one for one in turn if isinstance(one, HistoryAssistant)]
    own = _own(answers, kept)
    messages: list[Message] = []
    for one in history.messages:
        if not isinstance(one, HistoryAssistant) or not _in_turn(one, thread):
            messages += _told(one, calls)
        elif one.calls:
            messages.append(own[_ids(one.calls)])
    behind = _behind(messages) if calls else ()
    return Past(
        messages=tuple(messages[: len(messages) - len(behind)]),
        behind=behind,
        calls=calls,
        denied=_denied(turn, answers),
        answers=len(answers),
        kept=tuple(own.values()),
        head_seq=history.head_seq,
    )


def said(text: str, files: Sequence[FilePart] | None) -> UserMessage:
    """Return what the person said, with the files that came with it named."""
    names = [
        f"[file {file.id}: {file.filename}, {file.content_type}, {file.size} bytes]"
        for file in files or ()
    ]
    return UserMessage("\n".join([text, *names]))


def _in_turn(one: HistoryMessage, thread: Thread) -> bool:
    return not isinstance(one, HistorySummary) and one.turn == thread.turn


def _told(one: HistoryMessage, calls: Mapping[str, Left]) -> list[Message]:
    """Return a message of the record as the model is told it; results of open calls are not."""
    match one:
        case HistoryUser(text=text, files=files):
            return [said(text, files)]
        case HistoryAssistant():
            return [_answer(one)]
        case HistoryTool(results=results):
            told = tuple(_result(result) for result in results if result.call_id not in calls)
            return [ToolMessage(told)] if told else []
        case HistorySummary(text=text):
            return [UserMessage(f"[What was said before, in short]\n{text}")]
        case HistoryNote(result=result):
            what = f"[The call {result.call_id} of {result.tool} has this result by now]"
            return [UserMessage(f"{what}\n{dumps(_result(result).output)}")]


def _answer(one: HistoryAssistant) -> AssistantMessage:
    text: list[Block] = [Text(one.text)] if one.text else []
    calls = [
        ToolCall(
            tool=call.tool,
            input=call.input,
            provider_call_id=call.provider_call_id,
            call_id=call.call_id,
        )
        for call in one.calls
    ]
    return AssistantMessage((*text, *calls))


def _own(
    answers: Sequence[HistoryAssistant], kept: Sequence[AssistantMessage]
) -> dict[_Ids, AssistantMessage]:
    """Return the answers that have calls as the model wrote them, where that was kept."""
    private = {_ids(message.calls): message for message in kept}
    own: dict[_Ids, AssistantMessage] = {}
    for one in answers:
        if one.calls:
            ids = _ids(one.calls)
            own[ids] = _with_private(_answer(one), private.get(ids))
    return own


def _with_private(public: AssistantMessage, kept: AssistantMessage | None) -> AssistantMessage:
    """Return the message as the model wrote it, with its calls as the record has them."""
    if kept is None:
        return public
    calls = {call.call_id: call for call in public.calls}
    content = [calls[b.call_id] if isinstance(b, ToolCall) else b for b in kept.content]
    return replace(kept, content=tuple(content))


def _ids(calls: Sequence[ToolCall | HistoryCall]) -> _Ids:
    return tuple(call.call_id for call in calls)


def _denied(
    turn: Sequence[HistoryMessage], answers: Sequence[HistoryAssistant]
) -> frozenset[Asked]:
    calls = {call.call_id: call for one in answers for call in one.calls}
    denied = [
        calls[result.call_id]
        for one in turn
        if isinstance(one, HistoryTool)
        for result in one.results
        if result.status is ResultStatus.DENIED
    ]
    return frozenset(asked(call.tool, call.input) for call in denied)


def _result(result: HistoryResult) -> ToolResult:
    if result.status is ResultStatus.OUTPUT:
        return ToolResult(result.call_id, result.output)
    told: dict[str, JsonValue] = {"code": result.code, "message": result.message}
    if result.reason is not None:
        told["reason"] = result.reason
    return ToolResult(result.call_id, told, is_error=True)


def _behind(messages: Sequence[Message]) -> tuple[UserMessage, ...]:
    """Return what was said after the newest answer and its results."""
    found: list[UserMessage] = []
    for message in reversed(messages):
        if not isinstance(message, UserMessage):
            break
        found.append(message)
    return tuple(reversed(found))
