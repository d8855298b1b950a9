"""Our conversation, as the messages that pydantic-ai sends.

Within an open turn a message goes back exactly as its provider wrote it, from the state that was
kept beside it. Everywhere else, and to every other provider, it is built from what was said and
asked for, without reasoning. Either way each call is followed by exactly one result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic_ai import __version__
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as SentRequest

from engine_assistant.host.messages import (
    AssistantMessage,
    JsonValue,
    Message,
    ProviderState,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from engine_assistant.model.codec import dumps

__all__ = ["sent_messages", "state_of"]

_FORMAT: Final = f"pydantic-ai/{__version__.partition('.')[0]}"
"""Messages of another major version are not read: what they meant may have changed."""

_NO_RESULT: Final = "There is no result: the call was not run, or its end is not known."


def state_of(response: ModelResponse, provider: str) -> ProviderState:
    """Return a response as its provider will need it back."""
    data = ModelMessagesTypeAdapter.dump_json([response]).decode()
    return ProviderState(format=_FORMAT, provider=provider, data=data)


def sent_messages(messages: Sequence[Message], provider: str) -> list[ModelMessage]:
    """Return what is sent to a provider for these messages."""
    sent: list[ModelMessage] = []
    request = _Request()
    used: set[str] = set()
    for message in messages:
        match message:
            case UserMessage(text=text):
                request.prompts.append(text)
            case ToolMessage(results=results):
                request.results.update({result.call_id: result for result in results})
            case AssistantMessage():
                response, calls = _response(message, provider, used)
                if response.parts:
                    sent += [*request.sent(), response]
                    request = _Request(calls)
    return sent + request.sent()


@dataclass(slots=True)
class _Request:
    """What stands between two messages of the assistant: results first, then what was said.

    Attributes:
        asked: the calls of the message before: as they were sent, and our id of each.
        results: ours. One that answers none of the calls is not sent.
        prompts: what the person said.
    """

    asked: list[tuple[ToolCallPart, str]] = field(default_factory=list)
    results: dict[str, ToolResult] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)

    def sent(self) -> list[ModelMessage]:
        parts: list[ModelRequestPart] = [
            _returned(part, self.results.get(call_id)) for part, call_id in self.asked
        ]
        parts += [UserPromptPart(text) for text in self.prompts]
        return [SentRequest(parts=parts)] if parts else []


def _returned(part: ToolCallPart, result: ToolResult | None) -> ToolReturnPart:
    if result is None:
        return ToolReturnPart(
            part.tool_name, _NO_RESULT, tool_call_id=part.tool_call_id, outcome="interrupted"
        )
    match result:
        case ToolResult(is_error=True, output={"code": str(code), "message": str(message), **more}):
            reason = more.get("reason")
            told: JsonValue = f"{code}: {message}" + (f" Reason: {reason}" if reason else "")
        case _:
            told = result.output
    return ToolReturnPart(
        part.tool_name,
        told,
        tool_call_id=part.tool_call_id,
        outcome="failed" if result.is_error else "success",
    )


def _response(
    message: AssistantMessage, provider: str, used: set[str]
) -> tuple[ModelResponse, list[tuple[ToolCallPart, str]]]:
    """Return the message as it is sent, and its calls as they are sent, each with our id.

    Models reuse their ids; within one request each is used once.
    """
    response = _kept(message, provider) or _built(message)
    parts: list[ModelResponsePart] = []
    asked: list[tuple[ToolCallPart, str]] = []
    ours = iter(message.calls)
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            call = next(ours)
            if part.tool_call_id in used:
                part = replace(part, tool_call_id=call.call_id)  # noqa: PLW2901
            used.add(part.tool_call_id)
            asked.append((part, call.call_id))
        parts.append(part)
    return replace(response, parts=parts), asked


def _kept(message: AssistantMessage, provider: str) -> ModelResponse | None:
    """Return the message as this provider wrote it, if that was kept and can be read."""
    state = message.state
    if state is None or (state.format, state.provider) != (_FORMAT, provider):
        return None
    try:
        (response,) = ModelMessagesTypeAdapter.validate_json(state.data)
    except ValueError:
        return None
    if not isinstance(response, ModelResponse) or not response.parts:
        return None
    calls = sum(isinstance(part, ToolCallPart) for part in response.parts)
    return response if calls == len(message.calls) else None


def _built(message: AssistantMessage) -> ModelResponse:
    parts: list[ModelResponsePart] = []
    for block in message.content:
        if isinstance(block, Text):
            parts.append(TextPart(block.text))
        elif isinstance(block, ToolCall):
            # Text is what was no JSON: the model sees its own mistake.
            args = block.input if isinstance(block.input, str | dict) else dumps(block.input)
            parts.append(ToolCallPart(block.tool, args, tool_call_id=block.call_id))
    return ModelResponse(parts=parts)
