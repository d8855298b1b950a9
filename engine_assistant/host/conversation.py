"""What a conversation is given, and what comes of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from engine_assistant.host.execution import BatchTools, Step, Tools
from engine_assistant.host.hooks import Hooks
from engine_assistant.host.messages import Message, ToolCall, open_calls
from engine_assistant.host.model import Model, ModelResult
from engine_assistant.host.observing import HostObserver
from engine_assistant.host.whose import ThreadRef

__all__ = ["MAX_STEPS", "Conversation", "Outcome", "Status", "System"]

MAX_STEPS: Final = 12
"""Requests to the model that one conversation may take, unless the host says otherwise."""

System: TypeAlias = str | Callable[[Step], Awaitable[str | None]]
"""What the model is told beside the messages, or who is asked for it before each request."""


class Status(StrEnum):
    """How a conversation ended: the reason that a `turn-finish` takes."""

    DONE = "done"
    REFUSED = "refused"
    """The model declined. Its words were kept like any reply."""
    AWAITING_APPROVAL = "awaiting-approval"
    MAX_TOKENS = "max-tokens"
    """The answer was cut at its longest. Nothing of it was kept or run."""
    LIMIT = "limit"
    """The steps were used up, or the model called where it had to speak."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a conversation ended.

    Attributes:
        status: why it ended.
        steps: the requests that were made.
        result: the last answer, private parts included; None if none came.
        messages: the conversation as it would be continued, private parts included.
        awaiting: the calls that wait for approval.
    """

    status: Status
    steps: int
    result: ModelResult | None = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)
    awaiting: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What one conversation is given.

    Attributes:
        model: whom to ask.
        messages: what was said so far. Copied, never changed.
        tools: what the model may call, and how calls are run.
        system: what the model is told beside it.
        settings: handed to the model's client. They override nothing that the loop decides.
        max_steps: requests at most. The last of them forbids tools.
        hooks: what the host adds.
        interrupt: set it to stop. The model is not listened to any longer; a tool that runs is left
            to finish and its result is kept; then the status is `interrupted`.
        observer: looks on, at each request and at each tool that a registry runs.
        thread: for whom it is, as hooks, `system` and tools are told.
        resume: run the calls at the end of `messages` that have no result. Never give it with a
            history that came from a client.

    Raises:
        ValueError, TypeError: it can never work.
    """

    model: Model
    messages: Sequence[Message]
    tools: Tools | BatchTools | None = None
    system: System | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    max_steps: int = MAX_STEPS
    hooks: Hooks = field(default_factory=Hooks)
    interrupt: asyncio.Event | None = None
    observer: HostObserver | None = None
    thread: ThreadRef | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        """Refuse what can never work, before anything is asked."""
        if not self.messages:
            raise ValueError("a conversation needs at least one message")
        if type(self.max_steps) is not int or self.max_steps < 1:
            raise ValueError("max_steps must be an int of at least 1")
        one_by_one, together = isinstance(self.tools, Tools), isinstance(self.tools, BatchTools)
        if self.tools is not None and one_by_one is together:
            raise TypeError("tools must have execute or execute_all, and not both")
        if not self.resume and open_calls(self.messages):
            raise ValueError("calls are left without a result: give resume=True to run them")
