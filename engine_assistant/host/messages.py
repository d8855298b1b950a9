"""The messages of a conversation, whichever model reads them.

A conversation is a list of what the person said, what the assistant said and asked for, and what
the tools answered. `MESSAGES` writes and reads them as plain JSON.

Two things in an assistant's message are private: its reasoning, and the state that only its
provider reads. They are given back to the model while the turn is open.
`AssistantMessage.public` is the message without them: what may be kept and shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.ids import new_id

__all__ = [
    "MESSAGES",
    "AssistantMessage",
    "Block",
    "JsonValue",
    "Message",
    "ProviderState",
    "Reasoning",
    "Text",
    "ToolCall",
    "ToolMessage",
    "ToolResult",
    "UserMessage",
    "open_calls",
]


@dataclass(frozen=True, slots=True)
class Text:
    """What the assistant said."""

    text: str = field(repr=False)
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought, as far as its provider tells. Private."""

    text: str = field(repr=False)
    type: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One use of a tool that the model asks for.

    Attributes:
        tool: the tool's name, as the model wrote it.
        input: the arguments. What is no JSON object at all stands here as the text it was.
        provider_call_id: the model's own id, a label: models reuse theirs.
        call_id: ours. Minted here, unless the call comes out of a record.
    """

    tool: str
    input: JsonValue = field(repr=False)
    provider_call_id: str | None = None
    call_id: str = field(default_factory=new_id)
    type: Literal["tool-call"] = "tool-call"


Block: TypeAlias = Text | Reasoning | ToolCall


@dataclass(frozen=True, slots=True)
class ProviderState:
    """A message as its provider needs it back. Private, and opaque to everybody else.

    Attributes:
        format: who can read `data`, with the version of the form.
        provider: who made it; nobody else is given it.
        data: JSON text.
    """

    format: str
    provider: str
    data: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the person said."""

    text: str = field(repr=False)
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the assistant said and asked for, in its order."""

    content: tuple[Annotated[Block, Field(discriminator="type")], ...]
    state: ProviderState | None = field(default=None, repr=False)
    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        """What was said, joined."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in their order."""
        return tuple(block for block in self.content if isinstance(block, ToolCall))

    def public(self) -> "AssistantMessage":
        """Return the message without reasoning and provider state."""
        shown = tuple(block for block in self.content if not isinstance(block, Reasoning))
        return replace(self, content=shown, state=None)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What became of one call. Of an error, `output` is an object with its `code` and `message`."""

    call_id: str
    output: JsonValue = field(repr=False)
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """Results of calls of the assistant's message before it."""

    results: tuple[ToolResult, ...]
    role: Literal["tool"] = "tool"


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage

MESSAGES: Final[TypeAdapter[list[Message]]] = TypeAdapter(
    list[Annotated[Message, Field(discriminator="role")]]
)
"""Writes messages as plain JSON and reads them, private parts included."""


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls at the end of a conversation that have no result yet, in their order.

    Once the person has said something else, a call that was left without a result stays so.
    """
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.update(result.call_id for result in message.results)
        elif isinstance(message, AssistantMessage):
            return tuple(call for call in message.calls if call.call_id not in answered)
        else:
            break
    return ()
