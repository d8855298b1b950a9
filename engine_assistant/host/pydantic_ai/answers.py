"""An answer of pydantic-ai, as our events and our result."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.usage import RequestUsage

from engine_assistant.host.messages import (
    AssistantMessage,
    Block,
    JsonValue,
    Reasoning,
    Text,
    ToolCall,
)
from engine_assistant.host.model import (
    ModelEvent,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallStarted,
    ToolInputDelta,
    Usage,
)
from engine_assistant.host.pydantic_ai.requests import state_of
from engine_assistant.model.codec import JsonRefused, loads
from engine_assistant.model.ids import new_id
from engine_assistant.model.limits import LIMITS

__all__ = ["Listener", "refusal_of", "stop_reason", "usage_of"]

_STOPS: Final = {
    "stop": StopReason.END_TURN,
    "tool_call": StopReason.TOOL_CALL,
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
_PAUSED: Final = "paused"


class Listener:
    """Hears one answer. It mints the id of a call when the model begins to write it."""

    def __init__(self) -> None:
        self._call_ids: dict[int, str] = {}

    def hear(self, event: ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        """Tell an event in our words; most that are about parts of the provider's own are none."""
        match event:
            case PartStartEvent(part=TextPart(content=str(text))) if text:
                yield TextDelta(text=text)
            case PartStartEvent(part=ThinkingPart(content=str(text))) if text:
                yield ReasoningDelta(text=text)
            case PartStartEvent(index=index, part=ToolCallPart(tool_name=tool, args=args)):
                call_id = self._call_ids.setdefault(index, new_id())
                yield ToolCallStarted(call_id, tool)
                yield from _input_delta(call_id, args)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                yield TextDelta(text=text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))) if text:
                yield ReasoningDelta(text=text)
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=args)):
                if index in self._call_ids:
                    yield from _input_delta(self._call_ids[index], args)

    def message(self, response: ModelResponse, provider: str) -> AssistantMessage:
        """Return all that was said."""
        minted = [call_id for _, call_id in sorted(self._call_ids.items())]
        blocks: list[Block] = []
        for part in response.parts:
            if isinstance(part, TextPart) and part.content:
                blocks.append(Text(part.content))
            elif isinstance(part, ThinkingPart) and part.content:
                blocks.append(Reasoning(part.content))
            elif isinstance(part, ToolCallPart):
                blocks.append(_call(part, minted.pop(0) if minted else new_id()))
        if refused := refusal_of(response):
            blocks.append(Text(refused))
        return AssistantMessage(tuple(blocks), state_of(response, provider))


def refusal_of(response: ModelResponse) -> str | None:
    """Return what a model said that declined in a place of its own, and in no other."""
    if any(isinstance(part, TextPart) and part.content for part in response.parts):
        return None
    said: object = (response.provider_details or {}).get("refusal")
    return said if isinstance(said, str) and said else None


def stop_reason(response: ModelResponse, *, required: bool) -> str | None:
    """Return why the model stopped; None if its provider gave no reason and one is `required`.

    A stream that was cut at the right place looks like one that ended: only the reason tells them
    apart. Whether it stopped for calls is read from the calls: some providers say only that they
    came to their end.
    """
    if response.state == "suspended":
        return _PAUSED
    given: object = (response.provider_details or {}).get("finish_reason")
    reason = response.finish_reason
    if reason in ("length", "content_filter"):
        return _STOPS[reason]
    if response.state != "complete" or (required and not given):
        return None
    if reason is None and given:
        return str(given)
    if reason == "error":
        return reason
    if any(isinstance(part, ToolCallPart) for part in response.parts):
        return StopReason.TOOL_CALL
    if given == StopReason.STOP_SEQUENCE:
        return StopReason.STOP_SEQUENCE
    return _STOPS[reason or "stop"]


def usage_of(usage: RequestUsage) -> Usage | None:
    """Return the tokens that the provider reported, or None if it reported none."""
    if usage.unmeasured_requests or not usage.total_tokens:
        return None
    return Usage.reported(
        input=usage.input_tokens,
        output=usage.output_tokens,
        reasoning=usage.output_reasoning_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
    )


def _input_delta(call_id: str, args: str | Mapping[str, object] | None) -> Iterator[ModelEvent]:
    if args:
        yield ToolInputDelta(call_id, args if isinstance(args, str) else json.dumps(args))


def _call(part: ToolCallPart, call_id: str) -> ToolCall:
    label = part.tool_call_id
    return ToolCall(
        tool=part.tool_name if _fits(part.tool_name) else "unknown",
        input=_input(part.args),
        provider_call_id=label if _fits(label) else None,
        call_id=call_id,
    )


def _input(args: str | Mapping[str, object] | None) -> JsonValue:
    """Read the arguments strictly. What is no JSON stays the text it was: no tool will take it."""
    text = args if isinstance(args, str) else json.dumps(args or {})
    try:
        return loads(text or "{}")
    except JsonRefused:
        return text.encode(errors="replace").decode()


def _fits(label: str) -> bool:
    """Whether a record can hold it as a name."""
    return 0 < len(label.encode(errors="replace")) <= LIMITS.id_bytes and "\0" not in label
