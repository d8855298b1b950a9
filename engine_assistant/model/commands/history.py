"""What is asked about the model's view of a thread: its history, summaries, first messages."""

from typing import Literal, Self

from pydantic import ValidationInfo, model_validator

from engine_assistant.model.commands import Command, Cursor, OnThread, Rows
from engine_assistant.model.events import SeededMessage, body_of
from engine_assistant.model.fields import (
    Count,
    Id,
    Message,
    Natural,
    Summary,
    Title,
    bounds_of,
    stored_bytes,
)

__all__ = ["Compact", "ListCompactions", "ReadHistory", "Seed", "SeedThread"]


class ReadHistory(OnThread):
    """Read what a model is told of a thread."""

    budget: Count | None = None


class Compact(OnThread):
    """Let a summary stand for a range of events."""

    from_seq: Count
    to_seq: Count
    summary: Summary
    expected_head: Natural

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.from_seq > self.to_seq:
            raise ValueError("from_seq must not be above to_seq")
        return self


class ListCompactions(OnThread):
    """Page through the summaries of a thread in the order in which they were made."""

    limit: Rows = 50
    cursor: Cursor | None = None


class Seed(Command):
    """One message that was said before the thread began."""

    role: Literal["user", "assistant"]
    text: Message


class SeedThread(Command):
    """Open a thread for a person with what was said before."""

    subject: Id
    key: Id
    messages: tuple[Seed, ...]
    title: Title | None = None

    @model_validator(mode="after")
    def _within_bounds(self, info: ValidationInfo) -> Self:
        limits = bounds_of(info)
        if not 1 <= len(self.messages) <= limits.batch_events:
            raise ValueError(f"there must be 1 to {limits.batch_events} messages")
        sizes = [stored_bytes(body_of(event)) for event in self.events]
        if max(sizes) > limits.event_bytes:
            raise ValueError(f"a message must not take more than {limits.event_bytes} bytes")
        if sum(sizes) > limits.batch_bytes:
            raise ValueError(f"the messages must not take more than {limits.batch_bytes} bytes")
        return self

    @property
    def events(self) -> tuple[SeededMessage, ...]:
        """The messages as they will be recorded."""
        return tuple(SeededMessage(role=one.role, text=one.text) for one in self.messages)
