"""What was said, as OpenTelemetry's conventions write it: for hosts that want it in spans."""

from collections.abc import Sequence

from engine_assistant.host.messages import (
    AssistantMessage,
    JsonValue,
    Message,
    Text,
    ToolCall,
    UserMessage,
)
from engine_assistant.host.model import ModelResult
from engine_assistant.model.codec import JsonRefused, dumps

__all__ = ["answer_of", "instructions_of", "messages_of", "written"]


def written(value: JsonValue) -> str | None:
    """Return a value as JSON text, or None if it cannot be written."""
    try:
        # What is exported is UTF-8, which has no lone surrogate.
        return dumps(value).encode(errors="replace").decode()
    except JsonRefused:
        return None


def messages_of(messages: Sequence[Message]) -> str | None:
    """Return what the model was told."""
    return written([{"role": one.role, "parts": _parts(one)} for one in messages])


def instructions_of(system: str | None) -> str | None:
    """Return what it was told beside the conversation."""
    return None if system is None else written([_text(system)])


def answer_of(result: ModelResult) -> str | None:
    """Return what it answered."""
    message = result.message
    told: dict[str, JsonValue] = {"role": message.role, "parts": _parts(message)}
    if result.stop_reason is not None:
        told["finish_reason"] = result.stop_reason
    return written([told])


def _parts(message: Message) -> list[JsonValue]:
    if isinstance(message, UserMessage):
        return [_text(message.text)]
    if isinstance(message, AssistantMessage):
        return [
            _text(block.text) if isinstance(block, Text) else _call(block)
            for block in message.content
            if isinstance(block, Text | ToolCall)
        ]
    return [
        {"type": "tool_call_response", "id": one.call_id, "response": one.output}
        for one in message.results
    ]


def _text(text: str) -> dict[str, JsonValue]:
    return {"type": "text", "content": text}


def _call(call: ToolCall) -> dict[str, JsonValue]:
    return {"type": "tool_call", "id": call.call_id, "name": call.tool, "arguments": call.input}
