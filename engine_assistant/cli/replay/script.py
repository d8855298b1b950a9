"""What a recorded conversation is to become: turns, and what each message adds to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.events import Known, body_of
from engine_assistant.model.limits import LIMITS

__all__ = ["Broken", "Call", "Conversation", "Entry", "Turn", "batches"]

# So many events of the largest size fit into a batch: smaller ones need no measuring.
_SURELY_FIT: Final = LIMITS.batch_bytes // LIMITS.event_bytes


class Broken(Exception):
    """A conversation cannot be recorded as it stands. The text says where and why, no content."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call.

    Attributes:
        call_id: ours, by position: models give the same id again within a conversation.
        tool: its name.
        input: what it was called with.
        answered: whether a tool message brought a result.
        output: that result.
    """

    call_id: str
    tool: str
    input: JsonValue
    answered: bool = False
    output: JsonValue = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What one message adds to a turn: its events are kept in one transaction, or not at all."""

    events: tuple[Known, ...]
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A person's message, and everything until the next one."""

    key: str
    text: str
    entries: tuple[Entry, ...]

    @property
    def reason(self) -> Literal["done", "interrupted"]:
        """How the turn ends: a person who got no answer was interrupted."""
        answers = any(event.type == "step-start" for e in self.entries for event in e.events)
        return "done" if answers else "interrupted"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, checked as a whole."""

    id: str
    messages: int
    turns: tuple[Turn, ...]

    @property
    def calls(self) -> Iterator[Call]:
        """Every tool call, in order."""
        return (call for turn in self.turns for entry in turn.entries for call in entry.calls)


def batches(events: Sequence[Known]) -> Iterator[Sequence[Known]]:
    """Cut events into batches that the engine admits, the same way every time."""
    if len(events) <= _SURELY_FIT:
        yield events
        return
    start = size = 0
    for index, event in enumerate(events):
        length = len(body_of(event).encode())
        if index - start == LIMITS.batch_events or size + length > LIMITS.batch_bytes:
            yield events[start:index]
            start, size = index, 0
        size += length
    yield events[start:]
