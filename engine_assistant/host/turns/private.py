"""The private context of a turn: the model's own messages, kept where nobody reads them.

They hold what only their provider can use again, so that a turn which rests for days, or moves to
another process, goes on as if nothing had happened. The record forgets them with the turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from engine_assistant.host.messages import AssistantMessage, Reasoning

__all__ = ["is_private", "pack", "unpack"]


@dataclass(frozen=True, slots=True)
class _Kept:
    messages: tuple[AssistantMessage, ...]
    format: Literal["engine-assistant/turn/1"] = "engine-assistant/turn/1"


_KEPT: Final = TypeAdapter(_Kept)


def is_private(message: AssistantMessage) -> bool:
    """Return whether the record alone could not tell this message to its provider again."""
    return message.state is not None or any(isinstance(b, Reasoning) for b in message.content)


def pack(messages: Sequence[AssistantMessage], most: int) -> str:
    """Return the messages as text of at most so many bytes. The oldest are left out first."""
    for first in range(len(messages)):
        written = _KEPT.dump_json(_Kept(tuple(messages[first:])))
        if len(written) <= most:
            return written.decode()
    return _KEPT.dump_json(_Kept(())).decode()


def unpack(text: str | None) -> tuple[AssistantMessage, ...]:
    """Return the messages. What cannot be read, as after another release, is not there."""
    try:
        return _KEPT.validate_json(text or "").messages
    except ValidationError:
        return ()
