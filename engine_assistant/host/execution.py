"""Between the loop and the tools: what a step is, and what may come of a call."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from engine_assistant.host.messages import JsonValue, Message, ToolCall, ToolResult
from engine_assistant.host.model import ModelResult, ToolDefinition
from engine_assistant.host.observing import HostObserver
from engine_assistant.host.whose import ThreadRef
from engine_assistant.model.events import Data, ToolProgress
from engine_assistant.model.limits import LIMITS

__all__ = [
    "AwaitingApproval",
    "BatchTools",
    "Data",
    "HostEvent",
    "Masking",
    "Step",
    "ToolFailed",
    "ToolOutcome",
    "ToolProgress",
    "ToolReturned",
    "Tools",
    "fitting",
    "result_of",
]

HostEvent: TypeAlias = ToolProgress | Data
"""What a host and its tools tell beside the model."""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """The tool ran. `force_text`: the model must answer in text next."""

    output: JsonValue = field(repr=False)
    force_text: bool = False


@dataclass(frozen=True, slots=True)
class ToolFailed:
    """The tool did not run, or failed. `code` is for programs, `message` is read by the model.

    Both are cut to what a `tool-error` holds.
    """

    code: str
    message: str
    force_text: bool = False

    def __post_init__(self) -> None:
        """Make it fit, whoever wrote it: the result of a call must never be lost to its length."""
        object.__setattr__(self, "code", fitting(self.code, LIMITS.id_bytes))
        object.__setattr__(self, "message", fitting(self.message, LIMITS.reason_bytes))


@dataclass(frozen=True, slots=True)
class AwaitingApproval:
    """Somebody was asked. The call has no result, and the conversation rests."""


ToolOutcome: TypeAlias = ToolReturned | ToolFailed | AwaitingApproval


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request to the model and what follows from it, as callbacks see it.

    `messages` and `result` hold private parts of the model's answers: neither may be kept or shown
    as a transcript.

    Attributes:
        number: from 1; 0 while calls that an earlier run left open are answered.
        text_only: whether this request forbids tools.
        messages: the conversation so far.
        emit: tells a host event to whoever listens. Await it before you go on.
        observer: who looks on, if anybody does. `ToolRegistry.run` tells them of each tool.
        thread: for whom this is, if a record keeps it.
        result: the model's answer, once it has ended.
        calls: the calls whose results are handed over.
        outcomes: what came of them, in the same order.
    """

    number: int
    text_only: bool
    messages: tuple[Message, ...] = field(repr=False)
    emit: Callable[[HostEvent], Awaitable[None]] = field(repr=False)
    observer: HostObserver | None = field(default=None, repr=False)
    thread: ThreadRef | None = None
    result: ModelResult | None = field(default=None, repr=False)
    calls: tuple[ToolCall, ...] = ()
    outcomes: tuple[ToolOutcome, ...] = ()


@runtime_checkable
class Tools(Protocol):
    """The tools of a conversation, run one call after the other. `ToolRegistry` is one."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What the model is told of them."""
        ...

    def bind(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that would run: validated, with defaults filled in.

        Asked once for each call, before anything is kept. What it returns is kept, shown, approved
        and run. A call that cannot run comes back as it is; `execute` will say why.
        """
        ...

    async def execute(self, call: ToolCall, step: Step) -> ToolOutcome:
        """Run one call. It is the host's to check permissions here, and to ask for approval.

        What this raises ends the conversation; results that were handed over before remain.
        """
        ...


@runtime_checkable
class BatchTools(Protocol):
    """The same, for a host that runs all calls of an answer together.

    The loop gives no atomicity: authorisation, transactions and claims are the host's.
    """

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What the model is told of them."""
        ...

    def bind(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that would run, as `Tools.bind` does."""
        ...

    async def execute_all(self, calls: Sequence[ToolCall], step: Step) -> Sequence[ToolOutcome]:
        """Run the calls of one answer. Return one outcome for each, in their order."""
        ...


@runtime_checkable
class Masking(Protocol):
    """Tools that know what of their arguments nobody who looks on may see."""

    def masked(self, call: ToolCall) -> ToolCall:
        """Return the call as people may see it."""
        ...


def result_of(call_id: str, outcome: ToolReturned | ToolFailed) -> ToolResult:
    """Return what the model reads about a call that ended."""
    if isinstance(outcome, ToolReturned):
        return ToolResult(call_id, outcome.output)
    told: JsonValue = {"code": outcome.code, "message": outcome.message}
    return ToolResult(call_id, told, is_error=True)


def fitting(text: str, most: int) -> str:
    """Return a text as a column holds it: at most so many bytes, no NUL, not empty."""
    whole = text.replace("\0", "").encode(errors="replace")
    return whole[:most].decode(errors="ignore") or "unknown"
