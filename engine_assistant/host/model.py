"""The port to a model: one request, a stream of events, exactly one result at its end.

A scripted model, a host's own client and the clients behind `PydanticAIModel` all fit it. Retrying,
authentication and the form of the wire are the client's business; the conversation adds none of it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from engine_assistant.host.messages import AssistantMessage, JsonValue, Message
from engine_assistant.model.events import ReasoningDelta, TextDelta
from engine_assistant.model.usage import Cost, Figure, Provenance, Usage

__all__ = [
    "Cost",
    "Figure",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "ModelResult",
    "NamedModel",
    "Provenance",
    "ReasoningDelta",
    "StopReason",
    "TextDelta",
    "ToolCallStarted",
    "ToolDefinition",
    "ToolInputDelta",
    "Usage",
]


class StopReason(StrEnum):
    """Why a model stopped. Only the first four are an end of its answer."""

    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    REFUSAL = "refusal"
    TOOL_CALL = "tool_call"
    MAX_TOKENS = "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """What the model is told of a tool. `schema` is the JSON Schema of its input."""

    name: str
    description: str
    schema: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request.

    Attributes:
        messages: the conversation so far, private parts included.
        system: what the host tells the model beside it.
        tools: always all of them, whatever `text_only` says, so that the prompt stays the same.
        text_only: the model must answer in text and call nothing.
        settings: handed to the client as they are. They never override the other fields.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolDefinition, ...] = ()
    text_only: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The model began to write a call. For display: nothing runs before the answer has ended."""

    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of a call's arguments, as text. For display."""

    call_id: str
    text: str = field(repr=False)


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallStarted | ToolInputDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """How an answer ended.

    Attributes:
        message: all that was said. Its text is exactly the text deltas, joined.
        stop_reason: a `StopReason`, or whatever else the provider gave; None if it gave none.
        usage: of this request alone; None if it was not told.
        error: the provider could not use a tool of its own, and says so in its answer.
    """

    message: AssistantMessage
    stop_reason: str | None
    usage: Usage | None = None
    error: Exception | None = None


class Model(Protocol):
    """A model, behind whichever client."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent | ModelResult]:
        """Ask the model. Yield what it says as it says it, and at last one `ModelResult`.

        An asynchronous generator is closed when the conversation ends early; closing must end the
        request. Raises `ModelFailed`, or whatever the client raises: nothing is retried here.
        """
        ...


@runtime_checkable
class NamedModel(Protocol):
    """A model that says who it is, for whoever looks on. Nothing else depends on it."""

    @property
    def provider(self) -> str:
        """Who serves it, in a word: `openai`."""
        ...

    @property
    def name(self) -> str:
        """What its provider calls it."""
        ...
